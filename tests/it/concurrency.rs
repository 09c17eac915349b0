//! Many at once: from separate processes, on one repository and one state directory.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use crate::ground::{Ground, Job, text};

#[test]
fn c21_f080_f149_heavy_sixty_four_runs_at_once_on_a_fresh_state_directory_all_succeed() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let config = std::fs::read(repository.git_dir().join("config")).unwrap();
    let jobs: Vec<Job> = (0..64)
        .map(|number| {
            let title = format!("task {number}");
            let options = ["--format", "json", "--title", &title];
            let script = "echo \"$GROUNDCREW_BRANCH\" >who; git add who; git commit -qm \"$GROUNDCREW_BRANCH\"";
            let call = ground.run_shell(&repository, &options, script);
            call.within(std::time::Duration::from_secs(150)).spawn()
        })
        .collect();
    let limit = std::time::Duration::from_secs(150);
    let runs: Vec<_> = jobs
        .into_iter()
        .map(|job| job.wait_within(limit).ok().json())
        .collect();
    let distinct = |name: &str| -> BTreeSet<_> {
        runs.iter().map(|run| text(&run[name]).to_owned()).collect()
    };
    for name in ["id", "branch", "workspace", "session"] {
        assert_eq!(distinct(name).len(), 64, "{name}");
    }
    for run in &runs {
        assert_eq!(run["state"], "exited");
        assert_eq!(run["commits"][0]["subject"], run["branch"]);
    }
    let mut branches: BTreeSet<_> = repository.branches().into_iter().collect();
    assert!(branches.remove("main"));
    assert_eq!(branches, distinct("branch"));
    assert_eq!(repository.locks(), [""; 0].map(std::path::PathBuf::from));
    assert_eq!(
        std::fs::read(repository.git_dir().join("config")).unwrap(),
        config
    );
    assert_eq!(ground.runs(false).len(), 64);
    ground.until_quiet();
}

/// Ends a neighbour, also where the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn c21_f080_f096_heavy_sixty_four_runs_at_once_beside_a_clean_up_of_the_repository_all_succeed() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let (stop, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let limit = std::time::Duration::from_secs(150);
    let runs: Vec<_> = std::thread::scope(|scope| {
        let stop = Stop(&stop);
        scope.spawn(|| {
            while !stop.0.load(Ordering::Relaxed) {
                // It may meet a lock, or an entry that is half made: then it tries again, as a person would.
                drop(repository.try_git(["gc", "-q", "--prune=now"]));
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        let jobs: Vec<Job> = (0..64)
            .map(|number| {
                let commit = "echo \"$GROUNDCREW_BRANCH\" >who; git add who; git commit -qm who";
                // In the repository itself such a clean-up takes what a commit has just written: no work is made there.
                let (kind, script): (&[&str], _) = match number % 4 {
                    0 => (&["--workspace", "clone"], commit),
                    1 => (&["--workspace", "clone", "--share-objects"], commit),
                    _ => (
                        &["--workspace", "worktree", "--keep"],
                        "cat f && test -z \"$(git status -s)\"",
                    ),
                };
                let options = [&["--format", "json"][..], kind].concat();
                ground
                    .run_shell(&repository, &options, script)
                    .within(limit)
                    .spawn()
            })
            .collect();
        let runs: Vec<_> = jobs
            .into_iter()
            .map(|job| job.wait_within(limit).ok().json())
            .collect();
        let jobs: Vec<Job> = runs
            .iter()
            .map(|run| {
                ground
                    .call(["close", text(&run["id"])])
                    .within(limit)
                    .spawn()
            })
            .collect();
        for job in jobs {
            job.wait_within(limit).ok();
        }
        runs
    });
    assert!(rounds.load(Ordering::Relaxed) > 2);
    let branches: BTreeSet<_> = repository.branches().into_iter().collect();
    assert_eq!(branches.len(), 65, "{branches:?}");
    // What a clone committed is on its branch, and whole.
    for run in &runs {
        let branch = text(&run["branch"]);
        assert!(branches.contains(branch));
        if run["commits"][0]["subject"] == "who" {
            assert_eq!(repository.git(["show", &format!("{branch}:who")]), branch);
        }
    }
    let made = runs
        .iter()
        .filter(|run| run["commits"][0]["subject"] == "who");
    assert_eq!(made.count(), 32);
    repository.git(["fsck", "--full", "--strict"]);
    assert_eq!(repository.locks(), [""; 0].map(std::path::PathBuf::from));
    ground.until_quiet();
}

#[test]
fn f151_heavy_of_sixty_four_runs_of_one_session_one_wins() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let options = ["--format", "json", "--detach", "--session", "same"];
    let jobs: Vec<Job> = (0..64)
        .map(|_| {
            let script = "echo one >>one; exec sleep 600";
            ground.run_shell(&repository, &options, script).spawn()
        })
        .collect();
    let limit = std::time::Duration::from_secs(150);
    let outcomes: Vec<_> = jobs.into_iter().map(|job| job.wait_within(limit)).collect();
    let (won, lost): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|o| o.code == Some(0));
    assert_eq!(won.len(), 1, "{won:#?}\n{lost:#?}");
    let id = text(&won[0].json()["id"]).to_owned();
    for outcome in lost {
        let outcome = outcome.code(125);
        let error = outcome.error();
        assert_eq!(error["kind"], "session_busy", "{outcome:?}");
        assert_eq!(error["context"]["session"], "same", "{outcome:?}");
        assert_eq!(error["context"]["run"], id.as_str(), "{outcome:?}");
    }
    assert_eq!(ground.runs(true).len(), 1);
    assert_eq!(repository.branches().len(), 2);
    assert_eq!(repository.worktree_entries().len(), 1);
    ground.call(["stop", "--grace", "0s", &id]).run().ok();
    ground.until_quiet();
}

#[test]
fn f129_a_session_with_a_kept_run_is_busy_and_named() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let options = ["--session", "mine", "--keep"];
    let run = ground.ran(&repository, &options, "true");
    let outcome = ground
        .run_shell(
            &repository,
            &["--format", "json", "--session", "mine"],
            "touch ran",
        )
        .run()
        .code(125);
    assert_eq!(outcome.error()["kind"], "session_busy");
    assert_eq!(outcome.error()["context"]["run"], run["id"]);
    ground.call(["rm", text(&run["id"])]).run().ok();
    ground.ran(&repository, &["--session", "mine"], "true");
}

#[test]
fn c16_many_writers_lose_no_record_of_each_other() {
    let ground = Ground::new();
    let jobs: Vec<Job> = (0..8)
        .map(|_| {
            ground
                .call(["--format", "json", "run", "--", "true"])
                .spawn()
        })
        .collect();
    let ids: BTreeSet<_> = jobs
        .into_iter()
        .map(|job| text(&job.wait().ok().json()["id"]).to_owned())
        .collect();
    let listed: BTreeSet<_> = ground
        .runs(true)
        .iter()
        .map(|run| text(&run["id"]).to_owned())
        .collect();
    assert_eq!(listed, ids);
    assert_eq!(ids.len(), 8);
}

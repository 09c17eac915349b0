//! Removal never loses work: what would be lost is kept and named.

use std::{fs, path::Path};

use serde_json::Value;

use crate::ground::{Ground, Job, Repository, path, text};

/// A run whose command left something.
struct Left<'a> {
    ground: &'a Ground,
    repository: &'a Repository,
    id: String,
    workspace: std::path::PathBuf,
    branch: String,
}

impl<'a> Left<'a> {
    fn by(ground: &'a Ground, repository: &'a Repository, script: &str) -> Self {
        let run = ground.ran(repository, &["--keep"], script);
        assert_eq!(run["exit_code"], 0, "{run:#}");
        Self {
            ground,
            repository,
            id: text(&run["id"]).to_owned(),
            workspace: path(&run["workspace"]),
            branch: text(&run["branch"]).to_owned(),
        }
    }

    /// Demands that removal refuses, names something, and touches nothing.
    fn refuses(&self, what: &str, named: &str) -> Value {
        let before = crate::ground::tree(&self.workspace, &|path| path != Path::new(".git"));
        let refs = self.repository.refs();
        let words = ["--format", "json", "rm", &self.id];
        let report = self.ground.call(words).run().code(4).json();
        assert_eq!(report["outcome"], "refused", "{report:#}");
        assert_eq!(report["id"], self.id.as_str());
        let findings: Vec<_> = report["kept"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|kept| kept["findings"].as_array().unwrap().clone())
            .collect();
        let finding = findings.iter().find(|finding| finding["what"] == what);
        let finding = finding.unwrap_or_else(|| panic!("no {what}: {report:#}"));
        assert!(finding.to_string().contains(named), "{named}: {report:#}");
        let told = report["kept"].as_array().unwrap().iter();
        let told = told.filter(|kept| text(&kept["why"]).contains(named));
        assert_ne!(told.count(), 0, "{named}: {report:#}");
        let after = crate::ground::tree(&self.workspace, &|path| path != Path::new(".git"));
        assert!(before == after, "something was touched: {report:#}");
        assert_eq!(self.repository.refs(), refs);
        // Neither does recovery.
        self.ground.recover();
        assert!(self.workspace.exists());
        report
    }

    /// Removes by force, and demands that a snapshot holds what would have been lost.
    fn forced(&self) -> Value {
        let words = ["--format", "json", "rm", "--force", &self.id];
        let report = self.ground.call(words).run().ok().json();
        assert_eq!(report["outcome"], "closed", "{report:#}");
        assert!(!self.workspace.exists(), "{report:#}");
        assert!(!self.repository.branches().contains(&self.branch));
        assert_eq!(self.repository.worktree_entries(), [""; 0]);
        report
    }

    /// Reads a file of the snapshot.
    fn saved(&self, report: &Value, name: &str) -> String {
        let snapshot = text(&report["snapshot"]);
        assert!(
            snapshot.starts_with("refs/groundcrew/snapshots/"),
            "{snapshot}"
        );
        self.repository.git(["show", &format!("{snapshot}:{name}")])
    }
}

#[test]
fn c01_modified_staged_untracked_and_new_directories_each_refuse() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    for (script, what, name) in [
        ("echo x >>f", "modified", "f"),
        ("rm f", "modified", "f"),
        ("chmod +x f", "modified", "f"),
        ("ln -sf /nowhere f", "modified", "f"),
        ("echo x >s; git add s", "staged", "s"),
        ("echo x >u", "untracked", "u"),
        ("mkdir d; echo x >d/e", "untracked", "d"),
        ("echo x >\"$(printf 'na\\357ve')\"", "untracked", "na"),
    ] {
        let left = Left::by(&ground, &repository, script);
        left.refuses(what, name);
        let report = left.forced();
        if name != "f" && name != "na" && name != "d" {
            assert_eq!(left.saved(&report, name), "x");
        }
    }
    assert_eq!(repository.branches(), ["main"]);
}

#[test]
fn c01_files_hidden_by_the_commands_own_ignore_rules_refuse() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let left = Left::by(
        &ground,
        &repository,
        "echo '*' >.gitignore; echo x >hidden; mkdir d; echo y >d/deep",
    );
    let report = left.refuses("untracked", "hidden");
    assert!(report.to_string().contains("d/"), "{report:#}");
    let report = left.forced();
    assert_eq!(left.saved(&report, "hidden"), "x");
    assert_eq!(left.saved(&report, "d/deep"), "y");
}

#[test]
fn c01_changes_behind_index_flags_refuse() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    for flag in ["--assume-unchanged", "--skip-worktree"] {
        let script = format!(
            "git update-index {flag} f; echo hidden >f; test -z \"$(git status --porcelain)\""
        );
        let left = Left::by(&ground, &repository, &script);
        left.refuses("modified", "f");
        let report = left.forced();
        assert_eq!(left.saved(&report, "f"), "hidden");
    }
}

#[test]
fn c01_a_change_of_the_same_size_and_time_refuses() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "touch -r f ../stamp; printf 'BASE\\n' >f; touch -r ../stamp f; rm ../stamp";
    let left = Left::by(&ground, &repository, script);
    left.refuses("modified", "f");
}

#[test]
fn c01_a_workspace_that_cannot_be_examined_refuses() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let left = Left::by(&ground, &repository, "echo x >u; mv .git .git.away");
    let words = ["--format", "json", "rm", &left.id];
    let report = ground.call(words).run();
    assert_ne!(report.code, Some(0), "{report:?}");
    assert_eq!(fs::read_to_string(left.workspace.join("u")).unwrap(), "x\n");
    assert!(left.workspace.join(".git.away").exists());
    fs::rename(
        left.workspace.join(".git.away"),
        left.workspace.join(".git"),
    )
    .unwrap();
    left.refuses("untracked", "u");
}

#[test]
fn c02_commits_that_nothing_else_holds_refuse() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let left = Left::by(
        &ground,
        &repository,
        "echo x >c; git add c; git commit -qm only-here",
    );
    let commit = repository.commit(&left.branch);
    left.refuses("commits", &commit[..7]);
    // Closing takes the workspace; the branch keeps the commit.
    let closed = ground
        .call(["--format", "json", "close", &left.id])
        .run()
        .ok()
        .json();
    assert_eq!(closed["outcome"], "closed", "{closed:#}");
    assert!(!left.workspace.exists());
    assert_eq!(repository.commit(&left.branch), commit);
}

#[test]
fn c02_commits_that_another_branch_holds_do_not_refuse() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let left = Left::by(
        &ground,
        &repository,
        "echo x >c; git add c; git commit -qm merged",
    );
    let commit = repository.commit(&left.branch);
    repository.git(["merge", "-q", "--ff-only", &left.branch]);
    ground.call(["rm", &left.id]).run().ok();
    assert!(!left.workspace.exists());
    assert_eq!(repository.branches(), ["main"]);
    assert_eq!(repository.commit("main"), commit);
}

#[test]
fn c02_a_detached_commit_refuses() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script =
        "git checkout -q --detach; echo x >>f; git commit -qam only-here; git rev-parse HEAD >&2";
    let left = Left::by(&ground, &repository, script);
    let commit = repository.git_in(&left.workspace, ["rev-parse", "HEAD"]);
    left.refuses("commits", &commit[..7]);
    let report = left.forced();
    let holders = repository.git(["for-each-ref", "--contains", &commit]);
    assert!(!holders.is_empty(), "{report:#}");
}

#[test]
fn c02_a_commit_only_in_the_reflog_refuses() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "echo x >c; git add c; git commit -qm lost; git rev-parse HEAD >../lost; git reset -q --hard HEAD~1";
    let left = Left::by(&ground, &repository, script);
    let stray = left.workspace.parent().unwrap().join("lost");
    let commit = fs::read_to_string(&stray).unwrap().trim().to_owned();
    fs::remove_file(&stray).unwrap();
    left.refuses("commits", &commit[..7]);
    left.forced();
    let holders = repository.git(["for-each-ref", "--contains", &commit]);
    assert!(!holders.is_empty());
}

#[test]
fn c02_an_unfinished_rebase_refuses() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "echo mine >f; git commit -qam mine; git checkout -q -b tmp HEAD~1; echo theirs >f; git commit -qam theirs; \
                  git checkout -q -; git rebase tmp >/dev/null 2>&1; git branch -D -q tmp; true";
    let left = Left::by(&ground, &repository, script);
    left.refuses("operation", "rebase");
}

#[test]
fn c01_ignored_files_alone_go_to_the_trash() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    repository.write(".gitignore", "target/\n");
    repository.commit_all("ignore");
    let left = Left::by(&ground, &repository, "mkdir target; echo built >target/out");
    ground.call(["rm", &left.id]).run().ok();
    assert!(!left.workspace.exists());
    let trash = crate::ground::tree(&ground.state().join("trash"), &|_| true);
    let kept = trash.iter().find(|(path, _)| path.ends_with("target/out"));
    assert_eq!(kept.unwrap().1.1, b"built\n");
}

#[test]
fn c01_two_removals_at_once_lose_nothing() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let dirty = Left::by(&ground, &repository, "echo x >u");
    let clean = Left::by(&ground, &repository, "true");
    let jobs: Vec<Job> = [&dirty, &dirty, &clean, &clean]
        .map(|left| ground.call(["rm", &left.id]).spawn())
        .into();
    let codes: Vec<_> = jobs.into_iter().map(|job| job.wait().code).collect();
    assert_eq!(codes[..2], [Some(4), Some(4)]);
    assert!(codes[2..].contains(&Some(0)), "{codes:?}");
    assert_eq!(
        fs::read_to_string(dirty.workspace.join("u")).unwrap(),
        "x\n"
    );
    assert!(!clean.workspace.exists());
    let forced: Vec<Job> = [(); 2]
        .map(|()| {
            ground
                .call(["--format", "json", "rm", "--force", &dirty.id])
                .spawn()
        })
        .into();
    let outcomes: Vec<_> = forced.into_iter().map(Job::wait).collect();
    assert!(outcomes.iter().any(|o| o.code == Some(0)), "{outcomes:?}");
    let refs = repository.git([
        "for-each-ref",
        "--format=%(refname)",
        "refs/groundcrew/snapshots",
    ]);
    assert_eq!(refs.lines().count(), 1, "{refs}");
    assert_eq!(repository.git(["show", &format!("{refs}:u")]), "x");
}

#[test]
fn c18_f053_links_out_of_the_workspace_are_not_followed() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    repository.write("deps/k", "keep\n");
    fs::write(repository.git_dir().join("info/exclude"), "deps\n").unwrap();
    let victim = ground.path("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("v"), "keep\n").unwrap();
    for by_hand in [false, true] {
        let script = format!(
            "ln -s '{deps}' deps; ln -s / rootlink; mkdir deep; ln -s '{victim}' deep/rel",
            deps = repository.path().join("deps").display(),
            victim = victim.display()
        );
        let left = Left::by(&ground, &repository, &script);
        if by_hand {
            fs::remove_dir_all(repository.git_dir().join("worktrees")).unwrap();
        }
        let outcome = ground.call(["rm", "--force", &left.id]).run();
        if !by_hand {
            assert_eq!(outcome.code, Some(0), "{outcome:?}");
            assert!(!left.workspace.exists());
        }
        assert_eq!(
            fs::read_to_string(repository.path().join("deps/k")).unwrap(),
            "keep\n"
        );
        assert_eq!(fs::read_to_string(victim.join("v")).unwrap(), "keep\n");
        assert!(Path::new("/usr").exists());
    }
}

#[test]
fn f051_a_link_in_the_place_of_a_workspace_is_not_followed() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let victim = ground.path("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("v"), "keep\n").unwrap();
    let left = Left::by(&ground, &repository, "echo work >w");
    // With the workspace's own mark inside, which anybody can copy.
    fs::copy(left.workspace.join(".git"), victim.join(".git")).unwrap();
    fs::rename(&left.workspace, ground.path("away")).unwrap();
    std::os::unix::fs::symlink(&victim, &left.workspace).unwrap();
    for words in [&["rm", &left.id][..], &["rm", "--force", &left.id]] {
        drop(ground.call(words).run());
        ground.recover();
        assert_eq!(fs::read_to_string(victim.join("v")).unwrap(), "keep\n");
        assert!(victim.join(".git").exists());
    }
    assert_eq!(fs::read_to_string(ground.path("away/w")).unwrap(), "work\n");
}

#[test]
fn f058_a_directory_that_was_put_in_the_place_of_a_workspace_is_not_lost() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let left = Left::by(&ground, &repository, "true");
    let away = ground.path("away");
    fs::rename(&left.workspace, &away).unwrap();
    // It has everything that could prove it ours, but is not what was made.
    fs::create_dir(&left.workspace).unwrap();
    fs::write(left.workspace.join("notes"), "mine\n").unwrap();
    fs::copy(away.join(".git"), left.workspace.join(".git")).unwrap();
    let outcome = ground.call(["rm", &left.id]).run();
    ground.recover();
    let notes = fs::read_to_string(left.workspace.join("notes"));
    assert_eq!(notes.ok().as_deref(), Some("mine\n"), "{outcome:?}");
    // By force it goes where everything goes that nobody may lose.
    let outcome = ground.call(["rm", "--force", &left.id]).run();
    let trash = crate::ground::tree(ground.state(), &|_| true);
    let notes = trash.iter().find(|(path, _)| path.ends_with("notes"));
    assert_eq!(notes.unwrap().1.1, b"mine\n", "{outcome:?}");
}

#[test]
fn c20_f100_a_workspace_removed_by_hand_is_settled() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let usb = ground.path("usb");
    repository.git(["worktree", "add", "-q", "-b", "usb", usb.to_str().unwrap()]);
    fs::rename(&usb, ground.path("usb.away")).unwrap();
    let left = Left::by(
        &ground,
        &repository,
        "echo x >c; git add c; git commit -qm c",
    );
    fs::remove_dir_all(&left.workspace).unwrap();
    // Its commit is still only on its branch.
    ground.call(["rm", &left.id]).run().code(4);
    repository.git(["merge", "-q", "--ff-only", &left.branch]);
    ground.call(["rm", &left.id]).run().ok();
    assert_eq!(repository.branches(), ["main", "usb"]);
    // Somebody else's missing work tree is none of our business.
    assert_eq!(repository.worktree_entries(), ["usb"]);
}

#[test]
fn c26_a_branch_that_a_user_took_over_is_kept() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let left = Left::by(&ground, &repository, "git checkout -q --detach");
    let mine = ground.path("mine");
    repository.git([
        "worktree",
        "add",
        "-q",
        mine.to_str().unwrap(),
        &left.branch,
    ]);
    let outcome = ground.call(["rm", &left.id]).run();
    assert!(repository.branches().contains(&left.branch), "{outcome:?}");
    assert_eq!(
        repository.git_in(&mine, ["branch", "--show-current"]),
        left.branch
    );
}

#[test]
fn removal_ends_what_still_runs_but_not_when_it_refuses() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = ground.detached(&repository, &[], "echo x >u; echo UP; exec sleep 600");
    let id = text(&run["id"]);
    ground.call(["logs", "-f", id]).spawn().until_out("UP");
    ground.call(["rm", id]).run().code(4).says("u");
    assert_eq!(ground.state_of(id), "running");
    ground.call(["rm", "--force", id]).run().ok();
    ground.until_quiet();
}

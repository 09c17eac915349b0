//! The main job: a command at work in its own worktree, and everything taken back.

use std::path::Path;

use crate::ground::{Ground, Leaks, path, text, tree};

const COMMITS: &str = "date >hello.txt && git add hello.txt && git commit -qm hello";

#[test]
fn a_command_commits_on_a_branch_of_its_own_and_the_checkout_is_untouched() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    repository.write("untracked", "mine\n");
    repository.write("f", "changed and not committed\n");
    repository.write("staged", "staged\n");
    repository.git(["add", "staged"]);
    let before = repository.fingerprint();

    let outcome = ground.run_shell(&repository, &[], COMMITS).run().ok();

    assert!(
        repository.fingerprint() == before,
        "the user's checkout was changed"
    );
    let runs = ground.runs(false);
    assert_eq!(runs.len(), 1, "{runs:#?}");
    let run = &runs[0];
    let branch = text(&run["branch"]);
    assert_eq!(run["state"], "exited");
    assert_eq!(run["exit_code"], 0);
    assert!(branch.starts_with("groundcrew/"), "{branch}");
    assert_eq!(
        repository.git(["log", "--format=%s", branch]),
        "hello\nbase",
        "the commit is not on the branch"
    );
    assert_eq!(run["commits"][0]["id"], repository.commit(branch).as_str());
    assert_eq!(run["commits"][0]["subject"], "hello");
    assert_eq!(run["base"], repository.commit("HEAD").as_str());
    let workspace = path(&run["workspace"]);
    assert!(workspace.join("hello.txt").exists());
    // Where the work is, is told to people, and nothing of it on standard output.
    assert_eq!(outcome.out(), "");
    for words in [branch, "hello", &workspace.display().to_string()] {
        assert!(outcome.err().contains(words), "{words}: {outcome:?}");
    }
    ground.until_quiet();
}

#[test]
fn a_run_that_changed_nothing_leaves_nothing() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let outcome = ground
        .run_shell(&repository, &["--format", "json"], "echo hi; exit 3")
        .run()
        .code(3);
    let run = outcome.json();
    assert_eq!(run["state"], "closed");
    assert_eq!(run["exit_code"], 3);
    // Where it was is still told; it is gone.
    let place = run["workspace"].as_str().unwrap();
    assert!(!Path::new(place).exists(), "{place}");
    let rooms = std::fs::read_dir(ground.state().join("worktrees")).unwrap();
    assert_eq!(rooms.count(), 0);
    assert_eq!(repository.branches(), ["main"]);
    assert_eq!(repository.worktree_entries(), [""; 0]);
    // The closed run is remembered; nothing else is left of it.
    assert_eq!(ground.runs(false), [""; 0]);
    assert_eq!(ground.runs(true).len(), 1);
    ground.until_quiet();
}

#[test]
fn a_kept_run_stays_though_nothing_was_changed() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = ground.ran(&repository, &["--keep"], "true");
    assert_eq!(run["state"], "exited");
    assert!(path(&run["workspace"]).join("f").exists());
    ground.call(["rm", text(&run["id"])]).run().ok();
    assert!(!path(&run["workspace"]).exists());
    assert_eq!(repository.branches(), ["main"]);
}

#[test]
fn f020_exit_codes_and_signals_are_passed_through() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    for (script, code) in [
        ("exit 0", 0),
        ("exit 1", 1),
        ("exit 42", 42),
        ("exit 255", 255),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
        ("kill -INT $$", 130),
    ] {
        let options = ["--executor", "local"];
        ground
            .run_shell(&repository, &options, script)
            .run()
            .code(code);
    }
}

#[test]
fn a_repository_with_three_thousand_files_is_checked_out_whole() {
    let ground = Ground::new();
    let repository = ground.empty_repository("big");
    for number in 0..3000 {
        repository.write(
            format!("d{}/f{number}", number % 50),
            &format!("content of {number}\n"),
        );
    }
    repository.commit_all("three thousand");
    let before = repository.fingerprint();
    let script = "test -z \"$(git status --porcelain)\" && find . -type f -path './d*' | wc -l && \
                  echo new >d1/f1 && git commit -qam changed";
    let outcome = ground.run_shell(&repository, &[], script).run().ok();
    assert_eq!(outcome.out().trim(), "3000");
    assert!(repository.fingerprint() == before);
    let run = &ground.runs(false)[0];
    assert_eq!(run["commits"][0]["subject"], "changed");
    let diff = ["diff", "--name-only", "main", text(&run["branch"])];
    assert_eq!(repository.git(diff), "d1/f1");
}

#[test]
fn the_main_job_works_on_this_projects_own_repository() {
    let ground = Ground::new();
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let place = ground.root().join("own");
    let words = ["clone", "-q", "--no-hardlinks", "--"].map(std::ffi::OsStr::new);
    let words = words
        .into_iter()
        .chain([project.as_os_str(), place.as_os_str()]);
    let cloned = ground.repository("other").try_git(words).status.success();
    let repository = if cloned {
        ground.repository_at(&place)
    } else {
        // The sources were not cloned themselves: their files are the repository.
        let repository = ground.empty_repository("own");
        for (path, (_, content)) in tree(project, &|path| !path.ends_with("target")) {
            repository.write(path, &String::from_utf8_lossy(&content));
        }
        repository.commit_all("own");
        repository
    };
    let before = repository.fingerprint();
    let options = ["--title", "own"];
    let script = format!("test -f Cargo.toml && git diff --quiet HEAD && {COMMITS}");
    ground.run_shell(&repository, &options, &script).run().ok();
    assert!(repository.fingerprint() == before);
    let run = &ground.runs(false)[0];
    assert_eq!(run["commits"][0]["subject"], "hello");
    let diff = ["diff", "--name-only", "HEAD", text(&run["branch"])];
    assert_eq!(repository.git(diff), "hello.txt");
}

#[test]
fn the_executor_local_works_in_the_directory_itself() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let refs = repository.refs();
    let options = ["--executor", "local", "--repo", "."];
    ground
        .run_shell(&repository, &options, "pwd -P; echo made >made")
        .run()
        .ok()
        .says(&repository.path().display().to_string());
    assert!(repository.path().join("made").exists());
    assert_eq!(repository.refs(), refs);
    assert_eq!(repository.worktree_entries(), [""; 0]);
    let run = &ground.runs(false)[0];
    assert_eq!(run["executor"], "local");
    ground.call(["rm", text(&run["id"])]).run().ok();
    assert!(repository.path().join("made").exists());
}

#[test]
fn k44_outside_a_repository_the_workspace_is_a_scratch_directory() {
    let ground = Ground::new();
    let place = ground.path("plain");
    std::fs::create_dir(&place).unwrap();
    let words = [
        "--format",
        "json",
        "run",
        "--",
        "sh",
        "-c",
        "pwd -P >here; git status --porcelain",
    ];
    let run = ground.call(words).directory(&place).run().ok().json();
    let workspace = path(&run["workspace"]);
    assert!(workspace.starts_with(ground.state()), "{run:#}");
    let here = std::fs::read_to_string(workspace.join("here")).unwrap();
    assert_eq!(here.trim(), workspace.display().to_string());
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);
}

#[test]
fn a_command_is_started_in_the_callers_own_subdirectory() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    repository.write("a/b/c", "deep\n");
    repository.commit_all("deep");
    let call = ground.run_shell(&repository, &["--keep"], "pwd -P && cat c");
    let outcome = call.directory(&repository.path().join("a/b")).run().ok();
    let run = &ground.runs(false)[0];
    let wanted = path(&run["workspace"]).join("a/b");
    assert_eq!(outcome.out(), format!("{}\ndeep\n", wanted.display()));
}

#[test]
fn a_dirty_checkout_is_a_warning_and_is_not_taken_along() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    repository.write("f", "dirty\n");
    let outcome = ground.run_shell(&repository, &[], "cat f").run().ok();
    assert_eq!(outcome.out(), "base\n");
    assert!(outcome.err().contains("warning"), "{outcome:?}");
}

#[test]
fn a_base_and_a_branch_can_be_named() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let first = repository.commit("HEAD");
    repository.write("f", "second\n");
    repository.commit_all("second");
    let options = ["--base", "HEAD~1", "--branch", "topic/mine", "--keep"];
    let run = ground.ran(
        &repository,
        &options,
        "cat f; git branch --show-current >&2",
    );
    assert_eq!(run["branch"], "topic/mine");
    assert_eq!(run["base"], first.as_str());
    assert_eq!(repository.commit("topic/mine"), first);
    ground.call(["rm", text(&run["id"])]).run().ok();
    assert_eq!(repository.branches(), ["main"]);
}

#[test]
fn a_plan_has_no_effect() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let words = [
        "plan",
        "--title",
        "a plan",
        "--",
        "sh",
        "-c",
        "touch /nowhere",
    ];
    let leaks = Leaks::watch(&ground, &[&repository]);
    let human = ground.call(words).directory(repository.path()).run().ok();
    for shown in ["worktree", "groundcrew/a-plan", "sh -c"] {
        assert!(human.out().contains(shown), "{shown}: {human:?}");
    }
    let json = ["--format", "json"].into_iter().chain(words);
    let plan = ground
        .call(json)
        .directory(repository.path())
        .run()
        .ok()
        .json();
    assert_eq!(plan["schema_version"], 1);
    assert_eq!(plan["executor"], "worktree");
    leaks.none("after a plan");
}

//! Repositories that are not as most are: shallow ones, nested ones, damaged ones, and those with worktrees of others.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use crate::ground::{Ground, Repository, path, text};

/// Demands that a launch fails with words, and leaves nothing.
fn fails(ground: &Ground, repository: &Repository, options: &[&str], named: &str) {
    let (refs, entries) = (repository.refs(), repository.worktree_entries());
    let mut all = vec!["--format", "json"];
    all.extend(options);
    let outcome = ground.run_in(repository, &all, ["true"]).run();
    assert!(matches!(outcome.code, Some(2 | 125)), "{outcome:?}");
    let error = outcome.error();
    assert!(error.to_string().contains(named), "{named}: {error:#}");
    assert_eq!(repository.refs(), refs);
    assert_eq!(repository.worktree_entries(), entries);
    let left = fs::read_dir(ground.state().join("worktrees")).unwrap();
    assert_eq!(left.count(), 0);
}

/// Runs something, removes it by force, brings it back, and removes it for good.
fn goes_round(ground: &Ground, repository: &Repository, script: &str) -> std::path::PathBuf {
    let run = ground.ran(repository, &["--keep"], script);
    assert_eq!(run["exit_code"], 0, "{run:#}");
    let id = text(&run["id"]);
    ground.call(["rm", id]).run().code(4);
    ground.call(["rm", "--force", id]).run().ok();
    assert!(!path(&run["workspace"]).exists());
    ground.call(["restore", id]).run().ok();
    path(&run["workspace"])
}

#[test]
fn f091_a_shallow_repository_is_used_and_what_it_lacks_is_named() {
    let ground = Ground::new();
    let source = ground.repository("source");
    source.write("f", "second\n");
    source.commit_all("second");
    let url = format!("file://{}", source.path().display());
    let shallow = ground.path("shallow");
    source.git([
        "clone",
        "-q",
        "--depth",
        "1",
        &url,
        shallow.to_str().unwrap(),
    ]);
    let shallow = ground.repository_at(&shallow);
    fails(&ground, &shallow, &["--base", "HEAD~1"], "HEAD~1");
    let workspace = goes_round(&ground, &shallow, "cat f; echo u >u");
    assert!(workspace.join("u").is_file());
    let count = shallow.git_in(&workspace, ["rev-list", "--count", "HEAD"]);
    assert_eq!(count, "1");
}

#[test]
fn f092_a_nested_repository_refuses_and_comes_back_with_its_commits() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "git init -q inner && cd inner && git -c user.name=n -c user.email=n@example.invalid commit -q --allow-empty -m nested";
    let workspace = goes_round(&ground, &repository, script);
    let subject = repository.git_in(&workspace.join("inner"), ["log", "-1", "--format=%s"]);
    assert_eq!(subject, "nested");
}

#[test]
fn f095_a_git_directory_that_is_elsewhere_is_used_and_a_damaged_one_is_named() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let elsewhere = ground.path("elsewhere.git");
    fs::rename(repository.path().join(".git"), &elsewhere).unwrap();
    symlink(&elsewhere, repository.path().join(".git")).unwrap();
    let workspace = goes_round(&ground, &repository, "echo u >u");
    assert!(workspace.join("u").is_file());
    // The objects of its commit are gone.
    let damaged = ground.repository("damaged");
    let tree = damaged.git(["rev-parse", "HEAD^{tree}"]);
    let object = damaged
        .git_dir()
        .join("objects")
        .join(&tree[..2])
        .join(&tree[2..]);
    fs::remove_file(object).unwrap();
    let before = (damaged.refs(), damaged.worktree_entries());
    let outcome = ground
        .run_in(&damaged, &["--format", "json"], ["true"])
        .run();
    assert!(matches!(outcome.code, Some(2 | 125)), "{outcome:?}");
    assert!(!outcome.error()["message"].is_null());
    assert_eq!((damaged.refs(), damaged.worktree_entries()), before);
}

#[test]
fn f101_worktrees_of_others_whose_trees_are_missing_stay_known() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let other = ground.path("other");
    repository.git(["worktree", "add", "-q", "--detach", other.to_str().unwrap()]);
    let aside = ground.path("aside");
    fs::rename(&other, &aside).unwrap();
    let workspace = goes_round(&ground, &repository, "echo u >u");
    assert!(workspace.join("u").is_file());
    ground.recover();
    ground.call(["gc", "--older-than", "0"]).run().ok();
    fs::rename(&aside, &other).unwrap();
    repository.git_in(&other, ["status"]);
}

#[test]
fn f066_modes_do_not_depend_on_the_umask() {
    for umask in ["000", "022", "077"] {
        let ground = Ground::new();
        let repository = ground.repository("r");
        let shell = ["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")];
        let words = [
            "run",
            "--format",
            "json",
            "--keep",
            "--",
            "sh",
            "-c",
            "echo u >u",
        ];
        let run = ground.call(words).directory(repository.path());
        let run = run.through("/bin/sh", shell).run().ok().json();
        let workspace = path(&run["workspace"]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let directory = workspace.parent().unwrap();
        for closed in [ground.state(), &ground.state().join("worktrees"), directory] {
            assert_eq!(mode(closed), 0o700, "{umask} {}", closed.display());
        }
        assert_eq!(mode(&directory.join(".groundcrew-workspace.json")), 0o600);
        let id = text(&run["id"]);
        ground
            .call(["rm", "--force", id])
            .through("/bin/sh", shell)
            .run()
            .ok();
        let trash = ground.state().join("trash");
        assert_eq!(mode(&trash), 0o700);
        for entry in fs::read_dir(&trash).unwrap() {
            let path = entry.unwrap().path();
            if path.to_str().unwrap().ends_with("-origin") {
                assert_eq!(mode(&path), 0o600, "{umask}");
            }
        }
        ground
            .call(["restore", id])
            .through("/bin/sh", shell)
            .run()
            .ok();
        assert_eq!(mode(directory), 0o700, "{umask}");
        assert_eq!(mode(&directory.join(".groundcrew-workspace.json")), 0o600);
    }
}

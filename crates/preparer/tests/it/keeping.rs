//! What removal finds, keeps, and saves.

use std::{fs, os::unix::fs::symlink, path::Path, process::Stdio, time::Duration};

use groundcrew_core::{preparer::Preparer as _, undo::Undone, workspace::Finding};

use crate::fixture::*;

/// Does something in a fresh worktree, and returns what is found, after making sure that removal keeps all of it.
async fn found_after(fixture: &Fixture, work: impl FnOnce(&Path)) -> Vec<Finding> {
    let launch = fixture.launch().await;
    work(launch.tree());
    let losses = fixture.losses(&launch, REMOVE).await;
    for options in [REMOVE, FAILURE] {
        let undone = fixture.undo(&launch, options).await;
        assert_eq!(kept(&undone["worktree"]), losses);
        assert!(matches!(undone["directory"], Undone::Kept(_)));
        assert!(launch.tree().is_dir());
    }
    losses
}

fn one<'a>(losses: &'a [Finding], what: &str) -> &'a [String] {
    assert_eq!(kinds(losses), [what], "{losses:?}");
    &losses[0].items
}

#[tokio::test]
async fn c01_modified_staged_untracked_and_deleted_files_are_each_enough() {
    let fixture = Fixture::new();
    let losses = found_after(&fixture, |tree| write(tree.join("f"), "x\n")).await;
    assert_eq!(one(&losses, "modified"), ["f"]);
    let losses = found_after(&fixture, |tree| {
        write(tree.join("s"), "x\n");
        git(tree, &["add", "s"]);
    })
    .await;
    assert_eq!(one(&losses, "staged"), ["s"]);
    let losses = found_after(&fixture, |tree| write(tree.join("u"), "x\n")).await;
    assert_eq!(one(&losses, "untracked"), ["u"]);
    let losses = found_after(&fixture, |tree| write(tree.join("d/e"), "x\n")).await;
    assert_eq!(one(&losses, "untracked"), ["d/e"]);
    let losses = found_after(&fixture, |tree| fs::remove_file(tree.join("f")).unwrap()).await;
    assert_eq!(one(&losses, "modified"), ["f"]);
    let losses = found_after(&fixture, |tree| {
        fs::remove_file(tree.join("f")).unwrap();
        symlink("/etc/passwd", tree.join("f")).unwrap();
    })
    .await;
    assert_eq!(one(&losses, "modified"), ["f"]);
}

#[tokio::test]
async fn c01_flags_in_the_index_and_restored_times_hide_nothing() {
    let fixture = Fixture::new();
    for flag in ["--assume-unchanged", "--skip-worktree"] {
        let losses = found_after(&fixture, |tree| {
            git(tree, &["update-index", flag, "f"]);
            write(tree.join("f"), "hidden\n");
            assert_eq!(git(tree, &["status", "--porcelain"]), "");
        })
        .await;
        assert_eq!(one(&losses, "modified"), ["f"], "{flag}");
    }
    let losses = found_after(&fixture, |tree| {
        let file = tree.join("f");
        let modified = fs::metadata(&file).unwrap().modified().unwrap();
        write(&file, "eno\n");
        fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(modified)
            .unwrap();
    })
    .await;
    assert_eq!(one(&losses, "modified"), ["f"]);
}

#[tokio::test]
async fn c01_ignore_rules_that_the_run_added_hide_nothing() {
    let fixture = Fixture::new();
    let losses = found_after(&fixture, |tree| {
        write(tree.join("new/.gitignore"), "*\n");
        write(tree.join("new/work"), "x\n");
        assert_eq!(git(tree, &["status", "--porcelain"]), "");
    })
    .await;
    assert_eq!(one(&losses, "untracked"), ["new/.gitignore", "new/work"]);
    // Also one that was committed: at close the commit survives on the branch, the file does not.
    let launch = fixture.launch().await;
    write(launch.tree().join(".gitignore"), "*\n");
    git(launch.tree(), &["commit", "-qam", "ignore all"]);
    write(launch.tree().join("work"), "x\n");
    let losses = fixture.losses(&launch, CLOSE).await;
    assert_eq!(one(&losses, "untracked"), ["work"]);
}

#[tokio::test]
async fn only_what_the_start_point_ignores_goes_to_the_trash_for_a_while() {
    let fixture = Fixture::new();
    let launch = fixture.launch().await;
    write(launch.tree().join("target/debug/a"), "x\n");
    write(launch.tree().join("sub/b.log"), "x\n");
    let assessment = fixture
        .preparer()
        .assess(&launch.record("worktree"), REMOVE)
        .await
        .unwrap();
    assert!(assessment.changed && assessment.losses.is_empty());
    assert!(
        fixture
            .preparer()
            .report(launch.workspace())
            .await
            .unwrap()
            .dirty
    );
    let undone = fixture.undo(&launch, REMOVE).await;
    assert!(
        undone.values().all(|undone| *undone == Undone::REMOVED),
        "{undone:?}"
    );
    let trashed = fixture
        .home()
        .join("trash")
        .join(format!("{}-worktree-kept", launch.attempt));
    assert!(trashed.join("target/debug/a").is_file());
    let preparer = fixture.preparer();
    let week = Duration::from_hours(7 * 24);
    assert_eq!(preparer.expire_trash(week).await.unwrap(), 0);
    assert!(trashed.is_dir());
    assert_eq!(preparer.expire_trash(Duration::ZERO).await.unwrap(), 1);
    fixture.assert_home_is_empty();
}

#[tokio::test]
async fn c02_commits_are_lost_with_the_branch_and_not_without() {
    let fixture = Fixture::new();
    let launch = fixture.launch().await;
    write(launch.tree().join("h"), "x\n");
    git(launch.tree(), &["add", "h"]);
    git(launch.tree(), &["commit", "-qm", "work"]);
    let losses = fixture.losses(&launch, REMOVE).await;
    assert!(one(&losses, "commits")[0].ends_with(" work"), "{losses:?}");
    assert_eq!(fixture.losses(&launch, CLOSE).await, []);
    let report = fixture.preparer().report(launch.workspace()).await.unwrap();
    assert_eq!((report.commit_count, report.dirty), (1, false));
    assert_eq!(report.commits[0].subject, "work");

    let undone = fixture.undo(&launch, CLOSE).await;
    assert_eq!(undone.len(), 2);
    assert!(
        undone.values().all(|undone| *undone == Undone::REMOVED),
        "{undone:?}"
    );
    assert_eq!(
        git(
            &fixture.repository,
            &["log", "-1", "--format=%s", launch.branch()]
        ),
        "work"
    );
    fixture.assert_home_is_empty();
    // Now only the branch is left; its commit is held by nothing else, then by a tag.
    let undone = fixture.undo(&launch, REMOVE).await;
    assert_eq!(kinds(kept(&undone["branch"])), ["commits"]);
    git(&fixture.repository, &["tag", "keep", launch.branch()]);
    let undone = fixture.undo(&launch, REMOVE).await;
    assert_eq!(undone["branch"], Undone::REMOVED);
    assert!(
        !try_git(
            &fixture.repository,
            &["rev-parse", "--verify", "-q", launch.branch()]
        )
        .0
    );
}

#[tokio::test]
async fn c02_commits_outside_the_branch_are_found() {
    let fixture = Fixture::new();
    // On a detached HEAD.
    let launch = fixture.launch().await;
    git(launch.tree(), &["checkout", "-q", "--detach"]);
    git(
        launch.tree(),
        &["commit", "-q", "--allow-empty", "-m", "detached"],
    );
    let losses = fixture.losses(&launch, CLOSE).await;
    assert!(one(&losses, "commits")[0].ends_with("detached"));
    // Only in the log of HEAD.
    git(launch.tree(), &["checkout", "-q", launch.branch()]);
    let losses = fixture.losses(&launch, CLOSE).await;
    assert!(one(&losses, "commits")[0].ends_with("detached"));
    // Only under a ref of the worktree.
    let launch = fixture.launch().await;
    let id = git(
        launch.tree(),
        &["commit-tree", "-m", "hidden", "HEAD^{tree}"],
    );
    git(launch.tree(), &["update-ref", "refs/worktree/x", &id]);
    let losses = fixture.losses(&launch, CLOSE).await;
    assert!(one(&losses, "commits")[0].ends_with("hidden"));
    // Replaced by an amend, which the log of the branch remembers as long as the branch stays.
    let launch = fixture.launch().await;
    git(
        launch.tree(),
        &["commit", "-q", "--allow-empty", "-m", "first try"],
    );
    git(
        launch.tree(),
        &[
            "commit",
            "-q",
            "--amend",
            "--allow-empty",
            "-m",
            "second try",
        ],
    );
    assert_eq!(fixture.losses(&launch, CLOSE).await, []);
    assert_eq!(
        one(&fixture.losses(&launch, REMOVE).await, "commits").len(),
        2
    );
}

#[tokio::test]
async fn unfinished_operations_nested_repositories_and_processes_are_found() {
    let fixture = Fixture::new();
    let losses = found_after(&fixture, |tree| {
        fs::create_dir(tree.join("inner")).unwrap();
        git(&tree.join("inner"), &["init", "-q"]);
    })
    .await;
    assert_eq!(one(&losses, "nested_repository"), ["inner"]);

    let launch = fixture.launch().await;
    git(launch.tree(), &["checkout", "-q", "-b", "side"]);
    write(launch.tree().join("f"), "side\n");
    git(launch.tree(), &["commit", "-qam", "side"]);
    git(launch.tree(), &["checkout", "-q", launch.branch()]);
    git(
        launch.tree(),
        &["merge", "-q", "--no-ff", "--no-commit", "side"],
    );
    let losses = fixture.losses(&launch, CLOSE).await;
    assert!(kinds(&losses).contains(&"operation"), "{losses:?}");

    let launch = fixture.launch().await;
    let mut sleeper = sleeper(launch.tree());
    let losses = fixture.losses(&launch, CLOSE).await;
    assert!(one(&losses, "process")[0].starts_with(&format!("{} ", sleeper.id())));
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(fixture.losses(&launch, CLOSE).await, []);
}

#[expect(
    clippy::disallowed_methods,
    reason = "a process whose place is looked for"
)]
fn sleeper(directory: &Path) -> std::process::Child {
    let mut child = std::process::Command::new("cat")
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(child.try_wait().unwrap().is_none());
    child
}

#[tokio::test]
async fn c01_f077_a_moved_or_rewritten_git_file_counts_as_unreadable_and_runs_nothing() {
    let fixture = Fixture::new();
    let losses = found_after(&fixture, |tree| {
        fs::rename(tree.join(".git"), tree.join(".git.away")).unwrap();
    })
    .await;
    assert_eq!(kinds(&losses), ["unreadable", "untracked"]);

    let canary = fixture.path().join("canary");
    let evil = fixture.path().join("evil");
    fs::create_dir(&evil).unwrap();
    git(&evil, &["init", "-q"]);
    git(
        &evil,
        &[
            "config",
            "core.fsmonitor",
            &format!("touch {}; false", canary.display()),
        ],
    );
    let losses = found_after(&fixture, |tree| {
        write(
            tree.join(".git"),
            &format!("gitdir: {}\n", evil.join(".git").display()),
        );
    })
    .await;
    assert_eq!(kinds(&losses), ["unreadable"]);
    assert!(!canary.exists());
}

#[tokio::test]
async fn files_that_git_converts_are_compared_as_git_does() {
    let fixture = Fixture::new();
    write(
        fixture.repository.join(".gitattributes"),
        "*.txt text eol=crlf\n",
    );
    write(fixture.repository.join("a.txt"), "one\ntwo\n");
    git(&fixture.repository, &["add", "."]);
    git(&fixture.repository, &["commit", "-qm", "crlf"]);
    let launch = fixture.launch().await;
    let file = launch.tree().join("a.txt");
    assert_eq!(fs::read_to_string(&file).unwrap(), "one\r\ntwo\r\n");
    assert_eq!(fixture.losses(&launch, REMOVE).await, []);
    write(&file, "one\r\nTWO\r\n");
    assert_eq!(
        one(&fixture.losses(&launch, REMOVE).await, "modified"),
        ["a.txt"]
    );
}

#[tokio::test]
async fn a_sparse_checkout_is_no_change() {
    let fixture = Fixture::new();
    git(
        &fixture.repository,
        &["sparse-checkout", "set", "--no-cone", "/f"],
    );
    let launch = fixture.launch().await;
    assert!(!launch.tree().join("sub").exists());
    assert_eq!(fixture.losses(&launch, REMOVE).await, []);
    fixture.undo(&launch, REMOVE).await;
    fixture.assert_home_is_empty();
}

#[tokio::test]
async fn force_saves_everything_in_a_snapshot_first() {
    let fixture = Fixture::new();
    let launch = fixture.launch().await;
    let tree = launch.tree();
    git(
        tree,
        &["commit", "-q", "--allow-empty", "-m", "on the branch"],
    );
    let tip = git(tree, &["rev-parse", "HEAD"]);
    git(tree, &["checkout", "-q", "--detach"]);
    git(tree, &["commit", "-q", "--allow-empty", "-m", "aside"]);
    let aside = git(tree, &["rev-parse", "HEAD"]);
    git(tree, &["checkout", "-q", launch.branch()]);
    write(tree.join("f"), "staged\n");
    git(tree, &["add", "f"]);
    write(tree.join("f"), "modified\n");
    fs::remove_file(tree.join("run.sh")).unwrap();
    write(tree.join("new/file"), "untracked\n");
    write(tree.join("x.log"), "ignored\n");
    symlink("/nowhere", tree.join("link")).unwrap();

    let undone = fixture.undo(&launch, FORCE).await;
    let name = format!("refs/groundcrew/snapshots/{}", launch.run);
    assert_eq!(
        undone["worktree"],
        Undone::Removed {
            snapshot: Some(name.clone())
        }
    );
    assert!(
        matches!(undone["branch"], Undone::Removed { .. }),
        "{undone:?}"
    );
    assert_eq!(undone["directory"], Undone::REMOVED);
    let show = |path: &str| git(&fixture.repository, &["show", &format!("{name}:{path}")]);
    assert_eq!(show("f"), "modified");
    assert_eq!(show("new/file"), "untracked");
    assert_eq!(show("link"), "/nowhere");
    let files = git(
        &fixture.repository,
        &["ls-tree", "-r", "--name-only", &name],
    );
    assert!(
        !files.contains("run.sh") && !files.contains("x.log"),
        "{files}"
    );
    assert_eq!(
        git(&fixture.repository, &["show", &format!("{name}^2:f")]),
        "staged"
    );
    for id in [&tip, &aside] {
        git(
            &fixture.repository,
            &["merge-base", "--is-ancestor", id, &name],
        );
    }
    let trashed = fixture
        .home()
        .join("trash")
        .join(format!("{}-worktree-kept", launch.attempt));
    assert!(trashed.join("x.log").is_file());
    assert!(
        !try_git(
            &fixture.repository,
            &["rev-parse", "--verify", "-q", launch.branch()]
        )
        .0
    );
    assert!(!fixture.repository.join(".git/worktrees").exists());
}

#[tokio::test]
async fn f099_a_branch_that_the_agent_moved_is_kept_on_failure() {
    let fixture = Fixture::new();
    let launch = fixture.launch().await;
    git(
        launch.tree(),
        &["commit", "-q", "--allow-empty", "-m", "work"],
    );
    let undone = fixture.undo(&launch, FAILURE).await;
    assert_eq!(kinds(kept(&undone["worktree"])), ["commits"]);
    assert!(matches!(undone["branch"], Undone::Kept(_)));
    assert_eq!(
        git(
            &fixture.repository,
            &["log", "-1", "--format=%s", launch.branch()]
        ),
        "work"
    );
}

#[tokio::test]
async fn a_branch_that_another_made_or_uses_is_left() {
    let fixture = Fixture::new();
    let launch = fixture.launch().await;
    let other = fixture.path().join("other");
    let undone = fixture
        .preparer()
        .undo(&launch.record("worktree"), REMOVE)
        .await
        .unwrap();
    assert_eq!(undone, Undone::REMOVED);
    git(
        &fixture.repository,
        &[
            "worktree",
            "add",
            "-q",
            other.to_str().unwrap(),
            launch.branch(),
        ],
    );
    let undone = fixture
        .preparer()
        .undo(&launch.record("branch"), REMOVE)
        .await
        .unwrap();
    assert_eq!(kinds(kept(&undone)), ["checked_out"]);
    git(
        &fixture.repository,
        &["worktree", "remove", other.to_str().unwrap()],
    );
    git(
        &fixture.repository,
        &["branch", "-q", "-D", launch.branch()],
    );
    git(
        &fixture.repository,
        &["branch", "-q", "--create-reflog", launch.branch()],
    );
    let undone = fixture
        .preparer()
        .undo(&launch.record("branch"), REMOVE)
        .await
        .unwrap();
    assert!(matches!(undone, Undone::NotOurs(_)), "{undone:?}");
    git(
        &fixture.repository,
        &["rev-parse", "--verify", "-q", launch.branch()],
    );
}

#[tokio::test]
async fn files_beside_the_work_tree_are_kept() {
    let fixture = Fixture::new();
    let launch = fixture.launch().await;
    write(launch.tree().join("../notes"), "mine\n");
    let undone = fixture.undo(&launch, CLOSE).await;
    assert_eq!(undone["worktree"], Undone::REMOVED);
    assert_eq!(kept(&undone["directory"])[0].items, ["../notes"]);
    let undone = fixture.undo(&launch, FORCE).await;
    assert_eq!(undone["directory"], Undone::REMOVED);
    let trashed = fixture
        .home()
        .join("trash")
        .join(format!("{}-directory-kept", launch.attempt));
    assert!(trashed.join("notes").is_file());
}

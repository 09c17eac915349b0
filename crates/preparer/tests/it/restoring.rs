//! What was removed comes back whole, never over anything that exists, and also when bringing it back is broken off.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use groundcrew_core::{
    error::ErrorKind,
    undo::Undone,
    workspace::{CloneObjects, RepositorySpec, WorkspaceRequest},
};
use groundcrew_preparer::{Upkeep, UpkeepConfig};

use crate::fixture::*;

fn upkeep(fixture: &Fixture) -> Upkeep {
    Upkeep::new(UpkeepConfig {
        worktrees: fixture.home().join("worktrees"),
        tasks: fixture.home().join("tasks"),
        sessions: fixture.home().join("quick-chat"),
        trash: fixture.home().join("trash"),
        locks: fixture.home().join("locks"),
        git: fixture.git.clone(),
        install: fixture.install.clone(),
    })
    .unwrap()
}

/// Leaves something of every sort: a commit, staged, changed, untracked, ignored, executable, a link.
fn work(tree: &Path) {
    git(tree, &["commit", "-q", "--allow-empty", "-m", "work"]);
    write(tree.join("staged"), "staged\n");
    git(tree, &["add", "staged"]);
    write(tree.join("staged"), "and changed\n");
    write(tree.join("f"), "changed\n");
    write(tree.join("un/tracked"), "x\n");
    write(tree.join("a.log"), "ignored\n");
    fs::set_permissions(tree.join("un/tracked"), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("nowhere", tree.join("link")).unwrap();
}

/// Everything that a person sees of a worktree.
fn seen(tree: &Path) -> Vec<String> {
    vec![
        git(tree, &["status", "--porcelain=v1", "--ignored", "--branch"]),
        git(tree, &["diff"]),
        git(tree, &["diff", "--cached"]),
        git(tree, &["log", "--format=%H %s"]),
        git(tree, &["reflog", "--format=%H %gs"]),
        fs::read_to_string(tree.join("un/tracked")).unwrap_or_default(),
        fs::read_to_string(tree.join("a.log")).unwrap_or_default(),
    ]
}

async fn removed(fixture: &Fixture) -> (Launch, Vec<String>) {
    let launch = fixture.launch().await;
    work(launch.tree());
    let before = seen(launch.tree());
    let undone = fixture.undo(&launch, FORCE).await;
    assert!(
        undone
            .values()
            .all(|undone| matches!(undone, Undone::Removed { .. })),
        "{undone:?}"
    );
    assert!(!launch.tree().exists());
    (launch, before)
}

#[tokio::test]
async fn c01_what_was_removed_by_force_comes_back_with_files_index_and_branch() {
    let fixture = Fixture::new();
    let (launch, before) = removed(&fixture).await;
    let upkeep = upkeep(&fixture);
    let trash = upkeep.trash().await.unwrap();
    assert_eq!(trash.len(), 1, "{trash:?}");
    assert_eq!(trash[0].run.as_ref(), Some(&launch.run));
    assert_eq!(trash[0].path.as_deref(), Some(launch.tree()));
    assert_eq!(trash[0].branch.as_deref(), Some(launch.branch()));
    assert_eq!(trash[0].kind.as_deref(), Some("worktree"));
    assert!(trash[0].tip.is_some() && trash[0].base.is_some() && trash[0].snapshot.is_some());

    let restored = upkeep.restore(&launch.run, None).await.unwrap();
    assert_eq!(restored.places, [launch.tree()]);
    assert_eq!(restored.branches, [launch.branch()]);
    assert_eq!(restored.notes, [""; 0]);
    assert_eq!(seen(launch.tree()), before);
    git(launch.tree(), &["fsck", "--full"]);
    // Asked again, it is there already.
    let again = upkeep.restore(&launch.run, None).await.unwrap();
    assert_eq!(again.branches, [""; 0]);
    assert_eq!(upkeep.settle(&launch.run).await.unwrap(), 1);
    assert_eq!(upkeep.trash().await.unwrap(), []);
    assert_eq!(
        upkeep.restore(&launch.run, None).await.unwrap_err().kind(),
        ErrorKind::NotFound
    );

    // What the run owns again is what it owned: it is kept, and goes as before.
    let keys: Vec<_> = again
        .regained
        .owned
        .iter()
        .map(|owned| (&*owned.resource.key, owned.resource.due))
        .collect();
    let planned: Vec<_> = launch
        .contribution
        .resources
        .iter()
        .map(|resource| (&*resource.key, resource.due))
        .collect();
    assert_eq!(keys, planned);
    let mut launch = launch;
    for owned in &again.regained.owned {
        let key = owned.resource.key.clone();
        launch.identities.remove(&key);
        if let Some(identity) = &owned.identity {
            launch.identities.insert(key, identity.clone());
        }
    }
    let losses = fixture.losses(&launch, REMOVE).await;
    assert!(kinds(&losses).contains(&"untracked"), "{losses:?}");
    reopen(&fixture.preparer(), launch.workspace())
        .await
        .unwrap();
    let undone = fixture.undo(&launch, FORCE).await;
    assert!(
        undone
            .values()
            .all(|undone| matches!(undone, Undone::Removed { .. })),
        "{undone:?}"
    );
    upkeep.restore(&launch.run, None).await.unwrap();
    assert_eq!(seen(launch.tree()), before);
}

#[tokio::test]
async fn c02_nothing_that_exists_is_replaced() {
    let fixture = Fixture::new();
    let (launch, before) = removed(&fixture).await;
    let upkeep = upkeep(&fixture);
    let refused = |kind| {
        let (upkeep, run) = (upkeep.clone(), launch.run.clone());
        async move {
            let error = upkeep.restore(&run, None).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(upkeep.trash().await.unwrap().len(), 1);
            error
        }
    };
    // A tree, or a directory of somebody else's, in its place.
    let directory = launch.tree().parent().unwrap();
    write(launch.tree().join("mine"), "x");
    let error = refused(ErrorKind::AlreadyExists).await;
    assert_eq!(error.get("path").unwrap(), launch.tree().to_str().unwrap());
    fs::remove_dir_all(launch.tree()).unwrap();
    write(directory.join("mine"), "x");
    let error = refused(ErrorKind::AlreadyExists).await;
    assert_eq!(error.get("path").unwrap(), directory.to_str().unwrap());
    assert!(directory.join("mine").is_file());
    fs::remove_dir_all(directory).unwrap();
    // The branch, elsewhere.
    git(&fixture.repository, &["branch", launch.branch()]);
    let error = refused(ErrorKind::AlreadyExists).await;
    assert_eq!(error.get("branch").unwrap(), launch.branch());
    assert!(!launch.tree().exists());
    git(&fixture.repository, &["branch", "-D", launch.branch()]);
    // The branch where it was, and checked out.
    let tip = upkeep.trash().await.unwrap()[0].tip.clone().unwrap();
    let other = fixture.path().join("other");
    git(
        &fixture.repository,
        &[
            "worktree",
            "add",
            "-q",
            "-b",
            launch.branch(),
            other.to_str().unwrap(),
            &tip,
        ],
    );
    let error = refused(ErrorKind::Conflict).await;
    assert_eq!(error.get("path").unwrap(), other.to_str().unwrap());
    git(
        &fixture.repository,
        &["worktree", "remove", other.to_str().unwrap()],
    );
    upkeep.restore(&launch.run, None).await.unwrap();
    assert_eq!(seen(launch.tree()), before);
}

#[tokio::test]
async fn c02_what_was_put_in_the_trash_in_its_place_does_not_come_back() {
    let fixture = Fixture::new();
    let (launch, _) = removed(&fixture).await;
    let upkeep = upkeep(&fixture);
    let place = upkeep.trash().await.unwrap()[0].place.clone().unwrap();
    fs::rename(&place, fixture.path().join("aside")).unwrap();
    write(place.join("forged"), "x");
    // Its files come of the snapshot then? No: something has its place.
    let error = upkeep.restore(&launch.run, None).await.unwrap_err();
    assert!(place.join("forged").is_file(), "{error}");
    assert!(!launch.tree().exists(), "{error}");
    // Neither is it deleted.
    let emptied = upkeep.empty_trash(Duration::ZERO, false).await.unwrap();
    assert_eq!((emptied.removed.len(), emptied.kept.len()), (0, 1));
    assert!(place.join("forged").is_file());
}

#[tokio::test]
async fn c01_a_restoration_that_died_anywhere_is_finished_by_another() {
    let fixture = Fixture::new();
    let upkeep = upkeep(&fixture);
    for stage in 0..5 {
        let (launch, before) = removed(&fixture).await;
        let directory = launch.tree().parent().unwrap();
        let item = &upkeep.trash().await.unwrap()[0];
        let (place, tip) = (item.place.clone().unwrap(), item.tip.clone().unwrap());
        // As far as it may have come.
        if stage > 0 {
            fs::create_dir(directory).unwrap();
            fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).unwrap();
        }
        if stage > 1 {
            // The whole of it, then what comes last taken back.
            upkeep.restore(&launch.run, None).await.unwrap();
            let entry = git(launch.tree(), &["rev-parse", "--absolute-git-dir"]);
            match stage {
                2 => {
                    let entry = Path::new(&entry);
                    fs::remove_dir_all(entry).unwrap();
                    let half = format!("groundcrew-{}-worktree", launch.attempt);
                    write(fixture.repository.join(".git").join(half).join("x"), "");
                }
                3 => fs::remove_file(launch.tree().join(".git")).unwrap(),
                _ => {}
            }
            assert!(!place.exists());
        } else {
            assert!(place.exists());
        }
        upkeep.restore(&launch.run, None).await.unwrap();
        assert_eq!(seen(launch.tree()), before, "stage {stage}");
        assert_eq!(git(launch.tree(), &["rev-parse", launch.branch()]), tip);
        upkeep.settle(&launch.run).await.unwrap();
        let left = fs::read_dir(fixture.repository.join(".git")).unwrap();
        assert!(left.flatten().all(|entry| {
            !entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(b"groundcrew-")
        }));
        assert_eq!(upkeep.trash().await.unwrap(), []);
    }
}

#[tokio::test]
async fn c01_files_and_index_come_back_of_the_snapshot_alone() {
    let fixture = Fixture::new();
    let (launch, before) = removed(&fixture).await;
    let upkeep = upkeep(&fixture);
    let emptied = upkeep.empty_trash(Duration::ZERO, false).await.unwrap();
    assert_eq!((emptied.removed.len(), emptied.kept.len()), (1, 0));
    let left = upkeep.trash().await.unwrap();
    assert_eq!(left.len(), 1);
    assert!(left[0].place.is_none() && left[0].snapshot.is_some());
    // It is no trash any more, and leads to the snapshot.
    let emptied = upkeep.empty_trash(Duration::ZERO, false).await.unwrap();
    assert!(emptied.removed.is_empty() && emptied.kept.is_empty());

    let restored = upkeep.restore(&launch.run, None).await.unwrap();
    assert!(restored.notes[0].contains("snapshot"), "{restored:?}");
    let after = seen(launch.tree());
    let without_ignored = |text: &str| text.replace("\n!! a.log", "");
    assert_eq!(after[0], without_ignored(&before[0]));
    assert_eq!(after[1..4], before[1..4]);
    assert_eq!(after[5], before[5]);
    assert_eq!(
        fs::read_link(launch.tree().join("link")).unwrap(),
        Path::new("nowhere")
    );
}

#[tokio::test]
async fn c01_an_unfinished_merge_comes_back_unfinished() {
    let fixture = Fixture::new();
    let launch = fixture.launch().await;
    let tree = launch.tree();
    git(tree, &["checkout", "-q", "-b", "side"]);
    write(tree.join("f"), "side\n");
    git(tree, &["commit", "-qam", "side"]);
    git(tree, &["checkout", "-q", launch.branch()]);
    write(tree.join("f"), "main\n");
    git(tree, &["commit", "-qam", "main"]);
    assert!(!try_git(tree, &["merge", "-q", "side"]).0);
    let before = (git(tree, &["status"]), git(tree, &["ls-files", "--stage"]));
    assert!(before.0.contains("fix conflicts"), "{}", before.0);
    fixture.undo(&launch, FORCE).await;
    upkeep(&fixture).restore(&launch.run, None).await.unwrap();
    let after = (git(tree, &["status"]), git(tree, &["ls-files", "--stage"]));
    assert_eq!(after, before);
}

#[tokio::test]
async fn ignored_files_alone_come_back_after_a_close() {
    let fixture = Fixture::new();
    let launch = fixture.launch().await;
    git(launch.tree(), &["commit", "-q", "--allow-empty", "-m", "w"]);
    write(launch.tree().join("a.log"), "ignored\n");
    let before = seen(launch.tree());
    fixture.undo(&launch, CLOSE).await;
    assert!(!launch.tree().exists());
    let restored = upkeep(&fixture).restore(&launch.run, None).await.unwrap();
    assert_eq!(restored.branches, [""; 0]);
    assert_eq!(seen(launch.tree()), before);
}

#[tokio::test]
async fn work_comes_back_elsewhere_as_a_plain_worktree() {
    let fixture = Fixture::new();
    let (launch, before) = removed(&fixture).await;
    let upkeep = upkeep(&fixture);
    let to = fixture.path().join("mine");
    for bad in [
        fixture.home().join("worktrees/x"),
        fixture.path().join("no/where"),
        Path::new("relative").to_owned(),
    ] {
        let error = upkeep.restore(&launch.run, Some(&bad)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    write(to.join("x"), "x");
    let error = upkeep.restore(&launch.run, Some(&to)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    fs::remove_dir_all(&to).unwrap();
    let restored = upkeep.restore(&launch.run, Some(&to)).await.unwrap();
    assert_eq!(restored.places, [&*to]);
    assert!(restored.regained.owned.is_empty());
    assert_eq!(seen(&to), before);
    assert_eq!(upkeep.trash().await.unwrap(), []);
    let listed = git(&fixture.repository, &["worktree", "list", "--porcelain"]);
    assert!(listed.contains(to.to_str().unwrap()), "{listed}");
    assert!(!listed.contains("locked"), "{listed}");
}

#[tokio::test]
async fn private_clones_come_back_and_so_does_what_holds_their_start_point() {
    for objects in [CloneObjects::Copied, CloneObjects::Shared] {
        let fixture = Fixture::new();
        let request = request(WorkspaceRequest::Clone {
            repositories: vec![fixture.spec()],
            objects,
        });
        let launch = fixture.launch_with(&request, Recorder::default()).await;
        launch.result.as_ref().unwrap();
        work(launch.tree());
        let before = seen(launch.tree());
        fixture.undo(&launch, FORCE).await;
        assert!(!launch.tree().exists());
        let base = format!("refs/groundcrew/base/{}", launch.run);
        let has_base = || try_git(&fixture.repository, &["rev-parse", "-q", "--verify", &base]).0;
        assert!(!has_base());
        upkeep(&fixture).restore(&launch.run, None).await.unwrap();
        assert!(has_base());
        assert_eq!(seen(launch.tree()), before);
        git(launch.tree(), &["fsck", "--full"]);
    }
}

#[tokio::test]
async fn c28_a_workspace_of_several_repositories_comes_back_whole() {
    for dirty in [0, 1] {
        let fixture = Fixture::new();
        let second = fixture.path().join("second");
        let first = fixture.repository.to_str().unwrap();
        git(
            &fixture.path(),
            &["clone", "-q", first, second.to_str().unwrap()],
        );
        let request = request(WorkspaceRequest::Worktree(vec![
            fixture.spec(),
            RepositorySpec::new(&second),
        ]));
        let launch = fixture.launch_with(&request, Recorder::default()).await;
        launch.result.as_ref().unwrap();
        let trees: Vec<_> = launch
            .workspace()
            .repositories
            .iter()
            .map(|part| part.path.clone())
            .collect();
        work(&trees[dirty]);
        write(launch.tree().join("beside"), "x\n");
        let before: Vec<_> = trees.iter().map(|tree| seen(tree)).collect();
        fixture.undo(&launch, FORCE).await;
        assert!(!launch.tree().exists());
        let upkeep = upkeep(&fixture);
        let restored = upkeep.restore(&launch.run, None).await.unwrap();
        assert_eq!(restored.places, trees);
        assert_eq!(restored.branches.len(), 2);
        let after: Vec<_> = trees.iter().map(|tree| seen(tree)).collect();
        assert_eq!(after, before);
        assert!(launch.tree().join("beside").is_file());
        assert_eq!(
            restored.regained.owned.len(),
            launch.contribution.resources.len()
        );
        upkeep.restore(&launch.run, None).await.unwrap();
        assert_eq!(upkeep.settle(&launch.run).await.unwrap(), 3);
        reopen(&fixture.preparer(), launch.workspace())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_tree_that_a_process_uses_stays_in_the_trash() {
    let fixture = Fixture::new();
    let (_launch, _) = removed(&fixture).await;
    let upkeep = upkeep(&fixture);
    let place = upkeep.trash().await.unwrap()[0].place.clone().unwrap();
    let open = fs::File::open(place.join("f")).unwrap();
    let mut holder = holder(&open);
    drop(open);
    for dry_run in [true, false] {
        let emptied = upkeep.empty_trash(Duration::ZERO, dry_run).await.unwrap();
        assert_eq!((emptied.removed.len(), emptied.kept.len()), (0, 1));
        assert!(emptied.kept[0].1.contains("process"), "{emptied:?}");
    }
    holder.kill().unwrap();
    holder.wait().unwrap();
    let would = upkeep.empty_trash(Duration::ZERO, true).await.unwrap();
    assert!(place.is_dir());
    let did = upkeep.empty_trash(Duration::ZERO, false).await.unwrap();
    assert_eq!(would, did);
    assert!(!place.exists());
    let week = Duration::from_hours(7 * 24);
    assert_eq!(fixture.preparer().expire_trash(week).await.unwrap(), 0);
}

#[tokio::test]
async fn c01_a_young_tree_stays_when_what_was_to_be_deleted_at_once_lies_beside_it() {
    let fixture = Fixture::new();
    let (launch, before) = removed(&fixture).await;
    let upkeep = upkeep(&fixture);
    let place = upkeep.trash().await.unwrap()[0].place.clone().unwrap();
    let name = format!("{}-worktree-discard", launch.attempt);
    let discard = place.with_file_name(name);
    write(discard.join("half"), "x\n");
    let week = Duration::from_hours(7 * 24);
    for dry_run in [true, false] {
        let emptied = upkeep.empty_trash(week, dry_run).await.unwrap();
        assert_eq!((emptied.removed.len(), emptied.kept.len()), (0, 0));
        assert!(place.is_dir());
        assert_eq!(discard.exists(), dry_run);
    }
    upkeep.restore(&launch.run, None).await.unwrap();
    assert_eq!(seen(launch.tree()), before);
}

/// A process with that file open.
#[expect(clippy::disallowed_methods, reason = "a process that a test needs")]
fn holder(open: &fs::File) -> std::process::Child {
    std::process::Command::new("sleep")
        .arg("1000")
        .current_dir("/")
        .stdin(open.try_clone().unwrap())
        .spawn()
        .unwrap()
}

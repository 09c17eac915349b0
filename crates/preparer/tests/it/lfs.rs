//! Files of git-lfs: pointers unless they are asked for, and never lost for being outside of git.

use std::{fs, path::Path};

use groundcrew_core::{
    error::ErrorKind,
    preparer::Preparer as _,
    request::LaunchRequest,
    undo::Undone,
    workspace::{CloneObjects, WorkspaceRequest},
};
use groundcrew_preparer::GitProgram;

use crate::fixture::*;

const LARGE: &str = "large\n";

/// Runs git-lfs as a person does who has set it up.
fn lfs(directory: &Path, args: &[&str]) {
    let setup = [
        "-c",
        "filter.lfs.process=git-lfs filter-process",
        "-c",
        "filter.lfs.clean=git-lfs clean -- %f",
        "-c",
        "filter.lfs.smudge=git-lfs smudge -- %f",
        "-c",
        "filter.lfs.required=true",
    ];
    git(directory, &[&setup[..], args].concat());
}

/// A repository with a file of git-lfs, whose contents are in its store.
fn repository() -> Fixture {
    let fixture = Fixture::new();
    let repository = &fixture.repository;
    write(
        repository.join(".gitattributes"),
        "*.bin filter=lfs diff=lfs merge=lfs -text\n",
    );
    write(repository.join("a.bin"), LARGE);
    lfs(repository, &["add", "."]);
    lfs(repository, &["commit", "-qm", "lfs"]);
    let stored = git(repository, &["cat-file", "blob", "HEAD:a.bin"]);
    assert!(stored.starts_with("version https://git-lfs"), "{stored}");
    fixture
}

fn asking(fixture: &Fixture, clone: bool) -> LaunchRequest {
    let mut spec = fixture.spec();
    spec.lfs = true;
    request(if clone {
        WorkspaceRequest::Clone {
            repositories: vec![spec],
            objects: CloneObjects::Copied,
        }
    } else {
        WorkspaceRequest::Worktree(vec![spec])
    })
}

#[tokio::test]
async fn c28_f093_without_the_program_asking_for_files_of_lfs_makes_nothing() {
    let mut fixture = Fixture::new();
    let place = fixture.path().join("bin");
    fs::create_dir(&place).unwrap();
    std::os::unix::fs::symlink("/usr/bin/git", place.join("git")).unwrap();
    fixture.git = GitProgram::Search(place.clone().into_os_string());
    let before = fixture.fingerprint();
    for clone in [false, true] {
        let error = fixture.plan(&asking(&fixture, clone)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ProgramNotFound, "{error:?}");
        assert!(error.message().contains("install git-lfs"), "{error}");
        assert_eq!(error.get("program"), Some("git-lfs"));
        assert_eq!(error.get("PATH"), place.to_str());
    }
    fixture.assert_same(&before, "refused");
    assert!(!fixture.home().exists());
    // It is asked for, or it is not looked for.
    assert!(fixture.plan_spec(fixture.spec()).await.is_ok());
}

#[tokio::test]
async fn c28_f093_needs_git_lfs_files_are_pointers_or_what_they_point_to() {
    let fixture = repository();
    let before = fixture.fingerprint();
    for clone in [false, true] {
        let key = if clone { "clone" } else { "worktree" };
        let launch = fixture
            .launch_with(&asking(&fixture, clone), Recorder::default())
            .await;
        launch.result.as_ref().unwrap();
        let file = launch.tree().join("a.bin");
        assert_eq!(fs::read_to_string(&file).unwrap(), LARGE, "{key}");
        assert_eq!(git(launch.tree(), &["status", "--porcelain"]), "", "{key}");
        let warned = launch
            .contribution
            .warnings
            .iter()
            .any(|w| w.contains("lfs"));
        assert!(!warned, "{key}");
        let losses = || async {
            let record = launch.record(key);
            let assessed = fixture.preparer().assess(&record, CLOSE).await.unwrap();
            kinds(&assessed.losses).join(" ")
        };
        // What git-lfs has in the repository is no work; everything else in its place is.
        assert_eq!(losses().await, "", "{key}");
        write(&file, "larg3\n");
        assert_eq!(losses().await, "modified", "{key}");
        write(&file, LARGE);
        std::os::unix::fs::symlink("a.bin", launch.tree().join("l.bin")).unwrap();
        assert_eq!(losses().await, "untracked", "{key}");
        fs::remove_file(launch.tree().join("l.bin")).unwrap();
        assert_eq!(losses().await, "", "{key}");
        let store = fixture.repository.join(".git/lfs/objects");
        let away = fixture.path().join("away");
        fs::rename(&store, &away).unwrap();
        assert_eq!(losses().await, "modified", "{key}");
        fs::rename(&away, &store).unwrap();
        let undone = fixture.undo(&launch, REMOVE).await;
        assert_gone(&undone, key);
    }
    fixture.assert_same(&before, "removed");
    let launch = fixture.launch().await;
    let stored = fs::read_to_string(launch.tree().join("a.bin")).unwrap();
    assert!(stored.starts_with("version https://git-lfs"), "{stored}");
}

#[tokio::test]
async fn c02_f093_needs_git_lfs_what_a_clone_committed_to_lfs_comes_back_with_its_branch() {
    let fixture = repository();
    let launch = fixture
        .launch_with(&asking(&fixture, true), Recorder::default())
        .await;
    write(launch.tree().join("b.bin"), "more\n");
    lfs(launch.tree(), &["add", "."]);
    lfs(launch.tree(), &["commit", "-qm", "more"]);
    let undone = fixture.undo(&launch, CLOSE).await;
    assert_eq!(undone["clone"], Undone::REMOVED);
    let at = format!("{}:b.bin", launch.branch());
    let pointer = git(&fixture.repository, &["cat-file", "blob", &at]);
    let id = pointer.split("sha256:").nth(1).unwrap().get(..64).unwrap();
    let stored = fixture
        .repository
        .join(".git/lfs/objects")
        .join(&id[..2])
        .join(&id[2..4])
        .join(id);
    assert_eq!(fs::read_to_string(stored).unwrap(), "more\n");
    // One that is not what its name says keeps the clone.
    let launch = fixture
        .launch_with(&asking(&fixture, true), Recorder::default())
        .await;
    git(launch.tree(), &["commit", "-q", "--allow-empty", "-m", "x"]);
    let forged = "0".repeat(64);
    write(
        launch.tree().join(".git/lfs/objects/00/00").join(&forged),
        "x\n",
    );
    let undone = fixture.undo(&launch, CLOSE).await;
    assert_eq!(kinds(kept(&undone["clone"])), ["unreadable"]);
    assert!(launch.tree().exists());
}

#[tokio::test]
async fn f075_f093_needs_git_lfs_no_program_that_the_repository_names_writes_a_file() {
    let fixture = repository();
    let canary = fixture.path().join("canary");
    let touch = format!("touch '{}'", canary.display());
    let config = fixture.repository.join(".git/config");
    let clean = fs::read_to_string(&config).unwrap();
    for (section, refused) in [
        (
            format!(
                "[lfs \"extension.x\"]\n\tsmudge = {touch}\n\tclean = {touch}\n\tpriority = 0\n"
            ),
            true,
        ),
        (
            format!("[lfs \"customtransfer.x\"]\n\tpath = {touch}\n"),
            true,
        ),
        ("[lfs]\n\tstandalonetransferagent = x\n".to_owned(), true),
        (
            format!(
                "[filter \"lfs\"]\n\tprocess = {touch}\n\tsmudge = {touch}\n\tclean = {touch}\n[credential]\n\thelper = !{touch}\n\
                 [core]\n\tsshCommand = {touch}\n\tfsmonitor = {touch}\n\taskPass = {touch}\n"
            ),
            false,
        ),
    ] {
        fs::write(&config, format!("{clean}{section}")).unwrap();
        let before = fixture.fingerprint();
        let launch = fixture
            .launch_with(&asking(&fixture, false), Recorder::default())
            .await;
        match &launch.result {
            Ok(()) => {
                assert!(!refused, "{section}");
                assert_eq!(
                    fs::read_to_string(launch.tree().join("a.bin")).unwrap(),
                    LARGE
                );
            }
            Err(error) => {
                assert!(refused, "{section}: {error:?}");
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(error.get("setting").unwrap().starts_with("lfs."));
            }
        }
        assert_undone(&fixture, &launch, &section).await;
        fixture.assert_same(&before, &section);
        assert!(!canary.exists(), "{section}");
    }
}

#[tokio::test]
async fn f093_f127_needs_git_lfs_contents_that_are_nowhere_fail_the_launch_and_leave_nothing() {
    let fixture = repository();
    fs::remove_dir_all(fixture.repository.join(".git/lfs/objects")).unwrap();
    let before = fixture.fingerprint();
    let launch = fixture
        .launch_with(&asking(&fixture, false), Recorder::default())
        .await;
    let error = launch.result.as_ref().unwrap_err();
    assert!(format!("{error:?}").contains("a.bin"), "{error:?}");
    assert_undone(&fixture, &launch, "lfs").await;
    // What git-lfs notes for itself is in its own directory.
    drop(fs::remove_dir_all(fixture.repository.join(".git/lfs")));
    let before = before
        .into_iter()
        .filter(|(path, _)| !path.starts_with(fixture.repository.join(".git/lfs")))
        .collect();
    fixture.assert_same(&before, "lfs");
}

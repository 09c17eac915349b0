//! What runs while a worktree is made: git alone, in an environment of ours.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _};

use groundcrew_core::{
    cancel::CancelToken,
    env::{Definition, Key, Tier},
    error::ErrorKind,
    preparer::{Contribution, Preparer as _},
    undo::Undone,
    workspace::WorkspaceRequest,
};
use groundcrew_preparer::{GitProgram, UserGitConfig};
use rustix::fs::inotify;

use crate::fixture::*;

#[tokio::test]
async fn c28_f093_a_missing_filter_is_named_and_its_files_are_as_stored() {
    let fixture = Fixture::new();
    write(
        fixture.repository.join(".gitattributes"),
        "*.bin filter=lfs -text\n*.x filter=other\n",
    );
    write(
        fixture.repository.join("a.bin"),
        "version https://git-lfs.github.com/spec/v1\n",
    );
    git(&fixture.repository, &["add", "."]);
    git(&fixture.repository, &["commit", "-qm", "lfs"]);
    for (key, value) in [
        ("process", "absent-lfs filter-process"),
        ("smudge", "absent-lfs smudge -- %f"),
        ("clean", "absent-lfs clean -- %f"),
        ("required", "true"),
    ] {
        git(
            &fixture.repository,
            &["config", &format!("filter.lfs.{key}"), value],
        );
    }
    for _ in 0..2 {
        let launch = fixture.launch().await;
        let warnings = &launch.contribution.warnings;
        assert!(
            warnings.iter().any(|w| w.contains("lfs, other")),
            "{warnings:?}"
        );
        assert!(
            fs::read_to_string(launch.tree().join("a.bin"))
                .unwrap()
                .starts_with("version")
        );
        assert_eq!(git(launch.tree(), &["status", "--porcelain"]), "");
        assert!(fixture.losses(&launch, REMOVE).await.is_empty());
    }
}

#[tokio::test]
async fn c29_f075_f078_nothing_of_the_repository_is_executed() {
    let fixture = Fixture::new();
    let canary = fixture.path().join("canary");
    let touch = format!("touch '{}'", canary.display());
    write(
        fixture.repository.join(".gitattributes"),
        "* filter=evil diff=evil\n",
    );
    git(&fixture.repository, &["add", "."]);
    git(&fixture.repository, &["commit", "-qm", "attributes"]);
    for hook in [
        "post-checkout",
        "post-index-change",
        "reference-transaction",
        "pre-auto-gc",
        "post-commit",
    ] {
        let path = fixture.repository.join(".git/hooks").join(hook);
        write(&path, &format!("#!/bin/sh\n{touch}\nexit 1\n"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let included = fixture.repository.join(".git/more");
    write(
        &included,
        &format!(
            "[filter \"evil\"]\nsmudge = {touch}\nclean = {touch}\nprocess = {touch}\nrequired = true\n"
        ),
    );
    let command = format!("{touch}; false");
    for (key, value) in [
        ("include.path", included.to_str().unwrap()),
        ("core.fsmonitor", &*command),
        ("core.sshCommand", &*command),
        ("credential.helper", &*command),
        ("diff.external", &*command),
        ("core.pager", &*command),
        ("alias.worktree", &*format!("!{command}")),
    ] {
        git_quiet_config(&fixture, key, value);
    }
    let before = fixture.fingerprint();
    let launch = fixture.launch().await;
    assert!(!canary.exists());
    write(launch.tree().join("new"), "x\n");
    assert_eq!(kinds(&fixture.losses(&launch, REMOVE).await), ["untracked"]);
    fixture.preparer().report(launch.workspace()).await.unwrap();
    fs::remove_file(launch.tree().join("new")).unwrap();
    fixture.undo(&launch, REMOVE).await;
    assert!(!canary.exists());
    fixture.assert_same(&before, "repository");
}

fn git_quiet_config(fixture: &Fixture, key: &str, value: &str) {
    let file = fixture.repository.join(".git/config");
    git(
        &fixture.path(),
        &["config", "--file", file.to_str().unwrap(), key, value],
    );
}

#[tokio::test]
async fn c05_f079_git_gets_an_environment_made_from_nothing() {
    let mut fixture = Fixture::new();
    let log = fixture.path().join("environment");
    let script = fixture.path().join("bin/git");
    write(
        &script,
        &format!(
            "#!/bin/sh\n/usr/bin/env >>'{}'\nPATH=/usr/local/bin:/usr/bin:/bin exec git \"$@\"\n",
            log.display()
        ),
    );
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fixture.git = GitProgram::Path(script);
    let launch = fixture.launch().await;
    let text = fs::read_to_string(log).unwrap();
    let names: BTreeSet<&str> = text
        .lines()
        .filter_map(|l| l.split_once('='))
        .map(|(k, _)| k)
        .collect();
    for name in [
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "XDG_CONFIG_HOME",
        "CARGO",
        "USER",
    ] {
        assert!(!names.contains(name), "{names:?}");
    }
    for name in [
        "GIT_CONFIG_GLOBAL=/dev/null",
        "GIT_TERMINAL_PROMPT=0",
        "HOME=/dev/null",
        "LC_ALL=C",
    ] {
        assert!(text.contains(name), "{name}");
    }
    fixture.undo(&launch, REMOVE).await;
}

#[tokio::test]
async fn both_versions_of_git_on_the_machine_work() {
    for program in ["/usr/local/bin/git", "/usr/bin/git"] {
        if !std::path::Path::new(program).exists() {
            continue;
        }
        let mut fixture = Fixture::new();
        fixture.git = GitProgram::Path(program.into());
        let before = fixture.fingerprint();
        let launch = fixture.launch().await;
        assert_eq!(git(launch.tree(), &["status", "--porcelain"]), "");
        let undone = fixture.undo(&launch, REMOVE).await;
        assert!(
            undone.values().all(|undone| *undone == Undone::REMOVED),
            "{undone:?}"
        );
        fixture.assert_same(&before, "repository");
    }
}

#[tokio::test]
async fn a_missing_git_program_is_named() {
    let mut fixture = Fixture::new();
    fixture.git = GitProgram::Search(fixture.path().join("nothing").into());
    let error = fixture.plan_spec(fixture.spec()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ProgramNotFound);
}

#[tokio::test]
async fn an_identity_is_supplied_only_where_nobody_has_one() {
    let fixture = Fixture::new();
    let keys = |contribution: &Contribution| -> Vec<String> {
        contribution
            .environment
            .iter()
            .map(|d| d.key.to_string())
            .collect()
    };
    let contribution = fixture.plan_spec(fixture.spec()).await.unwrap();
    assert_eq!(
        keys(&contribution),
        [
            "GIT_AUTHOR_NAME",
            "GIT_AUTHOR_EMAIL",
            "GIT_COMMITTER_NAME",
            "GIT_COMMITTER_EMAIL"
        ]
    );
    assert!(contribution.warnings.iter().any(|w| w.contains("identity")));
    let mut request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
    for key in ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL"] {
        let key = Key::new(key).unwrap();
        request
            .environment
            .push(Definition::literal(key, "x", Tier::Inherited, "caller"));
    }
    assert_eq!(
        keys(&fixture.plan(&request).await.unwrap()),
        ["GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"]
    );
    git(&fixture.repository, &["config", "user.name", "n"]);
    git(&fixture.repository, &["config", "user.email", "e"]);
    let contribution = fixture.plan_spec(fixture.spec()).await.unwrap();
    assert!(contribution.environment.is_empty() && contribution.warnings.is_empty());
}

#[tokio::test]
async fn the_users_line_ends_are_written() {
    let fixture = Fixture::new();
    let file = fixture.path().join("gitconfig");
    write(&file, "[core]\n\tautocrlf = true\n");
    let preparer = fixture.preparer_of(UserGitConfig {
        global: Some(file),
        ..UserGitConfig::default()
    });
    let request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
    let recorder = Recorder::default();
    let launch = launch(
        &preparer,
        &fixture.install,
        &request,
        &recorder,
        &CancelToken::new(),
    )
    .await;
    launch.result.as_ref().unwrap();
    assert_eq!(
        fs::read_to_string(launch.tree().join("f")).unwrap(),
        "one\r\n"
    );
    let undone = preparer
        .undo(&launch.record("worktree"), REMOVE)
        .await
        .unwrap();
    assert_eq!(undone, Undone::REMOVED);
}

#[tokio::test]
async fn f094_another_users_repository_is_refused_with_its_path() {
    let fixture = Fixture::new();
    if rustix::process::geteuid().as_raw() != 0 {
        eprintln!("skipped: only root can give a repository away");
        return;
    }
    for path in [fixture.repository.join(".git"), fixture.repository.clone()] {
        std::os::unix::fs::chown(path, Some(1234), Some(1234)).unwrap();
    }
    let error = fixture.plan_spec(fixture.spec()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.message().contains("safe.directory"), "{error}");
    assert_eq!(error.get("path"), fixture.repository.to_str());
}

#[tokio::test]
async fn repositories_that_cannot_be_read_are_told_why() {
    let fixture = Fixture::new();
    let sha256 = fixture.path().join("sha256");
    fs::create_dir(&sha256).unwrap();
    git(&sha256, &["init", "-q", "--object-format=sha256"]);
    git(&sha256, &["commit", "-q", "--allow-empty", "-m", "first"]);
    let mut spec = fixture.spec();
    spec.path = sha256;
    let error = fixture.plan_spec(spec).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
    git(
        &fixture.repository,
        &["config", "core.repositoryFormatVersion", "1"],
    );
    git(
        &fixture.repository,
        &["config", "extensions.partialClone", "origin"],
    );
    let error = fixture.plan_spec(fixture.spec()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
}

#[tokio::test]
async fn a_state_directory_behind_a_link_and_others_locked_worktrees_confuse_nobody() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path().join("real")).unwrap();
    std::os::unix::fs::symlink(fixture.path().join("real"), fixture.home()).unwrap();
    // A lock without a reason is an empty file.
    let foreign = fixture.path().join("foreign");
    let foreign = foreign.to_str().unwrap();
    git(
        &fixture.repository,
        &["worktree", "add", "-q", "--lock", "-b", "z", foreign],
    );
    let before = fixture.fingerprint();
    let launch = fixture.launch().await;
    write(launch.tree().join("x"), "x\n");
    let preparer = fixture.preparer();
    reopen(&preparer, launch.workspace()).await.unwrap();
    assert!(preparer.report(launch.workspace()).await.unwrap().dirty);
    fs::remove_file(launch.tree().join("x")).unwrap();
    let undone = fixture.undo(&launch, REMOVE).await;
    assert!(
        undone.values().all(|undone| *undone == Undone::REMOVED),
        "{undone:?}"
    );
    assert!(reopen(&preparer, launch.workspace()).await.is_err());
    fixture.assert_same(&before, "repository");
}

#[tokio::test]
async fn f086_a_branch_made_between_plan_and_apply_is_not_touched() {
    let fixture = Fixture::new();
    let mut spec = fixture.spec();
    spec.branch = Some("wanted".to_owned());
    let request = request(WorkspaceRequest::Worktree(vec![spec]));
    let recorder = Recorder {
        run_at: Some(
            ("directory-made", fixture.repository.clone(), |repository| {
                git(repository, &["branch", "wanted"]);
            }),
        ),
        ..Recorder::default()
    };
    let launch = fixture.launch_with(&request, recorder).await;
    let error = launch.result.as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error:?}");
    let undone = fixture.undo(&launch, FAILURE).await;
    assert!(matches!(undone["branch"], Undone::NotOurs(_)), "{undone:?}");
    git(
        &fixture.repository,
        &["rev-parse", "--verify", "-q", "wanted"],
    );
    fixture.assert_home_is_empty();
}

#[tokio::test]
async fn f080_a_lock_that_a_clean_up_has_on_the_new_worktree_is_waited_for() {
    let fixture = Fixture::new();
    let recorder = Recorder {
        run_at: Some(("files-written", fixture.repository.clone(), |repository| {
            let mut entries = fs::read_dir(repository.join(".git/worktrees")).unwrap();
            let entry = entries.next().unwrap().unwrap().path();
            let lock = entry.join("HEAD.lock");
            write(&lock, "");
            let watch = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
            inotify::add_watch(&watch, &entry, inotify::WatchFlags::CLOSE_NOWRITE).unwrap();
            // It goes once somebody has listed the directory and found it.
            std::thread::spawn(move || {
                let mut space = [std::mem::MaybeUninit::uninit(); 4096];
                let mut events = inotify::Reader::new(&watch, &mut space);
                while !events
                    .next()
                    .unwrap()
                    .events()
                    .contains(inotify::ReadFlags::ISDIR)
                {}
                fs::remove_file(lock).unwrap();
            });
        })),
        ..Recorder::default()
    };
    let request = request(WorkspaceRequest::Worktree(vec![fixture.spec()]));
    let launch = fixture.launch_with(&request, recorder).await;
    launch.result.as_ref().unwrap();
    assert_eq!(git(launch.tree(), &["status", "--porcelain"]), "");
}

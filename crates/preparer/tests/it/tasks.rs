//! Directories of tasks, and folders that a person picked.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
};

use groundcrew_core::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
    id::{AttemptId, InstallId, PreparerName, RunId, TaskId, TenantId},
    identity::Identity,
    preparer::{ApplyContext, Contribution, PlanContext, Preparer as _},
    undo::{Component, UndoRecord, Undone},
    workspace::WorkspaceRequest,
};
use groundcrew_preparer::{InPlacePreparer, ScratchConfig, ScratchPreparer, UserGitConfig};
use tempfile::TempDir;

use crate::fixture::*;

struct Tasks {
    root: TempDir,
    install: InstallId,
    user: UserGitConfig,
}

struct Made {
    contribution: Contribution,
    record: UndoRecord,
    result: Result<(), Error>,
    path: PathBuf,
}

impl Tasks {
    fn new() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
            install: InstallId::new("testinstall").unwrap(),
            user: UserGitConfig::default(),
        }
    }

    fn path(&self) -> PathBuf {
        self.root.path().join("tasks/tenant/task")
    }

    fn preparer(&self) -> ScratchPreparer {
        ScratchPreparer::new(ScratchConfig {
            tasks: self.root.path().join("tasks"),
            trash: self.root.path().join("trash"),
            install: self.install.clone(),
            user: self.user.clone(),
        })
        .unwrap()
    }

    async fn make(&self, recorder: Recorder) -> Made {
        let request = request(WorkspaceRequest::Scratch {
            tenant: TenantId::new("tenant").unwrap(),
            task: TaskId::new("task").unwrap(),
        });
        let (attempt, run) = (AttemptId::generate().unwrap(), RunId::generate().unwrap());
        let plan = PlanContext {
            request: &request,
            install: &self.install,
            run: &run,
            attempt,
        };
        let preparer = self.preparer();
        let contribution = preparer.plan(plan).await.unwrap().unwrap();
        let result = preparer
            .apply(ApplyContext {
                plan,
                contribution: &contribution,
                effects: &recorder,
                progress: &recorder,
                cancel: &CancelToken::new(),
            })
            .await;
        let planned = &contribution.resources[0];
        let record = UndoRecord {
            key: planned.key.clone(),
            attempt,
            component: Component::Preparer(PreparerName::new("scratch").unwrap()),
            resource: planned.resource.clone(),
            label: planned.label.clone(),
            due: planned.due,
            depends_on: Vec::new(),
            identity: identity(&recorder, &planned.key),
        };
        Made {
            path: contribution.workspace.as_ref().unwrap().path.clone(),
            contribution,
            record,
            result,
        }
    }
}

fn identity(recorder: &Recorder, key: &str) -> Option<Identity> {
    recorder.identities.lock().unwrap().get(key).cloned()
}

#[tokio::test]
async fn k37_a_scratch_directory_is_marked_and_git_does_not_see_the_mark() {
    let tasks = Tasks::new();
    let made = tasks.make(Recorder::default()).await;
    made.result.unwrap();
    assert!(made.path.ends_with("tasks/tenant/task"));
    let marker = fs::read_to_string(made.path.join(".groundcrew-workspace.json")).unwrap();
    let marker: serde_json::Value = serde_json::from_str(&marker).unwrap();
    assert_eq!(
        (&marker["task"], &marker["tenant"]),
        (&"task".into(), &"tenant".into())
    );
    assert_eq!(marker["layout"], "scratch");
    assert_eq!(git(&made.path, &["status", "--porcelain"]), "");
    assert_eq!(git(&made.path, &["branch", "--show-current"]), "main");
    let workspace = made.contribution.workspace.unwrap();
    assert!(!workspace.owned);
    reopen(&tasks.preparer(), &workspace).await.unwrap();
    assert!(!tasks.preparer().report(&workspace).await.unwrap().dirty);
    write(made.path.join("work"), "x\n");
    assert!(tasks.preparer().report(&workspace).await.unwrap().dirty);
    assert_eq!(tasks.preparer().list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn w20_a_scratch_repository_has_nothing_of_the_users_templates_hooks_and_signing() {
    let mut tasks = Tasks::new();
    let root = tasks.root.path().to_owned();
    let canary = root.join("canary");
    let tool = root.join("tool");
    write(
        &tool,
        &format!("#!/bin/sh\n: >'{}'\nexit 1\n", canary.display()),
    );
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    for hook in [
        "post-commit",
        "pre-commit",
        "reference-transaction",
        "post-checkout",
    ] {
        for place in ["template/hooks", "hooks"] {
            fs::create_dir_all(root.join(place)).unwrap();
            fs::copy(&tool, root.join(place).join(hook)).unwrap();
        }
    }
    write(root.join("template/planted"), "x\n");
    let user = root.join("gitconfig");
    write(
        &user,
        &format!(
            "[init]\n\ttemplateDir = {0}/template\n\tdefaultBranch = other\n[core]\n\thooksPath = {0}/hooks\n\tfsmonitor = {1}\n\
             [commit]\n\tgpgSign = true\n[gpg]\n\tprogram = {1}\n",
            root.display(),
            tool.display()
        ),
    );
    tasks.user.global = Some(user);
    let made = tasks.make(Recorder::default()).await;
    made.result.unwrap();
    assert!(!canary.exists());
    assert!(!made.path.join(".git/planted").exists());
    assert!(!made.path.join(".git/hooks/pre-commit").exists());
    assert_eq!(git(&made.path, &["log", "--format=%s %G?"]), "Begin N");
    assert_eq!(git(&made.path, &["branch", "--show-current"]), "main");
}

#[tokio::test]
async fn k38_excludes_that_are_there_are_kept() {
    let tasks = Tasks::new();
    tasks.make(Recorder::default()).await.result.unwrap();
    let exclude = tasks.path().join(".git/info/exclude");
    fs::write(&exclude, "mine").unwrap();
    for _ in 0..2 {
        tasks.make(Recorder::default()).await.result.unwrap();
    }
    assert_eq!(
        fs::read_to_string(&exclude).unwrap(),
        "mine\n/.groundcrew-workspace.json\n"
    );
}

#[tokio::test]
async fn k39_k40_w21_planted_links_are_refused_and_their_targets_untouched() {
    for (link, target, words) in [
        (".git", "victim", "invalid git directory"),
        (
            ".git/info/exclude",
            "victim/file",
            "invalid git exclude file",
        ),
        (".git/info", "victim", "invalid git exclude file"),
        (".groundcrew-workspace.json", "victim/file", "marker"),
    ] {
        let tasks = Tasks::new();
        tasks.make(Recorder::default()).await.result.unwrap();
        let victim = tasks.root.path().join("victim");
        write(victim.join("file"), "keep\n");
        let path = tasks.path().join(link);
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        symlink(tasks.root.path().join(target), &path).unwrap();
        let error = tasks.make(Recorder::default()).await.result.unwrap_err();
        assert!(error.message().contains(words), "{link}: {error}");
        assert_eq!(fs::read_to_string(victim.join("file")).unwrap(), "keep\n");
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 1);
    }
}

#[tokio::test]
async fn k41_k42_ids_that_would_escape_are_no_ids() {
    for id in ["", ".", "..", "a/b"] {
        assert!(
            TaskId::new(id).is_err() && TenantId::new(id).is_err(),
            "{id:?}"
        );
    }
}

#[tokio::test]
async fn a_task_directory_goes_only_with_the_failed_launch_that_made_it() {
    let tasks = Tasks::new();
    for at in [
        None,
        Some("directory-made"),
        Some("repository-made"),
        Some("identify"),
    ] {
        let recorder = Recorder {
            fail_at: at,
            ..Recorder::default()
        };
        let made = tasks.make(recorder).await;
        assert_eq!(made.result.is_err(), at.is_some());
        let undone = tasks.preparer().undo(&made.record, FAILURE).await.unwrap();
        assert_eq!(undone, Undone::REMOVED, "{at:?}");
        assert!(!tasks.root.path().join("tasks/tenant").exists());
        assert_eq!(
            fs::read_dir(tasks.root.path().join("trash"))
                .unwrap()
                .count(),
            0
        );
        let undone = tasks.preparer().undo(&made.record, FAILURE).await.unwrap();
        assert_eq!(undone, Undone::AlreadyGone);
    }
    let first = tasks.make(Recorder::default()).await;
    let second = tasks.make(Recorder::default()).await;
    second.result.unwrap();
    let undone = tasks
        .preparer()
        .undo(&second.record, FAILURE)
        .await
        .unwrap();
    assert!(matches!(undone, Undone::NotOurs(_)), "{undone:?}");
    git(
        &tasks.path(),
        &["commit", "-q", "--allow-empty", "-m", "work"],
    );
    let undone = tasks.preparer().undo(&first.record, FAILURE).await.unwrap();
    assert_eq!(kinds(kept(&undone)), ["commits"]);
    write(tasks.path().join("f"), "x\n");
    let undone = tasks.preparer().undo(&first.record, FAILURE).await.unwrap();
    assert_eq!(kinds(kept(&undone)), ["untracked", "commits"]);
    assert!(tasks.path().join("f").is_file());
}

#[tokio::test]
async fn k43_a_picked_folder_is_used_as_it_is() {
    let root = tempfile::tempdir().unwrap();
    let preparer = InPlacePreparer::new().unwrap();
    let install = InstallId::new("i").unwrap();
    let (attempt, run) = (AttemptId::generate().unwrap(), RunId::generate().unwrap());
    let plan = async |path: PathBuf| {
        let request = request(WorkspaceRequest::InPlace { path });
        preparer
            .plan(PlanContext {
                request: &request,
                install: &install,
                run: &run,
                attempt,
            })
            .await
    };
    let contribution = plan(root.path().to_owned()).await.unwrap().unwrap();
    assert!(contribution.resources.is_empty());
    let workspace = contribution.workspace.unwrap();
    assert_eq!((&*workspace.path, workspace.owned), (root.path(), false));
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    reopen(&preparer, &workspace).await.unwrap();
    let file = root.path().join("file");
    fs::write(&file, "x").unwrap();
    for missing in [root.path().join("missing"), file] {
        let error = plan(missing).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DirectoryNotFound);
    }
}

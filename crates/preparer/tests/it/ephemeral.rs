//! Directories of sessions.

use std::fs;

use groundcrew_core::{
    cancel::CancelToken,
    error::ErrorKind,
    id::{AttemptId, InstallId, PreparerName, RunId, SessionId, TaskId, TenantId},
    preparer::{ApplyContext, Contribution, PlanContext, Preparer as _},
    request::LaunchRequest,
    undo::{Component, UndoOptions, UndoRecord, Undone},
    workspace::WorkspaceRequest,
};
use groundcrew_preparer::{
    EphemeralConfig, EphemeralPreparer, ScratchConfig, ScratchPreparer, UserGitConfig,
};
use tempfile::TempDir;

use crate::fixture::*;

struct Sessions {
    root: TempDir,
    install: InstallId,
}

struct Made {
    contribution: Contribution,
    record: UndoRecord,
    passed: Vec<String>,
}

impl Sessions {
    fn new() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
            install: InstallId::new("testinstall").unwrap(),
        }
    }

    fn preparer(&self) -> EphemeralPreparer {
        EphemeralPreparer::new(EphemeralConfig {
            sessions: self.root.path().join("quick-chat"),
            trash: self.root.path().join("trash"),
            install: self.install.clone(),
            user: UserGitConfig::default(),
        })
        .unwrap()
    }

    async fn make(&self, request: &LaunchRequest, recorder: Recorder) -> Made {
        let (attempt, run) = (AttemptId::generate().unwrap(), RunId::generate().unwrap());
        let plan = PlanContext {
            request,
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
        assert_eq!(result.is_err(), recorder.fail_at.is_some());
        let planned = &contribution.resources[0];
        let record = UndoRecord {
            key: planned.key.clone(),
            attempt,
            component: Component::Preparer(PreparerName::new("ephemeral").unwrap()),
            resource: planned.resource.clone(),
            label: planned.label.clone(),
            due: planned.due,
            depends_on: Vec::new(),
            identity: recorder
                .identities
                .lock()
                .unwrap()
                .get(&planned.key)
                .cloned(),
        };
        let passed = recorder.passed.lock().unwrap().clone();
        Made {
            contribution,
            record,
            passed,
        }
    }

    async fn undo(&self, made: &Made, options: UndoOptions) -> Undone {
        self.preparer().undo(&made.record, options).await.unwrap()
    }

    fn trashed(&self) -> usize {
        fs::read_dir(self.root.path().join("trash")).map_or(0, Iterator::count)
    }
}

#[tokio::test]
async fn k36_a_session_has_a_directory_of_its_own_that_goes_when_it_is_closed() {
    let sessions = Sessions::new();
    let request = request(WorkspaceRequest::Ephemeral);
    let made = sessions.make(&request, Recorder::default()).await;
    let workspace = made.contribution.workspace.clone().unwrap();
    assert!(workspace.path.ends_with("quick-chat/s") && workspace.owned);
    assert_eq!(sessions.preparer().list().await.unwrap().len(), 1);
    assert!(!sessions.preparer().report(&workspace).await.unwrap().dirty);
    reopen(&sessions.preparer(), &workspace).await.unwrap();
    assert_eq!(sessions.undo(&made, CLOSE).await, Undone::REMOVED);
    assert!(!workspace.path.exists() && sessions.trashed() == 0);
    assert_eq!(sessions.undo(&made, CLOSE).await, Undone::AlreadyGone);
    assert!(reopen(&sessions.preparer(), &workspace).await.is_err());
    // What was put in it goes to the trash, on every occasion.
    for (count, options) in [CLOSE, REMOVE, FAILURE, FORCE].into_iter().enumerate() {
        let made = sessions.make(&request, Recorder::default()).await;
        write(workspace.path.join("notes"), "x\n");
        assert!(sessions.preparer().report(&workspace).await.unwrap().dirty);
        let assessment = sessions
            .preparer()
            .assess(&made.record, options)
            .await
            .unwrap();
        assert!(assessment.changed && assessment.losses.is_empty());
        assert_eq!(sessions.undo(&made, options).await, Undone::REMOVED);
        assert!(!workspace.path.exists());
        assert_eq!(sessions.trashed(), count + 1);
    }
    let kept = fs::read_dir(sessions.root.path().join("trash")).unwrap();
    for entry in kept {
        assert!(entry.unwrap().path().join("notes").is_file());
    }
}

#[tokio::test]
async fn f067_a_session_directory_whose_launch_ends_anywhere_leaves_nothing() {
    let sessions = Sessions::new();
    let request = request(WorkspaceRequest::Ephemeral);
    let whole = sessions.make(&request, Recorder::default()).await;
    assert_eq!(whole.passed, ["directory-made", "marked"]);
    assert_eq!(sessions.undo(&whole, FAILURE).await, Undone::REMOVED);
    for at in ["identify", "directory-made", "marked"] {
        let recorder = Recorder {
            fail_at: Some(at),
            ..Recorder::default()
        };
        let mut made = sessions.make(&request, recorder).await;
        made.record.identity = None;
        assert_eq!(sessions.undo(&made, FAILURE).await, Undone::REMOVED, "{at}");
        assert!(!sessions.root.path().join("quick-chat/s").exists(), "{at}");
        assert_eq!(sessions.trashed(), 0);
    }
}

#[tokio::test]
async fn f058_f061_a_directory_that_is_not_ours_is_left() {
    let sessions = Sessions::new();
    let request = request(WorkspaceRequest::Ephemeral);
    let path = sessions.root.path().join("quick-chat/s");
    let made = sessions.make(&request, Recorder::default()).await;
    fs::rename(&path, sessions.root.path().join("away")).unwrap();
    write(path.join("notes"), "mine\n");
    for options in [CLOSE, FORCE, FAILURE] {
        let undone = sessions.undo(&made, options).await;
        assert!(matches!(undone, Undone::NotOurs(_)), "{undone:?}");
    }
    // Without its identity the mark decides.
    let mut made = made;
    made.record.identity = None;
    let undone = sessions.undo(&made, FORCE).await;
    assert!(matches!(undone, Undone::NotOurs(_)), "{undone:?}");
    let (attempt, run) = (AttemptId::generate().unwrap(), RunId::generate().unwrap());
    let error = sessions
        .preparer()
        .plan(PlanContext {
            request: &request,
            install: &sessions.install,
            run: &run,
            attempt,
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(error.get("path"), path.to_str());
    assert!(path.join("notes").is_file());
}

#[tokio::test]
async fn k41_k42_ids_become_safe_names_of_directories() {
    let sessions = Sessions::new();
    for id in [".", "..", "a/b", "a\\b", "", "a\0b"] {
        assert!(SessionId::new(id).is_err(), "{id:?}");
    }
    let mut names = Vec::new();
    for id in ["chat", "Chat", "CHAT"] {
        let mut request = request(WorkspaceRequest::Ephemeral);
        request.session = Some(SessionId::new(id).unwrap());
        let made = sessions.make(&request, Recorder::default()).await;
        let path = made.contribution.workspace.unwrap().path;
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    for name in &names {
        assert_eq!(*name, name.to_lowercase());
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 3, "{names:?}");
}

#[tokio::test]
async fn k41_k44_a_worktree_of_no_repository_is_the_tasks_own_directory() {
    let root = tempfile::tempdir().unwrap();
    let preparer = ScratchPreparer::new(ScratchConfig {
        tasks: root.path().join("tasks"),
        trash: root.path().join("trash"),
        install: InstallId::new("testinstall").unwrap(),
        user: UserGitConfig::default(),
    })
    .unwrap();
    let install = InstallId::new("i").unwrap();
    let (attempt, run) = (AttemptId::generate().unwrap(), RunId::generate().unwrap());
    let plan = async |request: &LaunchRequest| {
        preparer
            .plan(PlanContext {
                request,
                install: &install,
                run: &run,
                attempt,
            })
            .await
    };
    let mut request = request(WorkspaceRequest::Worktree(Vec::new()));
    request.task = Some(TaskId::new("task").unwrap());
    let error = plan(&request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().contains("tenant"), "{error}");
    request.tenant = Some(TenantId::new("tenant").unwrap());
    let workspace = plan(&request).await.unwrap().unwrap().workspace.unwrap();
    assert!(workspace.path.ends_with("tasks/tenant/task"));
    assert_eq!(workspace.kind, "scratch");
}

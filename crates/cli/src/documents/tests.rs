//! The shapes that programs rely on.

use super::*;
use groundcrew_core::{
    error::ErrorKind,
    id::{AttemptId, ExecutorName, PreparerName, RunId, SessionId, TaskId},
    process::{EndCause, ExitStatus, Signal},
    wire::OsText,
    workspace::{self, Workspace},
};

fn record() -> RunRecord {
    let attempt: AttemptId = "0123456789abcdef0123456789abcdef".parse().unwrap();
    RunRecord {
        run: RunId::new("abc").unwrap(),
        session: SessionId::new("s").unwrap(),
        task: TaskId::new("t").unwrap(),
        tenant: None,
        attempt,
        revision: 3,
        executor: ExecutorName::new("worktree").unwrap(),
        instance: attempt.instance(),
        process: None,
        share_key: None,
        limits: groundcrew_core::executor::Limits::default(),
        options: Map::new(),
        state: RunState::Exited,
        title: None,
        command: Some(vec![
            OsText::new("sh"),
            OsText::from_bytes(b"\xff".to_vec()),
        ]),
        workspace: Some(Workspace {
            kind: "worktree".into(),
            preparer: PreparerName::new("worktree").unwrap(),
            path: "/w/r".into(),
            directory: "/w/r/sub".into(),
            repository: Some("/r".into()),
            branch: Some("groundcrew/x".into()),
            base: Some("b0".into()),
            owned: true,
            repositories: Vec::new(),
        }),
        lease: Lease::After(Duration::from_secs(90)),
        created_ms: 0,
        ended_ms: Some(1_500),
        exit: Some(ExitStatus::exited(7)),
        agent: None,
        secrets: Vec::new(),
        runtime_secrets: Vec::new(),
        scripts: groundcrew_core::script::Scripts::default(),
        resume_token: None,
        keep: false,
        before: None,
        kept: Vec::new(),
        problem: None,
    }
}

#[test]
fn the_document_of_a_run_keeps_its_shape() {
    let report = WorkspaceReport {
        commits: vec![workspace::Commit {
            id: "c1".into(),
            subject: "hello".into(),
        }],
        commit_count: 1,
        dirty: true,
    };
    let document = Document::new(Run::new(&record(), Some(&report)));
    let golden = concat!(
        r#"{"schema_version":1,"id":"abc","session":"s","executor":"worktree","state":"exited","workspace":"/w/r","#,
        r#""repository":"/r","branch":"groundcrew/x","base":"b0","commits":[{"id":"c1","subject":"hello"}],"#,
        r#""exit_code":7,"signal":null,"commit_count":1,"dirty":true,"kind":"worktree","directory":"/w/r/sub","#,
        r#""task":"t","command":["sh",{"base64":"/w=="}],"title":null,"lease_seconds":90.0,"keep":false,"#,
        r#""created":"1970-01-01T00:00:00.000Z","ended":"1970-01-01T00:00:01.500Z","kept":[],"problem":null}"#,
    );
    assert_eq!(serde_json::to_string(&document).unwrap(), golden);
}

#[test]
fn the_exit_code_of_a_document_is_that_of_run() {
    let with = |code, signal, cause| {
        let exit = ExitStatus {
            code,
            signal,
            core_dumped: false,
            cause,
        };
        let run = Run::new(
            &RunRecord {
                exit: Some(exit),
                ..record()
            },
            None,
        );
        (run.exit_code, run.signal)
    };
    assert_eq!(
        with(None, Some(Signal::KILL), EndCause::Itself),
        (Some(137), Some("SIGKILL".into()))
    );
    assert_eq!(
        with(None, Some(Signal::TERM), EndCause::TimedOut),
        (Some(124), Some("SIGTERM".into()))
    );
}

#[test]
fn a_closed_run_still_tells_where_it_was() {
    let closed = RunRecord {
        state: RunState::Closed,
        ..record()
    };
    let run = Run::new(&closed, None);
    assert!(run.workspace.is_some() && run.directory.is_some());
    assert_eq!(run.branch.as_deref(), Some("groundcrew/x"));
}

#[test]
fn a_failure_names_kind_message_and_context() {
    let error = Error::io(
        "failed to open it",
        std::io::Error::from(std::io::ErrorKind::NotFound),
    )
    .with("path", "/x");
    let failed = Document::new(Failed {
        error: Failure::from(&error),
    });
    assert_eq!(
        serde_json::to_string(&failed).unwrap(),
        r#"{"schema_version":1,"error":{"kind":"not_found","message":"failed to open it: entity not found","step":null,"context":{"path":"/x"},"rollback":null}}"#
    );
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn moments_that_no_calendar_holds_do_not_panic() {
    assert_eq!(moment(u64::MAX), "");
    assert_eq!(moment(1), "1970-01-01T00:00:00.001Z");
}

//! The suite for instances: the strict one in memory passes it, and each that is wrong on purpose fails its case.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::StreamExt as _;
use groundcrew_core::{
    async_trait,
    env::Environment,
    error::{Error, ErrorKind},
    executor::Executor as _,
    id::{ExecutorName, ProcessId},
    instance::{ByteStream, Instance, McpServer, SharedInstance, Stdio},
    process::{
        ExitStatus, Frame, FrameKind, Lease, Offset, ProcessSpec, ProcessState, Role, Signal,
        Started, TerminalSize,
    },
    wire::OsText,
};
use groundcrew_testkit::{
    conformance::{self, Fixture, Need, Program},
    memory::{MemoryExecutor, MemoryWorld},
};

use crate::support::{id, instance_spec};

/// What an instance does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    StartsNothingTwice,
    StartsAnythingTwice,
    KnowsEveryProcess,
    ForgetsTheEnvironment,
    ListsBackwards,
    ReplaysAll,
    LosesStandardError,
    RepeatsTheFirstFrame,
    GivesViewersTheInput,
    ClosesTheInputOnce,
    WaitsForOneCaller,
    MindsSignalsToTheDead,
    ResizesPipes,
    EndsPolitelyOnly,
    PacksNothing,
}

#[derive(Debug)]
struct Wrong {
    inner: SharedInstance,
    fault: Fault,
    /// Who was asked for before, by verb and process.
    asked: Mutex<Vec<String>>,
}

impl Wrong {
    /// Returns whether the fault is this one.
    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// Returns whether something was asked before, and remembers it.
    fn before(&self, what: String) -> bool {
        let mut asked = self.asked.lock().unwrap();
        let known = asked.contains(&what);
        asked.push(what);
        known
    }
}

fn refusal() -> Error {
    Error::new(ErrorKind::Conflict, "wrong on purpose")
}

#[async_trait]
impl Instance for Wrong {
    async fn set_environment(&self, environment: &Environment) -> Result<(), Error> {
        let later = self.before("environment".to_owned());
        if self.is(Fault::ForgetsTheEnvironment) && later {
            return Ok(());
        }
        self.inner.set_environment(environment).await
    }

    async fn start(&self, id: &ProcessId, spec: &ProcessSpec) -> Result<Started, Error> {
        let again = self.before(format!("start {id}"));
        if again && self.is(Fault::StartsNothingTwice) {
            return Err(Error::new(ErrorKind::AlreadyExists, "wrong on purpose"));
        }
        match self.inner.start(id, spec).await {
            Err(error)
                if error.kind() == ErrorKind::AlreadyExists
                    && self.is(Fault::StartsAnythingTwice) =>
            {
                Ok(Started {
                    program: "/x".into(),
                    pid: 1,
                })
            }
            other => other,
        }
    }

    async fn attach(&self, id: &ProcessId, from: Offset, role: Role) -> Result<Stdio, Error> {
        let from = if self.is(Fault::ReplaysAll) {
            Offset(0)
        } else {
            from
        };
        let role = if self.is(Fault::GivesViewersTheInput) {
            Role::Writer
        } else {
            role
        };
        let mut stdio = self.inner.attach(id, from, role).await?;
        let fault = self.fault;
        let first = Arc::new(Mutex::new(true));
        let frames = stdio.output.flat_map(move |frame| {
            let is_first = std::mem::take(&mut *first.lock().unwrap());
            let stderr = matches!(
                &frame,
                Ok(Frame {
                    kind: FrameKind::Stderr(_),
                    ..
                })
            );
            let out = match (&frame, fault) {
                (Ok(frame), Fault::RepeatsTheFirstFrame)
                    if is_first && matches!(frame.kind, FrameKind::Stdout(_)) =>
                {
                    vec![Ok(frame.clone()), Ok(frame.clone())]
                }
                (_, Fault::LosesStandardError) if stderr => vec![],
                _ => vec![frame],
            };
            futures_util::stream::iter(out)
        });
        stdio.output = frames.boxed();
        Ok(stdio)
    }

    async fn close_stdin(&self, id: &ProcessId) -> Result<(), Error> {
        if self.before(format!("close {id}")) && self.is(Fault::ClosesTheInputOnce) {
            return Err(refusal());
        }
        self.inner.close_stdin(id).await
    }

    async fn resize(&self, id: &ProcessId, size: TerminalSize) -> Result<(), Error> {
        match self.inner.resize(id, size).await {
            Err(error)
                if error.kind() == ErrorKind::Unsupported && self.is(Fault::ResizesPipes) =>
            {
                Ok(())
            }
            other => other,
        }
    }

    async fn wait(&self, id: &ProcessId) -> Result<ExitStatus, Error> {
        if self.is(Fault::KnowsEveryProcess) {
            return Ok(self.inner.wait(id).await.unwrap_or(ExitStatus::exited(0)));
        }
        let status = self.inner.wait(id).await?;
        if self.before(format!("wait {id}")) && self.is(Fault::WaitsForOneCaller) {
            return Err(refusal());
        }
        Ok(status)
    }

    async fn signal(&self, id: &ProcessId, signal: Signal) -> Result<(), Error> {
        let dead = self.before(format!("wait {id}"));
        if dead && self.is(Fault::MindsSignalsToTheDead) {
            return Err(refusal());
        }
        self.inner.signal(id, signal).await
    }

    async fn processes(&self) -> Result<Vec<ProcessState>, Error> {
        let mut states = self.inner.processes().await?;
        if self.is(Fault::ListsBackwards) {
            states.reverse();
        }
        Ok(states)
    }

    async fn put_archive(&self, at: &Path, tar: ByteStream) -> Result<(), Error> {
        self.inner.put_archive(at, tar).await
    }

    async fn get_archive(&self, at: &Path) -> Result<ByteStream, Error> {
        match self.inner.get_archive(at).await {
            Err(_) if self.is(Fault::PacksNothing) => Ok(futures_util::stream::empty().boxed()),
            other => other,
        }
    }

    async fn set_mcp_servers(&self, servers: &[McpServer]) -> Result<(), Error> {
        self.inner.set_mcp_servers(servers).await
    }

    async fn set_lease(&self, lease: Lease) -> Result<(), Error> {
        self.inner.set_lease(lease).await
    }

    async fn shutdown(&self, grace: Duration) -> Result<(), Error> {
        if self.is(Fault::EndsPolitelyOnly) {
            for state in self.inner.processes().await? {
                self.inner.signal(&state.id, Signal::TERM).await?;
            }
            return Ok(());
        }
        self.inner.shutdown(grace).await
    }
}

struct Memory {
    world: MemoryWorld,
    fault: Fault,
    count: Mutex<u32>,
}

#[async_trait]
impl Fixture for Memory {
    async fn instance(&self) -> Result<SharedInstance, Error> {
        let name = {
            let mut count = self.count.lock().unwrap();
            *count += 1;
            id(&format!("i{count}"))
        };
        let executor = MemoryExecutor::new(&self.world, ExecutorName::new("memory")?);
        executor
            .create(&name, &instance_spec(&self.world), &Silent)
            .await?;
        Ok(Arc::new(Wrong {
            inner: executor.connect(&name).await?,
            fault: self.fault,
            asked: Mutex::default(),
        }))
    }

    fn command(&self, program: &Program<'_>) -> Vec<OsText> {
        groundcrew_testkit::memory::commands(program)
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn directory(&self) -> PathBuf {
        "/memory".into()
    }

    fn has(&self, _: Need) -> bool {
        false
    }
}

struct Silent;

impl groundcrew_core::executor::Progress for Silent {
    fn line(&self, _: &str) {}
}

async fn report(fault: Fault) -> conformance::Report {
    let memory = Memory {
        world: MemoryWorld::new().unwrap(),
        fault,
        count: Mutex::default(),
    };
    conformance::instance(&memory).await
}

#[tokio::test(start_paused = true)]
async fn the_instance_in_memory_keeps_the_contract() {
    let report = report(Fault::Nothing).await;
    assert_eq!(report.failed(), Vec::<&str>::new(), "{report}");
    let mut needs = report.skipped();
    needs.sort_unstable();
    needs.dedup();
    assert_eq!(needs, [Need::Terminals, Need::Files, Need::Trees]);
    assert!(
        report.cases.len() - report.skipped().len() >= 25,
        "{report}"
    );
}

#[tokio::test(start_paused = true)]
async fn each_instance_that_is_wrong_on_purpose_fails_its_case() {
    for (fault, cases) in [
        (
            Fault::StartsNothingTwice,
            vec!["the_same_start_again_gives_the_first_answer"],
        ),
        (
            Fault::StartsAnythingTwice,
            vec!["another_start_under_the_same_id_is_refused"],
        ),
        (
            Fault::KnowsEveryProcess,
            vec!["what_was_never_started_is_not_found"],
        ),
        (
            Fault::ForgetsTheEnvironment,
            vec!["the_environment_of_the_run_and_what_lies_over_it"],
        ),
        (
            Fault::ListsBackwards,
            vec!["processes_are_listed_in_the_order_of_their_start"],
        ),
        (
            Fault::ReplaysAll,
            vec![
                "output_is_replayed_from_any_offset",
                "live_output_follows_replay",
            ],
        ),
        (
            Fault::LosesStandardError,
            vec!["standard_error_is_kept_apart"],
        ),
        (
            Fault::ClosesTheInputOnce,
            vec!["closing_the_input_again_is_success"],
        ),
        (Fault::ResizesPipes, vec!["pipes_have_no_size"]),
        (
            Fault::EndsPolitelyOnly,
            vec!["shutdown_ends_all_within_the_grace"],
        ),
        (Fault::PacksNothing, vec!["what_is_not_there_is_not_packed"]),
        (
            Fault::MindsSignalsToTheDead,
            vec!["a_signal_to_what_has_ended_is_success"],
        ),
    ] {
        let report = report(fault).await;
        assert_eq!(report.failed(), cases, "{fault:?}:\n{report}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_wrong_throughout_fails_the_case_for_it_and_more() {
    for (fault, case) in [
        (
            Fault::WaitsForOneCaller,
            "any_number_of_callers_get_the_same_end",
        ),
        (
            Fault::RepeatsTheFirstFrame,
            "output_is_replayed_from_any_offset",
        ),
        (Fault::GivesViewersTheInput, "output_is_bytes"),
    ] {
        let report = report(fault).await;
        let failed = report.failed();
        assert!(failed.contains(&case), "{fault:?}: {failed:?}");
    }
}

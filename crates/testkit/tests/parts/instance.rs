//! Scripted processes do what an instance's contract says.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::StreamExt as _;
use groundcrew_core::{
    env::{Environment, Key},
    error::ErrorKind,
    executor::Executor as _,
    id::ExecutorName,
    instance::SharedInstance,
    process::{
        EndCause, ExitStatus, FrameKind, Milliseconds, Offset, ProcessPhase, ProcessSpec, Role,
        Signal, StdinPolicy, StdioKind, TerminalSize,
    },
};
use groundcrew_testkit::memory::{MemoryExecutor, MemoryInstance, MemoryWorld};
use tokio::io::AsyncWriteExt as _;

use crate::support::{id, instance_spec, pid, process};

struct Fixture {
    world: MemoryWorld,
    executor: MemoryExecutor,
    instance: SharedInstance,
}

impl Fixture {
    async fn new() -> Self {
        let world = MemoryWorld::new().unwrap();
        let executor = MemoryExecutor::new(&world, ExecutorName::new("memory").unwrap());
        let spec = instance_spec(&world);
        executor.create(&id("i"), &spec, &Silent).await.unwrap();
        let instance = executor.connect(&id("i")).await.unwrap();
        let mut environment = Environment::new();
        environment.set(Key::new("GREETING").unwrap(), "hello");
        instance.set_environment(&environment).await.unwrap();
        Self {
            world,
            executor,
            instance,
        }
    }

    fn memory(&self) -> Arc<MemoryInstance> {
        self.world.instance(&id("i")).unwrap()
    }

    async fn run(&self, name: &str, argv: &[&str]) -> ExitStatus {
        self.instance
            .start(&pid(name), &process(argv))
            .await
            .unwrap();
        self.instance.wait(&pid(name)).await.unwrap()
    }

    async fn output(&self, name: &str, from: u64) -> Vec<(u64, FrameKind)> {
        let stdio = self
            .instance
            .attach(&pid(name), Offset(from), Role::Viewer)
            .await
            .unwrap();
        let frames = stdio
            .output
            .map(|frame| frame.map(|f| (f.offset.0, f.kind)).unwrap());
        frames.collect().await
    }
}

struct Silent;

impl groundcrew_core::executor::Progress for Silent {
    fn line(&self, _: &str) {}
}

fn stdout(text: &str) -> FrameKind {
    FrameKind::Stdout(Bytes::copy_from_slice(text.as_bytes()))
}

#[tokio::test]
async fn output_is_replayed_from_any_offset_and_ends_with_the_exit() {
    let it = Fixture::new().await;
    assert_eq!(
        it.run("p", &["echo", "one", "two"]).await,
        ExitStatus::exited(0)
    );
    let exit = FrameKind::Exit(ExitStatus::exited(0));
    assert_eq!(
        it.output("p", 0).await,
        [(0, stdout("one two\n")), (8, exit.clone())]
    );
    assert_eq!(it.output("p", 4).await, [(4, stdout("two\n")), (8, exit)]);
    assert_eq!(it.run("q", &["exit", "7"]).await.code, Some(7));
    it.run("e", &["warn", "careful"]).await;
    assert!(matches!(it.output("e", 0).await[0].1, FrameKind::Stderr(_)));
    it.run("v", &["print-env", "GREETING"]).await;
    assert_eq!(it.output("v", 0).await[0].1, stdout("hello"));
}

#[tokio::test]
async fn a_bounded_log_says_what_it_lost() {
    let it = Fixture::new().await;
    let spec = ProcessSpec {
        log_limit: 8,
        ..process(&["cat"])
    };
    it.instance.start(&pid("p"), &spec).await.unwrap();
    let mut input = it
        .instance
        .attach(&pid("p"), Offset(0), Role::Writer)
        .await
        .unwrap()
        .input
        .unwrap();
    input.write_all(b"12345").await.unwrap();
    input.write_all(b"6789").await.unwrap();
    input.shutdown().await.unwrap();
    let frames = it.output("p", 0).await;
    assert_eq!(
        frames[..2],
        [(0, FrameKind::Truncated(5)), (5, stdout("6789"))]
    );
}

#[tokio::test]
async fn live_output_follows_replay_and_a_later_writer_takes_over() {
    let it = Fixture::new().await;
    it.instance
        .start(&pid("p"), &process(&["cat"]))
        .await
        .unwrap();
    let first = it
        .instance
        .attach(&pid("p"), Offset(0), Role::Writer)
        .await
        .unwrap();
    let (mut input, mut output) = (first.input.unwrap(), first.output);
    input.write_all(b"a").await.unwrap();
    assert_eq!(output.next().await.unwrap().unwrap().kind, stdout("a"));
    let second = it
        .instance
        .attach(&pid("p"), Offset(0), Role::Writer)
        .await
        .unwrap();
    let error = input.write_all(b"x").await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    second.input.unwrap().write_all(b"b").await.unwrap();
    assert_eq!(output.next().await.unwrap().unwrap().kind, stdout("b"));
    it.instance.close_stdin(&pid("p")).await.unwrap();
    assert!(matches!(
        output.next().await.unwrap().unwrap().kind,
        FrameKind::Exit(_)
    ));
    assert!(output.next().await.is_none());
}

#[tokio::test]
async fn f029_every_failure_to_start_has_its_kind() {
    let it = Fixture::new().await;
    for kind in [
        ErrorKind::ProgramNotFound,
        ErrorKind::InterpreterNotFound,
        ErrorKind::DirectoryNotFound,
        ErrorKind::NotExecutable,
        ErrorKind::PermissionDenied,
        ErrorKind::ResourceExhausted,
    ] {
        let spec = process(&["fail-to-start", kind.as_str()]);
        let error = it.instance.start(&pid("p"), &spec).await.unwrap_err();
        assert_eq!(error.kind(), kind);
    }
    let error = it
        .instance
        .start(&pid("p"), &process(&["nonsense"]))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ProgramNotFound);
    assert!(it.instance.processes().await.unwrap().is_empty());
}

#[tokio::test]
async fn starting_again_gives_the_first_answer_or_refuses() {
    let it = Fixture::new().await;
    let spec = process(&["sleep-until-signal"]);
    let first = it.instance.start(&pid("p"), &spec).await.unwrap();
    assert_eq!(it.instance.start(&pid("p"), &spec).await.unwrap(), first);
    let error = it
        .instance
        .start(&pid("p"), &process(&["cat"]))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let error = it.instance.wait(&pid("never")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn signals_time_limits_and_shutdown_end_with_their_cause() {
    let it = Fixture::new().await;
    it.instance
        .start(&pid("a"), &process(&["sleep-until-signal"]))
        .await
        .unwrap();
    it.instance.signal(&pid("a"), Signal::INT).await.unwrap();
    let status = it.instance.wait(&pid("a")).await.unwrap();
    assert_eq!(
        (status.signal, status.cause),
        (Some(Signal::INT), EndCause::Itself)
    );

    let limit = Some(Milliseconds(Duration::from_mins(1)));
    let spec = ProcessSpec {
        time_limit: limit,
        ..process(&["ignore-signals"])
    };
    it.instance.start(&pid("b"), &spec).await.unwrap();
    assert_eq!(
        it.instance.wait(&pid("b")).await.unwrap().cause,
        EndCause::TimedOut
    );

    let spec = ProcessSpec {
        idle_limit: limit,
        ..process(&["ignore-signals"])
    };
    it.instance.start(&pid("idle"), &spec).await.unwrap();
    assert_eq!(
        it.instance.wait(&pid("idle")).await.unwrap().cause,
        EndCause::Idle
    );

    it.instance
        .start(&pid("c"), &process(&["ignore-signals"]))
        .await
        .unwrap();
    it.instance
        .start(&pid("d"), &process(&["cat"]))
        .await
        .unwrap();
    it.instance.shutdown(Duration::from_secs(5)).await.unwrap();
    let status = it.instance.wait(&pid("c")).await.unwrap();
    assert_eq!(
        (status.signal, status.cause),
        (Some(Signal::KILL), EndCause::Stopped)
    );
    let status = it.instance.wait(&pid("d")).await.unwrap();
    assert_eq!((status.code, status.cause), (Some(0), EndCause::Stopped));
    let error = it
        .instance
        .signal(&pid("c"), Signal::TERM)
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.is_retryable()),
        (ErrorKind::Unavailable, false)
    );
    assert_eq!(
        it.instance.processes().await.unwrap().len(),
        5,
        "reading goes on"
    );
}

#[tokio::test]
async fn the_end_of_the_main_process_ends_the_instance() {
    let it = Fixture::new().await;
    let spec = ProcessSpec {
        main: true,
        ..process(&["exit", "0"])
    };
    it.instance.start(&pid("agent"), &spec).await.unwrap();
    let error = it
        .instance
        .start(&pid("b"), &process(&["cat"]))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(it.memory().has_ended());
}

#[tokio::test(start_paused = true)]
async fn f005_what_cannot_be_ended_is_an_error_that_names_it() {
    let it = Fixture::new().await;
    it.instance
        .start(&pid("p"), &process(&["stuck"]))
        .await
        .unwrap();
    let error = it
        .instance
        .shutdown(Duration::from_secs(1))
        .await
        .unwrap_err();
    assert_eq!(error.get("process"), Some("p"));
    assert!(it.executor.delete(&id("i"), None).await.is_err());
    assert_eq!(it.world.leftovers(), ["instance i"]);
    it.memory().thaw();
    it.executor.delete(&id("i"), None).await.unwrap();
    assert!(it.world.leftovers().is_empty());
}

#[tokio::test]
async fn a_killed_supervisor_leaves_processes_of_which_nobody_knows() {
    let it = Fixture::new().await;
    it.instance
        .start(&pid("p"), &process(&["sleep-until-signal"]))
        .await
        .unwrap();
    it.memory().crash();
    let error = it.instance.wait(&pid("p")).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.get("phase")),
        (ErrorKind::Unexpected, Some("lost"))
    );
    assert_eq!(
        it.instance.processes().await.unwrap()[0].phase,
        ProcessPhase::Lost
    );
}

#[tokio::test]
async fn terminals_inputs_and_environments_are_as_specified() {
    let it = Fixture::new().await;
    let size = TerminalSize {
        rows: 1,
        columns: 2,
    };
    it.instance
        .start(&pid("p"), &process(&["cat"]))
        .await
        .unwrap();
    let error = it.instance.resize(&pid("p"), size).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let terminal = ProcessSpec {
        stdio: StdioKind::Terminal(size),
        ..process(&["warn", "x"])
    };
    it.instance.start(&pid("t"), &terminal).await.unwrap();
    it.instance.resize(&pid("t"), size).await.unwrap();
    assert_eq!(
        it.output("t", 0).await[0].1,
        stdout("x\n"),
        "a terminal merges"
    );
    let empty = ProcessSpec {
        stdin: StdinPolicy::Empty,
        ..process(&["cat"])
    };
    it.instance.start(&pid("e"), &empty).await.unwrap();
    assert_eq!(
        it.instance.wait(&pid("e")).await.unwrap(),
        ExitStatus::exited(0)
    );

    let world = MemoryWorld::new().unwrap();
    let executor = MemoryExecutor::new(&world, ExecutorName::new("memory").unwrap());
    executor
        .create(&id("i"), &instance_spec(&world), &Silent)
        .await
        .unwrap();
    let bare = executor.connect(&id("i")).await.unwrap();
    let error = bare
        .start(&pid("p"), &process(&["exit"]))
        .await
        .unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::InvalidInput,
        "no environment was handed over"
    );
}

//! Every fault does what it is called, and nothing else.

use std::{sync::Arc, time::Duration};

use groundcrew_core::{
    checkpoint::{Checkpoint, Checkpoints as _, Place},
    error::ErrorKind,
    event::Step,
    executor::{Executor as _, Progress},
    id::ExecutorName,
    undo::Undone,
};
use groundcrew_testkit::{
    faulty::{Action, FaultPlan, Faulty, FaultyExecutor, Gate, VerbFault, VerbFaults},
    memory::{MemoryExecutor, MemoryWorld},
};

use crate::support::{id, instance_spec};

struct Silent;

impl Progress for Silent {
    fn line(&self, _: &str) {}
}

struct Fixture {
    world: MemoryWorld,
    faults: VerbFaults,
    executor: FaultyExecutor,
}

impl Fixture {
    fn new() -> Self {
        let world = MemoryWorld::new().unwrap();
        let faults = VerbFaults::new();
        let inner = MemoryExecutor::new(&world, ExecutorName::new("memory").unwrap());
        let executor = FaultyExecutor::new(Arc::new(inner), &faults);
        Self {
            world,
            faults,
            executor,
        }
    }

    async fn create(&self) -> Result<(), groundcrew_core::error::Error> {
        let spec = instance_spec(&self.world);
        self.executor
            .create(&id("i"), &spec, &Silent)
            .await
            .map(drop)
    }
}

#[tokio::test(start_paused = true)]
async fn verbs_go_wrong_before_and_behind_their_effect() {
    let kind = ErrorKind::Unavailable;
    for (fault, effect) in [
        (VerbFault::Before(kind), false),
        (VerbFault::After(kind), true),
        (VerbFault::Panic, false),
        (VerbFault::PanicAfter, true),
        (VerbFault::Hang, false),
        (VerbFault::HangAfter, true),
        (VerbFault::Lie, false),
    ] {
        let it = Arc::new(Fixture::new());
        it.faults.once("create", fault.clone());
        let call = tokio::spawn({
            let it = Arc::clone(&it);
            async move { it.create().await }
        });
        let abort = call.abort_handle();
        let answer = tokio::time::timeout(Duration::from_secs(1), call).await;
        abort.abort();
        match fault {
            VerbFault::Before(_) | VerbFault::After(_) => {
                assert_eq!(answer.unwrap().unwrap().unwrap_err().kind(), kind);
            }
            VerbFault::Panic | VerbFault::PanicAfter => {
                assert!(answer.unwrap().unwrap_err().is_panic());
            }
            VerbFault::Hang | VerbFault::HangAfter => assert!(answer.is_err()),
            _ => answer.unwrap().unwrap().unwrap(),
        }
        assert_eq!(!it.world.leftovers().is_empty(), effect, "{fault:?}");
        assert_eq!(it.faults.struck(), 1);
        assert_eq!(
            it.create().await.is_ok(),
            !effect,
            "the next call is healthy"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn f140_a_late_effect_lands_without_its_caller() {
    let it = Fixture::new();
    it.faults
        .once("create", VerbFault::Late(Duration::from_secs(5)));
    let gone = tokio::time::timeout(Duration::from_secs(1), it.create()).await;
    assert!(gone.is_err() && it.world.leftovers().is_empty());
    it.faults.settled().await;
    assert_eq!(it.world.leftovers(), ["instance i"]);
}

#[tokio::test]
async fn a_gate_holds_a_verb_until_it_opens() {
    let it = Arc::new(Fixture::new());
    let gate = Gate::new();
    it.faults.once("create", VerbFault::Hold(gate.clone()));
    let call = tokio::spawn({
        let it = Arc::clone(&it);
        async move { it.create().await }
    });
    gate.until_reached().await;
    assert!(it.world.leftovers().is_empty() && !call.is_finished());
    gate.open();
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn faults_strike_as_often_as_they_should() {
    let it = Fixture::new();
    it.create().await.unwrap();
    it.faults.after("delete", 1, VerbFault::Lie);
    it.faults
        .always("state", VerbFault::Before(ErrorKind::TimedOut));
    assert_eq!(
        it.executor.delete(&id("x"), None).await.unwrap(),
        Undone::AlreadyGone
    );
    assert_eq!(
        it.executor.delete(&id("x"), None).await.unwrap(),
        Undone::REMOVED
    );
    assert_eq!(
        it.executor.delete(&id("x"), None).await.unwrap(),
        Undone::AlreadyGone
    );
    for _ in 0..3 {
        assert!(it.executor.state(&id("i")).await.is_err());
    }
    it.faults.heal();
    assert!(it.executor.state(&id("i")).await.is_ok());
    assert_eq!(it.faults.calls("state"), 4);
}

fn point(place: Place) -> Checkpoint {
    Checkpoint {
        step: Step::Create,
        place,
    }
}

#[tokio::test(start_paused = true)]
async fn checkpoints_go_wrong_as_planned() {
    let text = "create.before#2=error(conflict),create.after=delay(1000),create.named=cancel";
    let faulty = Faulty::new(text.parse().unwrap());
    let (sender, mut cancelled) = tokio::sync::mpsc::unbounded_channel();
    faulty.on_cancel(move || sender.send(()).unwrap());
    faulty.pass(&point(Place::Before)).await.unwrap();
    assert_eq!(faulty.struck(), 0);
    let error = faulty.pass(&point(Place::Before)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.get("point")),
        (ErrorKind::Conflict, Some("create.before"))
    );
    faulty.until_struck().await;
    let began = tokio::time::Instant::now();
    faulty.pass(&point(Place::After)).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    assert!(cancelled.try_recv().is_err());
    faulty
        .pass(&point(Place::Inside("named".into())))
        .await
        .unwrap();
    cancelled.try_recv().unwrap();
    assert_eq!(faulty.passed().len(), 4);

    let hanging = Faulty::new(FaultPlan::at("create.before", Action::Hang));
    let place = point(Place::Before);
    let passing = hanging.pass(&place);
    assert!(
        tokio::time::timeout(Duration::from_hours(1), passing)
            .await
            .is_err()
    );
}

/// The fault that kills is seen from outside: this very test, started again as a process of its own.
#[test]
fn f127_kill9_ends_the_process_at_once() {
    const ASKED: &str = "GROUNDCREW_TESTKIT_DIES";
    #[expect(
        clippy::disallowed_methods,
        reason = "the test talks to its own second process"
    )]
    if std::env::var_os(ASKED).is_some() {
        let faulty = Faulty::new("create.before=kill9".parse().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        drop(runtime.block_on(faulty.pass(&point(Place::Before))));
        return;
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "the test needs a process that it may lose"
    )]
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command
        .args(["--exact", "faults::f127_kill9_ends_the_process_at_once"])
        .env(ASKED, "1")
        .output()
        .unwrap();
    let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert_eq!(signal, Some(9), "{output:?}");
}

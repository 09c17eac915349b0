//! The same matrix at the verbs: every verb of every component that a launch calls, with every way to go wrong.

use groundcrew_core::{
    error::ErrorKind,
    event::{EventKind, Step},
};
use groundcrew_testkit::faulty::{VerbFault, VerbFaults};

use crate::support::{Machine, Process, request, runtime};

type Pick = fn(&Process) -> &VerbFaults;

/// Every verb that a launch calls, and the step that fails with it.
const VERBS: [(&str, Pick, &str); 10] = [
    ("reserve", |p| &p.store, "reserve"),
    ("apply", |p| &p.workspace, "prepare:workspace"),
    ("apply", |p| &p.things, "prepare:things"),
    ("create", |p| &p.executor, "create"),
    ("connect", |p| &p.executor, "connect"),
    ("instance.set_environment", |p| &p.executor, "connect"),
    ("populate", |p| &p.workspace, "populate:workspace"),
    ("put", |p| &p.store, "register"),
    ("instance.start", |p| &p.executor, "start"),
    ("commit", |p| &p.store, "commit"),
];

const KIND: ErrorKind = ErrorKind::PermissionDenied;

fn every_verb(fault: &VerbFault, kind: ErrorKind, hangs: bool) {
    for (verb, pick, step) in VERBS {
        runtime().block_on(async {
            let machine = Machine::new();
            let process = machine.process();
            let faults = pick(&process);
            faults.once(verb, fault.clone());
            let ticket = process.ticket(request()).await;
            if hangs {
                let began = |kind: &EventKind| matches!(kind, EventKind::StepStarted(s) if s.to_string() == step);
                process.recorder.until(began).await;
                while faults.struck() == 0 {
                    tokio::task::yield_now().await;
                }
                ticket.cancel();
            }
            let error = ticket.wait().await.expect_err(verb);
            assert_eq!(error.step.to_string(), step, "{verb}");
            assert_eq!(error.error.kind(), kind, "{verb}: {:?}", error.error);
            // A verb that was broken off may go on for a while: what it makes is owned until that is over.
            let wholly = match verb {
                // It hears of the cancellation itself: it ends in time or not, depending on where it hangs.
                "apply" if hangs => error.rollback.is_clean(),
                // The store makes nothing that would have to be undone.
                "reserve" | "put" | "commit" => true,
                _ => !hangs,
            };
            assert_eq!(
                error.rollback.is_clean(),
                wholly,
                "{verb}: {:?}",
                error.rollback
            );
            assert_eq!(faults.struck(), 1, "{verb}");
            process.rolled_back(ticket.attempt(), wholly);
            process.launcher.shutdown().await;
            machine.is_empty().await;
        });
    }
}

#[test]
fn f140_a_verb_that_fails_leaves_nothing() {
    every_verb(&VerbFault::Before(KIND), KIND, false);
}

#[test]
fn f140_a_verb_that_fails_after_its_effect_leaves_nothing() {
    every_verb(&VerbFault::After(KIND), KIND, false);
}

#[test]
fn f139_a_verb_that_panics_leaves_nothing() {
    every_verb(&VerbFault::Panic, ErrorKind::Panicked, false);
    every_verb(&VerbFault::PanicAfter, ErrorKind::Panicked, false);
}

#[test]
fn f140_a_verb_that_never_returns_is_cancelled_and_leaves_nothing() {
    every_verb(&VerbFault::Hang, ErrorKind::Cancelled, true);
    every_verb(&VerbFault::HangAfter, ErrorKind::Cancelled, true);
}

#[test]
fn f140_an_executor_that_lies_is_found_out_and_leaves_nothing() {
    for (verb, step) in [
        ("create", Step::Connect),
        ("instance.set_environment", Step::Start),
    ] {
        runtime().block_on(async {
            let machine = Machine::new();
            let process = machine.process();
            process.executor.once(verb, VerbFault::Lie);
            let error = process.launch().await.expect_err(verb);
            assert_eq!(error.step, step);
            process.lawful();
            process.launcher.shutdown().await;
            machine.is_empty().await;
        });
    }
}

#[test]
fn f140_a_create_that_is_later_than_all_patience_is_undone_when_it_comes() {
    runtime().block_on(async {
        let machine = Machine::new();
        let process = machine.process();
        // Longer than an effect under way is awaited, shorter than it is owned.
        let late = std::time::Duration::from_secs(35);
        process.executor.once("create", VerbFault::Late(late));
        let ticket = process.ticket(request()).await;
        while process.executor.struck() == 0 {
            tokio::task::yield_now().await;
        }
        ticket.cancel();
        let error = ticket.wait().await.unwrap_err();
        assert!(!error.rollback.is_clean(), "{:?}", error.rollback);
        process.launcher.shutdown().await;
        machine.is_empty().await;
    });
}

#[test]
fn f140_a_create_that_is_late_is_awaited_after_a_cancel_and_then_undone() {
    runtime().block_on(async {
        let machine = Machine::new();
        let process = machine.process();
        let late = std::time::Duration::from_secs(20);
        process.executor.once("create", VerbFault::Late(late));
        let ticket = process.ticket(request()).await;
        while process.executor.struck() == 0 {
            tokio::task::yield_now().await;
        }
        ticket.cancel();
        let error = ticket.wait().await.unwrap_err();
        assert_eq!(error.error.kind(), ErrorKind::Cancelled);
        process.rolled_back_once(ticket.attempt());
        process.executor.settled().await;
        assert_eq!(machine.world.count("create"), 1, "the effect did land");
        process.launcher.shutdown().await;
        machine.is_empty().await;
    });
}

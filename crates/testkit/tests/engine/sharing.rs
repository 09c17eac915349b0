//! Sessions of one task that share one instance and its workspace: each has a run of its own, and the last one takes all along.

use groundcrew_core::{
    CloseOutcome, CloseReport,
    id::{SessionId, ShareKey},
    request::{LaunchIntent, LaunchRequest, Mode},
    store::{RunRecord, RunState},
};
use groundcrew_testkit::polls::drop_after;

use crate::{
    keeping::REMOVE,
    support::{Machine, Process, request, runtime},
};

/// The same request for a session that shares with others.
fn sharing(session: &str) -> LaunchRequest {
    LaunchRequest {
        session: Some(SessionId::new(session).unwrap()),
        share_key: Some(ShareKey::new("shared").unwrap()),
        ..request()
    }
}

async fn shared(process: &Process, session: &str) -> RunRecord {
    let ticket = process.ticket(sharing(session)).await;
    ticket.wait().await.unwrap().record
}

async fn close(process: &Process, record: &RunRecord) -> CloseReport {
    process.launcher.close(&record.run, REMOVE).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn i03_w03_a_sibling_s_run_is_never_returned_as_one_s_own() {
    let machine = Machine::new();
    let process = machine.process();
    let first = shared(&process, "first").await;
    let ensured = process
        .launcher
        .ensure(LaunchRequest {
            mode: Mode::Workspace,
            ..sharing("second")
        })
        .await
        .unwrap()
        .record;
    assert_eq!(ensured.session.as_str(), "second");
    assert_ne!(ensured.run, first.run);
    assert_eq!(ensured.command, None, "the sibling's agent is not reported");
    assert_eq!(
        ensured.instance, first.instance,
        "and yet it is one instance"
    );
    assert_eq!(machine.world.count("create"), 1);
    let launched = process
        .ticket(LaunchRequest {
            intent: LaunchIntent::Resume(ensured.run.clone()),
            ..sharing("second")
        })
        .await
        .wait()
        .await
        .unwrap();
    assert_eq!(launched.record.run, ensured.run);
    assert_ne!(
        launched.record.agent_process().unwrap(),
        first.agent_process().unwrap()
    );
}

#[tokio::test(start_paused = true)]
async fn i14_w10_an_instance_that_sessions_share_ends_with_its_last_user() {
    for first_leaves in [true, false] {
        let machine = Machine::new();
        let process = machine.process();
        let first = shared(&process, "first").await;
        let second = shared(&machine.process(), "second").await;
        assert_eq!(
            (&second.instance, &second.workspace),
            (&first.instance, &first.workspace)
        );
        assert_eq!(machine.world.instances().len(), 1);
        let (leaves, stays) = if first_leaves {
            (&first, &second)
        } else {
            (&second, &first)
        };
        let report = close(&process, leaves).await;
        assert_eq!(report.outcome, CloseOutcome::Closed);
        assert!(
            report
                .removed
                .iter()
                .all(|what| what.starts_with("process")),
            "{report:?}"
        );
        assert_eq!(machine.world.instances().len(), 1, "it is in use");
        let view = process.launcher.observe(&stays.run).await.unwrap();
        assert_eq!(view.record.state, RunState::Running);
        let report = process.launcher.recover().await.unwrap();
        assert!(report.is_clean() && report.strays.is_empty(), "{report:?}");
        // The last one takes everything along.
        let report = close(&process, stays).await;
        assert_eq!(report.outcome, CloseOutcome::Closed, "{report:?}");
        let left = machine.world.leftovers();
        assert!(left.iter().all(|left| left.ends_with("/gift")), "{left:?}");
        assert!(machine.store.all_attempts().is_empty());
        process.lawful();
    }
}

#[tokio::test(start_paused = true)]
async fn i14_stopping_one_session_leaves_the_other_s_agent_and_their_workspace() {
    let machine = Machine::new();
    let process = machine.process();
    let first = shared(&process, "first").await;
    let second = shared(&process, "second").await;
    let stopped = process.launcher.stop(&first.run, None).await.unwrap();
    assert_eq!(stopped.record.state, RunState::Stopped);
    let view = process.launcher.observe(&second.run).await.unwrap();
    assert_eq!(view.record.state, RunState::Running);
    // It comes back into the same instance.
    let resumed = process
        .ticket(LaunchRequest {
            intent: LaunchIntent::Resume(first.run.clone()),
            ..sharing("first")
        })
        .await
        .wait()
        .await
        .unwrap();
    assert_eq!(resumed.record.instance, second.instance);
    assert_eq!(machine.world.count("create"), 1);
    // The workspace of a session at rest is not taken away with the last one that runs.
    process.launcher.stop(&first.run, None).await.unwrap();
    assert_eq!(close(&process, &second).await.outcome, CloseOutcome::Closed);
    assert!(machine.world.instances().is_empty());
    let trees = machine.world.leftovers();
    assert!(trees.iter().any(|left| left.contains("/tree")), "{trees:?}");
    assert_eq!(close(&process, &first).await.outcome, CloseOutcome::Closed);
    let left = machine.world.leftovers();
    assert!(left.iter().all(|left| left.ends_with("/gift")), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn i14_many_sessions_that_come_at_once_share_one_instance() {
    let machine = Machine::new();
    let process = machine.process();
    let asks = (0..12).map(|n| {
        let launcher = process.launcher.clone();
        tokio::spawn(async move {
            let request = LaunchRequest {
                mode: Mode::Workspace,
                ..sharing(&format!("session-{n}"))
            };
            launcher.ensure(request).await
        })
    });
    let asks: Vec<_> = asks.collect();
    let mut runs = Vec::new();
    for ask in asks {
        runs.push(ask.await.unwrap().unwrap().record);
    }
    assert_eq!(machine.world.count("create"), 1);
    assert!(runs.iter().all(|run| run.instance == runs[0].instance));
    let closes = runs.iter().map(|run| close(&process, run));
    for report in futures_util::future::join_all(closes).await {
        assert_eq!(report.outcome, CloseOutcome::Closed);
    }
    assert!(machine.world.instances().is_empty());
    assert!(machine.store.all_attempts().is_empty());
    assert!(machine.locks.held().is_empty());
}

#[test]
fn i14_f127_death_anywhere_while_leaving_a_shared_instance_converges() {
    for polls in 0..120 {
        let ended = runtime().block_on(async {
            let machine = Machine::new();
            let first = shared(&machine.process(), "first").await;
            let second = shared(&machine.process(), "second").await;
            let leaving = machine.process();
            let ended = drop_after(polls, leaving.launcher.close(&first.run, REMOVE))
                .await
                .is_some();
            let next = machine.process();
            let report = next.launcher.recover().await.unwrap();
            assert!(report.is_clean(), "{polls}: {report:?}");
            let view = next.launcher.observe(&second.run).await.unwrap();
            assert_eq!(view.record.state, RunState::Running, "{polls}");
            for record in [&first, &second] {
                assert_eq!(
                    close(&next, record).await.outcome,
                    CloseOutcome::Closed,
                    "{polls}"
                );
            }
            assert!(machine.world.instances().is_empty(), "{polls}");
            let left = machine.world.leftovers();
            assert!(
                left.iter().all(|left| left.ends_with("/gift")),
                "{polls}: {left:?}"
            );
            assert!(machine.store.all_attempts().is_empty(), "{polls}");
            ended
        });
        if ended {
            return;
        }
    }
    panic!("the close never ended");
}

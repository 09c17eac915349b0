//! Random calls, crashes and failures in random order: at most one process works, and every other one has an owner.

use std::time::Duration;

use groundcrew_core::id::SessionId;
use groundcrew_session::settings::Prompt;
use proptest::prelude::*;
use serde_json::json;

use crate::desk::{Desk, key, settings, settle, token};

#[derive(Clone, Copy, Debug)]
enum Step {
    Start,
    Resume,
    Close,
    Release,
    Disconnect,
    Cleanup,
    Prompt,
    Interrupt,
    Crash,
    Ask,
    EndTurn,
    /// The next closes of all processes fail, that many times each.
    CloseFails(u8),
    StartFails,
    Heal,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Start),
        4 => Just(Step::Resume),
        2 => Just(Step::Close),
        3 => Just(Step::Release),
        2 => Just(Step::Disconnect),
        3 => Just(Step::Cleanup),
        3 => Just(Step::Prompt),
        1 => Just(Step::Interrupt),
        2 => Just(Step::Crash),
        1 => Just(Step::Ask),
        2 => Just(Step::EndTurn),
        3 => (1..4_u8).prop_map(Step::CloseFails),
        1 => Just(Step::StartFails),
        1 => Just(Step::Heal),
    ]
}

/// A step of a session; it is awaited before the next one, or goes on beside it.
type Move = (bool, bool, Step);

fn take(desk: &Desk, session: SessionId, step: Step) -> tokio::task::JoinHandle<()> {
    let engine = desk.engine.clone();
    let (world, name) = (std::sync::Arc::clone(&desk.world), session.to_string());
    tokio::spawn(async move {
        let serving = || {
            let processes = world.state().processes.clone();
            let ours = |process: &&std::sync::Arc<crate::process::FakeProcess>| {
                process.id.as_str().ends_with(&format!("-{name}"))
            };
            processes.iter().rev().find(ours).cloned()
        };
        // What comes of a call is of no interest here, only what is left behind it.
        match step {
            Step::Start => drop(engine.start(settings(&name)).await),
            Step::Resume => {
                let thread = serving().and_then(|process| process.state().thread.clone());
                let thread = thread.unwrap_or_else(|| "codex-thread-1".into());
                drop(engine.resume(settings(&name), token(&thread)).await);
            }
            Step::Close => drop(engine.close(&session).await),
            Step::Release => drop(engine.release(&session).await),
            Step::Disconnect => drop(engine.disconnect(&session).await),
            Step::Cleanup => drop(engine.cleanup(1).await),
            Step::Prompt => drop(engine.prompt(&session, Prompt::new("go")).await),
            Step::Interrupt => drop(engine.interrupt(&session).await),
            Step::Crash => serving().iter().for_each(|process| process.die()),
            Step::Ask => serving().iter().for_each(|process| process.ask(json!(0))),
            Step::EndTurn => serving()
                .iter()
                .for_each(|process| process.end_turn("completed")),
            Step::CloseFails(times) => {
                for index in 0..world.spawned() {
                    world.fail_next_closes(index, times.into());
                }
            }
            Step::StartFails => world.state().fail_starts = 1,
            Step::Heal => world.heal(),
        }
    })
}

/// Between calls: at most one live handle, all that is not closed is owned, and no more than two.
fn check(desk: &Desk) {
    let mut owned = 0;
    for session in ["s", "t"] {
        let processes = desk.world.state().processes.clone();
        let open = processes
            .iter()
            .filter(|process| process.id.as_str().ends_with(&format!("-{session}")))
            .filter(|process| !process.state().closed)
            .count();
        let ours = desk.engine.owned(&key(session));
        assert!(ours <= 2, "{session} owns {ours}");
        assert!(
            open <= ours,
            "{open} processes of {session} are open, {ours} are owned"
        );
        owned += ours;
    }
    assert!(desk.world.live().len() <= owned);
}

async fn play(lock: bool, moves: Vec<Move>) {
    let desk = Desk::new();
    {
        let mut ground = desk.world.ground.state();
        ground.writer_lock = lock;
        // Calls of one session meet in the middle of what they do.
        ground.pace = Some(Duration::from_millis(1));
    }
    let mut running = Vec::new();
    for (other, alone, step) in moves {
        let session = key(if other { "t" } else { "s" });
        running.push(take(&desk, session, step));
        if alone {
            for task in running.drain(..) {
                task.await.unwrap();
            }
            settle().await;
            check(&desk);
        }
    }
    for task in running {
        task.await.unwrap();
    }
    check(&desk);
    // However it went, what is left can be taken back, and both sessions work again.
    desk.world.heal();
    while desk.engine.cleanup(1).await.attempted > 0 {}
    for session in ["s", "t"] {
        desk.engine.close(&key(session)).await.unwrap();
        assert_eq!(desk.engine.owned(&key(session)), 0);
    }
    assert!(desk.world.live().is_empty());
    desk.world.state().fail_starts = 0;
    desk.engine.start(settings("s")).await.unwrap();
    assert!(desk.is_live());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn t15_random_interleavings_leave_one_live_process_at_most_and_every_other_one_owned(
        lock in any::<bool>(),
        moves in proptest::collection::vec((any::<bool>(), any::<bool>(), step()), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            tokio::time::timeout(Duration::from_hours(24), play(lock, moves)).await.unwrap();
        });
    }
}

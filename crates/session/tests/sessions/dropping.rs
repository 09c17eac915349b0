//! Callers that go away, at every await of a call: nothing is left that nobody owns.

use std::{pin::pin, task::Poll, time::Duration};

use futures_util::{FutureExt as _, future::poll_fn};
use groundcrew_session::settings::Prompt;

use crate::{
    desk::{Desk, key, settings, settle, token},
    script::{Behaviour, Script},
};

/// How long each step takes: between two of them, everything that can happen has.
const PACE: Duration = Duration::from_millis(1);

fn paced() -> Desk {
    let desk = Desk::new();
    desk.world.ground.state().pace = Some(PACE);
    desk
}

/// Lets a call go on for some polls of everything, then drops it.
async fn dropped_after(polls: usize, call: impl Future) -> bool {
    let mut call = pin!(call);
    for _ in 0..polls {
        if poll_fn(|cx| Poll::Ready(call.poll_unpin(cx).is_ready())).await {
            return true;
        }
        tokio::time::sleep(PACE).await;
    }
    false
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_dropped_anywhere_leaves_no_process() {
    let (mut dropped, mut polls) = (0, 0);
    loop {
        let desk = paced();
        let done = dropped_after(polls, desk.engine.start(settings("s"))).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(
            desk.world.live().len(),
            usize::from(done),
            "after {polls} polls"
        );
        assert_eq!(desk.is_live(), done, "after {polls} polls");
        if done {
            break;
        }
        assert_eq!(desk.engine.owned(&key("s")), 0);
        // The lane is free.
        desk.engine.start(settings("s")).await.unwrap();
        dropped += 1;
        polls += 1;
    }
    assert!(dropped >= 8, "it was dropped at {dropped} places");
}

#[tokio::test(start_paused = true)]
async fn a_resume_that_is_dropped_anywhere_leaves_at_most_the_process_that_serves() {
    for lock in [false, true] {
        let (mut dropped, mut polls) = (0, 0);
        loop {
            let desk = paced();
            desk.world.ground.state().writer_lock = lock;
            desk.start().await;
            let resume = desk.engine.resume(settings("s"), token("codex-thread-1"));
            let done = dropped_after(polls, resume).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            let live = desk.world.live().len();
            assert_eq!(live, usize::from(desk.is_live()), "after {polls} polls");
            assert_eq!(desk.engine.owned(&key("s")), live);
            if done {
                break;
            }
            desk.engine
                .resume(settings("s"), token("codex-thread-1"))
                .await
                .unwrap();
            dropped += 1;
            polls += 1;
        }
        assert!(dropped >= 8, "it was dropped at {dropped} places");
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_agent_hangs_is_taken_back_as_soon_as_its_caller_goes() {
    for method in [
        "initialize",
        "account/read",
        "collaborationMode/list",
        "thread/start",
    ] {
        let desk = Desk::new();
        desk.world
            .next(Script::default().on(method, Behaviour::Hold));
        let engine = desk.engine.clone();
        let starting = tokio::spawn(async move { engine.start(settings("s")).await });
        settle().await;
        desk.world.last().called(method, 1).await;
        starting.abort();
        let before = tokio::time::Instant::now();
        settle().await;
        assert!(desk.world.live().is_empty(), "{method}");
        assert_eq!(before.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_is_dropped_anywhere_is_said_or_not_and_the_session_is_whole() {
    for polls in 0..12 {
        let desk = Desk::new();
        let process = desk.start().await;
        dropped_after(polls, desk.engine.prompt(&key("s"), Prompt::new("go"))).await;
        settle().await;
        assert!(desk.is_live());
        if polls == 0 {
            assert_eq!(
                process.calls("turn/start"),
                0,
                "what was not awaited is not said"
            );
            continue;
        }
        assert_eq!(process.calls("turn/start"), 1);
        process.end_turn("completed");
        settle().await;
        let next = desk
            .engine
            .prompt(&key("s"), Prompt::new("more"))
            .await
            .unwrap();
        assert!(!next.steered());
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_that_is_dropped_goes_on() {
    let desk = Desk::new();
    let process = desk.start().await;
    dropped_after(1, desk.engine.close(&key("s"))).await;
    settle().await;
    assert_eq!(process.closes(), 1);
    assert_eq!(desk.engine.owned(&key("s")), 0);
}

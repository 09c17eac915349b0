//! A resume over a live session, where the agent lets a conversation have one writer only.

use groundcrew_core::error::ErrorKind;
use groundcrew_session::{failure, settings::Prompt};

use crate::{
    desk::{Desk, key, settings, token},
    script::{Behaviour, Script},
};

const THREAD: &str = "codex-thread-1";

fn locking() -> Desk {
    let desk = Desk::new();
    desk.world.ground.state().writer_lock = true;
    desk
}

#[tokio::test(start_paused = true)]
async fn t07_with_a_writer_lock_the_earlier_process_serves_until_its_successor_is_up() {
    let desk = locking();
    let first = desk.start().await;
    desk.world
        .next(Script::default().on("collaborationMode/list", Behaviour::Hold));
    let engine = desk.engine.clone();
    let resuming = tokio::spawn(async move { engine.resume(settings("s"), token(THREAD)).await });
    crate::desk::settle().await;
    let second = desk.world.last();
    let held = second.called("collaborationMode/list", 1).await;
    assert!(desk.is_live() && first.closes() == 0);
    second.answer(&held, serde_json::json!({}));
    resuming.await.unwrap().unwrap();
    assert_eq!(desk.world.live(), [1]);
    assert_eq!(first.closes(), 1);
    assert_eq!(
        first.calls("thread/inject_items"),
        1,
        "nothing was said: it is made resumable"
    );
    assert_eq!(second.calls("thread/resume"), 2);
    assert!(desk.is_live());
}

#[tokio::test(start_paused = true)]
async fn t08_t09_with_a_writer_lock_what_fails_before_the_handover_costs_nothing() {
    let desk = locking();
    let first = desk.start().await;
    desk.world.state().fail_starts = 1;
    desk.engine
        .resume(settings("s"), token(THREAD))
        .await
        .unwrap_err();
    for (code, text) in [(-32000, "no"), (-32600, "no rollout found for thread id x")] {
        desk.world
            .next(Script::default().on("thread/resume", Behaviour::Refuse(code, text)));
        desk.engine
            .resume(settings("s"), token(THREAD))
            .await
            .unwrap_err();
    }
    assert_eq!(first.closes(), 0);
    assert_eq!(desk.world.live(), [0]);
    assert!(desk.is_live());
}

#[tokio::test(start_paused = true)]
async fn a_busy_session_refuses_the_handover() {
    let desk = locking();
    let first = desk.begin().await;
    let error = desk
        .engine
        .resume(settings("s"), token(THREAD))
        .await
        .unwrap_err();
    assert!(failure::is(&error, failure::BUSY), "{error}");
    assert_eq!(first.closes(), 0);
    assert_eq!(desk.world.live(), [0]);
    first.end_turn("completed");
    crate::desk::settle().await;
    desk.engine
        .resume(settings("s"), token(THREAD))
        .await
        .unwrap();
    assert_eq!(desk.world.live(), [2]);
}

#[tokio::test(start_paused = true)]
async fn a_handover_that_fails_leaves_a_session_that_can_be_resumed() {
    let desk = locking();
    desk.start().await;
    let held = Behaviour::Refuse(-32600, "thread x already has an active writer");
    desk.world.next(Script::default().on("thread/resume", held));
    let error = desk
        .engine
        .resume(settings("s"), token(THREAD))
        .await
        .unwrap_err();
    assert!(failure::is(&error, failure::ACTIVE_WRITER), "{error}");
    assert!(desk.world.live().is_empty());
    assert!(!desk.is_live());
    let state = desk.store.load(&key("s")).await.unwrap().unwrap();
    assert_eq!(state.token, token(THREAD));
    desk.engine
        .resume(settings("s"), token(THREAD))
        .await
        .unwrap();
    desk.engine
        .prompt(&key("s"), Prompt::new("go on"))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_cannot_be_closed_keeps_the_conversation_and_stays_owned() {
    let desk = locking();
    desk.start().await;
    desk.world.fail_next_closes(0, 2);
    for _ in 0..2 {
        let error = desk
            .engine
            .resume(settings("s"), token(THREAD))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unexpected);
        assert_eq!(desk.world.live(), [0], "the new one is gone");
        assert_eq!(desk.engine.owned(&key("s")), 1);
    }
    // Each resume tries again, and once it can be closed the conversation goes on.
    desk.engine
        .resume(settings("s"), token(THREAD))
        .await
        .unwrap();
    assert_eq!(desk.world.live(), [3]);
    assert_eq!(desk.engine.owned(&key("s")), 1);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_nobody_speaks_with_any_more_hands_over_as_well() {
    let desk = locking();
    let first = desk.begin().await;
    // It lives on, but what it says is no message any more.
    first.write("nonsense\n".repeat(5));
    crate::desk::settle().await;
    assert!(!desk.is_live());
    assert_eq!(desk.world.live(), [0]);
    desk.engine
        .resume(settings("s"), token(THREAD))
        .await
        .unwrap();
    assert_eq!(first.closes(), 1);
    assert_eq!(desk.world.live(), [1]);
    assert_eq!(desk.engine.owned(&key("s")), 1);
    desk.engine
        .prompt(&key("s"), Prompt::new("go on"))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_is_not_ours_is_left_alone() {
    let desk = locking();
    let other = desk.engine.start(settings("other")).await.unwrap();
    let groundcrew_session::engine::Opening::Ready { conversation, .. } = other else {
        panic!("{other:?}");
    };
    desk.world.ground.write_down(&conversation.0);
    let error = desk
        .engine
        .resume(settings("s"), Some(conversation))
        .await
        .unwrap_err();
    assert!(failure::is(&error, failure::ACTIVE_WRITER), "{error}");
    assert_eq!(desk.world.live(), [0]);
    assert!(desk.engine.is_live(&key("other")));
}

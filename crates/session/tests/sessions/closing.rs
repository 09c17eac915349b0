//! Ends of processes: again, at once, in vain, and who owns them meanwhile.

use std::time::Duration;

use groundcrew_core::error::ErrorKind;
use groundcrew_session::{engine::CleanupReport, event::EventKind, failure, settings::Prompt};
use serde_json::json;

use crate::{
    desk::{Desk, key, settings, settle, token},
    script::{Behaviour, CloseResult, Script},
};

const THREAD: &str = "codex-thread-1";

#[tokio::test(start_paused = true)]
async fn t16_closing_again_and_from_eight_tasks_closes_once() {
    let desk = Desk::new();
    let process = desk.start().await;
    let closes: Vec<_> = (0..8)
        .map(|_| {
            let engine = desk.engine.clone();
            tokio::spawn(async move { engine.close(&key("s")).await })
        })
        .collect();
    for close in closes {
        close.await.unwrap().unwrap();
    }
    desk.engine.close(&key("s")).await.unwrap();
    desk.engine.release(&key("s")).await.unwrap();
    desk.engine.disconnect(&key("s")).await.unwrap();
    assert_eq!(process.closes(), 1);
}

#[tokio::test(start_paused = true)]
async fn t17_a_retired_process_that_is_gone_already_holds_up_nobody() {
    let desk = Desk::new();
    let results = [
        CloseResult::Fails,
        CloseResult::Fails,
        CloseResult::NotFound,
    ];
    desk.world.next(Script::default().closes(results));
    let first = desk.start().await;
    desk.engine.start(settings("s")).await.unwrap();
    assert_eq!(first.closes(), 2);
    assert_eq!(desk.engine.owned(&key("s")), 2);
    desk.world.ground.write_down("codex-thread-2");
    desk.engine
        .resume(settings("s"), token("codex-thread-2"))
        .await
        .unwrap();
    assert_eq!(first.closes(), 3);
    assert!(desk.is_live());
    assert_eq!(desk.engine.cleanup(1).await, CleanupReport::default());
    desk.engine.release(&key("s")).await.unwrap();
    assert!(desk.world.live().is_empty());
}

#[tokio::test(start_paused = true)]
async fn t18_closing_what_is_not_there_is_success() {
    let desk = Desk::new();
    desk.world
        .next(Script::default().closes([CloseResult::NotFound]));
    desk.start().await;
    desk.engine.release(&key("s")).await.unwrap();
    assert!(!desk.is_live());
    assert_eq!(desk.engine.owned(&key("s")), 0);
    assert_eq!(desk.engine.cleanup(9).await, CleanupReport::default());
}

#[tokio::test(start_paused = true)]
async fn t19_a_process_that_cannot_be_closed_stays_owned_and_holds_back_a_third() {
    let desk = Desk::new();
    desk.world
        .next(Script::default().closes([CloseResult::Fails; 4]));
    let first = desk.start().await;
    desk.engine.release(&key("s")).await.unwrap_err();
    assert_eq!(first.closes(), 1);
    assert!(!desk.is_live());
    assert_eq!(desk.engine.owned(&key("s")), 1);

    desk.engine
        .resume(settings("s"), token(THREAD))
        .await
        .unwrap();
    assert_eq!(first.closes(), 2, "the one that is free");
    assert!(desk.is_live());
    assert_eq!(desk.engine.owned(&key("s")), 2);

    desk.engine.release(&key("s")).await.unwrap();
    assert_eq!(first.closes(), 2);

    let pending = desk
        .engine
        .resume(settings("s"), token(THREAD))
        .await
        .unwrap_err();
    assert_eq!(first.closes(), 3);
    assert_eq!(desk.world.spawned(), 2);
    assert_eq!(pending.get("code"), Some("agent.process_cleanup_pending"));
    assert_eq!(pending.kind(), ErrorKind::Backpressure);
    assert!(pending.is_retryable());
    assert!(
        pending
            .get("debug")
            .unwrap()
            .contains("it cannot be closed")
    );
    assert!(std::error::Error::source(&pending).is_some());

    let report = desk.engine.cleanup(1).await;
    assert_eq!((report.attempted, report.cleaned, report.failed), (1, 0, 1));
    assert_eq!(first.closes(), 4);
    assert_eq!(desk.engine.cleanup(0).await, CleanupReport::default());
    desk.world.heal();
    let report = desk.engine.cleanup(1).await;
    assert_eq!((report.attempted, report.cleaned, report.failed), (1, 1, 0));
    assert_eq!(desk.engine.owned(&key("s")), 0);
    desk.engine
        .resume(settings("s"), token(THREAD))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn t20_a_process_that_exited_and_cannot_be_closed_stays_owned() {
    let desk = Desk::new();
    desk.world.next(Script {
        close_always: Some(CloseResult::Fails),
        ..Script::default()
    });
    let first = desk.start().await;
    desk.world.ground.write_down(THREAD);
    first.exit(0);
    settle().await;
    assert!(!desk.is_live(), "as soon as its end is known");
    desk.engine.disconnect(&key("s")).await.unwrap_err();
    assert_eq!((first.closes(), desk.engine.owned(&key("s"))), (1, 1));
    desk.engine
        .resume(settings("s"), token(THREAD))
        .await
        .unwrap();
    assert!(desk.is_live());
    assert_eq!((first.closes(), desk.engine.owned(&key("s"))), (2, 2));
    let report = desk.engine.cleanup(1).await;
    assert_eq!((report.attempted, report.cleaned, report.failed), (1, 0, 1));
    assert_eq!(first.closes(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_release_refuses_a_busy_session_and_the_other_ends_do_not() {
    let desk = Desk::new();
    let process = desk.begin().await;
    let busy = desk.engine.release(&key("s")).await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    assert_eq!(process.closes(), 0);
    process.ask(json!(0));
    desk.asked().await;
    desk.engine.disconnect(&key("s")).await.unwrap();
    let reply = process.answered(json!(0)).await;
    assert_eq!(reply["error"]["message"], "the client is gone");
    let last = desk.told().await;
    let last: Vec<_> = last.into_iter().map(|event| event.kind).collect();
    let [.., EventKind::TurnEnded { .. }, EventKind::Closed] = last.as_slice() else {
        panic!("{last:#?}");
    };
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_being_closed_tells_nothing_into_the_next_conversation() {
    let desk = Desk::new();
    let first = desk.begin().await;
    first.say_text("before");
    settle().await;
    desk.world.fail_next_closes(0, 9);
    desk.engine.close(&key("s")).await.unwrap_err();
    desk.told().await;
    first.say_text("after");
    first.end_turn("completed");
    settle().await;
    assert!(desk.told().await.is_empty());
    first.ask(json!(7));
    let refused = first.answered(json!(7)).await;
    assert_eq!(refused["error"]["code"], -32000);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_without_content_is_made_resumable_by_a_release() {
    let desk = Desk::new();
    let process = desk.start().await;
    assert!(!desk.world.ground.is_written(THREAD));
    desk.engine.release(&key("s")).await.unwrap();
    assert_eq!(process.calls("thread/inject_items"), 1);
    desk.engine
        .resume(settings("s"), token(THREAD))
        .await
        .unwrap();
    desk.engine.release(&key("s")).await.unwrap();
    assert_eq!(
        desk.world.last().calls("thread/inject_items"),
        0,
        "it holds something now"
    );
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_the_agent_does_not_know_has_a_code_of_its_own() {
    let desk = Desk::new();
    let error = desk
        .engine
        .resume(settings("s"), token("gone"))
        .await
        .unwrap_err();
    assert!(
        failure::is(&error, failure::CONVERSATION_NOT_FOUND),
        "{error}"
    );
    assert!(desk.world.live().is_empty());
    desk.engine.start(settings("s")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_ends_its_turn_and_its_session_until_it_is_resumed() {
    let desk = Desk::new();
    let process = desk.start().await;
    let mut turn = desk
        .engine
        .prompt(&key("s"), Prompt::new("go"))
        .await
        .unwrap();
    process.ask(json!(0));
    desk.asked().await;
    process.warn("out of memory\n");
    process.die();
    let end = turn.ended().await;
    assert_eq!(end.outcome, groundcrew_session::event::TurnOutcome::Failed);
    assert!(!desk.is_live());
    let told: Vec<_> = desk
        .told()
        .await
        .into_iter()
        .map(|event| event.kind)
        .collect();
    let [
        ..,
        EventKind::Interrupted { .. },
        EventKind::TurnEnded { .. },
        EventKind::Disconnected { error },
    ] = told.as_slice()
    else {
        panic!("{told:#?}");
    };
    assert!(
        error
            .context
            .contains(&("stderr".into(), "out of memory".into()))
    );
    let gone = desk
        .engine
        .prompt(&key("s"), Prompt::new("x"))
        .await
        .unwrap_err();
    assert!(failure::is(&gone, failure::NOT_LIVE));
    desk.engine
        .resume(settings("s"), token(THREAD))
        .await
        .unwrap();
    assert_eq!(desk.world.live(), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_sweep_releases_idle_sessions_and_stops_at_the_first_that_cannot_be() {
    let desk = Desk::new();
    for name in ["a", "b", "c", "d"] {
        desk.engine.start(settings(name)).await.unwrap();
    }
    desk.engine
        .prompt(&key("d"), Prompt::new("go"))
        .await
        .unwrap();
    let idle = Duration::from_mins(30);
    assert_eq!(desk.engine.sweep(idle).await.released, 0);
    tokio::time::advance(idle).await;
    desk.world.fail_next_closes(1, 1);
    let report = desk.engine.sweep(idle).await;
    assert_eq!((report.released, report.failed, report.skipped), (1, 1, 1));
    assert_eq!(report.cleanup, CleanupReport::default());
    let report = desk.engine.sweep(idle).await;
    assert_eq!((report.released, report.failed, report.skipped), (1, 0, 0));
    assert_eq!(report.cleanup.cleaned, 1);
    assert_eq!(desk.world.live(), [3], "the one that works is left alone");
    assert!(desk.engine.shutdown().await.is_empty());
    assert!(desk.world.live().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_session_is_idle_from_the_end_of_its_last_turn_on() {
    let desk = Desk::new();
    let process = desk.begin().await;
    let idle = Duration::from_mins(30);
    tokio::time::advance(idle + Duration::from_mins(1)).await;
    process.end_turn("completed");
    settle().await;
    assert_eq!(desk.engine.sweep(idle).await.released, 0);
    tokio::time::advance(Duration::from_mins(29)).await;
    assert_eq!(desk.engine.sweep(idle).await.released, 0);
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(desk.engine.sweep(idle).await.released, 1);
    assert!(desk.world.live().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_begins_while_a_release_is_under_way_is_not_cancelled() {
    let desk = Desk::new();
    let process = desk.start().await;
    process.behave("thread/inject_items", Behaviour::Hold);
    let engine = desk.engine.clone();
    let releasing = tokio::spawn(async move { engine.release(&key("s")).await });
    let call = process.called("thread/inject_items", 1).await;
    let mut turn = desk
        .engine
        .prompt(&key("s"), Prompt::new("go"))
        .await
        .unwrap();
    process.answer(&call, json!({}));
    let busy = releasing.await.unwrap().unwrap_err();
    assert!(failure::is(&busy, failure::BUSY), "{busy}");
    assert_eq!(process.closes(), 0);
    assert!(desk.is_live());
    process.end_turn("completed");
    let end = turn.ended().await;
    assert_eq!(
        end.outcome,
        groundcrew_session::event::TurnOutcome::Completed
    );
    desk.engine.release(&key("s")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_close_during_a_start_waits_for_it_and_wins() {
    let desk = Desk::new();
    desk.world
        .next(Script::default().on("initialize", Behaviour::Hold));
    let engine = desk.engine.clone();
    let starting = tokio::spawn(async move { engine.start(settings("s")).await });
    settle().await;
    let process = desk.world.last();
    let call = process.called("initialize", 1).await;
    let engine = desk.engine.clone();
    let closing = tokio::spawn(async move { engine.close(&key("s")).await });
    settle().await;
    process.answer(&call, json!({}));
    starting.await.unwrap().unwrap();
    closing.await.unwrap().unwrap();
    assert!(desk.world.live().is_empty());
}

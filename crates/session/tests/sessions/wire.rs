//! The bytes: however they are cut, whatever stands between them, as long as it can be borne.

use groundcrew_core::error::ErrorKind;
use groundcrew_session::{
    event::{EventKind, TurnOutcome},
    settings::Prompt,
};
use serde_json::json;

use crate::{
    desk::{Desk, key, settings, settle},
    script::{Behaviour, Script},
};

#[tokio::test(start_paused = true)]
async fn messages_are_the_same_however_their_bytes_arrive() {
    let desk = Desk::new();
    let process = desk.start().await;
    let mut turn = desk
        .engine
        .prompt(&key("s"), Prompt::new("go"))
        .await
        .unwrap();
    let delta = |text: &str| {
        let params =
            json!({"threadId": "codex-thread-1", "turnId": "turn-1", "itemId": "i", "delta": text});
        format!(
            "{}\n",
            json!({"method": "item/agentMessage/delta", "params": params})
        )
    };
    // Byte by byte, through every character, with words on standard error in between.
    for byte in delta("ä€😀").bytes() {
        process.write(vec![byte]);
        process.warn("noise ");
    }
    // Two in one piece, and the end in the same one.
    let done = json!({"id": "turn-1", "status": "completed"});
    let done =
        json!({"method": "turn/completed", "params": {"threadId": "codex-thread-1", "turn": done}});
    process.write(format!(
        "{}\r\n{}\n{done}\n",
        delta("one").trim(),
        delta("two").trim()
    ));
    assert_eq!(turn.ended().await.outcome, TurnOutcome::Completed);
    let told = desk.told().await;
    let texts: Vec<_> = told
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::TextDelta { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(texts, ["ä€😀", "one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn a_reply_and_a_notification_in_one_piece_are_both_heard() {
    let desk = Desk::new();
    let process = desk.start().await;
    process.behave("turn/start", Behaviour::Hold);
    let engine = desk.engine.clone();
    let asking = tokio::spawn(async move { engine.prompt(&key("s"), Prompt::new("go")).await });
    let call = process.called("turn/start", 1).await;
    let turn = json!({"id": "t", "status": "inProgress"});
    let reply = json!({"id": call["id"], "result": {"turn": turn}});
    let started =
        json!({"method": "turn/started", "params": {"threadId": "codex-thread-1", "turn": turn}});
    let ended = json!({"method": "turn/completed", "params": {"threadId": "codex-thread-1", "turn": {"id": "t", "status": "completed"}}});
    process.write(format!("{reply}\n{started}\n{ended}\n"));
    let end = asking.await.unwrap().unwrap().ended().await;
    assert_eq!(end.outcome, TurnOutcome::Completed);
}

#[tokio::test(start_paused = true)]
async fn four_lines_of_nonsense_are_borne_and_five_end_the_connection() {
    let desk = Desk::new();
    let process = desk.begin().await;
    for _ in 0..3 {
        process.write("nonsense\n\n".repeat(4));
        process.write("npm WARN deprecated x\n");
        process.write("[1]\n{}\n");
        process.say_text("well");
    }
    settle().await;
    assert!(desk.is_live());
    process.write("nonsense one\n".repeat(5));
    let error = desk.event("disconnected", |event| match &event.kind {
        EventKind::Disconnected { error } => Some(error.clone()),
        _ => None,
    });
    let error = error.await;
    assert_eq!(error.kind, ErrorKind::Protocol);
    assert!(
        error
            .context
            .contains(&("said".into(), "nonsense one".into()))
    );
    assert!(!desk.is_live());
    assert_eq!(
        desk.engine.owned(&key("s")),
        1,
        "the process is there still"
    );
    desk.engine.close(&key("s")).await.unwrap();
    assert!(desk.world.live().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_endless_line_ends_the_connection_in_bounded_memory() {
    let desk = Desk::new();
    let process = desk.begin().await;
    for _ in 0..=groundcrew_session::MAX_LINE_LEN >> 20 {
        process.write(vec![b'x'; 1 << 20]);
    }
    let error = desk.event("disconnected", |event| match &event.kind {
        EventKind::Disconnected { error } => Some(error.clone()),
        _ => None,
    });
    assert_eq!(error.await.kind, ErrorKind::TooLarge);
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_not_whole_when_the_agent_ends_is_dropped() {
    let desk = Desk::new();
    let process = desk.begin().await;
    process.write("{\"method\":\"turn/completed\"");
    process.exit(0);
    let end = desk.event("ended", |event| match &event.kind {
        EventKind::TurnEnded { outcome, .. } => Some(*outcome),
        _ => None,
    });
    assert_eq!(end.await, TurnOutcome::Failed);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_read_is_not_waited_for_by_the_reader() {
    let desk = Desk::new();
    let process = desk.start().await;
    process.behave("turn/start", Behaviour::Hold);
    let engine = desk.engine.clone();
    let asking = tokio::spawn(async move { engine.prompt(&key("s"), Prompt::new("go")).await });
    let call = process.called("turn/start", 1).await;
    // A flood of questions while nothing of ours is answered: all are refused, and the answer behind them is heard.
    for id in 0..3000 {
        process.say(&json!({"id": id, "method": "brand/new", "params": {}}));
    }
    process.answer(&call, json!({"turn": {"id": "t", "status": "inProgress"}}));
    asking.await.unwrap().unwrap();
    assert_eq!(process.answered(json!(2999)).await["error"]["code"], -32601);
}

#[tokio::test(start_paused = true)]
async fn a_time_limit_is_an_error_of_its_own_that_names_method_and_limit() {
    let desk = Desk::new();
    desk.world
        .next(Script::default().on("thread/start", Behaviour::Hold));
    let error = desk.engine.start(settings("s")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(error.get("method"), Some("thread/start"));
    assert_eq!(error.get("limit"), Some("90s"));
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("deadline exceeded"), "{source}");
}

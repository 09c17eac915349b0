//! The bytes: however they are cut, whatever stands between them, as long as it can be borne.

use std::time::Duration;

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

#[tokio::test(start_paused = true)]
async fn half_a_character_costs_no_text_and_what_cannot_be_read_is_told() {
    let desk = Desk::new();
    let process = desk.begin().await;
    let place = r#""threadId":"codex-thread-1","turnId":"turn-1","itemId":"i""#;
    let delta = |text: &str| {
        format!(
            "{{\"method\":\"item/agentMessage/delta\",\"params\":{{{place},\"delta\":{text}}}}}\n"
        )
    };
    settle().await;
    desk.told().await;
    process.write(delta(r#""cut \ud83d""#));
    process.write(delta("1e400"));
    settle().await;
    let told: Vec<_> = desk
        .told()
        .await
        .into_iter()
        .map(|event| event.kind)
        .collect();
    let [
        EventKind::TextDelta { text, .. },
        EventKind::Warning {
            about,
            text: warning,
        },
    ] = told.as_slice()
    else {
        panic!("{told:#?}");
    };
    assert_eq!(
        (text.as_str(), about.as_str()),
        ("cut \u{fffd}", "notification")
    );
    assert!(warning.contains("item/agentMessage/delta"), "{warning}");

    // A question is put as it was meant, or refused; nobody is asked another one.
    let ask = |id: u32, command: &str| {
        let method = "item/commandExecution/requestApproval";
        format!(
            "{{\"id\":{id},\"method\":\"{method}\",\"params\":{{{place},\"command\":{command}}}}}\n"
        )
    };
    process.write(ask(1, r#""rm \ud83d""#));
    let request = desk.asked().await;
    let shown = serde_json::to_value(&request.question).unwrap();
    assert_eq!(shown["command"], "rm \u{fffd}");
    process.write(ask(2, &format!("{}{}", "[".repeat(200), "]".repeat(200))));
    let refused = process.answered(json!(2)).await;
    assert_eq!(refused["error"]["code"], -32602);
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.contains("cannot be read"), "{why}");
    settle().await;
    let told = desk.told().await;
    let [warning] = told.as_slice() else {
        panic!("{told:#?}");
    };
    assert!(matches!(&warning.kind, EventKind::Warning { about, .. } if about == "request"));
    assert_eq!(desk.engine.requests(&key("s")), [request]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_read_is_an_error_for_who_waits() {
    let desk = Desk::new();
    let process = desk.start().await;
    process.behave("turn/start", Behaviour::Hold);
    let engine = desk.engine.clone();
    let asking = tokio::spawn(async move { engine.prompt(&key("s"), Prompt::new("go")).await });
    let call = process.called("turn/start", 1).await;
    process.write(format!("{{\"id\":{},\"result\":1e400}}\n", call["id"]));
    let mut turn = asking.await.unwrap().unwrap();
    let end = tokio::time::timeout(Duration::from_mins(10), turn.ended())
        .await
        .unwrap();
    assert_eq!(end.outcome, TurnOutcome::Failed);
    assert!(end.error.unwrap().contains("cannot be read"));
    assert!(desk.is_live());

    // As for a call that the engine waits for itself.
    desk.world
        .next(Script::default().on("thread/start", Behaviour::Hold));
    let engine = desk.engine.clone();
    let starting = tokio::spawn(async move { engine.start(settings("t")).await });
    settle().await;
    let process = desk.world.last();
    let call = process.called("thread/start", 1).await;
    process.write(format!("{{\"id\":{},\"result\":1e400}}\n", call["id"]));
    let error = starting.await.unwrap().unwrap_err();
    assert_eq!(error.get("rpc_code"), Some("-32700"), "{error:?}");
}

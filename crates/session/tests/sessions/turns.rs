//! Turns: what begins, guides, interrupts and ends them, and in which order it is told.

use std::time::Duration;

use groundcrew_core::error::ErrorKind;
use groundcrew_session::{
    event::{EventKind, SessionEvent, TurnOutcome},
    failure,
    settings::Prompt,
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    desk::{Desk, key, settle},
    script::{Behaviour, Said},
};

fn prompt() -> Prompt {
    Prompt::new("go")
}

/// Counts the ends of turns that were told.
fn ends(told: &[SessionEvent]) -> usize {
    let ends = told.iter();
    let ends = ends.filter(|event| matches!(event.kind, EventKind::TurnEnded { .. }));
    ends.count()
}

#[tokio::test(start_paused = true)]
async fn a_turn_streams_its_events_and_ends_once_and_last() {
    let desk = Desk::new();
    let process = desk.start().await;
    let mut turn = desk.engine.prompt(&key("s"), prompt()).await.unwrap();
    assert_eq!((turn.turn(), turn.steered()), (1, false));
    for text in ["one ", "two"] {
        process.say_text(text);
    }
    process.end_turn("completed");
    process.end_turn("completed");
    process.say_text("too late");
    assert_eq!(turn.ended().await.outcome, TurnOutcome::Completed);
    settle().await;
    let told = desk.told().await;
    let numbers: Vec<_> = told.iter().map(|event| event.seq).collect();
    assert!(
        numbers.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{numbers:?}"
    );
    let kinds: Vec<_> = told.iter().map(|event| (event.turn, &event.kind)).collect();
    let [
        (None, EventKind::SessionStarted { resumed: false, .. }),
        (Some(1), EventKind::TurnStarted { .. }),
        (Some(1), EventKind::TextDelta { text: one, .. }),
        (Some(1), EventKind::TextDelta { text: two, .. }),
        (
            Some(1),
            EventKind::TurnEnded {
                outcome: TurnOutcome::Completed,
                ..
            },
        ),
    ] = kinds.as_slice()
    else {
        panic!("{kinds:#?}");
    };
    assert_eq!((one.as_str(), two.as_str()), ("one ", "two"));
    assert!(
        told[2].offset < told[3].offset,
        "each has its place in the output"
    );
}

#[tokio::test(start_paused = true)]
async fn a_prompt_while_a_turn_runs_guides_it() {
    let desk = Desk::new();
    let process = desk.begin().await;
    let guided = desk
        .engine
        .prompt(&key("s"), Prompt::new("left"))
        .await
        .unwrap();
    assert!(guided.steered() && guided.turn() == 1);
    let steer = process.called("turn/steer", 1).await;
    assert_eq!(steer["params"]["expectedTurnId"], "turn-1");
    assert_eq!(steer["params"]["input"][0]["text"], "left");
    assert_eq!(process.calls("turn/start"), 1);
    let told = desk.told().await;
    assert!(
        told.iter()
            .any(|event| event.kind == EventKind::TurnSteered)
    );
}

#[tokio::test(start_paused = true)]
async fn guidance_that_comes_too_late_begins_the_next_turn() {
    let desk = Desk::new();
    let process = desk.begin().await;
    process.behave("turn/steer", Behaviour::Hold);
    let engine = desk.engine.clone();
    let late = tokio::spawn(async move { engine.prompt(&key("s"), Prompt::new("late")).await });
    let steer = process.called("turn/steer", 1).await;
    process.end_turn("completed");
    process.refuse(&steer, -32600, "no active turn to steer");
    let next = late.await.unwrap().unwrap();
    assert!(!next.steered() && next.turn() == 2);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_ends_before_it_is_acknowledged_or_in_the_acknowledgement_ends() {
    let done = json!({"id": "t", "status": "completed"});
    let desk = Desk::new();
    let process = desk.start().await;
    let early = Said::Note(
        "turn/completed",
        json!({"threadId": "codex-thread-1", "turn": done}),
    );
    process.behave("turn/start", Behaviour::Instead(vec![early]));
    let mut turn = desk.engine.prompt(&key("s"), prompt()).await.unwrap();
    assert_eq!(turn.ended().await.outcome, TurnOutcome::Completed);

    process.behave("turn/start", Behaviour::Hold);
    let engine = desk.engine.clone();
    let asking = tokio::spawn(async move { engine.prompt(&key("s"), prompt()).await });
    let call = process.called("turn/start", 2).await;
    let failed = json!({"id": "t2", "status": "failed", "error": {"message": "no model"}});
    process.answer(&call, json!({"turn": failed}));
    let end = asking.await.unwrap().unwrap().ended().await;
    assert_eq!(
        (end.outcome, end.error.as_deref()),
        (TurnOutcome::Failed, Some("no model"))
    );
    assert!(desk.is_live());
}

#[tokio::test(start_paused = true)]
async fn a_name_that_never_runs_does_not_keep_the_turn_that_runs_from_ending() {
    let desk = Desk::new();
    let process = desk.start().await;
    process.behave("turn/start", Behaviour::Hold);
    let engine = desk.engine.clone();
    let asking = tokio::spawn(async move { engine.prompt(&key("s"), prompt()).await });
    let call = process.called("turn/start", 1).await;
    process.answer(
        &call,
        json!({"turn": {"id": "stub", "status": "inProgress"}}),
    );
    let mut turn = asking.await.unwrap().unwrap();
    let real = json!({"id": "real", "status": "completed"});
    process.tell(
        "turn/completed",
        json!({"threadId": "codex-thread-1", "turn": real}),
    );
    assert_eq!(turn.ended().await.outcome, TurnOutcome::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_refused_turn_fails_alone_and_an_unanswered_one_costs_the_process() {
    let desk = Desk::new();
    let process = desk.start().await;
    process.behave("turn/start", Behaviour::Refuse(-32600, "no such model"));
    let mut turn = desk.engine.prompt(&key("s"), prompt()).await.unwrap();
    let end = turn.ended().await;
    assert_eq!(end.outcome, TurnOutcome::Failed);
    assert!(end.error.unwrap().contains("no such model"));
    assert!(desk.is_live());

    process.behave("turn/start", Behaviour::Hold);
    let error = desk.engine.prompt(&key("s"), prompt()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(error.get("method"), Some("turn/start"));
    assert!(!desk.is_live());
    assert!(desk.world.live().is_empty());
    assert_eq!(ends(&desk.told().await), 2);
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_ends_the_turn_and_refuses_what_waits() {
    let desk = Desk::new();
    let process = desk.begin().await;
    process.ask(json!("a-b"));
    desk.asked().await;
    let end = desk.engine.interrupt(&key("s")).await.unwrap();
    assert_eq!(end.outcome, TurnOutcome::Interrupted);
    let rejected = process.answered(json!("a-b")).await;
    assert_eq!(rejected["error"]["code"], -32000);
    let heard = process.state().heard.clone();
    let place = |found: &dyn Fn(&serde_json::Value) -> bool| heard.iter().position(found).unwrap();
    let refused = place(&|message| message["id"] == "a-b");
    let asked = place(&|message| message["method"] == "turn/interrupt");
    assert!(
        refused < asked,
        "a handler of the agent may be parked on it"
    );
    assert!(desk.is_live());
    let none = desk.engine.interrupt(&key("s")).await.unwrap_err();
    assert!(failure::is(&none, failure::NO_TURN), "{none}");
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_before_the_turn_has_a_name_is_sent_when_it_has() {
    let desk = Desk::new();
    let process = desk.start().await;
    process.behave("turn/start", Behaviour::Hold);
    let engine = desk.engine.clone();
    let asking = tokio::spawn(async move { engine.prompt(&key("s"), prompt()).await });
    let call = process.called("turn/start", 1).await;
    let engine = desk.engine.clone();
    let interrupting = tokio::spawn(async move { engine.interrupt(&key("s")).await });
    settle().await;
    assert_eq!(process.calls("turn/interrupt"), 0);
    // Between the acknowledgement and the first word it is refused, though the turn goes on to run.
    process.answer(
        &call,
        json!({"turn": {"id": "turn-9", "status": "inProgress"}}),
    );
    process.called("turn/interrupt", 1).await;
    settle().await;
    assert_eq!(process.calls("turn/interrupt"), 1);
    process.state().turn = Some("turn-9".into());
    let turn = json!({"id": "turn-9", "status": "inProgress"});
    process.tell(
        "turn/started",
        json!({"threadId": "codex-thread-1", "turn": turn}),
    );
    process.called("turn/interrupt", 2).await;
    assert_eq!(
        interrupting.await.unwrap().unwrap().outcome,
        TurnOutcome::Interrupted
    );
    asking.await.unwrap().unwrap();
    assert!(desk.is_live());
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_of_another_turn_than_the_one_that_runs_is_sent_again_once() {
    let desk = Desk::new();
    let process = desk.begin().await;
    process.state().turn = Some("turn-other".into());
    let before = Instant::now();
    let end = desk.engine.interrupt(&key("s")).await.unwrap();
    assert_eq!(process.calls("turn/interrupt"), 2);
    let second = process.called("turn/interrupt", 2).await;
    assert_eq!(second["params"]["turnId"], "turn-other");
    // The name of ours was confirmed, so the end of another is not ours: the process was closed.
    assert_eq!(end.outcome, TurnOutcome::Cancelled);
    assert!(before.elapsed() >= Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_does_not_end_when_it_is_asked_to_costs_the_process_and_counts_as_cancelled() {
    let desk = Desk::new();
    let process = desk.begin().await;
    process.behave("turn/interrupt", Behaviour::Hold);
    let before = Instant::now();
    let s = key("s");
    let (one, two) = tokio::join!(desk.engine.interrupt(&s), desk.engine.interrupt(&s));
    assert_eq!(one.unwrap().outcome, TurnOutcome::Cancelled);
    assert_eq!(two.unwrap().outcome, TurnOutcome::Cancelled);
    assert_eq!(before.elapsed(), Duration::from_secs(3));
    assert!(!desk.is_live());
    assert_eq!(process.closes(), 1);
    assert_eq!(ends(&desk.told().await), 1);
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_does_not_queue_behind_a_lifecycle_call() {
    let desk = Desk::new();
    let process = desk.begin().await;
    desk.world
        .next(crate::script::Script::default().on("initialize", Behaviour::Hold));
    let engine = desk.engine.clone();
    let resuming = tokio::spawn(async move {
        engine
            .resume(
                crate::desk::settings("s"),
                crate::desk::token("codex-thread-1"),
            )
            .await
    });
    settle().await;
    let before = Instant::now();
    let end = desk.engine.interrupt(&key("s")).await.unwrap();
    assert_eq!(
        (end.outcome, before.elapsed()),
        (TurnOutcome::Interrupted, Duration::ZERO)
    );
    assert_eq!(process.calls("turn/interrupt"), 1);
    resuming.await.unwrap().unwrap_err();
    assert!(desk.is_live());
}

#[tokio::test(start_paused = true)]
async fn turns_of_the_agents_own_and_of_other_threads_are_nobodys() {
    let desk = Desk::new();
    let process = desk.start().await;
    let own = json!({"id": "own", "status": "inProgress"});
    process.tell(
        "turn/started",
        json!({"threadId": "codex-thread-1", "turn": own}),
    );
    process.tell(
        "turn/completed",
        json!({"threadId": "codex-thread-1", "turn": own}),
    );
    let mut turn = desk.engine.prompt(&key("s"), prompt()).await.unwrap();
    let running = process.state().turn.clone();
    let same = json!({"id": running, "status": "completed"});
    process.tell(
        "turn/completed",
        json!({"threadId": "another", "turn": same}),
    );
    settle().await;
    let told = desk.told().await;
    assert_eq!(ends(&told), 0);
    process.end_turn("completed");
    assert_eq!(turn.ended().await.outcome, TurnOutcome::Completed);
}

#[tokio::test(start_paused = true)]
async fn items_usage_and_plans_are_told_as_they_are() {
    let desk = Desk::new();
    let process = desk.begin().await;
    let item = |method: &str, item: serde_json::Value| {
        process.tell(
            method,
            json!({"threadId": "codex-thread-1", "turnId": "turn-1", "item": item}),
        );
    };
    item(
        "item/started",
        json!({"type": "commandExecution", "id": "c", "command": "ls", "status": "inProgress"}),
    );
    item(
        "item/completed",
        json!({
            "type": "commandExecution", "id": "c", "command": "ls", "status": "failed", "exitCode": 2, "aggregatedOutput": "x",
        }),
    );
    item(
        "item/completed",
        json!({
            "type": "fileChange", "id": "f", "status": "completed",
            "changes": [{"path": "/w/a", "kind": {"type": "add"}, "diff": "+a"}],
        }),
    );
    item(
        "item/completed",
        json!({"type": "agentMessage", "id": "m", "text": "done"}),
    );
    item("item/completed", json!({"type": "somethingNew", "id": "n"}));
    process.tell("something/new", json!({"threadId": "codex-thread-1"}));
    let usage = json!({"total": {"inputTokens": 5, "outputTokens": 2, "totalTokens": 7}, "modelContextWindow": 100});
    process.tell(
        "thread/tokenUsage/updated",
        json!({"threadId": "codex-thread-1", "turnId": "turn-1", "tokenUsage": usage}),
    );
    process.end_turn("completed");
    settle().await;
    let told: Vec<_> = desk
        .told()
        .await
        .into_iter()
        .map(|event| serde_json::to_value(event).unwrap())
        .collect();
    let shown: Vec<_> = told
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        shown,
        [
            "session_started",
            "turn_started",
            "tool_started",
            "tool_ended",
            "file_changes",
            "text",
            "usage",
            "turn_ended"
        ]
    );
    assert_eq!(
        (&told[3]["outcome"], &told[3]["exit_code"]),
        (&json!("failed"), &json!(2))
    );
    let change = json!([{"path": "/w/a", "change": "add", "diff": "+a"}]);
    assert_eq!(told[4]["changes"], change);
    assert_eq!(told[6]["usage"]["window"], 100);
    assert_eq!(told[7]["turn"], 1);
}

//! The words of ACP, without an agent: what each message means, and what is said.

use groundcrew_core::{command::Command, id::SessionId};
use serde_json::{Value, json};

use super::Acp;
use crate::{
    event::{EventKind, ItemOutcome, ToolKind, TurnOutcome},
    protocol::{Asked, Happening, InterruptCall, Protocol as _, TurnCall},
    rpc::Refusal,
    settings::{Conversation, ConversationId, Facts, Prompt, SessionSettings},
};

fn conversation() -> Conversation {
    let session = SessionId::new("s").unwrap();
    let command = Command::new(["agent"]).unwrap();
    let settings = SessionSettings::new(session, command, "/w");
    Conversation::new(ConversationId("c".to_owned()), &settings, Facts::default())
}

fn told(update: &Value) -> Vec<EventKind> {
    let params = json!({ "sessionId": "c", "update": update });
    let happenings = Acp.notice(&conversation(), "session/update", &params);
    let events = happenings.into_iter().map(|happening| match happening {
        Happening::Tell(event) => event,
        other => panic!("{other:?}"),
    });
    events.collect()
}

#[test]
fn text_and_thoughts_are_told_in_pieces_under_their_message() {
    let update = json!({
        "sessionUpdate": "agent_message_chunk", "messageId": "m1",
        "content": { "type": "text", "text": "hi" },
    });
    let text = |item: &str| EventKind::TextDelta {
        item: item.to_owned(),
        text: "hi".to_owned(),
    };
    assert_eq!(told(&update), [text("m1")]);
    let update = json!({
        "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "hi" },
    });
    assert_eq!(told(&update), [text("message")]);
    let update = json!({
        "sessionUpdate": "agent_thought_chunk", "content": { "type": "text", "text": "hm" },
    });
    assert!(matches!(&told(&update)[..], [EventKind::ThoughtDelta { text, .. }] if text == "hm"));
}

#[test]
fn a_tool_call_begins_is_named_and_ends_once() {
    let begun = told(&json!({
        "sessionUpdate": "tool_call", "toolCallId": "t", "title": "bash", "kind": "execute",
        "status": "pending",
    }));
    assert!(matches!(
        &begun[..],
        [EventKind::ToolStarted { tool: ToolKind::Command, title, .. }] if title == "bash"
    ));
    let named = told(&json!({
        "sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "in_progress",
        "title": "ls", "rawInput": { "command": "ls" },
        "content": [{ "type": "content", "content": { "type": "text", "text": "half" } }],
    }));
    assert!(matches!(
        &named[..],
        [EventKind::ToolUpdated { title: Some(title), .. }] if title == "ls"
    ));
    let ended = told(&json!({
        "sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed",
        "title": "ls", "rawOutput": { "metadata": { "exit": 3 } },
        "content": [{ "type": "content", "content": { "type": "text", "text": "whole" } }],
    }));
    let expected = EventKind::ToolEnded {
        item: "t".to_owned(),
        outcome: ItemOutcome::Completed,
        exit_code: Some(3),
        output: Some("whole".to_owned()),
    };
    assert_eq!(ended, [expected]);
}

#[test]
fn changes_of_files_plans_and_figures_are_told() {
    let changed = told(&json!({
        "sessionUpdate": "tool_call", "toolCallId": "t", "title": "write", "kind": "edit",
        "status": "failed",
        "content": [{ "type": "diff", "path": "/w/a", "oldText": null, "newText": "x" }],
    }));
    let [
        _,
        EventKind::FileChanges {
            outcome, changes, ..
        },
        EventKind::ToolEnded { .. },
    ] = &changed[..]
    else {
        panic!("{changed:?}");
    };
    assert_eq!(
        (*outcome, changes[0].change.as_str()),
        (ItemOutcome::Failed, "add")
    );
    let plan = told(&json!({
        "sessionUpdate": "plan",
        "entries": [{ "content": "look", "priority": "high", "status": "in_progress" }],
    }));
    assert!(matches!(&plan[..], [EventKind::Plan { steps }] if steps[0].status == "in_progress"));
    let usage = told(&json!({ "sessionUpdate": "usage_update", "used": 18, "size": 100 }));
    assert!(matches!(
        &usage[..],
        [EventKind::Usage { usage }] if usage.total == Some(18) && usage.window == Some(100)
    ));
}

#[test]
fn what_is_not_known_or_not_ours_means_nothing() {
    for update in [
        json!({ "sessionUpdate": "user_message_chunk", "content": { "type": "text", "text": "x" } }),
        json!({ "sessionUpdate": "dance", "steps": 3 }),
        json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "smell" } }),
        json!({ "sessionUpdate": "tool_call" }),
        json!([]),
        Value::Null,
    ] {
        assert_eq!(told(&update), [], "{update}");
    }
    let other = json!({ "sessionId": "d", "update": { "sessionUpdate": "usage_update", "used": 1, "size": 2 } });
    assert_eq!(Acp.notice(&conversation(), "session/update", &other), []);
    assert_eq!(
        Acp.notice(&conversation(), "_auth/status_update", &json!({})),
        []
    );
    assert_eq!(Acp.early_notice("session/update", &json!({})), []);
}

#[test]
fn the_end_of_a_turn_is_the_answer_to_its_prompt() {
    let ended = |answer: Result<Value, Refusal>| {
        let mut happenings = Acp.turn_answered(&conversation(), &answer);
        let Some(Happening::TurnEnded { outcome, error, .. }) = happenings.pop() else {
            panic!("{happenings:?}");
        };
        (outcome, error, happenings)
    };
    for (reason, expected) in [
        ("end_turn", TurnOutcome::Completed),
        ("max_tokens", TurnOutcome::Completed),
        ("something_new", TurnOutcome::Completed),
        ("cancelled", TurnOutcome::Interrupted),
        ("refusal", TurnOutcome::Failed),
    ] {
        let (outcome, ..) = ended(Ok(json!({ "stopReason": reason })));
        assert_eq!(outcome, expected, "{reason}");
    }
    let usage =
        json!({ "stopReason": "end_turn", "usage": { "inputTokens": 11, "totalTokens": 18 } });
    let (_, _, told) = ended(Ok(usage));
    assert!(matches!(
        &told[..],
        [Happening::Tell(EventKind::Usage { usage })] if usage.input == Some(11)
    ));
    let (outcome, error, told) = ended(Err(Refusal::new(-32603, "out of order")));
    assert_eq!((outcome, told.len()), (TurnOutcome::Failed, 0));
    assert!(error.unwrap().contains("out of order"));
    let (outcome, _, told) = ended(Err(Refusal::new(-32000, "Authentication required")));
    assert_eq!(outcome, TurnOutcome::Failed);
    assert!(matches!(
        &told[..],
        [Happening::Tell(EventKind::AuthenticationRequired { .. })]
    ));
}

#[test]
fn prompts_and_interruptions_name_the_conversation() {
    let TurnCall::Ends(call) = Acp.prompt(&conversation(), &Prompt::new("do it")) else {
        panic!("the answer ends the turn");
    };
    assert_eq!(call.method, "session/prompt");
    let expected = json!({ "sessionId": "c", "prompt": [{ "type": "text", "text": "do it" }] });
    assert_eq!(call.params, expected);
    let Some(InterruptCall::Notification(call)) = Acp.interrupt(&conversation(), None) else {
        panic!("it can be interrupted");
    };
    assert_eq!(
        (call.method.as_str(), &call.params["sessionId"]),
        ("session/cancel", &json!("c"))
    );
}

#[test]
fn what_we_do_not_offer_is_refused_without_a_word_and_what_nobody_knows_with_one() {
    for method in ["fs/read_text_file", "terminal/create", "_vendor/anything"] {
        let asked = Acp.request(&conversation(), method, &json!({ "sessionId": "c" }));
        assert!(
            matches!(&asked, Asked::Answer(Err(refusal)) if refusal.code == -32601),
            "{asked:?}"
        );
    }
    assert_eq!(
        Acp.request(&conversation(), "session/dream", &json!({})),
        Asked::Unknown
    );
    let foreign = json!({ "sessionId": "d", "toolCall": { "toolCallId": "t" }, "options": [] });
    let asked = Acp.request(&conversation(), "session/request_permission", &foreign);
    assert!(matches!(asked, Asked::Answer(Err(refusal)) if refusal.code == -32602));
}

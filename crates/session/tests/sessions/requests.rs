//! What the agent asks, and how it is answered: once, in whatever order things happen.

use std::collections::BTreeMap;

use groundcrew_core::error::ErrorKind;
use groundcrew_session::{
    event::EventKind,
    failure,
    request::{Decision, Question, RequestId, RequestPhase},
    settings::{Approve, Prompt},
};
use serde_json::{Value, json};

use crate::desk::{Desk, key, settings, settle};

fn denied(why: &str) -> Decision {
    serde_json::from_value(json!({"decision": "deny", "because": why})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_approval_is_asked_answered_and_told() {
    let desk = Desk::new();
    let process = desk.begin().await;
    process.ask(json!(0));
    let request = desk.asked().await;
    let Question::Command { command, .. } = &request.question else {
        panic!("{request:?}");
    };
    assert_eq!(command, "touch x");
    assert_eq!(
        desk.engine.requests(&key("s")),
        std::slice::from_ref(&request)
    );
    let phase = || desk.engine.request_phase(&key("s"), &request.id);
    assert_eq!(phase(), Some(RequestPhase::Pending));
    desk.engine
        .answer(&key("s"), &request.id, Decision::Approve)
        .await
        .unwrap();
    let reply = process.answered(json!(0)).await;
    assert_eq!(reply, json!({"id": 0, "result": {"decision": "accept"}}));
    process.tell(
        "serverRequest/resolved",
        json!({"threadId": "codex-thread-1", "requestId": 0}),
    );
    settle().await;
    assert_eq!(phase(), Some(RequestPhase::Answered), "the first end wins");
    let again = desk
        .engine
        .answer(&key("s"), &request.id, Decision::Abort)
        .await
        .unwrap_err();
    assert!(failure::is(&again, failure::ALREADY_ANSWERED));
    let unknown = RequestId("q99".into());
    let unknown = desk
        .engine
        .answer(&key("s"), &unknown, Decision::Abort)
        .await
        .unwrap_err();
    assert!(failure::is(&unknown, failure::REQUEST_GONE));
    let told = desk.told().await;
    let told: Vec<_> = told.iter().map(|event| &event.kind).collect();
    let answered = matches!(
        told.as_slice(),
        [EventKind::Answered {
            automatic: false,
            ..
        }]
    );
    assert!(answered, "{told:#?}");
}

#[tokio::test(start_paused = true)]
async fn ids_of_the_agent_are_its_own_and_come_back_as_they_were() {
    let desk = Desk::new();
    let process = desk.start().await;
    // Our own call number 6 is in flight while it asks with 6, 0 and texts.
    process.behave("turn/start", crate::script::Behaviour::Hold);
    let engine = desk.engine.clone();
    let asking = tokio::spawn(async move { engine.prompt(&key("s"), Prompt::new("go")).await });
    let call = process.called("turn/start", 1).await;
    let ours = call["id"].clone();
    process.state().turn = Some("turn-1".into());
    for id in [ours.clone(), json!(0), json!("0"), json!("a\"b")] {
        process.ask(id.clone());
        let request = desk.asked().await;
        desk.engine
            .answer(&key("s"), &request.id, Decision::deny())
            .await
            .unwrap();
        let reply = process.answered(id.clone()).await;
        assert_eq!(reply, json!({"id": id, "result": {"decision": "decline"}}));
    }
    process.answer(
        &call,
        json!({"turn": {"id": "turn-1", "status": "inProgress"}}),
    );
    asking.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn answers_to_answers_are_taken_as_numbers_and_as_texts() {
    let desk = Desk::new();
    let process = desk.start().await;
    process.behave("turn/start", crate::script::Behaviour::Hold);
    let engine = desk.engine.clone();
    let asking = tokio::spawn(async move { engine.prompt(&key("s"), Prompt::new("go")).await });
    let call = process.called("turn/start", 1).await;
    let text = call["id"].to_string();
    process.say(&json!({"id": text, "jsonrpc": "2.0", "result": {"turn": {"id": "t"}}}));
    asking.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_the_agent_settles_itself_is_superseded_and_nothing_is_sent() {
    let desk = Desk::new();
    let process = desk.begin().await;
    process.ask(json!("own-3"));
    let request = desk.asked().await;
    process.tell(
        "serverRequest/resolved",
        json!({"threadId": "codex-thread-1", "requestId": "own-3"}),
    );
    settle().await;
    let late = desk
        .engine
        .answer(&key("s"), &request.id, Decision::Approve)
        .await
        .unwrap_err();
    assert!(failure::is(&late, failure::REQUEST_GONE));
    let phase = desk.engine.request_phase(&key("s"), &request.id);
    assert_eq!(phase, Some(RequestPhase::Superseded));
    process.end_turn("completed");
    settle().await;
    assert!(
        process
            .state()
            .heard
            .iter()
            .all(|message| message["id"] != "own-3")
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_outside_of_a_turn_an_unknown_one_and_a_wrong_one_are_refused_at_once() {
    let desk = Desk::new();
    let process = desk.start().await;
    process.ask(json!(1));
    assert_eq!(process.answered(json!(1)).await["error"]["code"], -32000);
    desk.engine
        .prompt(&key("s"), Prompt::new("go"))
        .await
        .unwrap();
    let ask = |id: i64, method: &str, params: Value| {
        process.say(&json!({"id": id, "method": method, "params": params}));
    };
    ask(2, "item/fileChange/requestApproval", json!("none"));
    assert_eq!(process.answered(json!(2)).await["error"]["code"], -32602);
    ask(3, "account/chatgptAuthTokens/refresh", json!({}));
    assert_eq!(process.answered(json!(3)).await["error"]["code"], -32601);
    settle().await;
    desk.told().await;
    ask(4, "brand/new", json!({}));
    assert_eq!(process.answered(json!(4)).await["error"]["code"], -32601);
    let told = desk.told().await;
    let [warning] = told.as_slice() else {
        panic!("{told:#?}");
    };
    let shown =
        matches!(&warning.kind, EventKind::Warning { text, .. } if text.contains("brand/new"));
    assert!(shown, "{warning:?}");
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_question_is_answered_in_its_own_words() {
    let desk = Desk::new();
    let process = desk.begin().await;
    let input = serde_json::from_value(json!({"decision": "input", "answers": {"a": ["x", "y"]}}));
    let input: Decision = input.unwrap();
    let choose = |choice: &str| Decision::Choose {
        choice: choice.to_owned(),
    };
    let offered = json!({"availableDecisions": ["accept", {"special": {"n": 1}}]});
    let questions =
        json!({"questions": [{"id": "a", "question": "?", "options": [{"label": "x"}]}]});
    let permissions = json!({"permissions": {"network": true}});
    let command = "item/commandExecution/requestApproval";
    let cases: Vec<(&str, Value, Decision, Value)> = vec![
        (
            command,
            json!({}),
            Decision::ApproveForSession,
            json!({"decision": "acceptForSession"}),
        ),
        (
            command,
            json!({}),
            Decision::Abort,
            json!({"decision": "cancel"}),
        ),
        (
            command,
            offered.clone(),
            choose("special"),
            json!({"decision": {"special": {"n": 1}}}),
        ),
        (
            command,
            offered,
            choose("nonsense"),
            json!({"decision": "decline"}),
        ),
        (
            "item/fileChange/requestApproval",
            json!({}),
            Decision::Approve,
            json!({"decision": "accept"}),
        ),
        (
            "execCommandApproval",
            json!({"command": ["ls", "-l"]}),
            Decision::Approve,
            json!({"decision": "approved"}),
        ),
        (
            "applyPatchApproval",
            json!({"fileChanges": {"/a": {}}}),
            Decision::deny(),
            json!({"decision": "denied"}),
        ),
        (
            "item/permissions/requestApproval",
            permissions,
            Decision::Approve,
            json!({"permissions": {"network": true}, "scope": "session"}),
        ),
        (
            "item/tool/requestUserInput",
            questions,
            input.clone(),
            json!({"answers": {"a": {"answers": ["x", "y"]}}}),
        ),
        (
            "mcpServer/elicitation/request",
            json!({"serverName": "m", "message": "?"}),
            input,
            json!({"action": "accept", "content": {"a": ["x", "y"]}}),
        ),
    ];
    for (index, (method, mut params, decision, expected)) in cases.into_iter().enumerate() {
        let id = json!(format!("r{index}"));
        params["turnId"] = json!("turn-1");
        process.say(&json!({"id": id, "method": method, "params": params}));
        let request = desk.asked().await;
        desk.engine
            .answer(&key("s"), &request.id, decision)
            .await
            .unwrap();
        assert_eq!(process.answered(id).await["result"], expected, "{method}");
    }
    let params = json!({"permissions": {}, "turnId": "turn-1"});
    process.say(&json!({"id": 50, "method": "item/permissions/requestApproval", "params": params}));
    let request = desk.asked().await;
    desk.engine
        .answer(&key("s"), &request.id, Decision::deny())
        .await
        .unwrap();
    assert_eq!(process.answered(json!(50)).await["error"]["code"], -32000);
}

#[tokio::test(start_paused = true)]
async fn a_no_with_a_reason_guides_the_turn() {
    let desk = Desk::new();
    let process = desk.begin().await;
    process.ask(json!(0));
    let request = desk.asked().await;
    desk.engine
        .answer(&key("s"), &request.id, denied("use git mv"))
        .await
        .unwrap();
    let steer = process.called("turn/steer", 1).await;
    assert_eq!(steer["params"]["input"][0]["text"], "use git mv");
    assert_eq!(
        process.answered(json!(0)).await["result"]["decision"],
        "decline"
    );
}

#[tokio::test(start_paused = true)]
async fn settings_that_answer_do_so_and_leave_questions_to_people() {
    let desk = Desk::new();
    let mut always = settings("s");
    always.approve = Approve::Always;
    desk.engine.start(always).await.unwrap();
    let process = desk.world.last();
    desk.engine
        .prompt(&key("s"), Prompt::new("go"))
        .await
        .unwrap();
    process.ask(json!(0));
    assert_eq!(
        process.answered(json!(0)).await["result"]["decision"],
        "accept"
    );
    let answered = |event: &groundcrew_session::event::SessionEvent| match &event.kind {
        EventKind::Answered { automatic, .. } => Some(*automatic),
        _ => None,
    };
    assert!(desk.event("answered", answered).await);
    let questions = json!({"turnId": "turn-1", "questions": []});
    process.say(&json!({"id": 1, "method": "item/tool/requestUserInput", "params": questions}));
    let request = desk.asked().await;
    settle().await;
    assert_eq!(desk.engine.requests(&key("s")).len(), 1);
    let answers = Decision::Input {
        answers: BTreeMap::new(),
    };
    desk.engine
        .answer(&key("s"), &request.id, answers)
        .await
        .unwrap();

    let mut never = settings("n");
    never.approve = Approve::Never;
    desk.engine.start(never).await.unwrap();
    let process = desk.world.last();
    let policy = process.called("thread/start", 1).await;
    assert_eq!(policy["params"]["approvalPolicy"], "never");
    desk.engine
        .prompt(&key("n"), Prompt::new("go"))
        .await
        .unwrap();
    process.ask(json!(0));
    assert_eq!(
        process.answered(json!(0)).await["result"]["decision"],
        "decline"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_stored_is_not_sent_and_the_request_waits_on() {
    let store = std::sync::Arc::new(crate::takeover::Failing::default());
    let shared = std::sync::Arc::clone(&store);
    let desk = Desk::with(std::sync::Arc::default(), shared, |_| {});
    let process = desk.begin().await;
    process.ask(json!(0));
    let request = desk.asked().await;
    store.fail(1);
    let error = desk
        .engine
        .answer(&key("s"), &request.id, Decision::Approve)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    let phase = desk.engine.request_phase(&key("s"), &request.id);
    assert_eq!(phase, Some(RequestPhase::Pending));
    assert!(
        process
            .state()
            .heard
            .iter()
            .all(|message| message["id"] != 0)
    );
    desk.engine
        .answer(&key("s"), &request.id, Decision::Approve)
        .await
        .unwrap();
    process.answered(json!(0)).await;
}

#[tokio::test(start_paused = true)]
async fn what_still_waits_when_the_agent_ends_its_turn_is_refused() {
    let desk = Desk::new();
    let process = desk.begin().await;
    process.ask(json!("left"));
    let request = desk.asked().await;
    process.end_turn("completed");
    let refused = process.answered(json!("left")).await;
    assert_eq!(refused["error"]["code"], -32000);
    let phase = desk.engine.request_phase(&key("s"), &request.id);
    assert_eq!(phase, Some(RequestPhase::Interrupted));
    let late = desk
        .engine
        .answer(&key("s"), &request.id, Decision::Approve)
        .await
        .unwrap_err();
    assert!(failure::is(&late, failure::REQUEST_GONE));
    let heard = process.state().heard.clone();
    let answers = heard.iter().filter(|message| message["id"] == "left");
    assert_eq!(answers.count(), 1);
    desk.engine
        .prompt(&key("s"), Prompt::new("next"))
        .await
        .unwrap();
}

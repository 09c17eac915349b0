//! Another controller goes on where one was killed: nothing is lost, nothing is answered twice, nobody is mistaken.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use async_trait::async_trait;
use groundcrew_core::{
    error::{Error, ErrorKind},
    id::{ProcessId, SessionId},
};
use groundcrew_session::{
    event::{EventKind, TurnOutcome},
    failure,
    request::Decision,
    settings::Prompt,
    state::{MemoryStates, SessionState, StateStore},
};
use serde_json::json;

use crate::{
    desk::{Desk, key, settings, settle, token},
    script::Behaviour,
};

/// A store whose saves fail when they are told to, or never come back.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    states: MemoryStates,
    fails: AtomicU32,
    /// From which save on nothing is written any more, as if the controller had died there; 0 is never.
    dies_at: AtomicU32,
    saves: AtomicU32,
    /// Which save fails, counted from the first; 0 is none.
    fails_at: AtomicU32,
}

impl Failing {
    pub(crate) fn fail(&self, times: u32) {
        self.fails.store(times, SeqCst);
    }
}

#[async_trait]
impl StateStore for Failing {
    async fn load(&self, session: &SessionId) -> Result<Option<SessionState>, Error> {
        self.states.load(session).await
    }

    async fn save(&self, state: &SessionState) -> Result<(), Error> {
        let count = self.saves.fetch_add(1, SeqCst) + 1;
        let dies_at = self.dies_at.load(SeqCst);
        if dies_at != 0 && count >= dies_at && state.epoch == 0 {
            std::future::pending::<()>().await;
        }
        if count == self.fails_at.load(SeqCst) {
            return Err(Error::new(ErrorKind::ResourceExhausted, "the disk is full"));
        }
        let fails = self
            .fails
            .fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
        if fails.is_ok() {
            return Err(Error::new(ErrorKind::ResourceExhausted, "the disk is full"));
        }
        self.states.save(state).await
    }

    async fn claim(&self, session: &SessionId) -> Result<Option<SessionState>, Error> {
        self.states.claim(session).await
    }
}

#[tokio::test(start_paused = true)]
async fn another_controller_keeps_the_turn_and_answers_what_waits() {
    let old = Desk::new();
    let process = old.begin().await;
    process.say_text("before ");
    process.ask(json!(0));
    let asked = old.asked().await;
    process.say_text("meanwhile ");
    settle().await;
    let before = old.told().await;

    let new = old.successor();
    new.engine.take_over(&key("s")).await.unwrap();
    assert!(new.is_live());
    let again = new.asked().await;
    assert_eq!(again, asked, "it has the name it had");
    process.say_text("after");
    new.engine
        .answer(&key("s"), &asked.id, Decision::Approve)
        .await
        .unwrap();
    assert_eq!(
        process.answered(json!(0)).await["result"]["decision"],
        "accept"
    );
    // Also the controller after the next one knows that it was answered.
    let last = new.successor();
    last.engine.take_over(&key("s")).await.unwrap();
    let again = last
        .engine
        .answer(&key("s"), &asked.id, Decision::Approve)
        .await
        .unwrap_err();
    assert!(failure::is(&again, failure::ALREADY_ANSWERED), "{again}");
    let new = last;
    process.end_turn("completed");
    let ended = new.event("ended the turn", |event| match &event.kind {
        EventKind::TurnEnded { outcome, .. } => Some((event.turn, *outcome)),
        _ => None,
    });
    assert_eq!(ended.await, (Some(1), TurnOutcome::Completed));
    assert!(
        new.engine
            .prompt(&key("s"), Prompt::new("next"))
            .await
            .unwrap()
            .turn()
            == 2
    );
    assert_eq!(new.world.live(), [0], "it is the same process");
    assert!(before.iter().all(|event| event.epoch == 0));
}

#[tokio::test(start_paused = true)]
async fn what_was_told_and_not_settled_is_told_again_with_its_place_and_no_number_comes_twice() {
    let old = Desk::new();
    let process = old.begin().await;
    process.say_text("one ");
    process.say_text("two ");
    settle().await;
    let first = old.told().await;
    let new = old.successor();
    new.engine.take_over(&key("s")).await.unwrap();
    process.say_text("three");
    process.end_turn("completed");
    settle().await;
    let second = new.told().await;
    let texts: Vec<_> = second
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::TextDelta { text, .. } => Some((event.offset, text.as_str())),
            _ => None,
        })
        .collect();
    let seen = |offset| {
        first
            .iter()
            .any(|event| event.offset == offset && event.offset.is_some())
    };
    let fresh: Vec<_> = texts
        .iter()
        .filter(|(offset, _)| !seen(*offset))
        .map(|(_, text)| *text)
        .collect();
    assert_eq!(
        fresh,
        ["three"],
        "what is new is told, what is not is known by its place"
    );
    let last = first.iter().map(|event| event.seq).max().unwrap();
    assert!(
        second
            .iter()
            .all(|event| event.seq > last && event.epoch == 1)
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_decided_and_not_sent_is_sent_by_the_next_controller() {
    let store = Arc::new(Failing::default());
    let old = Desk::with(Arc::default(), Arc::clone(&store) as _, |_| {});
    let process = old.begin().await;
    process.ask(json!(0));
    let request = old.asked().await;
    // Decided and stored; then the input is no more ours, as when the controller is killed.
    process.state().writer += 1;
    let error = old
        .engine
        .answer(&key("s"), &request.id, Decision::Approve)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let new = Desk::with(Arc::clone(&old.world), store, |_| {});
    new.engine.take_over(&key("s")).await.unwrap();
    let reply = process.answered(json!(0)).await;
    assert_eq!(reply["result"]["decision"], "accept");
}

#[tokio::test(start_paused = true)]
async fn answers_to_the_earlier_controller_are_not_taken_for_ours_but_for_that_of_its_turn() {
    let old = Desk::new();
    let process = old.start().await;
    process.behave("turn/start", Behaviour::Hold);
    let engine = old.engine.clone();
    let prompting = tokio::spawn(async move { engine.prompt(&key("s"), Prompt::new("go")).await });
    let call = process.called("turn/start", 1).await;
    prompting.abort();
    let new = old.successor();
    new.engine.take_over(&key("s")).await.unwrap();
    process.answer(
        &call,
        json!({"turn": {"id": "turn-7", "status": "inProgress"}}),
    );
    process.state().turn = Some("turn-7".into());
    let guided = new
        .engine
        .prompt(&key("s"), Prompt::new("left"))
        .await
        .unwrap();
    assert!(guided.steered());
    let steer = process.called("turn/steer", 1).await;
    let (ours, theirs) = (steer["id"].as_u64().unwrap(), call["id"].as_u64().unwrap());
    assert_eq!(ours >> 32, 1, "ids carry the number of the controller");
    assert_eq!(theirs >> 32, 0);
    assert!(ours < 1 << 53);
    // A late answer to something else of the earlier controller is nobody's.
    process
        .say(&json!({"id": theirs - 1, "result": {"turn": {"id": "turn-7", "status": "failed"}}}));
    settle().await;
    let told = new.told().await;
    assert!(
        !told
            .iter()
            .any(|event| matches!(event.kind, EventKind::TurnEnded { .. }))
    );
}

#[tokio::test(start_paused = true)]
async fn a_line_that_the_earlier_controller_did_not_end_spoils_none_of_ours() {
    let old = Desk::new();
    let process = old.begin().await;
    let writer = process.state().writer;
    process
        .read(writer, b"{\"id\":999,\"method\":\"turn/inter")
        .unwrap();
    let new = old.successor();
    new.engine.take_over(&key("s")).await.unwrap();
    let end = new.engine.interrupt(&key("s")).await.unwrap();
    assert_eq!(end.outcome, TurnOutcome::Interrupted);
    assert_eq!(process.calls("turn/interrupt"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_was_superseded_changes_nothing_any_more() {
    let old = Desk::new();
    let process = old.begin().await;
    process.ask(json!(0));
    let request = old.asked().await;
    let new = old.successor();
    new.engine.take_over(&key("s")).await.unwrap();
    let late = old
        .engine
        .answer(&key("s"), &request.id, Decision::Approve)
        .await
        .unwrap_err();
    assert!(failure::is(&late, failure::SUPERSEDED), "{late}");
    assert!(!old.is_live());
    old.engine.close(&key("s")).await.unwrap();
    let start = old.engine.close(&key("s")).await;
    start.unwrap();
    assert_eq!(process.closes(), 0, "the process is the other controller's");
    assert!(new.is_live());
    old.told().await;
    process.say_text("for the new one");
    settle().await;
    assert!(old.told().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_that_the_earlier_controller_asked_for_is_gone_on_with() {
    let old = Desk::new();
    let process = old.begin().await;
    process.behave("turn/interrupt", Behaviour::Hold);
    let engine = old.engine.clone();
    let interrupting = tokio::spawn(async move { engine.interrupt(&key("s")).await });
    process.called("turn/interrupt", 1).await;
    let new = old.successor();
    process.state().script = crate::script::Script::default();
    new.engine.take_over(&key("s")).await.unwrap();
    process.called("turn/interrupt", 2).await;
    let ended = new.event("ended the turn", |event| match &event.kind {
        EventKind::TurnEnded { outcome, .. } => Some(*outcome),
        _ => None,
    });
    assert_eq!(ended.await, TurnOutcome::Interrupted);
    interrupting.abort();
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_left_lives_on_and_one_that_died_meanwhile_is_resumed() {
    let old = Desk::new();
    let process = old.begin().await;
    old.engine.leave(&key("s")).await.unwrap();
    assert!(!old.is_live());
    assert_eq!(process.closes(), 0);
    process.end_turn("completed");
    process.exit(3);
    let new = old.successor();
    new.engine.take_over(&key("s")).await.unwrap();
    let told = new.event("lost it", |event| match &event.kind {
        EventKind::Disconnected { error } => Some(error.clone()),
        _ => None,
    });
    assert!(
        told.await
            .context
            .contains(&("exit_code".into(), "3".into()))
    );
    assert!(!new.is_live());
    let none = new
        .successor()
        .engine
        .take_over(&key("s"))
        .await
        .unwrap_err();
    assert!(failure::is(&none, failure::NOT_LIVE), "{none}");
    let unknown = new.engine.take_over(&key("unknown")).await.unwrap_err();
    assert!(failure::is(&unknown, failure::NOT_LIVE));
    let state = new.store.load(&key("s")).await.unwrap().unwrap();
    new.engine.resume(settings("s"), state.token).await.unwrap();
    assert!(new.is_live());
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_dies_in_a_start_leaves_a_name_by_which_the_process_is_ended() {
    let store = Arc::new(Failing::default());
    // The first save notes the process before it is started; the next one, that it serves, never happens.
    store.dies_at.store(2, SeqCst);
    let old = Desk::with(Arc::default(), Arc::clone(&store) as _, |_| {});
    let engine = old.engine.clone();
    let starting = tokio::spawn(async move { engine.start(settings("s")).await });
    settle().await;
    assert_eq!(old.world.live(), [0]);
    let new = Desk::with(Arc::clone(&old.world), store, |_| {});
    let none = new.engine.take_over(&key("s")).await.unwrap_err();
    assert!(failure::is(&none, failure::NOT_LIVE));
    new.engine.start(settings("s")).await.unwrap();
    assert_eq!(
        new.world.live(),
        [1],
        "what the dead one had begun is ended first"
    );
    let ended = new.world.state().names_ended.clone();
    assert_eq!(ended, [ProcessId::new("session-1-s").unwrap()]);
    starting.abort();
}

#[tokio::test(start_paused = true)]
async fn a_token_outlives_starts_that_fail_and_changes_with_the_next_conversation_only() {
    let desk = Desk::new();
    desk.begin().await;
    desk.engine.disconnect(&key("s")).await.unwrap();
    let stored = || async { desk.store.load(&key("s")).await.unwrap().unwrap() };
    assert_eq!(stored().await.token, token("codex-thread-1"));
    assert!(stored().await.live.is_none() && stored().await.owned.is_empty());
    desk.world.state().fail_starts = 1;
    desk.engine.start(settings("s")).await.unwrap_err();
    assert_eq!(stored().await.token, token("codex-thread-1"));
    let refuse = Behaviour::Refuse(-32600, "no");
    desk.world
        .next(crate::script::Script::default().on("thread/start", refuse));
    desk.engine.start(settings("s")).await.unwrap_err();
    assert_eq!(stored().await.token, token("codex-thread-1"));
    desk.engine.start(settings("s")).await.unwrap();
    assert_eq!(stored().await.token, token("codex-thread-2"));
    let text = serde_json::to_string(&stored().await).unwrap();
    let back: SessionState = serde_json::from_str(&text).unwrap();
    assert_eq!(back, stored().await);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_could_not_be_stored_is_none_and_the_earlier_token_stays() {
    let store = Arc::new(Failing::default());
    let desk = Desk::with(Arc::default(), Arc::clone(&store) as _, |_| {});
    desk.begin().await;
    desk.engine.disconnect(&key("s")).await.unwrap();
    // The next save notes a process that is to be started; the one behind it, the conversation.
    let saves = store.saves.load(SeqCst);
    store.fails_at.store(saves + 2, SeqCst);
    let error = desk.engine.start(settings("s")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    assert!(desk.world.live().is_empty() && !desk.is_live());
    let state = store.load(&key("s")).await.unwrap().unwrap();
    assert_eq!(state.token, token("codex-thread-1"));
    assert!(state.live.is_none() && state.owned.is_empty() && state.content);
    desk.engine
        .resume(settings("s"), state.token)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_secret_is_stored() {
    let desk = Desk::new();
    let mut wished = settings("s");
    let secret = groundcrew_session::variable::Variable::new("API_KEY", "s3cr3t-value");
    wished.environment = vec![secret];
    wished.mcp_servers = vec![groundcrew_core::instance::McpServer {
        name: "m".into(),
        definition: json!({"command": "x", "env": [{"name": "T", "value": "s3cr3t-value"}]}),
    }];
    desk.engine.start(wished.clone()).await.unwrap();
    desk.engine
        .prompt(&key("s"), Prompt::new("go"))
        .await
        .unwrap();
    let state = desk.store.load(&key("s")).await.unwrap().unwrap();
    assert!(!serde_json::to_string(&state).unwrap().contains("s3cr3t"));
    assert!(!format!("{:?}", wished.environment).contains("s3cr3t"));
    let start = desk.world.last().called("thread/start", 1).await;
    let reached = &start["params"]["config"]["mcp_servers"]["m"]["env"]["T"];
    assert_eq!(reached, "s3cr3t-value", "it reaches the agent");
}

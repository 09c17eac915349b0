//! One live process for each session, and what decides whether one comes up.

use std::time::Duration;

use groundcrew_core::error::ErrorKind;
use groundcrew_session::{
    engine::Opening,
    event::EventKind,
    settings::{ConversationId, Prompt},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    desk::{Desk, key, settings, settle, token},
    script::{Behaviour, Said, Script},
};

const THREAD: &str = "codex-thread-1";

#[tokio::test(start_paused = true)]
async fn t05_two_starts_at_once_leave_one_process() {
    let desk = Desk::new();
    desk.world.ground.state().pace = Some(Duration::from_millis(1));
    let (one, two) = tokio::join!(
        desk.engine.start(settings("s")),
        desk.engine.start(settings("s"))
    );
    one.unwrap();
    two.unwrap();
    assert_eq!(desk.world.live().len(), 1);
    assert!(desk.is_live());
    let most = desk.world.state().most_live;
    assert_eq!(most, 1, "one after the other");
}

#[tokio::test(start_paused = true)]
async fn t06_a_start_over_a_live_session_closes_its_process_first() {
    let desk = Desk::new();
    let first = desk.begin().await;
    first.ask(json!(0));
    let request = desk.asked().await;
    desk.engine.start(settings("s")).await.unwrap();
    assert_eq!(desk.world.spawned(), 2);
    assert_eq!(desk.world.live(), [1]);
    assert_eq!(first.closes(), 1);
    let rejected = first.answered(json!(0)).await;
    assert_eq!(rejected["error"]["code"], -32000);
    let told = desk.told().await;
    let position = |found: &dyn Fn(&EventKind) -> bool| {
        told.iter().position(|event| found(&event.kind)).unwrap()
    };
    let interrupted = position(
        &|kind| matches!(kind, EventKind::Interrupted { request: id } if *id == request.id),
    );
    let ended = position(&|kind| matches!(kind, EventKind::TurnEnded { .. }));
    let started = position(&|kind| matches!(kind, EventKind::SessionStarted { .. }));
    assert!(interrupted < ended && ended < started);
}

#[tokio::test(start_paused = true)]
async fn t07_a_resume_over_a_live_session_closes_the_earlier_process_behind_itself() {
    let desk = Desk::new();
    let first = desk.start().await;
    let opening = desk
        .engine
        .resume(settings("s"), token(THREAD))
        .await
        .unwrap();
    assert!(matches!(opening, Opening::Ready { conversation, .. } if conversation.0 == THREAD));
    assert_eq!(desk.world.spawned(), 2);
    assert_eq!(desk.world.live(), [1]);
    assert_eq!(first.closes(), 1);
    assert!(desk.is_live());
}

#[tokio::test(start_paused = true)]
async fn t08_a_resume_that_starts_no_process_costs_nothing() {
    let desk = Desk::new();
    desk.start().await;
    desk.world.state().fail_starts = 1;
    let error = desk
        .engine
        .resume(settings("s"), token(THREAD))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ProgramNotFound);
    assert_eq!(desk.world.spawned(), 1);
    assert_eq!(desk.world.live(), [0]);
    assert!(desk.is_live());
    desk.engine
        .prompt(&key("s"), Prompt::new("still there?"))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn t09_a_resume_that_the_agent_refuses_costs_nothing() {
    let desk = Desk::new();
    desk.start().await;
    desk.world
        .next(Script::default().on("thread/resume", Behaviour::Refuse(-32000, "no")));
    let error = desk
        .engine
        .resume(settings("s"), token(THREAD))
        .await
        .unwrap_err();
    assert_eq!(error.get("answer"), Some("no"));
    assert_eq!(desk.world.spawned(), 2);
    assert_eq!(desk.world.live(), [0]);
    assert!(desk.is_live());
    let state = desk.store.load(&key("s")).await.unwrap().unwrap();
    assert_eq!(state.token, Some(ConversationId(THREAD.into())));
}

fn stderr_failure() -> Vec<Said> {
    vec![Said::Stderr(
        "{\"level\":\"ERROR\",\"fields\":{\"message\":\"MCP server linear: not logged in\"}}\n",
    )]
}

fn status_failure() -> Vec<Said> {
    vec![Said::Note(
        "mcpServer/startupStatus/updated",
        json!({
            "threadId": null, "name": "linear", "status": "failed", "error": null,
            "failureReason": "reauthenticationRequired",
        }),
    )]
}

/// Starts, and where it is the second process that is looked at resumes, with an agent that first says something.
async fn with_slow_answer(said: Vec<Said>, method: &'static str) -> Desk {
    let desk = Desk::new();
    let slow = Behaviour::After(said, Duration::from_millis(1100));
    let script = Script::default().on(method, slow);
    let before = Instant::now();
    if method == "thread/resume" {
        desk.start().await;
        desk.world.next(script);
        desk.engine
            .resume(settings("s"), token(THREAD))
            .await
            .unwrap();
        assert_eq!(desk.world.live(), [1]);
    } else {
        desk.world.next(script);
        desk.engine.start(settings("s")).await.unwrap();
        assert_eq!(desk.world.live(), [0]);
    }
    assert!(before.elapsed() < Duration::from_secs(3));
    assert!(before.elapsed() >= Duration::from_millis(1100));
    assert!(desk.is_live());
    desk
}

async fn warning(desk: &Desk) -> String {
    desk.event("warned of a tool server", |event| match &event.kind {
        EventKind::Warning { about, text } if about == "mcp" => Some(text.clone()),
        _ => None,
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn t10_a_tool_server_without_login_on_standard_error_does_not_block_a_resume() {
    let desk = with_slow_answer(stderr_failure(), "thread/resume").await;
    assert!(warning(&desk).await.contains("linear"));
}

#[tokio::test(start_paused = true)]
async fn t11_a_tool_server_without_login_on_standard_error_does_not_block_a_start() {
    let mut said = stderr_failure();
    said.extend(stderr_failure());
    let desk = with_slow_answer(said, "thread/start").await;
    assert!(warning(&desk).await.contains("linear"));
    settle().await;
    let again = desk.told().await;
    let warnings = again
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Warning { .. }));
    assert_eq!(warnings.count(), 0, "it is told once");
}

#[tokio::test(start_paused = true)]
async fn t12_c37_a_failed_tool_server_does_not_block_a_start_or_a_resume_and_is_told_by_name() {
    for method in ["thread/start", "thread/resume"] {
        let desk = with_slow_answer(status_failure(), method).await;
        let text = warning(&desk).await;
        assert!(
            text.contains("`linear`") && text.contains("reauthenticationRequired"),
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn t13_an_answer_right_behind_a_failed_tool_server_wins() {
    let desk = Desk::new();
    desk.start().await;
    desk.world
        .next(Script::default().on("thread/resume", Behaviour::With(status_failure())));
    desk.engine
        .resume(settings("s"), token(THREAD))
        .await
        .unwrap();
    assert!(desk.is_live());
}

#[tokio::test(start_paused = true)]
async fn c37_a_required_tool_server_fails_the_start_by_the_answer_alone() {
    let desk = Desk::new();
    let refusal = Behaviour::Refuse(-32603, "required MCP servers failed to initialize: hang");
    desk.world
        .next(Script::default().on("thread/start", refusal));
    let error = desk.engine.start(settings("s")).await.unwrap_err();
    assert!(error.get("answer").unwrap().contains("hang"), "{error}");
    assert!(desk.world.live().is_empty());
}

fn started(id: &str) -> Behaviour {
    let params = json!({"thread": {"id": id}});
    Behaviour::Instead(vec![Said::Note("thread/started", params)])
}

#[tokio::test(start_paused = true)]
async fn t14_a_thread_that_is_told_to_be_started_completes_a_start_and_a_resume_without_an_answer()
{
    let desk = Desk::new();
    let before = Instant::now();
    desk.world
        .next(Script::default().on("thread/start", started("told-1")));
    let opening = desk.engine.start(settings("s")).await.unwrap();
    assert!(
        matches!(opening, Opening::Ready { conversation, model: None } if conversation.0 == "told-1")
    );
    assert!(desk.is_live());
    desk.world
        .next(Script::default().on("thread/resume", started("told-1")));
    desk.engine
        .resume(settings("s"), token("told-1"))
        .await
        .unwrap();
    assert!(desk.is_live());
    assert!(before.elapsed() < Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn t14_another_thread_does_not_complete_a_resume_and_none_without_a_name_does() {
    let desk = Desk::new();
    desk.start().await;
    for other in ["other", ""] {
        desk.world
            .next(Script::default().on("thread/resume", started(other)));
        let error = desk
            .engine
            .resume(settings("s"), token(THREAD))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(error.get("method"), Some("thread/resume"));
        assert!(desk.is_live());
    }
}

#[tokio::test(start_paused = true)]
async fn t14_an_answer_that_is_on_its_way_wins_over_what_could_stand_for_it() {
    for together in [true, false] {
        let desk = Desk::new();
        desk.world
            .next(Script::default().on("thread/start", Behaviour::Hold));
        let starting = tokio::spawn({
            let engine = desk.engine.clone();
            async move { engine.start(settings("s")).await }
        });
        settle().await;
        let process = desk.world.last();
        let call = process.called("thread/start", 1).await;
        let note = json!({"method": "thread/started", "params": {"thread": {"id": "t"}}});
        let answer = json!({"id": call["id"], "result": {"thread": {"id": "t"}, "model": "m"}});
        if together {
            process.write(format!("{note}\n{answer}\n"));
        } else {
            process.write(format!("{note}\n"));
            process.write(format!("{answer}\n"));
        }
        let opening = starting.await.unwrap().unwrap();
        let with_model = matches!(opening, Opening::Ready { model: Some(_), .. });
        assert!(with_model, "the answer says more: {opening:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t15_starts_and_releases_that_race_leave_no_process_without_an_owner() {
    for round in 0..25 {
        let desk = Desk::new();
        desk.start().await;
        let (engine, other) = (desk.engine.clone(), desk.engine.clone());
        let start = tokio::spawn(async move { engine.start(settings("s")).await });
        let release = tokio::spawn(async move { other.release(&key("s")).await });
        let (start, release) = tokio::join!(start, release);
        // Whichever came first: the invariant alone counts.
        let _outcomes = (start.unwrap(), release.unwrap());
        let live = desk.world.live().len();
        assert_eq!(live, usize::from(desk.is_live()), "round {round}");
        assert_eq!(desk.engine.owned(&key("s")), live, "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_login_fails_no_start_and_leaves_no_process() {
    let desk = Desk::new();
    desk.world.next(Script {
        wants_login: true,
        ..Script::default()
    });
    let opening = desk.engine.start(settings("s")).await.unwrap();
    let Opening::AuthenticationRequired { message } = opening else {
        panic!("{opening:?}");
    };
    assert!(message.contains("codex login"));
    assert!(!desk.is_live());
    assert!(desk.world.live().is_empty());
    assert_eq!(desk.engine.owned(&key("s")), 0);
    let told = desk.told().await;
    let told = told
        .iter()
        .any(|event| matches!(event.kind, EventKind::AuthenticationRequired { .. }));
    assert!(told);
}

#[tokio::test(start_paused = true)]
async fn c38_an_agent_that_never_answers_or_ends_early_says_why_and_another_is_not_disturbed() {
    let desk = Desk::new();
    let silent = Behaviour::Instead(vec![Said::Stderr("cannot open database\n")]);
    desk.world.next(Script::default().on("initialize", silent));
    desk.world
        .next(Script::default().on("initialize", Behaviour::Exit(64, "bad flag\n")));
    let before = Instant::now();
    let (silent, exits, good) = tokio::join!(
        desk.engine.start(settings("silent")),
        desk.engine.start(settings("exits")),
        desk.engine.start(settings("good")),
    );
    good.unwrap();
    let silent = silent.unwrap_err();
    assert_eq!(silent.kind(), ErrorKind::TimedOut);
    assert_eq!(silent.get("stderr"), Some("cannot open database"));
    assert!(before.elapsed() < Duration::from_secs(32));
    let exits = exits.unwrap_err();
    assert_eq!(exits.kind(), ErrorKind::AgentEnded);
    assert_eq!(exits.get("exit_code"), Some("64"));
    assert_eq!(exits.get("stderr"), Some("bad flag"));
    assert!(desk.engine.is_live(&key("good")));
    assert_eq!(desk.world.live().len(), 1, "nothing of the others is left");

    // Killed, and one that answers another question.
    desk.world
        .next(Script::default().on("initialize", Behaviour::Hold));
    let (engine, world) = (desk.engine.clone(), &desk.world);
    let starting = tokio::spawn(async move { engine.start(settings("killed")).await });
    settle().await;
    world.last().die();
    let killed = starting.await.unwrap().unwrap_err();
    assert_eq!(killed.get("signal"), Some("9"));
    let engine = desk.engine.clone();
    desk.world
        .next(Script::default().on("initialize", Behaviour::Hold));
    let starting = tokio::spawn(async move { engine.start(settings("other")).await });
    settle().await;
    desk.world.last().say(&json!({"id": 99, "result": {}}));
    let other = starting.await.unwrap().unwrap_err();
    assert_eq!(other.get("answers_to_nobody"), Some("1"));
    desk.engine.start(settings("other")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hundred_sessions_do_not_wait_for_each_other() {
    let desk = Desk::new();
    let pause = Duration::from_secs(20);
    let starts = (0..100).map(|n| {
        let slow = Behaviour::After(Vec::new(), pause);
        desk.world.next(Script::default().on("thread/start", slow));
        let engine = desk.engine.clone();
        tokio::spawn(async move { engine.start(settings(&format!("s{n}"))).await })
    });
    let before = Instant::now();
    let starts: Vec<_> = starts.collect();
    for start in starts {
        start.await.unwrap().unwrap();
    }
    assert!(
        before.elapsed() < 2 * pause,
        "they were started side by side"
    );
    assert_eq!(desk.world.live().len(), 100);
    // One whose agent hangs holds up no other.
    desk.world
        .next(Script::default().on("initialize", Behaviour::Hold));
    let engine = desk.engine.clone();
    let stuck = tokio::spawn(async move { engine.start(settings("s0")).await });
    settle().await;
    let before = Instant::now();
    for n in 1..100 {
        desk.engine
            .prompt(&key(&format!("s{n}")), Prompt::new("go"))
            .await
            .unwrap();
        desk.engine.close(&key(&format!("s{n}"))).await.unwrap();
    }
    assert_eq!(before.elapsed(), Duration::ZERO);
    stuck.await.unwrap().unwrap_err();
    assert!(desk.engine.shutdown().await.is_empty());
    assert!(desk.world.live().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_start_up_calls_come_in_their_order_and_a_refusal_of_what_is_optional_is_tolerated() {
    let desk = Desk::new();
    desk.world.next(
        Script::default()
            .on("account/read", Behaviour::Refuse(-32600, "unknown variant"))
            .on("collaborationMode/list", Behaviour::Refuse(-32601, "no")),
    );
    let process = desk.start().await;
    let methods: Vec<Value> = process
        .state()
        .heard
        .iter()
        .map(|m| m["method"].clone())
        .collect();
    assert_eq!(
        methods,
        [
            "initialize",
            "initialized",
            "account/read",
            "collaborationMode/list",
            "thread/start"
        ]
    );
    let initialize = process.called("initialize", 1).await;
    assert_eq!(
        initialize["params"]["capabilities"]["experimentalApi"],
        true
    );
    assert_eq!(initialize["params"]["clientInfo"]["name"], "groundcrew");
    assert!(initialize.get("jsonrpc").is_none());
    assert_eq!(initialize["id"], 1);
}

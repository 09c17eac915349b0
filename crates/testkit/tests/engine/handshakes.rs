//! An agent that speaks a protocol has started once it has answered; until then its launch can fail, and leaves nothing.

use std::time::Duration;

use groundcrew_core::{
    LaunchError, Launched,
    error::ErrorKind,
    event::Step,
    handshake::Handshake,
    id::ProfileName,
    process::{ExitStatus, Offset, StdinPolicy},
    profile::{AgentProfile, AgentUse, CommandWishes, ProfileUse},
    request::{AgentProgram, LaunchRequest, Mode, ProfiledAgent},
    store::RunState,
};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{Machine, request};

const SECONDS: u32 = 7;

fn name() -> ProfileName {
    ProfileName::new("speaker").unwrap()
}

fn profile(argv: &[&str]) -> AgentProfile {
    let request = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize"});
    let mut handshake = Handshake::new(request.as_object().unwrap().clone());
    handshake.expect.insert("/version".to_owned(), json!(1));
    handshake.seconds = SECONDS;
    let mut profile = AgentProfile::new(name(), argv.iter().copied());
    profile.handshake = Some(handshake);
    profile
}

fn by_profile() -> LaunchRequest {
    let request = request();
    let Mode::Agent(mut agent) = request.mode else {
        panic!("an agent")
    };
    agent.program = AgentProgram::Profile(Box::new(ProfiledAgent {
        used: AgentUse {
            profiles: ProfileUse::new(name(), None, None),
            wishes: CommandWishes::default(),
        },
        snapshot: None,
        native: None,
        known_secrets: std::collections::BTreeSet::default(),
        caches: None,
        follow_up: false,
    }));
    LaunchRequest {
        mode: Mode::Agent(agent),
        ..request
    }
}

/// Launches an agent; one that fails must have left nothing and told one clean rollback.
async fn launched(argv: &[&str]) -> (Machine, Result<Launched, LaunchError>) {
    let mut machine = Machine::new();
    machine.profiles.insert(profile(argv));
    let process = machine.process();
    let ticket = process.ticket(by_profile()).await;
    let launched = ticket.wait().await;
    process.lawful();
    if let Err(error) = &launched {
        assert_eq!(error.step, Step::Start, "{argv:?}");
        assert!(error.rollback.is_clean(), "{argv:?}");
        machine.is_empty().await;
    }
    (machine, launched)
}

#[tokio::test(start_paused = true)]
async fn f010_an_agent_that_ends_before_its_answer_is_no_launch_and_its_code_is_told() {
    let (_, launched) = launched(&["exit", "3"]).await;
    let error = launched.unwrap_err().error;
    assert_eq!(error.kind(), ErrorKind::AgentEnded);
    assert_eq!(
        (error.get("code"), error.get("exit")),
        (Some("3"), Some("exit code 3"))
    );
}

#[tokio::test(start_paused = true)]
async fn f011_an_agent_that_says_nothing_is_given_up_after_its_time() {
    let begun = Instant::now();
    let (_, launched) = launched(&["sleep-until-signal"]).await;
    let error = launched.unwrap_err().error;
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let limit = Duration::from_secs(SECONDS.into());
    assert!(begun.elapsed() >= limit && begun.elapsed() < limit * 2);
}

#[tokio::test(start_paused = true)]
async fn f013_an_agent_that_answers_something_else_is_no_launch() {
    for answer in [
        "Hello!",
        r#"{"id":1,"result":{"version":1}}"#,
        r#"{"id":0,"result":{"version":2}}"#,
    ] {
        let (_, launched) = launched(&["reply", answer]).await;
        let error = launched.unwrap_err().error;
        assert_eq!(error.kind(), ErrorKind::Protocol, "{answer}");
        assert!(error.get("said").is_some(), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn f014_an_answer_makes_the_launch_and_its_offset_says_where_to_read_on() {
    let answer = r#"{"id":0,"result":{"version":1,"name":"x"}}"#;
    let (machine, launched) = launched(&["reply", answer]).await;
    let launched = launched.unwrap();
    assert_eq!(launched.record.state, RunState::Running);
    let greeting = launched.greeting.unwrap();
    assert_eq!(greeting.result, json!({"version": 1, "name": "x"}));
    assert_eq!(greeting.behind, Offset(answer.len() as u64 + 1));
    let instance = machine.world.instance(&launched.record.instance).unwrap();
    let spec = instance.process_spec(&groundcrew_core::agent_process().unwrap());
    assert_eq!(
        spec.unwrap().stdin,
        StdinPolicy::Open,
        "whoever speaks the protocol goes on"
    );
}

#[tokio::test(start_paused = true)]
async fn f014_an_agent_without_a_handshake_may_end_at_once() {
    let mut machine = Machine::new();
    machine
        .profiles
        .insert(AgentProfile::new(name(), ["exit", "4"]));
    let process = machine.process();
    let launched = process.ticket(by_profile()).await.wait().await.unwrap();
    assert_eq!(launched.greeting, None);
    let settled = process
        .launcher
        .observe(&launched.record.run)
        .await
        .unwrap();
    assert_eq!(settled.record.exit, Some(ExitStatus::exited(4)));
}

#[tokio::test(start_paused = true)]
async fn f011_a_cancellation_does_not_wait_for_an_agent_that_says_nothing() {
    let mut machine = Machine::new();
    machine.profiles.insert(profile(&["sleep-until-signal"]));
    let process = machine.process();
    let begun = Instant::now();
    let ticket = process.ticket(by_profile()).await;
    let cancel = ticket.clone();
    let waiting = tokio::spawn(async move { ticket.wait().await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        machine.world.count("instance.start"),
        1,
        "it waits for the answer"
    );
    cancel.cancel();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(
        (error.step, error.error.kind()),
        (Step::Start, ErrorKind::Cancelled)
    );
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    machine.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_handshake_over_a_terminal_or_beside_a_prompt_fails_the_plan() {
    let mut machine = Machine::new();
    let mut both = profile(&["cat"]);
    both.prompt = Some(groundcrew_core::profile::PromptRule::Stdin);
    machine.profiles.insert(both);
    let error = machine
        .process()
        .launcher
        .plan(by_profile())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("handshake"), "{error}");

    machine.profiles.insert(profile(&["cat"]));
    let mut request = by_profile();
    let Mode::Agent(agent) = &mut request.mode else {
        panic!("an agent")
    };
    let size = groundcrew_core::process::TerminalSize {
        rows: 24,
        columns: 80,
    };
    agent.stdio = groundcrew_core::process::StdioKind::Terminal(size);
    let error = machine.process().launcher.plan(request).await.unwrap_err();
    assert!(error.to_string().contains("terminal"), "{error}");
}

//! Agents by profile: the plan finds every mistake before anything exists, and the profile reaches the instance whole.

use groundcrew_core::{
    PlanError, agent_process,
    env::{Definition, Key, Tier},
    error::ErrorKind,
    id::{ExecutorName, ProfileName},
    profile::{
        AgentProfile, AgentUse, CacheRule, CommandWishes, Flag, ProfileUse, Route, Variable,
    },
    request::{AgentProgram, LaunchRequest, Mode, ProfiledAgent},
    store::RunRecord,
};
use groundcrew_testkit::faulty::{Action, FaultPlan};

use crate::support::{Machine, Process, request, resume};

fn name(text: &str) -> ProfileName {
    ProfileName::new(text).unwrap()
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn literal(text: &str) -> Variable {
    serde_json::from_value(serde_json::json!(text)).unwrap()
}

pub(crate) fn profile() -> AgentProfile {
    AgentProfile::new(name("claude"), ["sleep-until-signal", "--agent"])
}

/// Asks for an agent by profile.
pub(crate) fn by_profile(request: LaunchRequest, used: AgentUse) -> LaunchRequest {
    let Mode::Agent(mut agent) = request.mode else {
        panic!("an agent")
    };
    agent.program = AgentProgram::Profile(Box::new(ProfiledAgent {
        used,
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

pub(crate) fn used(wishes: CommandWishes) -> AgentUse {
    let route = wishes.route.clone();
    AgentUse {
        profiles: ProfileUse::new(name("office-cto"), Some(name("claude")), route.as_ref()),
        wishes,
    }
}

pub(crate) fn machine_with(profile: AgentProfile) -> (Machine, Process) {
    let mut machine = Machine::new();
    machine.profiles.insert(profile);
    let process = machine.process();
    (machine, process)
}

async fn launched(process: &Process, request: LaunchRequest) -> RunRecord {
    process.ticket(request).await.wait().await.unwrap().record
}

fn words(machine: &Machine, record: &RunRecord) -> Vec<String> {
    let instance = machine.world.instance(&record.instance).unwrap();
    let spec = instance.process_spec(&agent_process().unwrap()).unwrap();
    let words = spec.command.arguments().iter();
    words
        .map(|word| word.0.to_str().unwrap().to_owned())
        .collect()
}

fn value(machine: &Machine, record: &RunRecord, name: &str) -> Option<String> {
    let environment = machine
        .world
        .instance(&record.instance)
        .unwrap()
        .environment()
        .unwrap();
    environment
        .get(name)
        .map(|value| String::from_utf8(value.to_vec()).unwrap())
}

async fn refused(process: &Process, wishes: CommandWishes) -> PlanError {
    let request = by_profile(request(), used(wishes));
    process.launcher.plan(request).await.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn k06_k07_a_command_that_cannot_be_is_found_before_anything_exists() {
    for (command, continued, prefix, word) in [
        ("--agent", None, "", "validate agent command"),
        ("agent", Some(" "), "", "validate continue command"),
        (
            "agent",
            None,
            "wrapper 'open",
            "resolve command_prefix for profile claude",
        ),
        (
            "agent",
            None,
            "-- wrapper",
            "resolve command_prefix for profile claude",
        ),
    ] {
        let mut profile = AgentProfile::new(name("claude"), [command]);
        profile.continue_command = continued.map(|word| vec![word.into()]);
        profile.prefix = serde_json::from_value(serde_json::json!(prefix)).unwrap();
        let (machine, process) = machine_with(profile);
        let error = refused(&process, CommandWishes::default()).await;
        assert!(error.to_string().contains(word), "{word}: {error}");
        machine.is_empty().await;
        for verb in ["create", "delete", "connect"] {
            assert_eq!(machine.world.count(verb), 0, "{verb}");
        }
        assert!(process.recorder.events().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn k28_a_profile_that_no_file_holds_gets_no_cache_outside_of_ours() {
    let mut profile = profile();
    profile.caches = vec![CacheRule {
        variable: key("GOCACHE"),
        directory: "../elsewhere".to_owned(),
    }];
    let (machine, process) = machine_with(profile);
    let error = refused(&process, CommandWishes::default()).await;
    assert!(error.to_string().contains("../elsewhere"), "{error}");
    machine.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn k06_a_failure_that_only_shows_after_create_takes_the_instance_away_exactly_once() {
    let mut machine = Machine::new();
    machine.profiles.insert(profile());
    let process = machine.process_with(FaultPlan::at(
        "start.before",
        Action::Error(ErrorKind::ProgramNotFound),
    ));
    let ticket = process
        .ticket(by_profile(request(), used(CommandWishes::default())))
        .await;
    ticket.wait().await.unwrap_err();
    assert_eq!(machine.world.count("create"), 1);
    assert_eq!(machine.world.count("delete"), 1);
    machine.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn k12_k14_the_stable_profile_is_who_it_is_and_the_concrete_one_how_it_is_run() {
    let mut profile = profile();
    profile
        .environment
        .insert(key("CLAUDE_CONFIG_DIR"), literal("/accounts/a"));
    profile
        .environment
        .insert(key("GROUNDCREW_AGENT_PROFILE_ID"), literal("somebody"));
    let (machine, process) = machine_with(profile);
    let record = launched(
        &process,
        by_profile(request(), used(CommandWishes::default())),
    )
    .await;
    let value = |name| value(&machine, &record, name).unwrap();
    assert_eq!(value("CLAUDE_CONFIG_DIR"), "/accounts/a");
    assert_eq!(value("GROUNDCREW_AGENT_PROFILE_ID"), "office-cto");
    assert_eq!(value("GROUNDCREW_EXECUTION_PROFILE_ID"), "claude");
    assert_eq!(words(&machine, &record), ["sleep-until-signal", "--agent"]);
    // What was used is stored with the run, for its next command.
    assert_eq!(record.agent.unwrap().profiles.execution, name("claude"));
}

#[tokio::test(start_paused = true)]
async fn k14_an_unknown_execution_profile_is_refused_with_the_known_ones() {
    let mut machine = Machine::new();
    machine
        .profiles
        .insert(AgentProfile::new(name("office-cto"), ["wrong"]));
    machine
        .profiles
        .insert(AgentProfile::new(name("codex"), ["codex"]));
    let process = machine.process();
    let error = refused(&process, CommandWishes::default())
        .await
        .to_string();
    for word in ["claude", "codex, office-cto"] {
        assert!(error.contains(word), "{error}");
    }
}

fn route(concrete: Option<&str>) -> Route {
    Route {
        profile: concrete.map(name),
        flags: vec!["--from-route".into()],
        environment: [
            (key("ROUTE_ONLY"), literal("1")),
            (key("SHARED"), literal("1")),
        ]
        .into(),
        model: None,
    }
}

fn with_flag() -> AgentProfile {
    let mut profile = profile();
    profile.flags = vec![Flag::on("--of-profile")];
    profile
}

#[tokio::test(start_paused = true)]
async fn k16_a_concrete_route_owns_flags_and_environment() {
    let (machine, process) = machine_with(with_flag());
    let asked = Definition::literal(key("SHARED"), "request", Tier::Request, "--env");
    let wishes = CommandWishes {
        route: Some(route(Some("claude"))),
        ..CommandWishes::default()
    };
    let request = LaunchRequest {
        environment: vec![asked],
        ..request()
    };
    let record = launched(&process, by_profile(request, used(wishes))).await;
    assert_eq!(
        words(&machine, &record),
        ["sleep-until-signal", "--agent", "--of-profile"]
    );
    assert_eq!(value(&machine, &record, "ROUTE_ONLY"), None);
    assert_eq!(value(&machine, &record, "SHARED").unwrap(), "request");
}

#[tokio::test(start_paused = true)]
async fn k17_a_route_without_a_profile_appends() {
    let (machine, process) = machine_with(with_flag());
    let wishes = CommandWishes {
        route: Some(route(None)),
        ..CommandWishes::default()
    };
    let record = launched(&process, by_profile(request(), used(wishes))).await;
    let words = words(&machine, &record);
    assert_eq!(words[2..], ["--of-profile", "--from-route"]);
    assert_eq!(value(&machine, &record, "ROUTE_ONLY").unwrap(), "1");
}

#[tokio::test(start_paused = true)]
async fn k03_w12_a_flag_that_cannot_be_split_is_left_out_alone_and_seen() {
    let mut profile = with_flag();
    profile.flags.push(Flag::on("--open 'quote"));
    profile.flags.push(Flag::on("--last word"));
    let (machine, process) = machine_with(profile);
    let ticket = process
        .ticket(by_profile(request(), used(CommandWishes::default())))
        .await;
    let record = ticket.wait().await.unwrap().record;
    assert_eq!(
        words(&machine, &record)[2..],
        ["--of-profile", "--last", "word"]
    );
    let told = process.recorder.transcript();
    assert!(
        told.contains("--open 'quote") && told.contains("left out"),
        "{told}"
    );
}

#[tokio::test(start_paused = true)]
async fn k13_what_a_profile_manages_conflicts_with_a_repository_s_secret() {
    let mut profile = profile();
    profile.model.variable = Some(key("AGENT_MODEL"));
    profile.model.default = Some("large".into());
    let (_, process) = machine_with(profile);
    let secret = groundcrew_core::secret::SecretRef::new("known").unwrap();
    let bound = Definition::secret(
        key("AGENT_MODEL"),
        secret,
        Tier::Workspace,
        "repository app",
    );
    let request = LaunchRequest {
        environment: vec![bound],
        ..request()
    };
    let request = by_profile(request, used(CommandWishes::default()));
    let error = process.launcher.plan(request).await.unwrap_err();
    assert_eq!(error.conflicts.len(), 1);
    let origins: Vec<_> = error.conflicts[0]
        .origins
        .iter()
        .map(|o| o.0.as_str())
        .collect();
    assert_eq!(origins, ["repository app", "model of profile claude"]);
    assert_eq!(process.secrets.asked(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn w16_a_profile_s_executor_is_never_replaced() {
    let mut profile = profile();
    profile.executor = Some(ExecutorName::new("microvm").unwrap());
    let (machine, process) = machine_with(profile);
    let error = refused(&process, CommandWishes::default())
        .await
        .to_string();
    assert!(error.contains("microvm"), "{error}");
    machine.is_empty().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_profile_strips_is_not_inherited_and_may_be_asked_for() {
    let mut profile = profile();
    profile.strip = vec!["CLAUDE_CODE_*".into()];
    let (machine, process) = machine_with(profile);
    let define = |name, tier| Definition::literal(key(name), "1", tier, "somebody");
    let request = LaunchRequest {
        environment: vec![
            define("CLAUDE_CODE_SSE_PORT", Tier::Inherited),
            define("CLAUDE_CODE_ASKED", Tier::Request),
            define("KEPT", Tier::Inherited),
        ],
        ..request()
    };
    let record = launched(
        &process,
        by_profile(request, used(CommandWishes::default())),
    )
    .await;
    assert_eq!(value(&machine, &record, "CLAUDE_CODE_SSE_PORT"), None);
    assert!(value(&machine, &record, "CLAUDE_CODE_ASKED").is_some());
    assert!(value(&machine, &record, "KEPT").is_some());
}

#[tokio::test(start_paused = true)]
async fn k01_k04_a_follow_up_takes_the_continue_command_unless_the_conversation_is_known() {
    let mut profile = profile();
    profile.continue_command = Some(vec!["sleep-until-signal".into(), "--continue".into()]);
    profile.resume.arguments = vec!["--resume".into(), "{token}".into()];
    let (machine, process) = machine_with(profile);
    let first = launched(
        &process,
        by_profile(request(), used(CommandWishes::default())),
    )
    .await;
    let stopped = process
        .launcher
        .stop(&first.run, None)
        .await
        .unwrap()
        .record;
    for (token, expected) in [
        (None, &["sleep-until-signal", "--continue"][..]),
        (
            Some("t-1"),
            &["sleep-until-signal", "--agent", "--resume", "t-1"],
        ),
    ] {
        let mut next = by_profile(resume(&stopped.run), stopped.agent.clone().unwrap());
        let Mode::Agent(agent) = &mut next.mode else {
            panic!("an agent")
        };
        let AgentProgram::Profile(wanted) = &mut agent.program else {
            panic!("a profile")
        };
        wanted.follow_up = true;
        wanted.used.wishes.resume_token = token.map(str::to_owned);
        let record = launched(&process, next).await;
        assert_eq!(words(&machine, &record), expected);
        process.launcher.stop(&record.run, None).await.unwrap();
    }
}

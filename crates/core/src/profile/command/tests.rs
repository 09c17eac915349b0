//! Commands, word by word.

use super::*;
use crate::profile::{ApprovalRule, Flag, ManagedPackage, ModelRule, Prefix, ResumeRule, Variable};

fn profile(command: &[&str]) -> AgentProfile {
    AgentProfile::new(ProfileName::new("mock").unwrap(), command.iter().copied())
}

fn words(texts: &[&str]) -> Vec<OsText> {
    texts.iter().copied().map(OsText::from).collect()
}

fn build(profile: &AgentProfile, wishes: &CommandWishes) -> Result<BuiltCommand, Vec<Error>> {
    let host = Host::Here { native: None };
    AgentCommand {
        profile,
        wishes,
        host: &host,
    }
    .build()
}

fn start(profile: &AgentProfile, wishes: &CommandWishes) -> Vec<String> {
    shown(&build(profile, wishes).unwrap().start)
}

fn shown(command: &Command) -> Vec<String> {
    command
        .arguments()
        .iter()
        .map(|word| word.0.to_string_lossy().into_owned())
        .collect()
}

fn only(result: Result<BuiltCommand, Vec<Error>>) -> Error {
    let mut problems = result.unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems.remove(0)
}

fn resuming() -> AgentProfile {
    let resume = ResumeRule {
        supported: Some(true),
        arguments: words(&["--resume", "{token}"]),
    };
    AgentProfile {
        resume,
        ..profile(&["mock"])
    }
}

#[test]
fn k01_the_resume_flag_needs_a_token_and_an_agent_that_can() {
    let with = |token: &str| CommandWishes {
        resume_token: Some(token.into()),
        ..CommandWishes::default()
    };
    let mut agent = resuming();
    for supported in [Some(true), None] {
        agent.resume.supported = supported;
        let built = build(&agent, &with("t-1")).unwrap();
        assert_eq!(
            (shown(&built.start), built.resumes),
            (vec!["mock".into(), "--resume".into(), "t-1".into()], true)
        );
        let built = build(&agent, &with("")).unwrap();
        assert_eq!(
            (shown(&built.start), built.resumes),
            (vec!["mock".to_owned()], false)
        );
    }
    agent.resume.supported = Some(false);
    agent.continue_command = Some(words(&["mock", "continue"]));
    let built = build(&agent, &with("t-1")).unwrap();
    assert!(!built.resumes);
    for command in [&built.start, built.continued.as_ref().unwrap()] {
        assert!(
            !format!("{command:?}").contains("t-1") && !format!("{command:?}").contains("resume")
        );
    }
    agent.resume = ResumeRule {
        supported: Some(true),
        arguments: Vec::new(),
    };
    assert!(
        !build(&agent, &with("t-1")).unwrap().resumes,
        "there is nothing to say it with"
    );
    let error = only(build(&resuming(), &with("--evil")));
    assert!(error.message().contains("resume token"), "{error}");
}

fn packaged() -> AgentProfile {
    let package = ManagedPackage {
        name: "@openai/codex".into(),
        version: "0.171.0".into(),
        program: "codex".into(),
        prefer_native: true,
        native: Vec::new(),
    };
    let mut agent = profile(&["codex", "exec"]);
    agent.continue_command = Some(words(&["codex", "resume", "--last"]));
    agent.package = Some(package);
    agent
}

#[test]
fn k02_a_package_is_pinned_and_cache_first() {
    let agent = packaged();
    let none = CommandWishes::default();
    let built = build(&agent, &none).unwrap();
    assert_eq!(
        built.start.to_string(),
        "npx --yes --prefer-offline @openai/codex@0.171.0 exec"
    );
    assert_eq!(
        built.continued.unwrap().to_string(),
        "npx --yes --prefer-offline @openai/codex@0.171.0 resume --last"
    );
}

#[test]
fn k02_a_program_that_is_named_is_run_in_place_of_the_package_wherever_that_is() {
    let agent = packaged();
    let named = |program: &str| CommandWishes {
        program: Some(program.into()),
        ..CommandWishes::default()
    };
    let found = Host::Here {
        native: Some("/opt/codex".into()),
    };
    let built = |agent: &AgentProfile, wishes: &CommandWishes, host: &Host| {
        AgentCommand {
            profile: agent,
            wishes,
            host,
        }
        .build()
    };
    for host in [Host::Elsewhere, found] {
        let wishes = named("my codex");
        let built = built(&agent, &wishes, &host).unwrap();
        assert_eq!(shown(&built.start), ["my codex", "exec"]);
        let continued = built.continued.unwrap();
        assert_eq!(shown(&continued), ["my codex", "resume", "--last"]);
    }
    let refused = |agent: &AgentProfile, wishes: &CommandWishes| {
        only(built(agent, wishes, &Host::Elsewhere)).kind()
    };
    assert!(built(&agent, &named(""), &Host::Elsewhere).is_err());
    let other = profile(&["x"]);
    assert_eq!(refused(&other, &named("codex")), ErrorKind::Unsupported);
    let both = CommandWishes {
        version: Some("0.142.5".into()),
        ..named("codex")
    };
    let here = Host::Here { native: None };
    let error = only(built(&agent, &both, &here));
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn k02_a_native_program_is_used_where_the_profile_prefers_it_and_it_was_found() {
    let mut agent = packaged();
    let none = CommandWishes::default();
    let found = Host::Here {
        native: Some("/opt/my tools/codex".into()),
    };
    let with = |agent: &AgentProfile, wishes: &CommandWishes, host: &Host| {
        shown(
            &AgentCommand {
                profile: agent,
                wishes,
                host,
            }
            .build()
            .unwrap()
            .start,
        )
    };
    assert_eq!(with(&agent, &none, &found), ["/opt/my tools/codex", "exec"]);
    assert_eq!(with(&agent, &none, &Host::Elsewhere)[0], "npx");
    let chosen = CommandWishes {
        version: Some("0.142.5".into()),
        ..CommandWishes::default()
    };
    assert_eq!(
        with(&agent, &chosen, &found)[3],
        "@openai/codex@0.142.5",
        "a chosen version is not what is installed"
    );
    agent.package.as_mut().unwrap().prefer_native = false;
    assert_eq!(with(&agent, &none, &found)[0], "npx");
    let host = Host::Elsewhere;
    let error = only(
        AgentCommand {
            profile: &agent,
            wishes: &chosen,
            host: &host,
        }
        .build(),
    );
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let error = only(build(&profile(&["x"]), &chosen));
    assert!(error.message().contains("no package"), "{error}");
    let loose = CommandWishes {
        version: Some("latest".into()),
        ..CommandWishes::default()
    };
    assert!(
        only(build(&agent, &loose))
            .message()
            .contains("exact version")
    );
}

#[test]
fn k03_only_the_malformed_flag_is_dropped_and_named() {
    let mut agent = profile(&["base", "cmd"]);
    assert_eq!(start(&agent, &CommandWishes::default()), ["base", "cmd"]);
    agent.flags = vec![
        Flag::on("--on"),
        Flag {
            text: "--off".into(),
            enabled: false,
        },
        Flag::on("--flag value"),
        Flag::on("--bad 'open"),
        Flag::on("--restrict /safe"),
        Flag {
            text: "--off 'open".into(),
            enabled: false,
        },
    ];
    let built = build(&agent, &CommandWishes::default()).unwrap();
    assert_eq!(
        shown(&built.start),
        [
            "base",
            "cmd",
            "--on",
            "--flag",
            "value",
            "--restrict",
            "/safe"
        ]
    );
    let [dropped] = &built.dropped[..] else {
        panic!("{:?}", built.dropped)
    };
    let text = dropped.to_string();
    for part in ["--bad 'open", "profile mock", "single quote", "byte=6"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn k04_the_prefix_stands_first_in_every_command() {
    let mut agent = profile(&["agent", "run"]);
    agent.continue_command = Some(words(&["agent", "more"]));
    agent.flags = vec![Flag::on("--f 1")];
    for prefix in [
        Prefix::Line("wrapper --".into()),
        Prefix::List(words(&["wrapper", "--"])),
    ] {
        agent.prefix = prefix;
        let built = build(&agent, &CommandWishes::default()).unwrap();
        assert_eq!(
            shown(&built.start),
            ["wrapper", "--", "agent", "run", "--f", "1"]
        );
        assert_eq!(
            shown(&built.continued.unwrap()),
            ["wrapper", "--", "agent", "more", "--f", "1"]
        );
    }
    for nothing in [Prefix::Line(String::new()), Prefix::List(Vec::new())] {
        agent.prefix = nothing;
        assert_eq!(
            start(&agent, &CommandWishes::default()),
            ["agent", "run", "--f", "1"]
        );
    }
}

#[test]
fn k04_k07_a_prefix_that_cannot_be_used_gives_no_command() {
    let mut agent = profile(&["agent"]);
    let lines = [
        ("bwrap 'open", "single quote"),
        ("bwrap \"open", "double quote"),
        ("bwrap \\", "backslash"),
        ("bwrap # --ro-bind", "comment"),
        ("   ", "no program"),
        ("\n", "no program"),
        ("''", "blank"),
        ("' ' bwrap", "blank"),
        ("'\t'", "blank"),
        ("-x bwrap", "option"),
        ("--", "option"),
        ("'--unshare' x", "option"),
        ("\\-x", "option"),
    ];
    let lists: [(&[&str], &str); 4] = [
        (&[""], "blank"),
        (&[" ", "x"], "blank"),
        (&["-"], "option"),
        (&["--", "x"], "option"),
    ];
    let lines = lines.map(|(line, word)| (Prefix::Line(line.into()), word));
    let lists = lists.map(|(list, word)| (Prefix::List(words(list)), word));
    for (prefix, word) in lines.into_iter().chain(lists) {
        agent.prefix = prefix;
        let error = only(build(&agent, &CommandWishes::default()));
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(
            error
                .message()
                .starts_with("resolve command_prefix for profile mock"),
            "{error}"
        );
        assert!(
            error.message().contains(word),
            "{:?}: {error}",
            agent.prefix
        );
    }
}

#[test]
fn k05_k06_a_command_begins_with_a_program() {
    let none = CommandWishes::default();
    for (command, word) in [
        (&["-x"][..], "option"),
        (&["--", "agent"], "option"),
        (&[""], "blank"),
        (&[" \t"], "blank"),
        (&[], "no program"),
    ] {
        let mut agent = profile(command);
        let error = only(build(&agent, &none));
        assert!(
            error.message().starts_with("validate agent command"),
            "{error}"
        );
        assert!(error.message().contains(word), "{error}");
        // A prefix must not swallow what is wrong behind it.
        agent.prefix = Prefix::Line("wrapper --".into());
        let error = only(build(&agent, &none));
        assert!(
            error.message().starts_with("validate agent command"),
            "{error}"
        );
        let mut agent = profile(&["agent"]);
        agent.continue_command = Some(words(command));
        let error = only(build(&agent, &none));
        assert!(
            error.message().starts_with("validate continue command"),
            "{error}"
        );
        assert_eq!(error.get("profile"), Some("mock"));
    }
    assert!(
        build(&profile(&["agent", "", "-"]), &none)
            .unwrap()
            .continued
            .is_none()
    );
}

#[test]
fn k05_all_problems_are_told_at_once() {
    let mut agent = profile(&["-agent"]);
    agent.continue_command = Some(words(&[" "]));
    agent.prefix = Prefix::Line("'".into());
    let wishes = CommandWishes {
        model: Some("m".into()),
        auto_approve: true,
        prompt: Some("p".into()),
        version: Some("1.0.0".into()),
        ..CommandWishes::default()
    };
    let problems = build(&agent, &wishes).unwrap_err();
    assert_eq!(problems.len(), 7, "{problems:#?}");
}

mod wishes;

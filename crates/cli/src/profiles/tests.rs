//! Built-in profiles, the user's files, and files that are wrong.

use groundcrew_core::{
    env::Key,
    error::Chain,
    profile::{AgentCommand, BuiltCommand, CommandWishes, Host, Variable},
};

use super::*;
use crate::terminal::Terminals;

const HOME: &str = "/h";

fn built_in() -> Profiles {
    Profiles::built_in(Some(Path::new(HOME)))
}

fn name(text: &str) -> ProfileName {
    ProfileName::new(text).unwrap()
}

fn build(profile: &AgentProfile, wishes: &CommandWishes) -> BuiltCommand {
    let host = Host::Here { native: None };
    AgentCommand {
        profile,
        wishes,
        host: &host,
    }
    .build()
    .unwrap()
}

fn words(built: &groundcrew_core::command::Command) -> Vec<String> {
    let words = built.arguments().iter();
    words
        .map(|word| word.0.to_string_lossy().into_owned())
        .collect()
}

#[test]
fn k02_the_built_in_profiles_are_pinned_and_cache_first() {
    let profiles = built_in();
    let table = [
        (
            "claude",
            "npx --yes --prefer-offline @anthropic-ai/claude-code@2.1.332",
            Some(" --continue"),
        ),
        (
            "codex",
            "npx --yes --prefer-offline @openai/codex@0.171.0",
            Some(" resume --last"),
        ),
        (
            "opencode",
            "npx --yes --prefer-offline opencode-ai@1.18.33",
            Some(" --continue"),
        ),
        (
            "gemini",
            "npx --yes --prefer-offline @google/gemini-cli@0.61.0",
            Some(" --resume=latest"),
        ),
    ];
    for (agent, start, more) in table {
        let built = build(
            profiles.get(&name(agent)).unwrap(),
            &CommandWishes::default(),
        );
        assert_eq!(built.start.to_string(), start);
        let continued = built.continued.map(|command| command.to_string());
        assert_eq!(continued, more.map(|more| format!("{start}{more}")));
    }
    let copilot = build(
        profiles.get(&name("copilot")).unwrap(),
        &CommandWishes::default(),
    );
    let npx = "npx --yes --prefer-offline @github/copilot@1.0.102";
    assert_eq!(copilot.start.to_string(), format!("{npx} --no-auto-update"));
    assert_eq!(
        copilot.continued.unwrap().to_string(),
        format!("{npx} --continue --no-auto-update")
    );
    let mut found = profiles
        .found
        .keys()
        .map(ProfileName::as_str)
        .collect::<Vec<_>>();
    found.retain(|name| *name != "plain");
    let all = [
        "claude",
        "codex",
        "codex-acp",
        "copilot",
        "gemini",
        "opencode",
    ];
    assert_eq!(found, all);
}

#[test]
fn the_built_in_profiles_are_good() {
    let profiles = built_in();
    assert_eq!(profiles.found.len(), BUILT_IN.len());
    for (name, found) in &profiles.found {
        let problems = found.problems();
        assert!(problems.is_empty(), "{name}: {problems:?}");
    }
}

#[test]
fn a_plain_command_is_what_the_request_names() {
    let profiles = built_in();
    let plain = profiles.get(&name("plain")).unwrap();
    let wishes = CommandWishes {
        extra: vec!["bash".into(), "-c".into(), "x y".into()],
        ..CommandWishes::default()
    };
    assert_eq!(words(&build(plain, &wishes).start), ["bash", "-c", "x y"]);
    let host = Host::Here { native: None };
    let nothing = CommandWishes::default();
    let command = AgentCommand {
        profile: plain,
        wishes: &nothing,
        host: &host,
    };
    assert!(
        command.build().unwrap_err()[0]
            .message()
            .starts_with("validate agent command")
    );
}

#[test]
fn c13_no_built_in_profile_takes_a_prompt_for_an_option() {
    let profiles = built_in();
    for agent in ["claude", "codex", "copilot", "gemini", "opencode"] {
        for prompt in [
            "- first point",
            "--help",
            "--",
            "$(touch PWNED)",
            "`touch PWNED`",
            "\"; touch PWNED; \"",
            "two\nlines",
            "it's",
            r"a\b",
            "*",
            "",
        ] {
            let wishes = CommandWishes {
                prompt: Some(prompt.into()),
                model: Some("m".into()),
                auto_approve: true,
                extra: vec!["--extra".into()],
                ..CommandWishes::default()
            };
            let words = words(&build(profiles.get(&name(agent)).unwrap(), &wishes).start);
            let (last, before) = words.split_last().unwrap();
            let behind = before.last().is_some_and(|word| word == "--") && last == prompt;
            let within = last.starts_with("--")
                && last
                    .split_once('=')
                    .is_some_and(|(_, value)| value == prompt);
            assert!(behind || within, "{agent} {prompt:?}: {words:?}");
            assert!(before.contains(&"--extra".to_owned()));
        }
    }
}

#[test]
fn k01_gemini_takes_no_token_and_the_others_do() {
    let profiles = built_in();
    for (agent, resumes) in [
        ("claude", true),
        ("codex", true),
        ("copilot", true),
        ("opencode", true),
        ("gemini", false),
    ] {
        let wishes = CommandWishes {
            resume_token: Some("t-1".into()),
            ..CommandWishes::default()
        };
        let built = build(profiles.get(&name(agent)).unwrap(), &wishes);
        assert_eq!(
            (built.resumes, built.start.to_string().contains("t-1")),
            (resumes, resumes),
            "{agent}"
        );
    }
}

fn surroundings(config: &Path) -> Surroundings {
    Surroundings {
        environment: vec![
            ("GROUNDCREW_CONFIG_DIR".into(), config.into()),
            ("HOME".into(), HOME.into()),
        ],
        directory: "/".into(),
        terminals: Terminals {
            input: false,
            output: false,
            error: false,
        },
    }
}

fn with_files(files: &[(&str, &str)]) -> (tempfile::TempDir, Profiles) {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("profiles");
    std::fs::create_dir(&directory).unwrap();
    for (name, text) in files {
        std::fs::write(directory.join(name), text).unwrap();
    }
    let profiles = Profiles::read(&surroundings(root.path())).unwrap();
    (root, profiles)
}

#[test]
fn a_file_replaces_a_built_in_profile_as_a_whole() {
    let (_root, profiles) = with_files(&[
        ("codex.toml", "name = \"codex\"\ncommand = \"my codex\"\n"),
        ("x.txt", "no"),
        (".y.toml", "no"),
    ]);
    let codex = profiles.get(&name("codex")).unwrap();
    assert_eq!(
        words(&build(codex, &CommandWishes::default()).start),
        ["my", "codex"]
    );
    assert!(codex.package.is_none() && codex.prompt.is_none());
    assert_eq!(profiles.found.len(), BUILT_IN.len());
}

#[tokio::test]
async fn a_file_that_is_wrong_stands_for_its_profile_and_for_no_other() {
    let (_root, profiles) = with_files(&[
        ("codex.toml", "name = \"codex\"\n"),
        ("-bad name.toml", "name = \"x\"\ncommand = []\n"),
    ]);
    let [error] = &profiles.get(&name("codex")).unwrap_err()[..] else {
        panic!()
    };
    assert!(
        error.message().contains("missing field `command`"),
        "{error}"
    );
    assert!(error.get("file").unwrap().ends_with("profiles/codex.toml"));
    assert!(
        profiles.profile(&name("codex")).await.is_err(),
        "and the built-in one is not used in its place"
    );
    assert!(profiles.profile(&name("claude")).await.unwrap().is_some());
    assert!(profiles.profile(&name("none")).await.unwrap().is_none());
    assert_eq!(profiles.list().await.unwrap().len(), BUILT_IN.len());
    assert_eq!(profiles.strays.len(), 1);
    let [error] = &profiles.get(&name("none")).unwrap_err()[..] else {
        panic!()
    };
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.get("known").unwrap().contains("claude, codex"));
}

#[test]
fn no_directory_is_no_profile_of_ones_own_and_a_damaged_one_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let none = Profiles::read(&surroundings(root.path())).unwrap();
    assert_eq!(none.found.len(), BUILT_IN.len());
    std::fs::write(root.path().join("profiles"), "x").unwrap();
    assert!(Profiles::read(&surroundings(root.path())).is_err());
}

#[test]
fn a_profile_that_is_no_plain_file_is_refused_without_waiting() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("profiles/d.toml");
    std::fs::create_dir_all(&directory).unwrap();
    let pipe = root.path().join("profiles/p.toml");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let profiles = Profiles::read(&surroundings(root.path())).unwrap();
    for broken in ["d", "p"] {
        let [error] = &profiles.get(&name(broken)).unwrap_err()[..] else {
            panic!()
        };
        assert!(error.message().contains("plain file"), "{error}");
    }
}

#[test]
fn c17_paths_of_a_file_are_expanded_or_resolved_against_it() {
    let text = r#"
name = "a"
command = ["~/my tools/agent", "~/left/alone"]
continue_command = "tools/agent more"
prefix = "'./wrap it' --"
[environment]
STATE = { path = "~/state" }
NEAR = { path = "near" }
ODD = { path = "/tmp/a~b" }
LITERAL = "~/literal"
"#;
    let profile = parse(text, Path::new("/c/profiles/a.toml"), Some(Path::new(HOME))).unwrap();
    let wishes = CommandWishes::default();
    let built = build(&profile, &wishes);
    assert_eq!(
        words(&built.start),
        [
            "/c/profiles/wrap it",
            "--",
            "/h/my tools/agent",
            "~/left/alone"
        ]
    );
    assert_eq!(
        words(&built.continued.unwrap()),
        [
            "/c/profiles/wrap it",
            "--",
            "/c/profiles/tools/agent",
            "more"
        ]
    );
    let value = |name: &str| profile.environment[&Key::new(name).unwrap()].clone();
    assert_eq!(value("STATE"), Variable::Path("/h/state".into()));
    assert_eq!(value("NEAR"), Variable::Path("/c/profiles/near".into()));
    assert_eq!(value("ODD"), Variable::Path("/tmp/a~b".into()));
    assert_eq!(value("LITERAL"), "~/literal".into());
}

#[test]
fn c17_another_users_home_is_refused_wherever_it_stands() {
    let text = "name = \"a\"\ncommand = \"~nobody-here/agent\"\nprefix = [\"~nobody-here/wrap\"]\n[defaults]\nA = { path = \"~nobody-here\" }\n";
    let errors = parse(text, Path::new("/c/a.toml"), Some(Path::new(HOME))).unwrap_err();
    assert_eq!(errors.len(), 3, "{errors:?}");
    for error in errors {
        assert!(error.message().contains("another user's `~`"), "{error}");
        assert_eq!(
            (error.get("file"), error.get("profile")),
            (Some("/c/a.toml"), Some("a"))
        );
    }
    let errors = parse(
        "name = \"a\"\ncommand = \"~/agent\"\n",
        Path::new("/c/a.toml"),
        None,
    )
    .unwrap_err();
    assert!(errors[0].message().contains("$HOME"), "{errors:?}");
}

#[test]
fn the_example_of_the_documentation_is_a_good_profile() {
    let page = include_str!("../../../../docs/profiles.md");
    let example = page.split("```toml\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let place = Path::new("/c/mine.toml");
    let profile = parse(example, place, Some(Path::new(HOME))).unwrap();
    assert!(profile.check().is_empty(), "{:?}", profile.check());
    let wishes = CommandWishes {
        prompt: Some("- x".into()),
        auto_approve: true,
        ..CommandWishes::default()
    };
    assert_eq!(
        build(&profile, &wishes).start.to_string(),
        "bwrap --ro-bind / / -- '/h/my tools/agent' chat --yes --color never -- '- x'"
    );
}

mod bad;

#[test]
fn the_built_in_agents_are_spoken_to_each_with_its_own_command_and_end_by_their_own_order() {
    let profiles = built_in();
    for (agent, protocol, command) in [
        (
            "codex",
            "codex",
            "npx --yes --prefer-offline @openai/codex@0.171.0 app-server",
        ),
        (
            "opencode",
            "acp",
            "npx --yes --prefer-offline opencode-ai@1.18.33 acp",
        ),
        (
            "gemini",
            "acp",
            "npx --yes --prefer-offline @google/gemini-cli@0.61.0 --acp",
        ),
        (
            "claude",
            "acp",
            "npx --yes --prefer-offline @agentclientprotocol/claude-agent-acp@0.101.0",
        ),
        (
            "codex-acp",
            "acp",
            "npx --yes --prefer-offline @zed-industries/codex-acp@0.16.0",
        ),
    ] {
        let profile = profiles.get(&name(agent)).unwrap();
        let spoken = profile.spoken().unwrap();
        assert_eq!(profile.session.as_ref().unwrap().protocol, protocol);
        let built = build(&spoken, &CommandWishes::default());
        assert_eq!(words(&built.start).join(" "), command, "{agent}");
        assert!(built.continued.is_none() && !built.resumes);
    }
    let bridge = profiles.get(&name("codex-acp")).unwrap().spoken().unwrap();
    assert_eq!(bridge.stop.grace_seconds, 3);
    let logs = |agent: &str| {
        let spoken = profiles.get(&name(agent)).unwrap().spoken().unwrap();
        spoken
            .environment
            .keys()
            .any(|key| key.as_bytes() == b"RUST_LOG")
    };
    assert!(logs("codex") && !logs("opencode"));
}

//! Words to launches of agents.

use clap::Parser;
use groundcrew_core::{
    env::Key,
    profile::{AgentCommand, Host, PromptRule as Rule},
};

use super::*;
use crate::{
    args::AgentArgs,
    profiles::{Found, Source},
    terminal::Terminals,
};

#[derive(Debug, Parser)]
struct Words {
    #[command(flatten)]
    agent: AgentArgs,
    #[arg(last = true)]
    extra: Vec<OsString>,
}

fn parse(words: &[&str]) -> Words {
    Words::try_parse_from(std::iter::once("run").chain(words.iter().copied())).unwrap()
}

fn name(text: &str) -> ProfileName {
    ProfileName::new(text).unwrap()
}

fn mock() -> AgentProfile {
    let words = |texts: &[&str]| texts.iter().copied().map(OsText::from).collect::<Vec<_>>();
    let mut profile = AgentProfile::new(name("mock"), ["/my tools/agent"]);
    profile.continue_command = Some(words(&["/my tools/agent", "more"]));
    profile.model.arguments = words(&["--model", "{model}"]);
    profile.resume.arguments = words(&["--resume", "{token}"]);
    profile.prompt = Some(Rule::Argument(words(&["--", "{prompt}"])));
    profile.strip = vec!["OUTER".into()];
    profile.stop.grace_seconds = 3;
    profile.caches = vec![groundcrew_core::profile::CacheRule {
        variable: Key::new("MOCKCACHE").unwrap(),
        directory: "mock".into(),
    }];
    profile
        .defaults
        .insert(Key::new("QUIET").unwrap(), "1".into());
    profile
}

struct Scene {
    profiles: Profiles,
    known: BTreeSet<SecretId>,
}

impl Scene {
    fn new(profile: AgentProfile) -> Self {
        let mut profiles = Profiles::built_in(Some(Path::new("/h")));
        let found = Found {
            source: Source::BuiltIn,
            profile: Ok(profile),
        };
        profiles.found.insert(name("mock"), found);
        Self {
            profiles,
            known: BTreeSet::new(),
        }
    }

    fn place(&self) -> Place<'_> {
        Place {
            profiles: &self.profiles,
            path: None,
            caches: "/c".into(),
            known_secrets: self.known.clone(),
        }
    }

    fn fresh(&self, words: &[&str]) -> Result<ProfiledAgent, Vec<Error>> {
        let words = parse(words);
        let prompt = words.agent.wishes.prompt.clone().map(OsText);
        let name = words.agent.agent.as_ref().unwrap();
        fresh(
            name,
            &words.agent.wishes,
            prompt,
            &words.extra,
            false,
            &self.place(),
        )
    }

    fn resumed(&self, used: &AgentUse, words: &[&str], token: Option<&str>) -> ProfiledAgent {
        let wishes = parse(words).agent.wishes;
        let prompt = wishes.prompt.clone().map(OsText);
        resumed(used, &wishes, token, prompt, &self.place()).unwrap()
    }
}

/// Returns the words that a plan makes of it on this machine.
fn shown(agent: &ProfiledAgent) -> Vec<String> {
    let host = Host::Here {
        native: agent.native.clone(),
    };
    let command = AgentCommand {
        profile: agent.snapshot.as_ref().unwrap(),
        wishes: &agent.used.wishes,
        host: &host,
    };
    let built = command.build().unwrap();
    let command = match built.continued {
        Some(continued) if agent.follow_up && !built.resumes => continued,
        _ => built.start,
    };
    let words = command.arguments().iter();
    words
        .map(|word| word.0.to_string_lossy().into_owned())
        .collect()
}

#[test]
fn c13_every_prompt_of_the_command_line_is_one_argument_unchanged() {
    let scene = Scene::new(mock());
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
        let joined = format!("--prompt={prompt}");
        for words in [
            vec!["--agent", "mock", "--prompt", prompt],
            vec!["--agent", "mock", &joined],
        ] {
            let launch = scene.fresh(&words).unwrap();
            assert_eq!(shown(&launch), ["/my tools/agent", "--", prompt]);
        }
    }
}

#[test]
fn what_stands_behind_the_dashes_goes_to_the_agent() {
    let scene = Scene::new(mock());
    let launch = scene
        .fresh(&[
            "--agent", "mock", "--model", "m", "--", "--agent", "x y", "",
        ])
        .unwrap();
    assert_eq!(
        shown(&launch),
        ["/my tools/agent", "--model", "m", "--agent", "x y", ""]
    );
    assert_eq!(
        launch.used.profiles,
        ProfileUse::new(name("mock"), None, None)
    );
    assert_eq!(launch.caches.as_deref(), Some(Path::new("/c")));
    assert!(launch.known_secrets.is_empty() && !launch.follow_up);
}

#[test]
fn k01_a_resumption_uses_the_token_or_the_continue_command_and_never_both() {
    let mut scene = Scene::new(mock());
    let first = scene
        .fresh(&[
            "--agent", "mock", "--model", "m", "--prompt", "first", "--", "-x",
        ])
        .unwrap();
    // What is stored is what comes back.
    let text = serde_json::to_string(&first.used).unwrap();
    let used: AgentUse = serde_json::from_str(&text).unwrap();
    let launch = scene.resumed(&used, &["--prompt", "next"], Some("t-1"));
    assert_eq!(
        shown(&launch),
        [
            "/my tools/agent",
            "--resume",
            "t-1",
            "--model",
            "m",
            "-x",
            "--",
            "next"
        ]
    );
    for token in [None, Some("")] {
        let launch = scene.resumed(&used, &["--prompt", "next"], token);
        assert_eq!(
            shown(&launch),
            [
                "/my tools/agent",
                "more",
                "--model",
                "m",
                "-x",
                "--",
                "next"
            ]
        );
    }
    let launch = scene.resumed(&used, &["--model", "n"], None);
    assert_eq!(
        shown(&launch),
        ["/my tools/agent", "more", "--model", "n", "-x"]
    );
    let mut other = mock();
    other.resume.supported = Some(false);
    scene = Scene::new(other.clone());
    assert_eq!(shown(&scene.resumed(&used, &[], Some("t-1")))[1], "more");
    other.continue_command = None;
    scene = Scene::new(other);
    let launch = scene.resumed(&used, &["--prompt", "next"], Some("t-1"));
    assert_eq!(
        shown(&launch),
        ["/my tools/agent", "--model", "m", "-x", "--", "next"]
    );
}

#[test]
fn k04_k12_a_profile_that_is_wrong_stops_the_launch_and_a_wrong_flag_does_not() {
    let mut profile = mock();
    profile.flags = vec![groundcrew_core::profile::Flag::on("--x 'open")];
    let scene = Scene::new(profile.clone());
    let launch = scene.fresh(&["--agent", "mock"]).unwrap();
    assert_eq!(shown(&launch).len(), 1);
    profile
        .environment
        .insert(Key::new("GROUNDCREW_RUN_ID").unwrap(), "x".into());
    profile.prefix = groundcrew_core::profile::Prefix::Line("-x".into());
    let problems = Scene::new(profile).fresh(&["--agent", "mock"]).unwrap_err();
    let texts: Vec<_> = problems.iter().map(Error::message).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].contains("resolve command_prefix") && texts[1].contains("GROUNDCREW_RUN_ID"));
}

#[test]
fn an_executor_that_the_profile_demands_is_kept() {
    let mut profile = mock();
    profile.executor = Some(ExecutorName::new("docker").unwrap());
    let scene = Scene::new(profile);
    let launch = scene.fresh(&["--agent", "mock"]).unwrap();
    let found = executor(&launch, None).unwrap();
    assert_eq!(found.unwrap().as_str(), "docker");
    let local = ExecutorName::new("local").unwrap();
    let error = executor(&launch, Some(&local)).unwrap_err();
    assert!(error.message().contains("its own executor"), "{error}");
}

#[test]
fn k02_the_program_is_taken_from_path_where_it_is_one() {
    let root = tempfile::tempdir().unwrap();
    let place = |name: &str, mode: u32| {
        let directory = root.path().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let program = directory.join("codex");
        std::fs::write(&program, "").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).unwrap();
        directory
    };
    let plain = place("plain", 0o600);
    let good = place("my tools", 0o700);
    std::fs::create_dir_all(root.path().join("folder/codex")).unwrap();
    let folders = [
        Path::new("relative"),
        &root.path().join("folder"),
        &plain,
        &good,
    ];
    let path = std::env::join_paths(folders).unwrap();
    let scene = Scene::new(mock());
    let place = Place {
        path: Some(path),
        ..scene.place()
    };
    let program = |place: &Place<'_>| {
        let launch = fresh(
            &name("codex"),
            &WishArgs::default(),
            None,
            &[],
            false,
            place,
        )
        .unwrap();
        shown(&launch)[0].clone()
    };
    assert_eq!(program(&place), good.join("codex").to_str().unwrap());
    assert_eq!(
        program(&Place {
            path: Some(plain.into()),
            ..place.clone()
        }),
        "npx"
    );
    assert_eq!(program(&scene.place()), "npx");
    let chosen = WishArgs {
        agent_version: Some("0.142.5".into()),
        ..WishArgs::default()
    };
    let launch = fresh(&name("codex"), &chosen, None, &[], false, &place).unwrap();
    assert_eq!(shown(&launch)[3], "@openai/codex@0.142.5");
    let named = WishArgs {
        agent_program: Some("codex-of-mine".into()),
        ..WishArgs::default()
    };
    let launch = fresh(&name("codex"), &named, None, &[], false, &place).unwrap();
    assert_eq!(shown(&launch)[0], "codex-of-mine");
}

#[test]
fn c35_a_prompt_too_large_for_an_argument_says_what_to_do() {
    let scene = Scene::new(mock());
    let prompt = OsText::new("x".repeat(MAX_ARGUMENT_LEN));
    let problems = fresh(
        &name("mock"),
        &WishArgs::default(),
        Some(prompt),
        &[],
        false,
        &scene.place(),
    )
    .unwrap_err();
    let [error] = &problems[..] else {
        panic!("{problems:?}")
    };
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.message().contains("in a file"), "{error}");
}

#[test]
fn a_prompt_is_read_to_the_last_byte() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("p"), b"- a\n\xff\n").unwrap();
    let surroundings = Surroundings {
        environment: Vec::new(),
        directory: root.path().to_owned(),
        terminals: Terminals {
            input: false,
            output: false,
            error: false,
        },
    };
    let read = |word: &str| prompt(OsStr::new(word), &surroundings, &mut &b"from stdin\n"[..]);
    assert_eq!(read("@p").unwrap().as_bytes(), b"- a\n\xff\n");
    assert_eq!(read("-").unwrap().as_bytes(), b"from stdin\n");
    assert_eq!(read("- x").unwrap().as_bytes(), b"- x");
    assert_eq!(read("").unwrap().as_bytes(), b"");
    assert_eq!(read("@none").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(
        read("@~nobody/x").unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(read("@").unwrap_err().kind(), ErrorKind::InvalidInput);
    let mut endless = std::io::repeat(b'x');
    let error = prompt(OsStr::new("-"), &surroundings, &mut endless).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
}

#[test]
fn lone_wishes_are_refused() {
    for words in [
        ["--model", "m"],
        ["--prompt", "p"],
        ["--approve", "always"],
        ["--agent-version", "1.0.0"],
    ] {
        assert_eq!(
            refuse_lone_wishes(&parse(&words).agent.wishes)
                .unwrap_err()
                .code(false),
            2
        );
    }
    assert!(refuse_lone_wishes(&WishArgs::default()).is_ok());
}

#[test]
fn behind_the_wrapper_of_a_package_the_program_itself_is_found_where_npm_puts_it() {
    use std::os::unix::fs::symlink;
    let program = |path: &Path| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    let bin = root.join("bin");
    std::fs::create_dir(&bin).unwrap();
    let wrapper = root.join("lib/node_modules/@a/agent/bin/agent.js");
    program(&wrapper);
    symlink(&wrapper, bin.join("agent")).unwrap();
    let mut profile = AgentProfile::new(name("agent"), ["agent"]);
    profile.package = Some(ManagedPackage {
        name: "@a/agent".to_owned(),
        version: "1.2.3".to_owned(),
        program: "agent".to_owned(),
        prefer_native: true,
        native: vec!["@a/agent-x/bin/agent".to_owned()],
    });
    let found = || native(&profile, Some(bin.as_os_str())).unwrap();
    assert_eq!(found(), bin.join("agent"));
    let beside = root.join("lib/node_modules/@a/agent-x/bin/agent");
    program(&beside);
    assert_eq!(found(), beside);
    let below = root.join("lib/node_modules/@a/agent/node_modules/@a/agent-x/bin/agent");
    program(&below);
    assert_eq!(found(), below);
    // What no npm installed is what it is, whatever lies beside it.
    std::fs::remove_file(bin.join("agent")).unwrap();
    program(&bin.join("agent"));
    program(&root.join("node_modules/@a/agent-x/bin/agent"));
    assert_eq!(found(), bin.join("agent"));
}

#[test]
fn an_agent_that_can_be_spoken_to_holds_a_conversation_where_it_gets_a_prompt() {
    let mut profile = mock();
    let session = r#"{"protocol": "acp", "command": ["/my tools/agent", "acp"]}"#;
    profile.session = Some(serde_json::from_str(session).unwrap());
    let scene = Scene::new(profile);
    let wishes = parse(&["--agent", "mock", "--approve", "always"]);
    let made = |prompt: Option<&str>, own_interface: bool| {
        let prompt = prompt.map(OsText::from);
        let wishes = &wishes.agent.wishes;
        fresh(
            &name("mock"),
            wishes,
            prompt,
            &[],
            own_interface,
            &scene.place(),
        )
    };
    let spoken = made(Some("hi"), false).unwrap();
    assert_eq!(shown(&spoken), ["/my tools/agent", "acp"]);
    assert!(spoken.used.wishes.conversation && !spoken.used.wishes.auto_approve);
    // It goes on as what it was, and its token is no word of a command.
    let again = scene.resumed(&spoken.used, &["--prompt", "more"], Some("t-1"));
    assert_eq!(shown(&again), ["/my tools/agent", "acp"]);
    // Its own interface is what one gets without a prompt, or where that is wanted; this one cannot be told to ask nobody.
    for own in [made(None, false), made(Some("hi"), true)] {
        assert!(!own.unwrap().used.wishes.conversation);
    }
}

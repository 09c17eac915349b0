//! Profiles that cannot be used, and what is said of them.

use super::*;
use crate::{
    env::Key,
    id::{ExecutorName, ProfileName},
    profile::{
        ApprovalRule, CacheRule, Credential, Flag, ManagedPackage, ModelRule, ResumeRule, reserved,
    },
};

fn profile() -> AgentProfile {
    AgentProfile::new(ProfileName::new("mock").unwrap(), ["agent"])
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn words(texts: &[&str]) -> Vec<OsText> {
    texts.iter().copied().map(OsText::from).collect()
}

type Change = fn(&mut AgentProfile);
type PutKey = fn(&mut AgentProfile, Key);

#[test]
fn what_is_wrong_with_a_profile_is_named() {
    let table: &[(&str, Change)] = &[
        ("option", |p| p.command = words(&["--x"])),
        ("blank", |p| p.command = words(&[" "])),
        ("NUL", |p| p.command = words(&["a", "\0"])),
        ("no program", |p| p.continue_command = Some(Vec::new())),
        ("option", |p| p.prefix = Prefix::Line("-x".into())),
        ("single quote", |p| p.prefix = Prefix::Line("a 'b".into())),
        ("double quote", |p| p.flags = vec![Flag::on("--x \"")]),
        ("backslash", |p| {
            p.flags = vec![Flag {
                text: "\\".into(),
                enabled: false,
            }];
        }),
        ("empty", |p| p.flags = vec![Flag::on(" ")]),
    ];
    named(table);
}

#[test]
fn what_is_wrong_with_templates_and_names_is_named() {
    let table: &[(&str, Change)] = &[
        ("placeholder", |p| {
            p.model = ModelRule {
                arguments: words(&["--model"]),
                ..ModelRule::default()
            }
        }),
        ("placeholder", |p| {
            p.model = ModelRule {
                arguments: words(&["{model}", "{model}"]),
                ..ModelRule::default()
            }
        }),
        ("placeholder", |p| {
            p.resume = ResumeRule {
                arguments: words(&["--resume"]),
                ..ResumeRule::default()
            }
        }),
        ("placeholder", |p| {
            p.prompt = Some(PromptRule::Argument(words(&["--"])));
        }),
        ("no argument holds", |p| {
            p.prompt = Some(PromptRule::Argument(Vec::new()));
        }),
        ("taken for an option", |p| {
            p.prompt = Some(PromptRule::Argument(words(&["{prompt}"])));
        }),
        ("taken for an option", |p| {
            p.prompt = Some(PromptRule::Argument(words(&["-p", "{prompt}"])));
        }),
        ("taken for an option", |p| {
            p.prompt = Some(PromptRule::Argument(words(&["-p={prompt}"])));
        }),
        ("both is enough", |p| {
            p.environment.insert(key("A"), "1".into());
            p.defaults.insert(key("A"), "2".into());
        }),
        ("strip", |p| p.strip = vec!["*".into()]),
        ("strip", |p| p.strip = vec![String::new()]),
        ("strip", |p| p.strip = vec!["A*B".into()]),
        ("strip", |p| p.strip = vec!["A=B".into()]),
        ("plain name", |p| {
            p.caches = vec![CacheRule {
                variable: key("GOCACHE"),
                directory: "../x".into(),
            }];
        }),
        ("plain name", |p| {
            p.caches = vec![CacheRule {
                variable: key("GOCACHE"),
                directory: "/x".into(),
            }];
        }),
        ("plain name", |p| {
            p.caches = vec![CacheRule {
                variable: key("GOCACHE"),
                directory: "a/b".into(),
            }];
        }),
        ("plain name", |p| {
            p.caches = vec![CacheRule {
                variable: key("GOCACHE"),
                directory: ".".into(),
            }];
        }),
        ("plain name", |p| {
            p.caches = vec![CacheRule {
                variable: key("GOCACHE"),
                directory: String::new(),
            }];
        }),
        ("hour", |p| p.stop.grace_seconds = 3601),
    ];
    named(table);
}

fn named(table: &[(&str, Change)]) {
    for (index, (word, change)) in table.iter().enumerate() {
        let mut profile = profile();
        change(&mut profile);
        let problems = profile.check();
        let [problem] = &problems[..] else {
            panic!("{index} {word}: {problems:?}")
        };
        assert_eq!(
            (problem.kind(), problem.get("profile")),
            (ErrorKind::InvalidInput, Some("mock")),
            "{problem}"
        );
        assert!(
            problem.to_string().contains(word),
            "{index} {word}: {problem}"
        );
    }
}

#[test]
fn k02_a_package_is_checked() {
    for (name, version, program, word) in [
        ("Codex", "1.0.0", "agent", "no name"),
        ("--registry=x", "1.0.0", "agent", "no name"),
        ("codex", "latest", "agent", "exact version"),
        ("codex", "^1.0.0", "agent", "exact version"),
        ("codex", "1.0.0", "other", "first word"),
    ] {
        let mut profile = profile();
        profile.package = Some(ManagedPackage {
            name: name.into(),
            version: version.into(),
            program: program.into(),
            prefer_native: false,
            native: Vec::new(),
        });
        let problems = profile.check();
        assert!(
            problems.len() == 1 && problems[0].message().contains(word),
            "{name} {version}: {problems:?}"
        );
    }
}

#[test]
fn all_problems_are_told_at_once() {
    let mut profile = profile();
    profile.command = words(&["-x"]);
    profile.prefix = Prefix::Line("'".into());
    profile.flags = vec![Flag::on("'"), Flag::on("\"")];
    profile.strip = vec!["*".into()];
    assert_eq!(profile.check().len(), 5, "{:?}", profile.check());
}

#[test]
fn k12_reserved_variables_are_refused_by_name_wherever_they_stand() {
    for name in [
        "GROUNDCREW_AGENT_PROFILE_ID",
        "GROUNDCREW_RUN_ID",
        "GROUNDCREW_HOME",
        "GROUNDCREW_",
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_COMMON_DIR",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_NAMESPACE",
        "GIT_CEILING_DIRECTORIES",
    ] {
        let places: [(&str, PutKey); 6] = [
            ("environment", |p, key| {
                drop(p.environment.insert(key, "x".into()));
            }),
            ("defaults", |p, key| {
                drop(p.defaults.insert(key, "x".into()));
            }),
            ("model", |p, key| p.model.variable = Some(key)),
            ("approval", |p, key| {
                p.approval = Some(ApprovalRule {
                    variables: [(key, "x".into())].into(),
                    ..ApprovalRule::default()
                });
            }),
            ("credentials", |p, key| {
                p.credentials = vec![credential(key)];
            }),
            ("caches", |p, key| {
                p.caches = vec![CacheRule {
                    variable: key,
                    directory: "x".into(),
                }];
            }),
        ];
        for (place, put) in places {
            let mut profile = profile();
            put(&mut profile, key(name));
            let problems = profile.check();
            let [problem] = &problems[..] else {
                panic!("{name} {place}: {problems:?}")
            };
            assert_eq!(
                (problem.get("variable"), problem.get("in")),
                (Some(name), Some(place))
            );
            assert!(problem.message().contains(name));
        }
    }
    for name in [
        "GROUNDCREW",
        "GIT_AUTHOR_NAME",
        "GIT_SSH_COMMAND",
        "GIT_CONFIG_COUNT",
        "PATH",
        "MY_GIT_DIR",
    ] {
        assert_eq!(reserved(&key(name)), None, "{name}");
    }
}

#[test]
fn inherited_variables_are_stripped_by_name_and_by_beginning() {
    let mut profile = profile();
    profile.strip = vec!["ANTHROPIC_API_KEY".into(), "CLAUDE_*".into()];
    for (name, stripped) in [
        ("ANTHROPIC_API_KEY", true),
        ("ANTHROPIC_API_KEY2", false),
        ("CLAUDE_X", true),
        ("CLAUDE_", true),
        ("CLAUDE", false),
    ] {
        assert_eq!(profile.strips(&key(name)), stripped, "{name}");
    }
}

#[test]
fn an_executor_that_the_profile_demands_is_never_replaced() {
    let name = |text: &str| ExecutorName::new(text).unwrap();
    let mut profile = profile();
    assert_eq!(
        profile.executor_for(Some(&name("local"))).unwrap(),
        Some(&name("local"))
    );
    assert_eq!(profile.executor_for(None).unwrap(), None);
    profile.executor = Some(name("docker"));
    assert_eq!(profile.executor_for(None).unwrap(), Some(&name("docker")));
    assert_eq!(
        profile.executor_for(Some(&name("docker"))).unwrap(),
        Some(&name("docker"))
    );
    let error = profile.executor_for(Some(&name("local"))).unwrap_err();
    assert_eq!(
        (error.kind(), error.get("demanded")),
        (ErrorKind::InvalidInput, Some("docker"))
    );
}

#[test]
fn c17_only_programs_and_paths_are_made_absolute() {
    let mut profile = profile();
    profile.command = words(&["~/bin/agent", "~/x", "./y"]);
    profile.continue_command = Some(words(&["agent", "~/x"]));
    profile.prefix = Prefix::Line("'~/my tools/wrap' -- ~/x".into());
    profile
        .environment
        .insert(key("P"), Variable::Path("~/p".into()));
    profile.environment.insert(key("L"), "~/l".into());
    let absolute = |path: &Path| match path.strip_prefix("~") {
        Ok(rest) => Ok(Path::new("/h").join(rest)),
        Err(_) => Err(Error::new(ErrorKind::InvalidInput, "no").with("path", path.display())),
    };
    let resolved = profile.clone().resolve_paths(absolute).unwrap();
    assert_eq!(resolved.command, words(&["/h/bin/agent", "~/x", "./y"]));
    assert_eq!(resolved.continue_command, Some(words(&["agent", "~/x"])));
    assert_eq!(
        resolved.prefix,
        Prefix::List(words(&["/h/my tools/wrap", "--", "~/x"]))
    );
    assert_eq!(
        resolved.environment[&key("P")],
        Variable::Path("/h/p".into())
    );
    assert_eq!(resolved.environment[&key("L")], "~/l".into());
    profile.command = words(&["~nobody/x"]);
    profile
        .environment
        .insert(key("Q"), Variable::Path("q".into()));
    assert_eq!(profile.resolve_paths(absolute).unwrap_err().len(), 2);
}

fn credential(variable: Key) -> Credential {
    Credential {
        variable,
        secrets: Vec::new(),
        tenant: None,
        required: true,
        hint: String::new(),
    }
}

//! What the words about variables mean, and which are refused.

use groundcrew_core::env::Value;

use super::*;
use crate::terminal::Terminals;

fn surroundings(directory: &Path) -> Surroundings {
    let pairs = [
        ("HOME", "/h"),
        ("GROUNDCREW_HOME", "/s"),
        ("CLAUDECODE", "1"),
        ("A", "here"),
    ];
    Surroundings {
        environment: pairs.iter().map(|(k, v)| (k.into(), v.into())).collect(),
        directory: directory.to_owned(),
        terminals: Terminals::default(),
    }
}

fn collected(args: &CommandArgs, directory: &Path) -> Result<Variables, Failing> {
    collect(args, false, &Config::default(), &surroundings(directory))
}

fn env(words: &[&str]) -> CommandArgs {
    CommandArgs {
        env: words.iter().map(OsString::from).collect(),
        ..CommandArgs::default()
    }
}

fn requested(variables: &Variables) -> Vec<(String, String)> {
    let requested = variables
        .environment
        .iter()
        .filter(|d| d.tier == Tier::Request);
    requested
        .map(|d| {
            let value = match &d.value {
                Value::Literal(text) => String::from_utf8_lossy(text.as_bytes()).into_owned(),
                Value::Secret(id) => format!("<{id}>"),
            };
            (d.key.to_string(), value)
        })
        .collect()
}

#[test]
fn c08_a_stripped_variable_is_handed_on_when_it_is_asked_for() {
    let there = Path::new("/w");
    let variables = collected(&env(&["A=1=2", "CLAUDECODE", "E="]), there).unwrap();
    let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
    assert_eq!(
        requested(&variables),
        [pair("A", "1=2"), pair("CLAUDECODE", "1"), pair("E", "")]
    );
}

#[test]
fn c12_files_words_and_payloads_keep_every_byte() {
    let ground = tempfile::tempdir().unwrap();
    std::fs::write(ground.path().join("vars"), b"#\nX=  'q' $H \nN\xff=\xa3\n").unwrap();
    std::fs::write(ground.path().join("task"), b"two\nlines\0").unwrap();
    let args = CommandArgs {
        env_file: vec!["vars".into()],
        secret: vec!["K=a/b".into(), "T=acme:c".into()],
        payload: vec!["TASK=task".into()],
        cache: vec!["GOCACHE".into(), "npm_config_cache=npm".into()],
        ..CommandArgs::default()
    };
    let variables = collected(&args, ground.path()).unwrap();
    let found = &variables.environment;
    let line = found.iter().find(|d| d.key.to_string() == "X").unwrap();
    assert_eq!(line.value, Value::Literal("  'q' $H ".into()));
    assert!(line.origin.0.ends_with("vars, line 2"), "{}", line.origin);
    assert!(found.iter().any(|d| d.key.as_bytes() == b"N\xff"));
    let secrets: Vec<_> = requested(&variables)
        .into_iter()
        .filter(|(_, v)| v.starts_with('<'))
        .collect();
    assert_eq!(secrets[0].1, "<a/b>");
    assert_eq!(secrets[1].1, "<c of acme>");
    assert_eq!(&*variables.payloads[0].content, b"two\nlines\0");
    let caches: Vec<_> = variables
        .caches
        .iter()
        .map(|c| c.directory.display().to_string())
        .collect();
    assert_eq!(caches, ["/s/caches/gocache", "/s/caches/npm"]);
}

#[test]
fn c13_words_that_mean_nothing_are_refused_by_name() {
    let refused = |args: CommandArgs, word: &str| {
        let failing = collected(&args, Path::new("/nowhere-at-all")).unwrap_err();
        let text = format!("{failing:?}");
        assert!(text.contains(word), "{text}");
    };
    let cases: [(Flag, &str, &str); 24] = [
        (Flag::Env, "", "--env needs KEY=VALUE"),
        (Flag::Env, "=x", "must not be empty"),
        (Flag::Env, "NOT_SET_HERE", "is not set here"),
        (Flag::Env, "B\u{0}=1", "NUL"),
        (Flag::Secret, "K", "has no `=`"),
        (Flag::Secret, "=a", "must not be empty"),
        (Flag::Secret, "K=", "a secret's name"),
        (Flag::Secret, "K=../x", "a secret's name"),
        (Flag::Secret, "K=a b", "a secret's name"),
        (Flag::Secret, "K=:x", "--secret K=:x"),
        (Flag::Secret, "K=acme:", "a secret's name"),
        (Flag::Secret, "K=a/b:c", "--secret K=a/b:c"),
        (Flag::Secret, "K=runtime/x", "only groundcrew uses"),
        (Flag::Payload, "K", "has no `=`"),
        (Flag::Payload, "=f", "must not be empty"),
        (Flag::Payload, "K=", "the path is empty"),
        (Flag::Payload, "K=missing", "failed to read a payload"),
        (Flag::Payload, "K=~nobody-here/x", "another user's `~`"),
        (Flag::Cache, "GOCACHE=../x", "the name of a cache"),
        (Flag::Cache, "GOCACHE=", "the name of a cache"),
        (Flag::Cache, "GOCACHE=.hidden", "the name of a cache"),
        (Flag::Cache, "=x", "must not be empty"),
        (
            Flag::EnvFile,
            "missing",
            "failed to read the file of variables",
        ),
        (Flag::EnvFile, "", "the path is empty"),
    ];
    for (flag, word, why) in cases {
        refused(flag.with(word), why);
    }
}

#[derive(Clone, Copy)]
enum Flag {
    Env,
    Secret,
    Payload,
    Cache,
    EnvFile,
}

impl Flag {
    fn with(self, word: &str) -> CommandArgs {
        let (text, raw) = (vec![word.to_owned()], vec![OsString::from(word)]);
        let mut args = CommandArgs::default();
        match self {
            Self::Env => args.env = raw,
            Self::Secret => args.secret = text,
            Self::Payload => args.payload = raw,
            Self::Cache => args.cache = text,
            Self::EnvFile => args.env_file = raw,
        }
        args
    }
}

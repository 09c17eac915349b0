//! `secret`: what goes in by standard input comes out nowhere but where it is wanted.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use rustix::{
    process::Signal,
    termios::{LocalModes, tcgetattr},
};
use serde_json::json;

use crate::ground::{Call, Ground, Leaks, Outcome, Terminal, text, until};

const CANARY: &str = "CANARY-a8c1-of-the-command";

fn set(ground: &Ground, words: &[&str], value: impl Into<Vec<u8>>) -> Outcome {
    let words: Vec<_> = ["secret", "set"].iter().chain(words).copied().collect();
    ground.call(words).input(value).run()
}

fn secret(ground: &Ground, words: &[&str]) -> Outcome {
    let words: Vec<_> = ["secret"].iter().chain(words).copied().collect();
    ground.call(words).run()
}

fn names(outcome: &Outcome) -> Vec<(String, Option<String>)> {
    let document = outcome.json();
    assert_eq!(document["schema_version"], 1);
    let secrets = document["secrets"].as_array().unwrap();
    secrets
        .iter()
        .map(|s| {
            let tenant = s["tenant"].as_str().map(str::to_owned);
            (text(&s["name"]).to_owned(), tenant)
        })
        .collect()
}

/// Demands that the canary is in no file below a directory.
fn unseen(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            unseen(&path);
        } else if kind.is_file() {
            let bytes = fs::read(&path).unwrap();
            let found = bytes.windows(CANARY.len()).any(|w| w == CANARY.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
}

#[test]
fn secrets_are_set_listed_moved_and_removed() {
    let ground = Ground::new();
    secret(&ground, &["ls"]).ok().says("no secrets");
    assert!(!ground.state().exists());
    set(&ground, &["openai/api-key"], format!("{CANARY}\n")).ok().says("created openai/api-key");
    set(&ground, &["openai/api-key"], CANARY).ok().says("replaced openai/api-key");
    set(&ground, &["k", "--tenant", "t1"], CANARY).ok().says("created k of t1");
    let listed = secret(&ground, &["ls", "--format", "json"]).ok();
    assert_eq!(names(&listed), [("openai/api-key".to_owned(), None)]);
    let listed = secret(&ground, &["ls", "--all", "--format", "json"]).ok();
    assert_eq!(
        names(&listed),
        [("openai/api-key".to_owned(), None), ("k".to_owned(), Some("t1".to_owned()))]
    );
    let created = text(&listed.json()["secrets"][0]["created"]).to_owned();
    assert!(created.starts_with("20") && created.ends_with('Z'), "{created}");
    secret(&ground, &["mv", "k", "renamed", "--tenant", "t1", "--to-tenant", "t2"])
        .ok()
        .says("moved k of t1 to renamed of t2");
    secret(&ground, &["mv", "renamed", "renamed", "--tenant", "t2", "--to-installation"])
        .ok()
        .says("moved renamed of t2 to renamed");
    let table = secret(&ground, &["ls"]).ok().out();
    let firsts: Vec<_> = table.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(firsts, ["NAME", "openai/api-key", "renamed"]);
    let removed = secret(&ground, &["rm", "renamed", "--format", "json"]).ok().json();
    assert_eq!(
        removed,
        json!({"schema_version": 1, "name": "renamed", "tenant": null, "outcome": "removed"})
    );
    let moved = secret(&ground, &["mv", "openai/api-key", "o", "--format", "jsonl"]).ok();
    assert_eq!(
        moved.events(),
        [json!({"schema_version": 1, "event": "result", "name": "o", "tenant": null, "outcome": "moved",
                "from": {"name": "openai/api-key", "tenant": null}})]
    );
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let directory = ground.state().join("secrets");
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join("master.key")), 0o600);
    assert_eq!(mode(&directory.join("sealed")), 0o600);
    unseen(ground.root());
}

#[test]
fn a_secret_that_is_not_there_taken_or_no_secret_has_its_own_code() {
    let ground = Ground::new();
    for words in [&["rm", "a"][..], &["mv", "a", "b"], &["rm", "a", "--tenant", "t"]] {
        let words: Vec<_> = words.iter().chain(&["--format", "json"]).copied().collect();
        let error = secret(&ground, &words).code(3).error();
        assert_eq!(error["kind"], "not_found");
    }
    set(&ground, &["a"], "1").ok();
    set(&ground, &["b"], "2").ok();
    secret(&ground, &["mv", "a", "b"]).code(1).says("already");
    // One that exists for the installation does not for a tenant.
    secret(&ground, &["rm", "a", "--tenant", "t"]).code(3);
    for (words, value) in [
        (&["empty"][..], &b""[..]),
        (&["empty"], b"\n"),
        (&["runtime/x"], b"v"),
        (&["../x"], b"v"),
        (&["x", "--tenant", "a/b"], b"v"),
    ] {
        set(&ground, words, value).code(2);
    }
    set(&ground, &["big"], vec![b'x'; 1024 * 1024 + 1]).code(1).says("too long");
    secret(&ground, &["rm", "runtime/x"]).code(2);
    secret(&ground, &["mv", "a", "runtime/x"]).code(2);
    let listed = secret(&ground, &["ls", "--format", "json"]).ok();
    assert_eq!(names(&listed).len(), 2);
}

#[test]
fn w24_a_key_that_is_gone_fails_closed_and_nothing_is_made_anew() {
    let ground = Ground::new();
    set(&ground, &["a"], CANARY).ok();
    let directory = ground.state().join("secrets");
    let (key, sealed) = (directory.join("master.key"), directory.join("sealed"));
    let bytes = fs::read(&key).unwrap();
    let stored = fs::read(&sealed).unwrap();
    fs::remove_file(&key).unwrap();
    for words in [&["ls"][..], &["rm", "a"], &["mv", "a", "b"]] {
        secret(&ground, words).code(1).says("master key is missing");
    }
    set(&ground, &["b"], "v").code(1).says("master key is missing");
    assert!(!key.exists());
    fs::write(&key, &bytes[..31]).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    secret(&ground, &["ls"]).code(1).says("32 bytes");
    fs::write(&key, &bytes).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    secret(&ground, &["ls"]).code(1).says("chmod 600");
    assert_eq!(fs::read(&sealed).unwrap(), stored);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    secret(&ground, &["rm", "a"]).ok();
}

#[test]
fn w24_a_named_key_file_takes_the_place_of_the_own_one() {
    let ground = Ground::new();
    let key = ground.path("key");
    let call = |words: &[&str]| {
        let words: Vec<_> = ["secret"].iter().chain(words).copied().collect();
        ground.call(words).env("GROUNDCREW_MASTER_KEY_FILE", &key)
    };
    call(&["set", "a"]).input("v").run().code(1).says("does not exist");
    fs::write(&key, (0..32).collect::<Vec<u8>>()).unwrap();
    call(&["set", "a"]).input("v").run().code(1).says("open to other users");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    call(&["set", "a"]).input("v").run().ok();
    call(&["ls"]).run().ok().says("a");
    assert!(!ground.state().join("secrets/master.key").exists());
    secret(&ground, &["ls"]).code(1).says("master key is missing");
    let relative = ground.call(["secret", "ls"]).env("GROUNDCREW_MASTER_KEY_FILE", "key");
    relative.run().code(2).says("absolute");
}

#[test]
fn f142_a_value_is_in_no_argument_and_no_variable_while_it_is_stored() {
    let ground = Ground::new();
    let file = ground.file("value", CANARY);
    // The value is there before the command reads it to its end: its pipe stays open.
    let script = r#"program=$1; { cat "$2"; sleep 0.4; } | "$program" secret set a"#;
    let job = ground
        .call(["x"; 0])
        .through("/bin/sh", ["-c".into(), script.to_owned(), "sh".into()])
        .with_word(&file)
        .spawn();
    let mut seen = 0;
    while seen < 20 || !ground.state().join("secrets/sealed").exists() {
        for entry in fs::read_dir("/proc").unwrap() {
            let path = entry.unwrap().path();
            for part in ["cmdline", "environ"] {
                let bytes = fs::read(path.join(part)).unwrap_or_default();
                let found = bytes.windows(CANARY.len()).any(|w| w == CANARY.as_bytes());
                assert!(!found, "{}/{part}", path.display());
            }
        }
        seen += 1;
    }
    job.wait().ok();
    fs::remove_file(file).unwrap();
    unseen(ground.root());
}

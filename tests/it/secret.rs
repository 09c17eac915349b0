//! `secret`: what goes in by standard input comes out nowhere but where it is wanted.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use rustix::{
    process::Signal,
    termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr},
};
use serde_json::json;

use crate::ground::{Ground, Job, Outcome, Terminal, text, until};

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
    set(&ground, &["openai/api-key"], format!("{CANARY}\n"))
        .ok()
        .says("created openai/api-key");
    set(&ground, &["openai/api-key"], CANARY)
        .ok()
        .says("replaced openai/api-key");
    set(&ground, &["k", "--tenant", "t1"], CANARY)
        .ok()
        .says("created k of t1");
    let listed = secret(&ground, &["ls", "--format", "json"]).ok();
    assert_eq!(names(&listed), [("openai/api-key".to_owned(), None)]);
    let listed = secret(&ground, &["ls", "--all", "--format", "json"]).ok();
    assert_eq!(
        names(&listed),
        [
            ("openai/api-key".to_owned(), None),
            ("k".to_owned(), Some("t1".to_owned()))
        ]
    );
    let created = text(&listed.json()["secrets"][0]["created"]).to_owned();
    assert!(
        created.starts_with("20") && created.ends_with('Z'),
        "{created}"
    );
    secret(
        &ground,
        &["mv", "k", "renamed", "--tenant", "t1", "--to-tenant", "t2"],
    )
    .ok()
    .says("moved k of t1 to renamed of t2");
    secret(
        &ground,
        &[
            "mv",
            "renamed",
            "renamed",
            "--tenant",
            "t2",
            "--to-installation",
        ],
    )
    .ok()
    .says("moved renamed of t2 to renamed");
    let table = secret(&ground, &["ls"]).ok().out();
    let firsts: Vec<_> = table
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(firsts, ["NAME", "openai/api-key", "renamed"]);
    let removed = secret(&ground, &["rm", "renamed", "--format", "json"])
        .ok()
        .json();
    assert_eq!(
        removed,
        json!({"schema_version": 1, "name": "renamed", "tenant": null, "outcome": "removed"})
    );
    let moved = secret(&ground, &["mv", "openai/api-key", "o", "--format", "jsonl"]).ok();
    assert_eq!(
        moved.events(),
        [
            json!({"schema_version": 1, "event": "result", "name": "o", "tenant": null, "outcome": "moved",
                "from": {"name": "openai/api-key", "tenant": null}})
        ]
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
    for words in [
        &["rm", "a"][..],
        &["mv", "a", "b"],
        &["rm", "a", "--tenant", "t"],
    ] {
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
    set(&ground, &["big"], vec![b'x'; 1024 * 1024 + 1])
        .code(1)
        .says("too long");
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
    set(&ground, &["b"], "v")
        .code(1)
        .says("master key is missing");
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
    call(&["set", "a"])
        .input("v")
        .run()
        .code(1)
        .says("does not exist");
    fs::write(&key, (0..32).collect::<Vec<u8>>()).unwrap();
    call(&["set", "a"])
        .input("v")
        .run()
        .code(1)
        .says("open to other users");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    call(&["set", "a"]).input("v").run().ok();
    call(&["ls"]).run().ok().says("a");
    assert!(!ground.state().join("secrets/master.key").exists());
    secret(&ground, &["ls"])
        .code(1)
        .says("master key is missing");
    let relative = ground
        .call(["secret", "ls"])
        .env("GROUNDCREW_MASTER_KEY_FILE", "key");
    relative.run().code(2).says("absolute");
}

/// Starts `secret set` and gives it the value, but not the end of its input; returns its process number as well.
fn waiting(ground: &Ground) -> (Job, u32) {
    let script = r#"ulimit -c unlimited; echo "PID $$ STARTS" >&2; exec "$0" "$@""#;
    let mut job = ground
        .call(["secret", "set", "a"])
        .through("/bin/sh", ["-c", script])
        .held_input()
        .spawn();
    let said = job.until_err("STARTS");
    let pid = said.split_whitespace().nth(1).unwrap().parse().unwrap();
    job.write(CANARY.as_bytes());
    until("the command reads", || {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        // It has read everything once it waits for more.
        let wait = fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")).unwrap();
        words.starts_with(b"/") && wait.contains(" S ") && limit_of_cores(pid) == "0"
    });
    (job, pid)
}

fn limit_of_cores(pid: u32) -> String {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    line.unwrap().split_whitespace().nth(4).unwrap().to_owned()
}

#[test]
fn f142_a_value_is_in_no_argument_and_no_variable_while_it_is_stored() {
    let ground = Ground::new();
    let (mut job, _) = waiting(&ground);
    for entry in fs::read_dir("/proc").unwrap() {
        let path = entry.unwrap().path();
        for part in ["cmdline", "environ"] {
            let bytes = fs::read(path.join(part)).unwrap_or_default();
            let found = bytes.windows(CANARY.len()).any(|w| w == CANARY.as_bytes());
            assert!(!found, "{}/{part}", path.display());
        }
    }
    unseen(ground.root());
    job.close_input();
    let outcome = job.wait().ok();
    assert!(!(outcome.out() + &outcome.err()).contains(CANARY));
    unseen(ground.root());
}

#[test]
fn f145_a_value_that_is_being_stored_ends_in_no_core_file() {
    let ground = Ground::new();
    let (job, pid) = waiting(&ground);
    assert_eq!(limit_of_cores(pid), "0");
    job.signal(Signal::ABORT);
    assert_eq!(job.wait().signal, Some(6));
    unseen(ground.root());
}

#[test]
fn one_newline_at_the_end_is_dropped_unless_the_input_is_raw() {
    // What is stored is one byte longer with it: a sealed value has the length of the value.
    let size = |words: &[&str], value: &str| {
        let ground = Ground::new();
        set(&ground, words, value).ok();
        fs::metadata(ground.state().join("secrets/sealed"))
            .unwrap()
            .len()
    };
    let plain = size(&["a"], "v");
    assert_eq!(size(&["a"], "v\n"), plain);
    assert_eq!(size(&["a"], "v\n\n"), plain + 1);
    assert_eq!(size(&["a", "--raw"], "v\n"), plain + 1);
    assert_eq!(size(&["a", "--raw"], "v"), plain);
}

fn prompt(ground: &Ground) -> Terminal {
    let terminal = ground.call(["secret", "set", "a"]).in_terminal(24, 80);
    terminal.until_shown("value of a");
    assert!(is_silent(&terminal));
    terminal
}

fn is_silent(terminal: &Terminal) -> bool {
    !terminal.modes().local_modes.contains(LocalModes::ECHO)
}

#[test]
fn f144_a_value_that_is_typed_is_not_shown_and_the_terminal_is_as_it_was() {
    let ground = Ground::new();
    let (pty, _pts) = pty_process::blocking::open().unwrap();
    let fresh = tcgetattr(&pty).unwrap();
    let mut terminal = prompt(&ground);
    terminal.keys(format!("{CANARY}\r"));
    let outcome = terminal.wait().ok().says("created a");
    assert!(!outcome.out().contains(CANARY), "{outcome:?}");
    let after = terminal.modes();
    assert_eq!(after.local_modes, fresh.local_modes);
    assert_eq!(after.input_modes, fresh.input_modes);
    unseen(ground.root());
}

#[test]
fn a_prompt_that_is_left_stores_nothing_and_the_terminal_is_as_it_was() {
    type Leave = fn(&mut Terminal);
    let ways: [(i32, Leave); 6] = [
        (130, |t| t.keys("half\x03")),
        (131, |t| t.keys("half\x1c")),
        (143, |t| t.signal(Signal::TERM)),
        (129, |t| t.signal(Signal::HUP)),
        (2, |t| t.keys("\x04")),
        (2, |t| t.keys("\r")),
    ];
    for (code, leave) in ways {
        let ground = Ground::new();
        let mut terminal = prompt(&ground);
        leave(&mut terminal);
        terminal.wait().code(code);
        assert!(!is_silent(&terminal), "{code}");
        assert!(!ground.state().join("secrets").exists(), "{code}");
    }
}

#[test]
fn a_line_that_a_terminal_may_have_cut_off_is_refused() {
    let ground = Ground::new();
    let mut terminal = prompt(&ground);
    terminal.keys("x".repeat(5000));
    terminal.keys("\r");
    terminal.wait().code(1).says("through a pipe");
    assert!(!is_silent(&terminal));
    let mut terminal = prompt(&ground);
    terminal.keys("x".repeat(4000));
    terminal.keys("\r");
    terminal.wait().ok().says("created a");
}

#[test]
fn a_prompt_that_was_stopped_is_silent_again() {
    let ground = Ground::new();
    let mut terminal = prompt(&ground);
    let stdin = fs::File::open(format!("/proc/{}/fd/0", terminal.pid())).unwrap();
    terminal.signal(Signal::STOP);
    let mut shell = tcgetattr(&stdin).unwrap();
    shell.local_modes.insert(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Now, &shell).unwrap();
    drop(stdin);
    terminal.signal(Signal::CONT);
    until("it is silent", || is_silent(&terminal));
    terminal.keys(format!("{CANARY}\r"));
    let outcome = terminal.wait().ok().says("created a");
    assert!(!outcome.out().contains(CANARY), "{outcome:?}");
}

#[test]
fn g19_a_command_that_is_killed_while_it_waits_for_the_value_leaves_the_old_one() {
    let ground = Ground::new();
    set(&ground, &["a"], "old").ok();
    let before = fs::read(ground.state().join("secrets/sealed")).unwrap();
    let (job, _) = waiting(&ground);
    job.signal(Signal::KILL);
    assert_eq!(job.wait().signal, Some(9));
    assert_eq!(
        fs::read(ground.state().join("secrets/sealed")).unwrap(),
        before
    );
    secret(&ground, &["rm", "a"]).ok();
}

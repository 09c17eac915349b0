//! What of the caller's environment, words and directory reaches a command: all of it but a written list, byte for byte.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
};

use crate::ground::{Ground, text};

/// Reads what `env -0` printed.
fn variables(printed: &[u8]) -> Vec<(OsString, OsString)> {
    printed
        .split(|byte| *byte == 0)
        .filter(|part| !part.is_empty())
        .map(|part| {
            let at = part.iter().position(|byte| *byte == b'=').unwrap();
            let word = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
            (word(&part[..at]), word(&part[at + 1..]))
        })
        .collect()
}

fn value<'a>(variables: &'a [(OsString, OsString)], name: &str) -> Option<&'a OsStr> {
    let found = variables.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_os_str())
}

#[test]
fn c05_inherited_git_variables_redirect_neither_us_nor_the_command() {
    let ground = Ground::new();
    let target = ground.repository("target");
    let other = ground.repository("other");
    let (before, refs) = (other.fingerprint(), other.refs());
    let git = other.git_dir();
    let mut call = ground.run_in(&target, &["--keep"], ["env", "-0"]);
    for (name, place) in [
        ("GIT_DIR", git.clone()),
        ("GIT_WORK_TREE", other.path().to_owned()),
        ("GIT_COMMON_DIR", git.clone()),
        ("GIT_INDEX_FILE", git.join("index")),
        ("GIT_OBJECT_DIRECTORY", git.join("objects")),
        ("GIT_ALTERNATE_OBJECT_DIRECTORIES", git.join("objects")),
        ("GIT_NAMESPACE", "elsewhere".into()),
        ("GIT_PREFIX", "sub/".into()),
    ] {
        call = call.env(name, place);
    }
    let outcome = call.env("GIT_AUTHOR_NAME", "keepme").run().ok();
    assert!(
        other.fingerprint() == before,
        "the other repository was changed"
    );
    assert_eq!(other.refs(), refs);
    assert_eq!(other.worktree_entries(), [""; 0]);
    assert_eq!(target.worktree_entries().len(), 1);
    assert_eq!(target.git(["config", "core.bare"]), "false");
    let seen = variables(&outcome.stdout);
    for name in [
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_COMMON_DIR",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_NAMESPACE",
        "GIT_PREFIX",
    ] {
        assert_eq!(value(&seen, name), None, "{name}");
    }
    assert_eq!(value(&seen, "GIT_AUTHOR_NAME"), Some(OsStr::new("keepme")));
}

#[test]
fn f079_injected_git_configuration_runs_nothing_of_ours() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let canary = ground.path("canary");
    let monitor = ground.script(
        "monitor",
        &format!("#!/bin/sh\ntouch '{}'\n", canary.display()),
    );
    ground
        .run_in(&repository, &["--keep"], ["true"])
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "core.fsmonitor")
        .env("GIT_CONFIG_VALUE_0", &monitor)
        .run()
        .ok();
    assert!(
        !canary.exists(),
        "a program named by the environment was run"
    );
}

#[test]
fn c08_nesting_markers_and_our_own_controls_are_absent_and_generic_names_untouched() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let plain = ground.run_in(&repository, &[], ["env", "-0"]).run().ok();
    let plain = variables(&plain.stdout);
    for name in [
        "PORT",
        "HOST",
        "NODE_ENV",
        "GROUNDCREW_HOME",
        "GROUNDCREW_FAULT",
    ] {
        assert_eq!(value(&plain, name), None, "{name}");
    }
    let ours: Vec<_> = plain
        .iter()
        .filter(|(name, _)| name.as_bytes().starts_with(b"GROUNDCREW"))
        .map(|(name, _)| name.to_str().unwrap())
        .collect();
    for name in [
        "GROUNDCREW_RUN_ID",
        "GROUNDCREW_SESSION_ID",
        "GROUNDCREW_TASK_ID",
        "GROUNDCREW_WORKSPACE",
        "GROUNDCREW_BRANCH",
    ] {
        assert!(ours.contains(&name), "{name}: {ours:?}");
    }
    let nested = ground
        .run_in(&repository, &[], ["env", "-0"])
        .env("CLAUDECODE", "1")
        .env("CLAUDE_CODE_ENTRYPOINT", "cli")
        .env("NODE_ENV", "production")
        .env("PORT", "47111")
        .env("GROUNDCREW_RUN_ID", "outer")
        .run()
        .ok();
    let nested = variables(&nested.stdout);
    for name in ["CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT"] {
        assert_eq!(value(&nested, name), None, "{name}");
    }
    assert_eq!(value(&nested, "NODE_ENV"), Some(OsStr::new("production")));
    assert_eq!(value(&nested, "PORT"), Some(OsStr::new("47111")));
    assert_ne!(
        value(&nested, "GROUNDCREW_RUN_ID"),
        Some(OsStr::new("outer"))
    );
    // Apart from who it is and where it works, the command sees what the caller's shell has.
    let home = ground.root().join("home");
    assert_eq!(value(&plain, "HOME"), Some(home.as_os_str()));
}

#[test]
fn c12_values_arrive_byte_for_byte_inherited_and_given() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let values: [&[u8]; 9] = [
        b"-----BEGIN X-----\nab+/=\n-----END X-----\n",
        b"a=b==c",
        b"\"quoted\" 'single'",
        b"$HOME ${X} `id`",
        b"x # y",
        b"  lead and trail  ",
        "日本 🙂".as_bytes(),
        b"tab\tcr\r",
        b"",
    ];
    let mut inherited = ground.run_in(&repository, &[], ["env", "-0"]);
    let mut words: Vec<OsString> = vec!["run".into()];
    for (index, bytes) in values.iter().enumerate() {
        inherited = inherited.env(format!("V{index}"), OsStr::from_bytes(bytes));
        let mut word = format!("V{index}=").into_bytes();
        word.extend_from_slice(bytes);
        words.extend(["--env".into(), OsString::from_vec(word)]);
    }
    // What bash makes of an exported function.
    inherited = inherited.env("BASH_FUNC_f%%", "() {  echo hi\n}");
    let inherited = variables(&inherited.run().ok().stdout);
    words.extend(["--", "env", "-0"].map(OsString::from));
    let given = ground.call(words).directory(repository.path()).run().ok();
    let given = variables(&given.stdout);
    for (index, bytes) in values.iter().enumerate() {
        let name = format!("V{index}");
        let wanted = Some(OsStr::from_bytes(bytes));
        assert_eq!(value(&inherited, &name), wanted);
        assert_eq!(value(&given, &name), wanted);
    }
    assert_eq!(
        value(&inherited, "BASH_FUNC_f%%"),
        Some(OsStr::new("() {  echo hi\n}"))
    );
    let names = |seen: &[(OsString, OsString)]| {
        seen.iter()
            .filter(|(name, _)| name.as_bytes()[0] == b'V')
            .count()
    };
    assert_eq!((names(&inherited), names(&given)), (9, 9));
}

#[test]
fn a_given_variable_is_stronger_than_an_inherited_one() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let argv = ["sh", "-c", "echo \"$A\""];
    let call = ground.run_in(&repository, &["--env", "A=given"], argv);
    assert_eq!(call.env("A", "inherited").run().ok().out(), "given\n");
}

#[test]
fn c13_words_arrive_as_they_are() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let tools = ground.path("my tools");
    fs::create_dir(&tools).unwrap();
    let agent = ground.script(
        "my tools/agent",
        "#!/bin/sh\nfor a in \"$@\"; do printf '[%s]\\0' \"$a\"; done\n",
    );
    let words = [
        "- first point",
        "--help",
        "--",
        "$(touch PWNED)",
        "`touch PWNED`",
        "\"; touch PWNED; \"",
        "two\nlines",
        "it's",
        "a\\b",
        "*",
        "",
        "-i",
        "--format",
        "~",
    ];
    let argv = [agent.as_os_str()]
        .into_iter()
        .chain(words.iter().map(OsStr::new));
    let outcome = ground.run_in(&repository, &["--keep"], argv).run().ok();
    let wanted: String = words
        .iter()
        .fold(String::new(), |all, word| all + &format!("[{word}]\0"));
    assert_eq!(outcome.out(), wanted);
    let workspace = crate::ground::path(&ground.runs(false)[0]["workspace"]);
    for place in [workspace.as_path(), repository.path()] {
        assert!(!place.join("PWNED").exists());
    }
}

#[test]
fn c36_one_odd_byte_crashes_nobody() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let outcome = ground
        .run_in(
            &repository,
            &[],
            ["sh", "-c", "printf %s \"$BAD\" | od -An -tx1"],
        )
        .env("BAD", OsStr::from_bytes(b"\xa3"))
        .env(OsStr::from_bytes(b"N\xff"), "1")
        .run()
        .ok();
    assert_eq!(outcome.out().trim(), "a3");
    let argv = [
        OsStr::new("printf"),
        OsStr::new("%s"),
        OsStr::from_bytes(b"\xfe"),
    ];
    let outcome = ground.run_in(&repository, &[], argv).run().ok();
    assert_eq!(outcome.stdout, b"\xfe");
}

#[test]
fn c36_a_repository_below_an_odd_directory_works() {
    let ground = Ground::new();
    let repository = ground.repository(OsStr::from_bytes(b"repo\xff"));
    let call = ground.run_in(&repository, &["--keep"], ["cat", "f"]);
    assert_eq!(call.run().ok().out(), "base\n");
    let run = &ground.runs(false)[0];
    assert_eq!(
        run["repository"]["base64"].as_str().map(str::is_empty),
        Some(false),
        "{run:#}"
    );
    ground.call(["rm", text(&run["id"])]).run().ok();
    assert_eq!(repository.branches(), ["main"]);
}

#[test]
fn f057_a_state_directory_with_a_very_long_path_works() {
    let inner = "a-rather-long-name-of-a-directory/".repeat(5);
    let ground = Ground::below(&inner);
    let repository = ground.repository("r");
    assert!(ground.state().as_os_str().len() > 150);
    let run = ground.detached(&repository, &[], "echo UP; echo work >w; exec sleep 600");
    let id = text(&run["id"]);
    ground.call(["logs", "-f", id]).spawn().until_out("UP");
    ground.call(["stop", "--grace", "0s", id]).run().ok();
    ground.call(["rm", "--force", id]).run().ok();
    ground.until_quiet();
}

#[test]
fn without_an_identity_of_the_user_commits_still_work() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "echo x >x && git add x && git commit -qm x && git log -1 --format='%an <%ae>'";
    let outcome = ground.run_shell(&repository, &[], script).run().ok();
    assert!(outcome.out().contains('@'), "{outcome:?}");
    // The user's own is stronger.
    fs::write(
        ground.root().join("home/.gitconfig"),
        "[user]\n\tname = Me\n\temail = me@example.invalid\n",
    )
    .unwrap();
    let outcome = ground.run_shell(&repository, &[], script).run().ok();
    assert_eq!(outcome.out(), "Me <me@example.invalid>\n");
}

#[test]
fn f037_a_program_is_not_taken_from_the_workspace() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    repository.write("tool", "#!/bin/sh\necho STOLEN\n");
    repository.git(["update-index", "--add", "--chmod=+x", "tool"]);
    repository.git(["commit", "-qm", "tool"]);
    let outcome = ground
        .run_in(&repository, &[], ["tool"])
        .env("PATH", "/usr/bin:/bin")
        .run()
        .code(127);
    assert!(!outcome.out().contains("STOLEN"), "{outcome:?}");
}

//! Variables by every way in: files, settings, payloads and caches, each explained by `plan --env`.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use crate::ground::{Ground, path, text};

/// The values that are most often damaged on their way.
const VALUES: [&[u8]; 9] = [
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

/// Prints each of the values between brackets.
const PRINT: &str = "for n in 0 1 2 3 4 5 6 7 8; do eval \"printf '[%s]' \\\"\\$V$n\\\"\"; done; env | grep -c '^V[0-9]='";

fn printed() -> Vec<u8> {
    let mut all: Vec<u8> = VALUES
        .iter()
        .flat_map(|value| [b"[", *value, b"]"].concat())
        .collect();
    all.extend(b"9\n");
    all
}

fn settings(ground: &Ground, text: impl AsRef<[u8]>) -> PathBuf {
    let directory = ground.root().join("home/.config/groundcrew");
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join("config.toml");
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn c12_values_arrive_byte_for_byte_out_of_a_file_of_variables() {
    let ground = Ground::new();
    let mut lines = b"# as they stand\n\n".to_vec();
    for (index, value) in VALUES.iter().enumerate() {
        if value.contains(&b'\n') {
            lines.extend(format!("V{index}<<END\n").bytes());
            lines.extend(*value);
            lines.extend(b"\nEND\n");
        } else {
            lines.extend(format!("V{index}=").bytes());
            lines.extend(*value);
            lines.push(b'\n');
        }
    }
    let file = ground.path("vars");
    fs::write(&file, lines).unwrap();
    let words = [
        OsStr::new("run"),
        OsStr::new("--env-file"),
        file.as_os_str(),
    ];
    let words = words
        .into_iter()
        .chain(["--", "sh", "-c", PRINT].map(OsStr::new));
    assert_eq!(ground.call(words).run().ok().stdout, printed());
}

#[test]
fn c12_values_arrive_byte_for_byte_out_of_the_settings() {
    let ground = Ground::new();
    let lines = VALUES.iter().enumerate().map(|(index, value)| {
        let value = std::str::from_utf8(value).unwrap();
        format!("V{index} = {}\n", serde_json::to_string(value).unwrap())
    });
    settings(
        &ground,
        format!("[environment]\n{}", lines.collect::<String>()),
    );
    let outcome = ground.call(["run", "--", "sh", "-c", PRINT]).run().ok();
    assert_eq!(outcome.stdout, printed());
}

#[test]
fn c12_what_is_wrong_with_a_file_is_told_with_its_line_and_nothing_is_made() {
    let ground = Ground::new();
    let file = ground.path("vars");
    fs::write(&file, "A=1\nexport B=2\n").unwrap();
    let words = [
        OsStr::new("run"),
        OsStr::new("--env-file"),
        file.as_os_str(),
        OsStr::new("--"),
        OsStr::new("true"),
    ];
    let outcome = ground.call(words).run().code(125);
    assert!(
        outcome.err().contains("line=2") && outcome.err().contains("export"),
        "{outcome:?}"
    );
    let file = settings(&ground, "[environment]\nA = 1\n");
    let outcome = ground.call(["run", "--", "true"]).run().code(125);
    assert!(outcome.err().contains("line=2"), "{outcome:?}");
    assert!(
        outcome.err().contains(&*file.to_string_lossy()),
        "{outcome:?}"
    );
    fs::remove_file(file).unwrap();
    assert_eq!(ground.runs(true).len(), 0);
}

#[test]
fn settings_that_are_wrong_stop_what_needs_them_and_nothing_else() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = ground.detached(&repository, &[], "exec sleep 600");
    let id = text(&run["id"]);
    settings(&ground, "[environment\n");
    let profiles = ground.root().join("home/.config/groundcrew/profiles");
    fs::create_dir_all(&profiles).unwrap();
    fs::write(profiles.join("codex.toml"), "name = 3").unwrap();
    for words in [
        &["ls"][..],
        &["show", id],
        &["stop", "--grace", "0s", id],
        &["logs", id],
        &["recover"],
        &["close", id],
        &["doctor"],
    ] {
        ground.call(words).run().ok();
    }
    ground
        .call(["run", "--", "true"])
        .run()
        .code(125)
        .says("line=1");
}

#[test]
fn c17_a_directory_of_path_in_the_settings_is_below_home_and_finds_the_agent() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    settings(&ground, "[paths]\nsearch = [\"~/bin\"]\n");
    fs::create_dir_all(ground.root().join("home/bin")).unwrap();
    let script = ground.script("my-agent", "#!/bin/sh\necho found\n");
    fs::rename(script, ground.root().join("home/bin/my-agent")).unwrap();
    let outcome = ground.run_in(&repository, &[], ["my-agent"]).run().ok();
    assert_eq!(outcome.out(), "found\n");
    settings(&ground, "[paths]\nsearch = [\"~nobody-here/bin\"]\n");
    let outcome = ground
        .run_in(&repository, &[], ["my-agent"])
        .run()
        .code(125);
    assert!(outcome.err().contains("~nobody-here"), "{outcome:?}");
    let tilde = walk(ground.root())
        .into_iter()
        .find(|path| path.file_name() == Some(OsStr::new("~")));
    assert_eq!(tilde, None);
}

fn walk(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(walk(&entry.path()));
        }
        found.push(entry.path());
    }
    found
}

#[test]
fn k23_c35_w21_a_large_payload_is_a_private_file_outside_the_worktree_and_goes_with_the_run() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    for size in [65_536_usize, 65_537, 131_071, 131_072, 300_000, 3_000_000] {
        let content: Vec<u8> = (0..size).map(|n| b"abcdefgh\n"[n % 9]).collect();
        let file = ground.path("task");
        fs::write(&file, &content).unwrap();
        let word = [OsStr::new("TASK="), file.as_os_str()].concat_os();
        let script = "if [ -n \"$TASK_PATH\" ]; then cmp \"$TASK_PATH\" \"$0\" && echo same; stat -c %a \"$TASK_PATH\" \"${TASK_PATH%/*}\"; \
            echo \"$TASK_PATH\"; echo \"${TASK-absent}\"; git status --porcelain; else printf %s \"$TASK\" | cmp - \"$0\" && echo same; fi";
        let words = [
            OsStr::new("run"),
            OsStr::new("--keep"),
            OsStr::new("--payload"),
            &word,
        ];
        let words = words
            .into_iter()
            .chain(["--", "sh", "-c", script].map(OsStr::new));
        let words = words.chain([file.as_os_str()]);
        let outcome = ground.call(words).directory(repository.path()).run().ok();
        let out = outcome.out();
        let mut lines = out.lines();
        assert_eq!(lines.next(), Some("same"), "{size}");
        if size <= 65_536 {
            assert_eq!(lines.next(), None);
            continue;
        }
        assert_eq!((lines.next(), lines.next()), (Some("600"), Some("700")));
        let place = PathBuf::from(lines.next().unwrap());
        assert_eq!(lines.next(), Some("absent"));
        assert_eq!(lines.next(), None, "git sees nothing of it");
        assert!(place.starts_with(ground.state()), "{}", place.display());
        assert!(!place.exists(), "it went with the instance");
    }
}

#[test]
fn k28_k29_a_cache_directory_outlives_runs_and_is_the_same_for_all() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    settings(&ground, "[caches]\nGOCACHE = \"go-build\"\n");
    let script = "echo \"$GOCACHE $TOOL_CACHE\"; echo x >>\"$GOCACHE/f\"; wc -l <\"$GOCACHE/f\"";
    for count in 1..=2 {
        let outcome = ground
            .run_in(
                &repository,
                &["--cache", "TOOL_CACHE"],
                ["sh", "-c", script],
            )
            .env("GOCACHE", "/the/caller/has/another")
            .run()
            .ok();
        let caches = ground.state().join("caches");
        let (go, tool) = (caches.join("go-build"), caches.join("tool_cache"));
        let wanted = format!("{} {}\n{count}\n", go.display(), tool.display());
        assert_eq!(outcome.out(), wanted);
        for directory in [go, tool] {
            assert_eq!(
                fs::metadata(directory).unwrap().permissions().mode() & 0o777,
                0o700
            );
        }
    }
}

#[test]
fn k30_w16_an_executor_that_is_not_there_is_refused_and_none_takes_its_place() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let outcome = ground
        .run_in(&repository, &["--executor", "microvm"], ["true"])
        .run()
        .code(125);
    for word in ["microvm", "local", "worktree"] {
        assert!(outcome.err().contains(word), "{outcome:?}");
    }
    assert_eq!(ground.runs(true).len(), 0);
}

#[test]
fn plan_explains_every_variable_and_shows_no_secret() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    settings(&ground, "[environment]\nEDITOR = \"settings-editor\"\n");
    let call = |words: &[&str]| {
        let words = ["plan"].iter().chain(words).chain(&[
            "--env",
            "EDITOR=vi",
            "--secret",
            "KEY=openai/key",
            "--env",
            "--",
            "true",
        ]);
        ground
            .call(words)
            .directory(repository.path())
            .env("EDITOR", "callers-editor")
            .env("MY_TOKEN", "hunter2-hunter2")
            .run()
            .ok()
    };
    let human = call(&[]).out();
    for line in [
        "  EDITOR=vi  (--env)",
        "      instead of the one of config.toml",
        "      instead of the one of caller's environment",
        "  KEY=<secret openai/key>  (--secret)",
        "  MY_TOKEN=<not shown>  (caller's environment)",
    ] {
        assert!(human.lines().any(|shown| shown == line), "{line}\n{human}");
    }
    assert!(
        !human.contains("hunter2") && !human.contains("callers-editor"),
        "{human}"
    );
    let json = call(&["--format", "json"]).json();
    let variables = json["environment"].as_array().unwrap();
    let editor = variables.iter().find(|v| v["name"] == "EDITOR").unwrap();
    let losers = editor["overridden"].as_array().unwrap();
    let losers: Vec<_> = losers.iter().map(|lost| text(&lost["origin"])).collect();
    assert_eq!(losers, ["caller's environment", "config.toml"]);
    let workspace = path(&json["workspace"]);
    assert!(!workspace.exists(), "a plan has no effect");
    // Without the flag a person sees how many there are.
    let brief = ground
        .call(["plan", "--", "true"])
        .directory(repository.path())
        .run()
        .ok()
        .out();
    assert!(
        brief.contains("listed by --env") && !brief.contains("EDITOR"),
        "{brief}"
    );
}

#[test]
fn c35_too_large_an_environment_is_refused_with_sizes_before_anything_is_made() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let large = "x".repeat(140_000);
    let file = ground.path("vars");
    fs::write(&file, format!("LARGE={large}\n")).unwrap();
    let words = [
        OsStr::new("run"),
        OsStr::new("--env-file"),
        file.as_os_str(),
        OsStr::new("--"),
        OsStr::new("true"),
    ];
    let outcome = ground
        .call(words)
        .directory(repository.path())
        .run()
        .code(125);
    for word in ["LARGE", "140006", "131071"] {
        assert!(outcome.err().contains(word), "{outcome:?}");
    }
    let many: Vec<_> = (0..3_000)
        .map(|n| format!("V{n}={}\n", "y".repeat(1_000)))
        .collect();
    fs::write(&file, many.concat()).unwrap();
    let words = [
        OsStr::new("run"),
        OsStr::new("--env-file"),
        file.as_os_str(),
        OsStr::new("--"),
        OsStr::new("true"),
    ];
    let outcome = ground
        .call(words)
        .directory(repository.path())
        .run()
        .code(125);
    assert!(outcome.err().contains("limit=2097152"), "{outcome:?}");
    assert_eq!(ground.runs(true).len(), 0);
    assert_eq!(repository.branches(), ["main"]);
}

#[test]
fn f146_a_killed_launch_leaves_no_payload_behind() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let file = ground.path("task");
    fs::write(&file, vec![b'p'; 100_000]).unwrap();
    let word = [OsStr::new("TASK="), file.as_os_str()].concat_os();
    for point in ["equip.after", "start.after", "commit.before"] {
        let words = [OsStr::new("run"), OsStr::new("--payload"), &word];
        let words = words
            .into_iter()
            .chain(["--", "sleep", "600"].map(OsStr::new));
        let outcome = ground
            .call(words)
            .directory(repository.path())
            .fault(&format!("{point}=kill9"))
            .run();
        assert_eq!(outcome.code, None, "{point}: {outcome:?}");
        ground.call(["recover"]).run().ok();
        let left: Vec<_> = walk(ground.state())
            .into_iter()
            .filter(|path| {
                fs::symlink_metadata(path)
                    .is_ok_and(|found| found.is_file() && found.size() == 100_000)
            })
            .collect();
        assert_eq!(left, Vec::<PathBuf>::new(), "{point}");
    }
}

/// Joins pieces of a word.
trait ConcatOs {
    fn concat_os(&self) -> OsString;
}

impl ConcatOs for [&OsStr; 2] {
    fn concat_os(&self) -> OsString {
        OsStr::from_bytes(&[self[0].as_bytes(), self[1].as_bytes()].concat()).to_owned()
    }
}

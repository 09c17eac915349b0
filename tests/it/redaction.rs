//! Secrets on their way into a run and nowhere else: stored sealed, revealed to the command, hidden in all that is shown.

use std::{
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
};

use crate::ground::{Call, Ground, Outcome, Repository, text};

const LINES: &str = "first-line-abcdef\nsecond-line-ghijkl";
const TOKEN: &str = "plain-token-123456";

/// Stores a secret as a user does: by standard input.
fn store(ground: &Ground, name: &str, value: &str) {
    ground
        .call(["secret", "set", "--raw", name])
        .input(value)
        .run()
        .ok();
}

fn with_secrets(ground: &Ground) {
    store(ground, "lines", LINES);
    store(ground, "letter", "e");
    store(ground, "token", TOKEN);
}

const GIVEN: [&str; 6] = [
    "--secret",
    "S1=lines",
    "--secret",
    "S2=letter",
    "--secret",
    "S3=token",
];

/// Prints secrets whole, by lines, and cut in two writes.
const TELL: &str = "printf '%s\\n' \"$S1\"; printf plain-tok; sleep 0.3; printf 'en-123456\\n'; echo 'eleven here'; \
    printf '%s' \"$S3\" | base64; echo \"to stderr: $S3\" >&2; exit 9";

fn hides(outcome: &Outcome) {
    let all = [outcome.stdout.as_slice(), &outcome.stderr].concat();
    let all = String::from_utf8_lossy(&all);
    let encoded = "cGxhaW4tdG9rZW4tMTIzNDU2";
    for value in ["first-line-abcdef", "second-line-ghijkl", TOKEN, encoded] {
        assert!(!all.contains(value), "{value} is shown: {outcome:?}");
    }
}

#[test]
fn c14_secrets_are_hidden_in_the_live_view_the_log_and_documents() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    with_secrets(&ground);
    let run = |format: &str| {
        let words = [
            &["run", "--format", format, "--keep"][..],
            &GIVEN,
            &["--", "sh", "-c", TELL],
        ]
        .concat();
        ground
            .call(words)
            .directory(repository.path())
            .run()
            .code(9)
    };
    let human = run("human");
    hides(&human);
    assert!(human.out().contains("eleven here"), "{human:?}");
    assert!(
        human.err().contains("to stderr: ******************"),
        "{human:?}"
    );
    // Every byte keeps its place: what is hidden is as long as it was.
    let hidden = "*".repeat(LINES.len());
    assert!(human.out().starts_with(&format!("{hidden}\n")), "{human:?}");
    hides(&run("json"));
    let jsonl = run("jsonl");
    hides(&jsonl);
    let mut behind = 0;
    for event in jsonl
        .events()
        .iter()
        .filter(|event| event["event"] == "output" && event["stream"] == "stdout")
    {
        assert!(event["offset"].as_u64().unwrap() >= behind);
        behind = event["offset"].as_u64().unwrap() + text(&event["text"]).len() as u64;
    }
    for run in ground.runs(false) {
        let id = text(&run["id"]);
        for words in [
            &["logs", id][..],
            &["logs", "--format", "json", id],
            &["logs", "--format", "jsonl", id],
            &["attach", id],
        ] {
            let shown = ground.call(words).run();
            hides(&shown);
            assert!(shown.out().contains("eleven here"), "{shown:?}");
        }
        // Whoever asks for it gets what was recorded.
        let raw = ground.call(["logs", "--raw", id]).run().ok();
        assert!(raw.out().contains(TOKEN), "{raw:?}");
        for words in [
            &["show", id][..],
            &["show", "--format", "json", id],
            &["ls", "--all"],
        ] {
            hides(&ground.call(words).run().ok());
        }
    }
}

#[test]
fn c14_a_command_that_cannot_start_tells_no_secret() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    with_secrets(&ground);
    // The error names the program, and the program's name holds a secret.
    let program = ground.path(format!("missing-{TOKEN}"));
    let words = [&["run"][..], &GIVEN, &["--"]].concat();
    let words = words.into_iter().map(OsString::from);
    let words: Vec<_> = words.chain([program.into_os_string()]).collect();
    for format in ["human", "json", "jsonl"] {
        let words = words.iter().cloned().chain([]);
        let mut words: Vec<_> = words.collect();
        words.insert(1, format!("--format={format}").into());
        let outcome = ground
            .call(words)
            .directory(repository.path())
            .run()
            .code(127);
        hides(&outcome);
    }
}

#[test]
fn k10_k11_a_secret_reaches_the_command_and_one_that_is_not_there_starts_nothing() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    with_secrets(&ground);
    let script = "printf %s \"$S1\" | cksum; printf %s \"$0\" | cksum";
    let words = [&["run"][..], &GIVEN, &["--", "sh", "-c", script, LINES]].concat();
    let outcome = ground.call(words).directory(repository.path()).run().ok();
    let sums: Vec<_> = outcome.out().lines().map(str::to_owned).collect();
    assert_eq!(sums[0], sums[1]);
    let call = |name: &str| {
        let word = format!("K={name}");
        let words = ["run", "--format", "json", "--secret", &word, "--", "true"];
        ground.call(words).directory(repository.path())
    };
    let error = call("nobody-knows").run().code(125).error();
    assert_eq!(error["kind"], "secret_unavailable");
    // A tenant's secret is not looked for among the installation's own.
    let error = call("acme:token").run().code(125).error();
    assert_eq!(error["kind"], "secret_unavailable");
    assert_eq!(repository.branches().len(), 1);
}

#[test]
fn k25_later_edits_and_deletions_do_not_change_a_run() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    with_secrets(&ground);
    let run = ground.detached(&repository, &["--secret", "S3=token"], "printf %s \"$S3\" | cksum; while [ ! -e go ]; do sleep 0.05; done; printf %s \"$S3\" | cksum");
    let id = text(&run["id"]);
    ground.call(["logs", "-f", id]).spawn().until_out(" 18");
    ground.call(["secret", "rm", "token"]).run().ok();
    fs::write(crate::ground::path(&run["workspace"]).join("go"), "").unwrap();
    ground.until_state(id, "exited");
    let log = ground.call(["logs", id]).run().ok();
    let sums: Vec<_> = log.out().lines().map(str::to_owned).collect();
    assert_eq!((sums.len(), &sums[0]), (2, &sums[1]));
}

#[test]
fn w24_a_key_that_is_wrong_reveals_nothing_and_is_not_replaced() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    with_secrets(&ground);
    let keys: Vec<PathBuf> = files(ground.state())
        .into_iter()
        .filter(|path| path.to_string_lossy().contains("key"))
        .collect();
    let key = keys.first().expect("a file of the key");
    let before = fs::read(key).unwrap();
    fs::write(key, b"short").unwrap();
    let words = [&["run"][..], &GIVEN, &["--", "true"]].concat();
    let outcome = ground
        .call(words)
        .directory(repository.path())
        .run()
        .code(125);
    hides(&outcome);
    assert_eq!(fs::read(key).unwrap(), b"short");
    ground
        .call(["secret", "set", "more"])
        .input("value-of-more")
        .run()
        .code(1);
    fs::write(key, before).unwrap();
    let words = [&["run"][..], &GIVEN, &["--", "true"]].concat();
    ground.call(words).directory(repository.path()).run().ok();
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => found.extend(files(&entry.path())),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

/// A value that cannot be mistaken for anything, and the forms in which it could leak.
const CANARY: &str = "canary/5fQ+9zLw\"K7 0vXe";

fn forms() -> Vec<Vec<u8>> {
    let hex: Vec<_> = CANARY.bytes().map(|b| format!("{b:02x}")).collect();
    let percent: String = CANARY
        .bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect();
    let json = serde_json::to_string(CANARY).unwrap();
    [
        CANARY.to_owned(),
        "Y2FuYXJ5LzVmUSs5ekx3Iks3IDB2WG".to_owned(),
        percent,
        hex.concat(),
        json.trim_matches('"').to_owned(),
    ]
    .map(String::into_bytes)
    .into()
}

fn holds(bytes: &[u8]) -> bool {
    forms().iter().any(|form| {
        bytes
            .windows(form.len())
            .any(|found| found == form.as_slice())
    })
}

#[derive(Default)]
struct Hits(Vec<String>);

impl Hits {
    fn look(&mut self, sink: &str, bytes: &[u8]) {
        if holds(bytes) {
            self.0.push(sink.to_owned());
        }
    }

    fn call(&mut self, sink: &str, call: Call) -> Outcome {
        let outcome = call.run();
        self.look(&format!("{sink}: stdout"), &outcome.stdout);
        self.look(&format!("{sink}: stderr"), &outcome.stderr);
        outcome
    }
}

/// Starts an agent that holds the canary and tells nothing.
fn holder(ground: &Ground, repository: &Repository) -> String {
    let run = ground.detached(
        repository,
        &["--secret", "CANARY=canary"],
        "echo UP; exec sleep 600",
    );
    let id = text(&run["id"]).to_owned();
    ground.call(["logs", "-f", &id]).spawn().until_out("UP");
    id
}

/// 1 and 2: arguments of every process, environments of every other one.
fn in_processes(hits: &mut Hits) {
    let mut holders = 0;
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let path = process.path();
        if process
            .file_name()
            .to_string_lossy()
            .parse::<u32>()
            .is_err()
        {
            continue;
        }
        let name = path.display().to_string();
        hits.look(
            &format!("{name}/cmdline"),
            &fs::read(path.join("cmdline")).unwrap_or_default(),
        );
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        if holds(&environment) {
            holders += 1;
            assert!(
                environment.windows(17).any(|w| w == b"GROUNDCREW_RUN_ID"),
                "{name}"
            );
        }
    }
    assert_eq!(holders, 1, "the command alone has it in its environment");
}

/// 6 to 9: what is listed, shown and planned, in every format.
fn in_answers(ground: &Ground, repository: &Repository, id: &str, hits: &mut Hits) {
    for format in ["human", "json", "jsonl"] {
        for words in [
            &["ls"][..],
            &["show", id],
            &["logs", id],
            &["secret", "ls"],
            &["doctor"],
            &["recover"],
        ] {
            let words = [words, &["--format", format]].concat();
            hits.call(&format!("{words:?}"), ground.call(words));
        }
        let words = [
            "plan",
            "--format",
            format,
            "--secret",
            "CANARY=canary",
            "--env",
            "--",
            "true",
        ];
        hits.call("plan", ground.call(words).directory(repository.path()))
            .ok();
    }
}

/// 10 and 11: events and errors of launches that fail, by an error and by a panic.
fn in_failures(ground: &Ground, repository: &Repository, hits: &mut Hits) {
    for (point, how) in [
        ("start.before", "error"),
        ("register.after", "panic"),
        ("create.after", "error"),
    ] {
        for format in ["human", "json", "jsonl"] {
            let words = [
                "run",
                "--format",
                format,
                "--secret",
                "CANARY=canary",
                "--",
                "true",
            ];
            let call = ground
                .call(words)
                .directory(repository.path())
                .fault(&format!("{point}={how}"));
            hits.call("a failed launch", call);
        }
    }
}

#[test]
fn f142_f143_f144_f145_a_secret_is_in_none_of_twelve_sinks_in_none_of_five_forms() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let mut hits = Hits::default();
    let set = ground
        .call(["secret", "set", "--raw", "canary"])
        .input(CANARY);
    hits.call("secret set", set).ok();
    let id = holder(&ground, &repository);
    in_processes(&mut hits);
    // 3 to 5: the database, the instance's directory, logs: every file below the state directory and the repository.
    for place in [ground.state(), repository.path()] {
        for file in files(place) {
            hits.look(&file.display().to_string(), &fs::read(&file).unwrap());
        }
    }
    in_answers(&ground, &repository, &id, &mut hits);
    in_failures(&ground, &repository, &mut hits);
    // 12: what a crash leaves: no core is dumped by a command, wherever it is killed.
    let words = [
        "run",
        "--keep",
        "--secret",
        "CANARY=canary",
        "--",
        "sh",
        "-c",
        "kill -SEGV $$",
    ];
    let crashed = hits.call("a crash", ground.call(words).directory(repository.path()));
    assert_eq!(crashed.code, Some(139), "{crashed:?}");
    for file in files(ground.root()) {
        hits.look(
            &format!("after a crash: {}", file.display()),
            &fs::read(&file).unwrap(),
        );
    }
    ground.call(["stop", "--grace", "0s", &id]).run().ok();
    for file in files(ground.state()) {
        hits.look(
            &format!("at rest: {}", file.display()),
            &fs::read(&file).unwrap(),
        );
    }
    assert_eq!(hits.0, Vec::<String>::new());
    assert!(OsStr::new(CANARY).len() > 16);
}

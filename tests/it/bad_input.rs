//! Bad input: a clear error that names the thing and what to do, and nothing left behind.

use std::{fs, path::Path};

use serde_json::Value;

use crate::ground::{Ground, Leaks, Repository, text};

/// A call that must be refused.
struct Refused<'a> {
    options: &'a [&'a str],
    argv: &'a [&'a str],
    code: i32,
    kind: &'a str,
    /// All of these stand in the error.
    named: &'a [&'a str],
}

impl Refused<'_> {
    /// Makes the call, in both formats.
    fn check(&self, ground: &Ground, repository: &Repository, leaks: &Leaks<'_>) {
        let call = |format: &[&str]| {
            let options: Vec<_> = format.iter().chain(self.options).copied().collect();
            ground.run_in(repository, &options, self.argv).run()
        };
        let document = call(&["--format", "json"]);
        assert_eq!(document.code, Some(self.code), "{document:?}");
        let error: Value = document.error();
        assert_eq!(error["kind"], self.kind, "{document:?}");
        let human = call(&[]);
        assert_eq!(human.code, Some(self.code), "{human:?}");
        assert_eq!(human.out(), "", "{human:?}");
        for named in self.named {
            assert!(error.to_string().contains(named), "{named}: {document:?}");
            assert!(human.err().contains(named), "{named}: {human:?}");
        }
        assert!(!human.err().contains("panicked"), "{human:?}");
        leaks.none(&document.call);
    }
}

#[test]
fn f029_f030_f031_what_cannot_be_executed_is_told_apart() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let plain = ground.file("plain", "#!/bin/sh\n");
    let orphan = ground.script("orphan", "#!/no/such/interpreter\n");
    let garbage = ground.script("garbage", "\u{1}\u{2}\u{3} no program\n");
    let directory = ground.path("directory");
    fs::create_dir(&directory).unwrap();
    let leaks = Leaks::watch(&ground, &[&repository]);
    let word = |path: &Path| path.to_str().unwrap().to_owned();
    let table = [
        (
            "no-such-program".to_owned(),
            127,
            "program_not_found",
            "no-such-program",
        ),
        (
            "/nonexistent/agent".to_owned(),
            127,
            "program_not_found",
            "/nonexistent/agent",
        ),
        (
            word(&orphan),
            126,
            "interpreter_not_found",
            "/no/such/interpreter",
        ),
        (word(&plain), 126, "not_executable", "plain"),
        (word(&directory), 126, "not_executable", "directory"),
        (word(&garbage), 126, "not_executable", "garbage"),
    ];
    for (program, code, kind, named) in &table {
        for options in [&[][..], &["--executor", "local"]] {
            let refused = Refused {
                options,
                argv: &[program],
                code: *code,
                kind,
                named: &[named],
            };
            refused.check(&ground, &repository, &leaks);
        }
    }
}

#[test]
fn f086_f087_f088_bases_branches_and_executors_that_cannot_be_are_refused_by_name() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    repository.git(["branch", "taken"]);
    repository.git(["branch", "dir/inner"]);
    let leaks = Leaks::watch(&ground, &[&repository]);
    let argv = &["true"];
    for (options, code, kind, named) in [
        (
            &["--base", "no-such-ref"][..],
            125,
            "not_found",
            &["no-such-ref"][..],
        ),
        (
            &["--base", "--upload-pack=x"],
            125,
            "not_found",
            &["--upload-pack"],
        ),
        (&["--branch", "a..b"], 125, "invalid_input", &["a..b"]),
        (&["--branch", "x.lock"], 125, "invalid_input", &["x.lock"]),
        (&["--branch", "HEAD"], 125, "invalid_input", &["HEAD"]),
        (&["--branch", "@"], 125, "invalid_input", &["@"]),
        (
            &["--branch", "refs/heads/q"],
            125,
            "invalid_input",
            &["refs/heads/q"],
        ),
        (&["--branch", "taken"], 125, "already_exists", &["taken"]),
        (&["--branch", "main"], 125, "already_exists", &["main"]),
        (&["--branch", "dir"], 125, "already_exists", &["dir"]),
        (
            &["--branch", "taken/inner"],
            125,
            "already_exists",
            &["taken"],
        ),
        (
            &["--executor", "no-such"],
            125,
            "not_found",
            &["no-such", "local", "worktree"],
        ),
    ] {
        let options: Vec<_> = options
            .chunks(2)
            .flat_map(|pair| match pair {
                [flag, value] if value.starts_with('-') => vec![format!("{flag}={value}")],
                pair => pair.iter().map(|word| (*word).to_owned()).collect(),
            })
            .collect();
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        Refused {
            options: &options,
            argv,
            code,
            kind,
            named,
        }
        .check(&ground, &repository, &leaks);
    }
}

#[test]
fn f039_f040_variables_that_are_none_are_refused_by_name() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let leaks = Leaks::watch(&ground, &[&repository]);
    for (word, named) in [("NOVALUE", "NOVALUE"), ("=x", "=x")] {
        let outcome = ground
            .run_in(&repository, &["--format", "json", "--env", word], ["true"])
            .run();
        // The command line is wrong: the same code for every verb.
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.error().to_string().contains(named), "{outcome:?}");
        leaks.none(word);
    }
}

#[test]
fn f032_the_largest_word_and_variable_that_the_kernel_takes_arrive() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let word = "x".repeat(131_071);
    let variable = format!("V={}", "y".repeat(131_069));
    let options = ["--env", &variable];
    let script = "printf '%s' \"$1\" | wc -c; printf '%s' \"$V\" | wc -c";
    let argv = ["sh", "-c", script, "sh", &word];
    let outcome = ground.run_in(&repository, &options, argv).run().ok();
    let counts: Vec<_> = outcome
        .out()
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    assert_eq!(counts, ["131071", "131069"]);
}

#[test]
fn what_is_no_repository_is_refused_by_name() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let plain = ground.path("plain");
    fs::create_dir(&plain).unwrap();
    let file = ground.file("file", "");
    let broken = ground.path("broken");
    fs::create_dir_all(broken.join(".git")).unwrap();
    let leaks = Leaks::watch(&ground, &[&repository]);
    for place in [plain, ground.path("missing"), file, broken] {
        let place = place.to_str().unwrap();
        let words = [
            "--format",
            "json",
            "run",
            "--repo",
            place,
            "--executor",
            "worktree",
            "--",
            "true",
        ];
        let outcome = ground.call(words).run().code(125);
        let named = Path::new(place).file_name().unwrap().to_str().unwrap();
        assert!(outcome.error().to_string().contains(named), "{outcome:?}");
        assert!(!Path::new(place).join("f").exists());
        leaks.none(place);
    }
}

#[test]
fn f090_a_bare_repository_with_commits_works() {
    let ground = Ground::new();
    let source = ground.repository("source");
    let bare = ground.root().join("bare.git");
    source.git(["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    let bare = ground.repository_at(&bare);
    let before = bare.fingerprint();
    let words = [
        "--format",
        "json",
        "run",
        "--repo",
        bare.path().to_str().unwrap(),
        "--",
        "sh",
        "-c",
        "echo x >x; git add x; git commit -qm x",
    ];
    let run = ground.call(words).run().ok().json();
    let branch = run["branch"].as_str().unwrap();
    assert_eq!(bare.git(["log", "--format=%s", branch]), "x\nbase");
    assert!(bare.fingerprint() == before);
}

#[test]
fn c40_f089_a_repository_without_a_commit_is_refused_and_stays_as_it_is() {
    let ground = Ground::new();
    let empty = ground.empty_repository("e");
    let gone = ground.repository("gone");
    gone.git(["symbolic-ref", "HEAD", "refs/heads/gone"]);
    let leaks = Leaks::watch(&ground, &[&empty, &gone]);
    empty.write("a", "a\n");
    for (repository, named) in [(&empty, "commit"), (&gone, "HEAD")] {
        let outcome = ground
            .run_in(repository, &["--format", "json"], ["true"])
            .run()
            .code(125);
        let message = outcome.error().to_string();
        assert!(message.contains(named), "{outcome:?}");
    }
    assert_eq!(fs::read_to_string(empty.path().join("a")).unwrap(), "a\n");
    fs::remove_file(empty.path().join("a")).unwrap();
    assert!(!empty.try_git(["log"]).status.success());
    leaks.none("no commit");
    // Another branch can be named as the base.
    ground
        .run_in(&gone, &["--base", "main"], ["cat", "f"])
        .run()
        .ok()
        .says("base");
}

#[test]
fn ids_that_name_no_run_or_several_have_a_code_of_their_own() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let ids: Vec<String> = (0..40)
        .map(|_| {
            let words = ["--executor", "local", "--format", "json"];
            let run = ground
                .run_in(&repository, &words, ["true"])
                .run()
                .ok()
                .json();
            run["id"].as_str().unwrap().to_owned()
        })
        .collect();
    for verb in ["show", "logs", "attach", "stop", "close", "rm"] {
        let outcome = ground
            .call(["--format", "json", verb, "no-such-run"])
            .run()
            .code(3);
        assert_eq!(outcome.error()["kind"], "not_found", "{verb}");
        assert!(
            outcome.error().to_string().contains("no-such-run"),
            "{outcome:?}"
        );
    }
    // Of forty ids two begin alike, unless the alphabet is large; then the first letters are asked for.
    let shared = ids.iter().find_map(|id| {
        let start = &id[..1];
        (ids.iter().filter(|other| other.starts_with(start)).count() > 1).then(|| start.to_owned())
    });
    let outcome = ground
        .call(["--format", "json", "show", &shared.unwrap()])
        .run()
        .code(3);
    assert_eq!(outcome.error()["kind"], "ambiguous");
    let whole = ground
        .call(["--format", "json", "show", &ids[7]])
        .run()
        .ok()
        .json();
    assert_eq!(whole["id"], ids[7].as_str());
    let prefix = (1..ids[7].len())
        .map(|length| &ids[7][..length])
        .find(|prefix| ids.iter().filter(|id| id.starts_with(prefix)).count() == 1);
    let short = ground
        .call(["--format", "json", "show", prefix.unwrap()])
        .run()
        .ok()
        .json();
    assert_eq!(short["id"], ids[7].as_str());
}

#[test]
fn words_that_are_no_command_line_have_a_code_of_their_own() {
    let ground = Ground::new();
    for words in [
        &["run"][..],
        &["no-such-verb"],
        &["run", "--no-such-option", "--", "true"],
        &["run", "--timeout", "soon", "--", "true"],
        &["run", "--lease", "-1s", "--", "true"],
        &["run", "--detach", "-i", "--", "true"],
        &["--format", "xml", "ls"],
        &["stop"],
    ] {
        let outcome = ground.call(words).run().code(2);
        assert!(!outcome.err().is_empty(), "{outcome:?}");
        assert!(!outcome.err().contains("panicked"), "{outcome:?}");
    }
    assert!(
        !ground.state().exists(),
        "a wrong command line made a state directory"
    );
    ground.call(["--help"]).run().ok().says("run");
    ground.call(["--version"]).run().ok();
    for shell in ["bash", "zsh", "fish"] {
        ground
            .call(["completions", shell])
            .run()
            .ok()
            .says("groundcrew");
    }
}

#[test]
fn all_that_is_wrong_with_a_request_is_told_at_once() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    ground.ran(&repository, &["--session", "taken", "--keep"], "true");
    let options = ["--session", "taken", "--base", "no-such-ref"];
    let json = ["--format", "json"].iter().chain(&options).copied();
    let json: Vec<_> = json.collect();
    let outcome = ground.run_in(&repository, &json, ["true"]).run().code(125);
    let problems = outcome.error()["problems"].as_array().unwrap().clone();
    let kinds: Vec<_> = problems
        .iter()
        .map(|problem| text(&problem["kind"]))
        .collect();
    assert_eq!(kinds, ["session_busy", "not_found"], "{outcome:?}");
    let human = ground
        .run_in(&repository, &options, ["true"])
        .run()
        .code(125);
    for named in ["taken", "no-such-ref"] {
        assert!(human.err().contains(named), "{human:?}");
    }
}

//! A program that reveals secrets: what it is given, what its answers mean, and that nothing of it stays.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use groundcrew_core::{
    error::ErrorKind,
    secret::{SecretStore as _, SecretValue},
};
use groundcrew_secrets::{HelperConfig, HelperSecrets, VALUE_MAX};

use crate::support::{Home, ask, chmod, hidden, id, name, shown, told};

/// How long anything may take on a busy machine.
const DEADLINE: Duration = Duration::from_mins(1);

fn helper(argv: &[&str], limit: Duration) -> HelperSecrets {
    HelperSecrets::new(HelperConfig {
        argv: argv.iter().map(OsString::from).collect(),
        environment: vec![
            ("PATH".into(), "/usr/bin:/bin".into()),
            ("VAULT_TOKEN".into(), "CANARY-TOKEN".into()),
        ],
        limit,
    })
    .unwrap()
}

/// A script that gets the name as `$1`.
fn script(text: &str) -> HelperSecrets {
    helper(&["/bin/sh", "-c", text, "helper", "{name}"], DEADLINE)
}

async fn value_of(store: &HelperSecrets) -> SecretValue {
    let scope = id("x").scope;
    store.reveal(&name("k"), &scope).await.unwrap().unwrap()
}

#[tokio::test]
async fn k10_standard_output_is_the_value_less_one_newline() {
    for (text, wanted) in [
        ("printf v", &b"v"[..]),
        ("echo v", b"v"),
        ("printf 'v\\n\\n'", b"v\n"),
        ("printf '\\377\\000\\n'", b"\xff\0"),
        ("echo v; echo noise >&2", b"v"),
        ("printf '%s' \"$1\"", b"k"),
    ] {
        assert_eq!(value_of(&script(text)).await.expose(), wanted, "{text}");
    }
    let most = format!("head -c {VALUE_MAX} /dev/zero; echo");
    assert_eq!(value_of(&script(&most)).await.expose().len(), VALUE_MAX);
}

#[tokio::test]
async fn k10_it_gets_the_name_as_an_argument_and_exactly_its_environment_and_no_shell_reads_either()
{
    let store = helper(
        &[
            "/bin/sh",
            "-c",
            "printf '%s|' \"$@\"; pwd; env | sort; cat",
            "helper",
            "{name}",
            "pre-{name}-{name}",
            "$(id)",
            "a b",
        ],
        DEADLINE,
    );
    let said = shown(&store, "a/b-c").await;
    let lines: Vec<_> = said
        .lines()
        .filter(|line| {
            !line.starts_with("_=")
                && !line.starts_with("SHLVL=")
                && !line.starts_with("PWD=")
                && !line.starts_with("OLDPWD=")
        })
        .collect();
    assert_eq!(
        lines,
        [
            "a/b-c|pre-a/b-c-a/b-c|$(id)|a b|/",
            "PATH=/usr/bin:/bin",
            "VAULT_TOKEN=CANARY-TOKEN"
        ]
    );
}

#[tokio::test]
async fn w24_a_helper_of_tenants_is_asked_for_tenants_only_and_any_other_never() {
    let marks = Home::new();
    let mark = marks.root().join("asked");
    let text = format!("echo asked >> {}; printf '%s' \"$1 $2\"", mark.display());
    let of_all = script(&text);
    let of_tenants = helper(
        &["/bin/sh", "-c", &text, "helper", "{name}", "{tenant}"],
        DEADLINE,
    );
    assert_eq!(ask(&of_all, &id("k@t")).await.unwrap(), None);
    assert_eq!(ask(&of_tenants, &id("k")).await.unwrap(), None);
    assert_eq!(ask(&of_all, &id("runtime/k")).await.unwrap(), None);
    assert!(!mark.exists());
    assert_eq!(shown(&of_all, "k").await, "k ");
    assert_eq!(shown(&of_tenants, "k@t").await, "k t");
}

#[tokio::test]
async fn k11_exit_code_3_is_not_known_and_everything_else_is_an_error_without_the_value() {
    assert_eq!(ask(&script("exit 3"), &id("k")).await.unwrap(), None);
    assert_eq!(
        ask(&script("echo CANARY; exit 3"), &id("k")).await.unwrap(),
        None
    );
    for (text, kind, words) in [
        ("exit 1", ErrorKind::SecretUnavailable, "code=1"),
        (
            "echo 'locked: unlock it' >&2; exit 4",
            ErrorKind::SecretUnavailable,
            "locked: unlock it",
        ),
        ("kill -9 $$", ErrorKind::SecretUnavailable, "signal=9"),
        ("true", ErrorKind::Protocol, "no value"),
        ("echo", ErrorKind::Protocol, "no value"),
        ("yes CANARY-VALUE", ErrorKind::TooLarge, "too long"),
        (
            "yes CANARY-VALUE | head -c 1048578",
            ErrorKind::TooLarge,
            "too long",
        ),
        (
            "echo CANARY-VALUE; echo CANARY-VALUE >&2; exit 1",
            ErrorKind::SecretUnavailable,
            "withheld",
        ),
        (
            "printf CANARY-VALUE; kill -9 $$",
            ErrorKind::SecretUnavailable,
            "withheld",
        ),
        (
            "echo \"sent $VAULT_TOKEN\" >&2; exit 1",
            ErrorKind::SecretUnavailable,
            "sent ***",
        ),
        (
            "echo token=CANARY-VALUE >&2; exit 1",
            ErrorKind::SecretUnavailable,
            "token=[hidden]",
        ),
        (
            "yes noise | head -c 100000 >&2; exit 1",
            ErrorKind::SecretUnavailable,
            "noise",
        ),
    ] {
        let error = ask(&script(text), &id("some/name")).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{text}: {error}");
        assert_eq!(error.get("secret"), Some("some/name"));
        assert_eq!(error.get("helper"), Some("/bin/sh"));
        let told = told(&error);
        assert!(told.contains(words), "{text}: {told}");
        assert!(told.len() < 4000, "{text}: {}", told.len());
        for canary in ["CANARY-VALUE", "CANARY-TOKEN"] {
            hidden(canary, told.as_bytes(), text);
        }
    }
}

#[tokio::test]
async fn f147_a_helper_that_is_not_there_or_no_program_is_told_apart() {
    let home = Home::new();
    let plain = home.root().join("plain");
    fs::write(&plain, "#!/nowhere/at/all\n").unwrap();
    chmod(&plain, 0o644);
    let at = |path: &Path| helper(&[path.to_str().unwrap(), "{name}"], DEADLINE);
    let kind = async |path: &Path| ask(&at(path), &id("k")).await.unwrap_err().kind();
    assert_eq!(
        kind(&home.root().join("none")).await,
        ErrorKind::ProgramNotFound
    );
    assert_eq!(kind(&plain).await, ErrorKind::NotExecutable);
    assert_eq!(kind(home.root()).await, ErrorKind::NotExecutable);
    chmod(&plain, 0o755);
    assert_eq!(kind(&plain).await, ErrorKind::ProgramNotFound);
}

/// The processes whose arguments hold a mark.
fn alive(mark: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir("/proc")
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .filter(|path| {
            let words = fs::read(path.join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).into_owned();
            words.contains(mark) && !words.contains("/secrets-")
        })
        .collect()
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < DEADLINE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A helper with children of its own: one holds our pipe, one has let go of it. All carry the mark.
fn family(mark: &str, limit: Duration) -> HelperSecrets {
    let text = format!(
        "sleep {mark} & sleep {mark} >/dev/null 2>&1 & printf CANARY-HANG; sleep {mark}; true"
    );
    helper(&["/bin/sh", "-c", &text, "helper", "{name}"], limit)
}

#[tokio::test]
async fn f147_a_helper_that_hangs_is_ended_with_its_children_when_time_is_up() {
    let mark = &format!("86391.{}", std::process::id());
    let store = family(mark, Duration::from_millis(400));
    let start = Instant::now();
    let error = ask(&store, &id("k")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.is_retryable() && start.elapsed() >= Duration::from_millis(400));
    hidden("CANARY-HANG", told(&error).as_bytes(), "the error");
    until("all are gone", || alive(mark).is_empty()).await;
}

#[tokio::test]
async fn f147_a_helper_whose_child_holds_the_pipe_is_no_answer() {
    let mark = &format!("86392.{}", std::process::id());
    let text = format!("sleep {mark} & echo v; exit 0");
    let store = helper(
        &["/bin/sh", "-c", &text, "helper", "{name}"],
        Duration::from_millis(400),
    );
    let error = ask(&store, &id("k")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    until("the child is gone", || alive(mark).is_empty()).await;
}

#[tokio::test]
async fn f147_a_question_that_is_dropped_ends_the_helper_and_its_children() {
    let mark = &format!("86393.{}", std::process::id());
    let store = family(mark, DEADLINE);
    let (name, scope) = (name("k"), id("k").scope);
    let mut asking = store.reveal(&name, &scope);
    tokio::select! {
        _ = &mut asking => panic!("it answered"),
        () = until("all are there", || alive(mark).len() >= 4) => {}
    }
    drop(asking);
    until("all are gone", || alive(mark).is_empty()).await;
}

#[tokio::test]
async fn f142_no_value_is_in_an_argument_and_none_is_shown_by_debug() {
    let home = Home::new();
    let (ready, go) = (home.root().join("ready"), home.root().join("go"));
    let text = format!(
        "printf CANARY-SHOWN; : > {}; while [ ! -e {} ]; do sleep 0.01; done",
        ready.display(),
        go.display()
    );
    // The script itself is an argument; the value of a real helper would come from elsewhere.
    let file = home.root().join("helper.sh");
    fs::write(&file, text).unwrap();
    let store = helper(&["/bin/sh", file.to_str().unwrap(), "{name}"], DEADLINE);
    let look = async {
        until("it has printed", || ready.exists()).await;
        for entry in fs::read_dir("/proc").unwrap() {
            let words = fs::read(entry.unwrap().path().join("cmdline")).unwrap_or_default();
            hidden("CANARY-SHOWN", &words, "arguments");
        }
        fs::write(&go, "").unwrap();
    };
    let wanted = id("k");
    let (found, ()) = tokio::join!(ask(&store, &wanted), look);
    assert_eq!(found.unwrap().unwrap(), "CANARY-SHOWN");
    hidden("CANARY-TOKEN", format!("{store:?}").as_bytes(), "debug");
}

#[test]
fn helpers_that_cannot_be_asked_are_refused() {
    let config = |argv: &[&str], variable: (&str, &str)| HelperConfig {
        argv: argv.iter().map(OsString::from).collect(),
        environment: vec![(variable.0.into(), variable.1.into())],
        limit: DEADLINE,
    };
    let good = ("A", "b");
    for (argv, variable) in [
        (&[][..], good),
        (&["pass", "{name}"], good),
        (&["./pass", "{name}"], good),
        (&["", "{name}"], good),
        (&["/bin/pass"], good),
        (&["/bin/pass", "name"], good),
        (&["/bin/pass-{name}"], good),
        (&["/bin/pass", "{tenant}"], good),
        (&["/bin/pass", "{name}", "a\0b"], good),
        (&["/bin/pa\0ss", "{name}"], good),
        (&["/bin/pass", "{name}"], ("", "b")),
        (&["/bin/pass", "{name}"], ("A=B", "b")),
        (&["/bin/pass", "{name}"], ("A\0", "b")),
        (&["/bin/pass", "{name}"], ("A", "b\0")),
    ] {
        let error = HelperSecrets::new(config(argv, variable)).unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::InvalidInput,
            "{argv:?} {variable:?}"
        );
    }
    assert!(HelperSecrets::new(config(&["/bin/pass", "{name}"], good)).is_ok());
}

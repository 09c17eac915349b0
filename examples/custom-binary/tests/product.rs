//! The product as its users have it: each call is a program of its own.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests start the program and look at all it says"
)]

use std::{
    path::Path,
    process::{Command, Output},
};

fn call(work: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_example-custom-binary"))
        .arg("--home")
        .arg(work.join("home"))
        .args(words)
        .current_dir(work)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn ground() -> tempfile::TempDir {
    let ground = tempfile::tempdir().unwrap();
    let secrets = ground.path().join("home/my-secrets");
    std::fs::create_dir_all(&secrets).unwrap();
    std::fs::write(secrets.join("api-key"), "hunter2").unwrap();
    ground
}

/// The whole story on one executor: a launch with a secret, a listing, a resumption after restarts, a session that ended, a close.
fn a_run_lives_through_restarts(executor: &str) {
    let ground = ground();
    let work = ground.path();
    let ran = call(
        work,
        &[
            "run",
            "--executor",
            executor,
            "--session",
            "s",
            "--",
            "sh",
            "-c",
            "echo $API_KEY; echo work > notes; exit 7",
        ],
    );
    assert_eq!(ran.status.code(), Some(7), "{ran:?}");
    assert_eq!(said(&ran), "hunter2\n");
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(
        told.contains("Launched") && !told.contains("hunter2"),
        "{told}"
    );
    let listed = said(&call(work, &["ls"]));
    let run = listed.split(' ').next().unwrap().to_owned();
    assert_eq!(listed, format!("{run} exited s\n"));
    let again = call(work, &["resume", &run, "--", "cat", "notes"]);
    assert_eq!(said(&again), "work\n", "{again:?}");
    let sessions = work.join("home/my-sessions");
    std::fs::create_dir_all(&sessions).unwrap();
    std::fs::write(sessions.join("s.ended"), "").unwrap();
    let refused = call(work, &["resume", &run, "--", "true"]);
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && why.contains("the session ended"),
        "{why}"
    );
    let closed = call(work, &["close", &run]);
    assert_eq!(said(&closed), format!("{run} closed\n"), "{closed:?}");
    assert_eq!(
        std::fs::read_to_string(work.join("notes")).unwrap(),
        "work\n"
    );
    for place in ["home/state/instances", "home/bwrap/instances"] {
        let left = std::fs::read_dir(work.join(place)).map(Iterator::count);
        assert_eq!(left.unwrap_or(0), 0, "{place}");
    }
}

#[test]
fn a_run_on_the_host_lives_through_restarts() {
    a_run_lives_through_restarts("local");
}

#[test]
fn a_run_in_namespaces_lives_through_restarts_needs_bwrap() {
    a_run_lives_through_restarts("bwrap");
}

#[test]
fn namespaces_hide_processes_and_network_and_keep_the_host_as_it_is_needs_bwrap() {
    let ground = ground();
    let script = "ls /proc | grep -c '^[0-9]*$'; tail -n +2 /proc/net/route | wc -l; touch /usr/mark 2>/dev/null || echo read-only; touch here";
    let ran = call(
        ground.path(),
        &[
            "run",
            "--executor",
            "bwrap",
            "--network",
            "none",
            "--",
            "sh",
            "-c",
            script,
        ],
    );
    let lines: Vec<String> = said(&ran).lines().map(str::to_owned).collect();
    let processes: u32 = lines[0].parse().unwrap();
    assert!(processes <= 6, "it sees {processes} processes: {ran:?}");
    assert_eq!(lines[1..], ["0", "read-only"], "it has a route: {ran:?}");
    assert!(ground.path().join("here").exists() && !Path::new("/usr/mark").exists());
    let refused = call(ground.path(), &["run", "--network", "moon", "--", "true"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("`host` or `none`"));
}

#[test]
fn an_executor_that_is_not_there_is_not_replaced() {
    let ground = ground();
    let refused = call(
        ground.path(),
        &["run", "--executor", "docker", "--", "true"],
    );
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && why.contains("bwrap, local"),
        "{why}"
    );
}

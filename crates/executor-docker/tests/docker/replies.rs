//! An engine that answers nonsense.

use std::{
    io::{Read as _, Write as _},
    time::Duration,
};

use groundcrew_core::{
    error::{Chain, ErrorKind},
    executor::Executor as _,
    identity::Presence,
};
use serde_json::json;

use crate::ground::{Ground, Told, fresh};

/// Answers every request in the same way.
fn answering(reply: &'static str) -> (tempfile::TempDir, String) {
    answers(move |_| reply.to_owned(), false)
}

/// Answers each request by its first line; then hangs up, or holds on until whoever asked does.
fn answers(
    reply: impl Fn(&str) -> String + Send + 'static,
    holds: bool,
) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("docker.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 16 << 10];
            let length = stream.read(&mut request).unwrap_or(0);
            let asked = String::from_utf8_lossy(&request[..length]).into_owned();
            drop(stream.write_all(reply(asked.lines().next().unwrap_or_default()).as_bytes()));
            while holds && stream.read(&mut request).is_ok_and(|more| more > 0) {}
        }
    });
    (directory, format!("unix://{}", path.display()))
}

#[tokio::test(flavor = "multi_thread")]
async fn f107_needs_docker_bad_replies_are_typed_and_nothing_is_taken_for_gone() {
    for (reply, kind) in [
        (
            "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n{}",
            ErrorKind::Unavailable,
        ),
        (
            "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>",
            ErrorKind::Unavailable,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n<html></html>",
            ErrorKind::Protocol,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n{\"ApiVersion\":",
            ErrorKind::Unavailable,
        ),
        ("", ErrorKind::Unavailable),
        ("\0\0\0garbage", ErrorKind::Unavailable),
    ] {
        let (_directory, endpoint) = answering(reply);
        let ground = Ground::at(&endpoint);
        let id = fresh();
        let error = ground.executor.list().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{reply:?}: {}", Chain(&error));
        assert!(error.is_retryable(), "{reply:?}");
        assert!(ground.executor.delete(&id, None).await.is_err());
        let state = ground.executor.state(&id).await.unwrap();
        assert!(
            matches!(state, Presence::Unknown(_)),
            "{reply:?}: {state:?}"
        );
        assert!(ground.create(&id, json!({})).await.is_err());
        assert!(!ground.root.path().join("containers").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f110_needs_docker_a_pull_that_stands_still_ends_and_says_so() {
    let reply = |head: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 {head}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    // One layer is on its way, and no more is heard of it.
    let moving = r#"{"status":"Downloading","id":"a1b2"}"#;
    let (_directory, endpoint) = answers(
        move |asked| match asked {
            pull if pull.contains("/images/create") => format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{moving}\r\n",
                moving.len()
            ),
            image if image.contains("/images/") => {
                reply("404 Not Found", r#"{"message":"no such image"}"#)
            }
            _ => reply("200 OK", r#"{"ApiVersion":"1.41","Version":"20.10.24"}"#),
        },
        true,
    );
    let ground = Ground::at(&endpoint);
    let executor = ground.with_patience(Duration::from_millis(300));
    let told = Told::default();
    let (id, spec) = (
        fresh(),
        ground.spec(json!({"image": "gc-test/slow:1", "pull": "missing"})),
    );
    let error = executor.create(&id, &spec, &told).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{}", Chain(&error));
    assert_eq!(error.get("image"), Some("gc-test/slow:1"));
    assert!(error.is_retryable());
    let told = told.0.lock().unwrap().join("\n");
    assert!(told.contains("a1b2 Downloading"), "{told}");
    // Nothing was begun, so nothing is to be taken back.
    assert!(!ground.root.path().join("containers").exists());
}

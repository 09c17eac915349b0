//! An engine that answers nonsense.

use std::io::{Read as _, Write as _};

use groundcrew_core::{
    error::{Chain, ErrorKind},
    executor::Executor as _,
    identity::Presence,
};
use serde_json::json;

use crate::ground::{Ground, fresh};

/// Answers every request in the same way.
fn answering(reply: &'static str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("docker.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 16 << 10];
            drop(stream.read(&mut request));
            drop(stream.write_all(reply.as_bytes()));
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

//! The control server as a person with a plain HTTP client meets it.

use groundcrew_core::{
    error::{Error, ErrorKind, ErrorReport},
    instance::{Instance as _, McpServer},
    process::Lease,
};

use crate::place::{Place, shell};

/// Splits an answer into its status and its body.
fn parts(answer: &str) -> (u16, &str) {
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let versions = [
        "x-groundcrew-protocol: 1",
        "x-groundcrew-protocol: 2",
        "x-groundcrew-protocol: 3",
    ];
    assert!(
        versions.iter().any(|version| head.contains(version)),
        "{head}"
    );
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.trim())
}

fn error(answer: &str) -> (u16, Error) {
    #[derive(serde::Deserialize)]
    struct Failure {
        error: ErrorReport,
    }
    let (status, body) = parts(answer);
    let failure: Failure = serde_json::from_str(body).unwrap();
    (status, failure.error.into())
}

#[tokio::test]
async fn a_plain_client_can_look_and_act() {
    let (place, instance) = Place::up(Lease::UNTIL_COMMIT).await;
    assert_eq!(parts(&place.http("GET /v1/processes", "", "")), (200, "[]"));
    let (status, hello) = parts(&place.http("GET /v1", "", "")).to_owned_parts();
    let hello: serde_json::Value = serde_json::from_str(&hello).unwrap();
    assert_eq!(
        (status, &hello["instance"]),
        (200, &place.id.as_str().into())
    );

    let spec = serde_json::to_string(&shell("echo hello; cat; exit 3")).unwrap();
    let (status, _) = parts(&place.http("PUT /v1/processes/a", "", &spec)).to_owned_parts();
    assert_eq!(status, 200);
    let written = place.http("POST /v1/processes/a/input", "", "some input\n");
    assert!(written.ends_with("null\n\r\n0\r\n\r\n"), "{written}");
    assert_eq!(
        parts(&place.http("DELETE /v1/processes/a/input", "", "")),
        (200, "null")
    );
    let (status, exit) = parts(&place.http("GET /v1/processes/a/wait", "", "")).to_owned_parts();
    assert_eq!(status, 200);
    assert!(exit.contains("\"code\":3"), "{exit}");
    let output = place.http("GET /v1/processes/a/output?from=2", "", "");
    assert!(
        output.contains("llo\n") && output.contains("some input\n"),
        "{output:?}"
    );
    drop(instance);
}

trait Owned {
    fn to_owned_parts(self) -> (u16, String);
}

impl Owned for (u16, &str) {
    fn to_owned_parts(self) -> (u16, String) {
        (self.0, self.1.to_owned())
    }
}

#[tokio::test]
async fn f013_other_versions_are_told_from_ours() {
    let (place, _instance) = Place::up(Lease::UNTIL_COMMIT).await;
    for answer in [
        place.http("GET /v4/processes", "", ""),
        place.http("GET /v2/processes", "X-Groundcrew-Protocol: 4\r\n", ""),
    ] {
        let (status, error) = error(&answer);
        assert_eq!((status, error.kind()), (400, ErrorKind::Protocol));
        assert_eq!(
            (error.get("ours"), error.get("theirs")),
            (Some("1 to 3"), Some("4"))
        );
    }
}

#[tokio::test]
async fn f013_nonsense_is_refused_and_harms_nobody() {
    let (place, instance) = Place::up(Lease::UNTIL_COMMIT).await;
    let spec = "{\"command\":[\"sh\"],\"environment\":{\"exact\":[[\"TOKEN\",\"hunter2\"]]},\"x\"";
    for (line, body, status, kind) in [
        ("GET /", "", 404, ErrorKind::NotFound),
        ("GET /v1/nothing", "", 404, ErrorKind::NotFound),
        ("DELETE /v1/processes", "", 404, ErrorKind::NotFound),
        (
            "PUT /v1/processes/..%2fx",
            spec,
            400,
            ErrorKind::InvalidInput,
        ),
        ("PUT /v1/processes/a", spec, 400, ErrorKind::InvalidInput),
        (
            "PUT /v1/environment",
            "no equals\0",
            400,
            ErrorKind::InvalidInput,
        ),
        ("PUT /v1/lease", "[]", 400, ErrorKind::InvalidInput),
        ("GET /v1/processes/a/wait", "", 404, ErrorKind::NotFound),
        (
            "GET /v1/processes/a/output?from=x",
            "",
            400,
            ErrorKind::InvalidInput,
        ),
        ("POST /v1/processes/a/input", "x", 404, ErrorKind::NotFound),
        (
            "GET /v1/archive?at=relative",
            "",
            400,
            ErrorKind::InvalidInput,
        ),
        ("GET /v1/archive", "", 400, ErrorKind::InvalidInput),
    ] {
        let answer = place.http(line, "", body);
        assert!(!answer.contains("hunter2"), "{answer}");
        let (code, error) = error(&answer);
        assert_eq!((code, error.kind()), (status, kind), "{line}: {error}");
    }
    // Bytes that are no HTTP at all, and a connection that says nothing.
    place.raw(b"\x16\x03\x01\0\xff\xff\r\n\r\n");
    drop(std::os::unix::net::UnixStream::connect(place.path("control.sock")).unwrap());
    assert_eq!(instance.processes().await.unwrap(), []);
}

#[tokio::test]
async fn c35_a_body_beyond_the_limit_is_refused() {
    let (place, instance) = Place::up(Lease::UNTIL_COMMIT).await;
    let announced = "PUT /v1/environment HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5000000\r\n\r\n";
    let (status, error) = error(&place.raw(announced.as_bytes()));
    assert_eq!((status, error.kind()), (413, ErrorKind::TooLarge));
    assert_eq!(instance.processes().await.unwrap(), []);
}

#[tokio::test]
async fn tool_servers_are_kept_for_whoever_asks() {
    let (place, instance) = Place::up(Lease::UNTIL_COMMIT).await;
    let server = McpServer {
        name: "files".to_owned(),
        definition: serde_json::json!({"command": "x"}),
    };
    instance
        .set_mcp_servers(std::slice::from_ref(&server))
        .await
        .unwrap();
    let (_, list) = parts(&place.http("GET /v1/mcp-servers", "", "")).to_owned_parts();
    assert_eq!(
        serde_json::from_str::<Vec<McpServer>>(&list).unwrap(),
        [server]
    );
}

#[tokio::test]
async fn f144_only_the_owner_may_control() {
    let own = rustix::process::geteuid().as_raw();
    // The server lets in whom the start file names, so another name there makes this user the stranger.
    let place = Place::new(Lease::After(std::time::Duration::from_secs(2)), |start| {
        start.uid = own + 1;
    });
    let pid = place.spawn().await.unwrap();
    let (status, error) = error(&place.http("GET /v1/processes", "", ""));
    assert_eq!((status, error.kind()), (403, ErrorKind::PermissionDenied));
    let error = place.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert_eq!(error.get("owner"), Some((own + 1).to_string().as_str()));
    // Nor does a stranger who stays keep it alive.
    let _stays = std::os::unix::net::UnixStream::connect(place.path("control.sock")).unwrap();
    crate::place::until("the lease lapsed", || !crate::place::runs(pid)).await;
}

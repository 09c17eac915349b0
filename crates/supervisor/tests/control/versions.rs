//! Two versions of the control protocol side by side: a controller and a supervisor that are not of one age.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use groundcrew_core::{
    error::ErrorKind,
    instance::Instance as _,
    process::{EndCause, Lease, Milliseconds, ProcessSpec},
};
use groundcrew_supervisor::{SupervisorInstance, UnixConnector};
use http_body_util::Full;
use hyper::{Request, Response, StatusCode, body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::place::{Place, process, runs, shell, until};

const HEADER: &str = "x-groundcrew-protocol";

/// A supervisor of another age: it speaks some versions, knows two verbs, and writes down which paths it was asked for.
struct Other {
    root: tempfile::TempDir,
    asked: Arc<Mutex<Vec<String>>>,
}

fn answer(
    speaks: &[u32],
    asked: &Mutex<Vec<String>>,
    request: &Request<Incoming>,
) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    asked.lock().unwrap().push(path.clone());
    let mut words = path.split('/').skip(1);
    let version: u32 = words
        .next()
        .unwrap()
        .trim_start_matches('v')
        .parse()
        .unwrap();
    let said = request.headers()[HEADER].to_str().unwrap();
    assert_eq!(said, version.to_string(), "path and header must agree");
    let newest = speaks.iter().max().unwrap();
    let respond = |status, version: u32, text: String| {
        Response::builder()
            .status(status)
            .header(HEADER, version)
            .body(Full::new(Bytes::from(text)))
            .unwrap()
    };
    if !speaks.contains(&version) {
        let failure = r#"{"error":{"kind":"protocol","message":"another version","context":[],"retryable":false,"sources":[]}}"#;
        return respond(StatusCode::BAD_REQUEST, *newest, failure.into());
    }
    let text = match words.next().unwrap_or_default() {
        "" => format!(
            r#"{{"protocol":{version},"pid":1,"install":"install","instance":"instance","run":"run","session":"session","lease":"unlimited"}}"#
        ),
        "processes" if request.method() == hyper::Method::GET => "[]".into(),
        "processes" => r#"{"program":"/bin/sh","pid":7}"#.into(),
        other => panic!("asked for {other}"),
    };
    respond(StatusCode::OK, version, text)
}

impl Other {
    #[expect(
        clippy::disallowed_methods,
        reason = "a server of the test ends with its runtime"
    )]
    fn speaking(speaks: &'static [u32]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let listener = tokio::net::UnixListener::bind(root.path().join("socket")).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let book = Arc::clone(&asked);
        drop(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let book = Arc::clone(&book);
                let service = service_fn(move |request| {
                    let response = answer(speaks, &book, &request);
                    async { Ok::<_, Infallible>(response) }
                });
                drop(tokio::spawn(
                    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service),
                ));
            }
        }));
        Self { root, asked }
    }

    async fn connect(&self) -> Result<SupervisorInstance, groundcrew_core::error::Error> {
        let connector = Arc::new(UnixConnector::new(self.root.path().join("socket")));
        SupervisorInstance::connect(connector, &"instance".parse().unwrap(), None).await
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

fn idle() -> ProcessSpec {
    ProcessSpec {
        idle_limit: Some(Milliseconds(Duration::from_millis(200))),
        ..shell("echo begun; exec sleep 1000")
    }
}

#[tokio::test]
async fn c07_a_newer_controller_speaks_with_an_older_supervisor() {
    let other = Other::speaking(&[1]);
    let instance = other.connect().await.unwrap();
    assert_eq!(other.asked(), ["/v3", "/v1"]);
    assert_eq!(instance.processes().await.unwrap(), []);
    assert_eq!(
        instance
            .start(&process("a"), &shell("true"))
            .await
            .unwrap()
            .pid,
        7
    );
    assert_eq!(other.asked(), ["/v1/processes", "/v1/processes/a"]);
    // What it does not know would be left out silently; so it is not asked.
    let error = instance.start(&process("b"), &idle()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(other.asked(), [""; 0]);
}

#[tokio::test]
async fn c07_an_older_controller_speaks_with_a_newer_supervisor() {
    let other = Other::speaking(&[3, 4, 5]);
    let instance = other.connect().await.unwrap();
    assert_eq!(instance.processes().await.unwrap(), []);
    assert_eq!(other.asked(), ["/v3", "/v3/processes"]);
    // One that has forgotten our version is named, and nothing is tried on it.
    let other = Other::speaking(&[4, 5]);
    let error = other.connect().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.get("theirs")),
        (ErrorKind::Protocol, Some("5"))
    );
    assert_eq!(other.asked(), ["/v3"]);
}

#[tokio::test]
async fn c07_our_supervisor_answers_an_older_controller_in_its_words() {
    let (place, instance) = Place::up(Lease::UNTIL_COMMIT).await;
    instance.start(&process("a"), &idle()).await.unwrap();
    assert_eq!(
        instance.wait(&process("a")).await.unwrap().cause,
        EndCause::Idle
    );
    for (version, cause) in [("1", "timed_out"), ("2", "idle")] {
        for path in ["processes", "processes/a/wait", "processes/a/output"] {
            let headers = format!("X-Groundcrew-Protocol: {version}\r\n");
            let answer = place.http(&format!("GET /v{version}/{path}"), &headers, "");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert!(
                answer.contains(&format!("{HEADER}: {version}\r\n")),
                "{answer}"
            );
            let has = |cause: &str| answer.contains(&format!("\"cause\":\"{cause}\""));
            assert!(
                has(cause) && has("idle") == (version == "2"),
                "{path}: {answer}"
            );
        }
    }
}

#[tokio::test]
async fn whoever_only_asks_does_not_restart_a_lease() {
    let lease = Duration::from_millis(1500);
    let (place, instance) = Place::up(Lease::After(lease)).await;
    instance
        .start(&process("a"), &shell("exec sleep 1000"))
        .await
        .unwrap();
    let states = instance.processes().await.unwrap();
    let groundcrew_core::process::ProcessPhase::Running(started) = &states[0].phase else {
        panic!("{states:?}");
    };
    let lost = std::time::Instant::now();
    drop(instance);
    // Asked all the time, and by one who stays connected, it ends when it would have ended.
    let looking = place.connect().await.unwrap();
    until("the lease lapsed", || {
        let answer = std::os::unix::net::UnixStream::connect(place.path("control.sock"));
        drop(answer);
        !runs(started.pid)
    })
    .await;
    assert!(lost.elapsed() >= lease, "{:?}", lost.elapsed());
    drop(looking);
}

#[tokio::test]
async fn a_supervisor_that_stands_still_keeps_nobody_waiting() {
    use tokio::time::{Instant, advance, pause, resume};
    let (place, instance) = Place::up(Lease::Unlimited).await;
    instance
        .start(&process("a"), &shell("exec sleep 1000"))
        .await
        .unwrap();
    let answer = place.http("GET /v2", "", "");
    let pid = answer.split("\"pid\":").nth(1).unwrap();
    let pid: i32 = pid.split(',').next().unwrap().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    // Time is ours from here on: nothing that is awaited comes but its bound.
    pause();
    let (begun, a) = (Instant::now(), process("a"));
    let asked = tokio::join!(
        instance.processes(),
        instance.signal(&a, groundcrew_core::process::Signal::TERM),
        instance.set_lease(Lease::Unlimited),
        instance.close_stdin(&a),
        async {
            instance
                .get_archive("/etc/hostname".as_ref())
                .await
                .map(drop)
        },
        async {
            instance
                .start(&process("b"), &shell("true"))
                .await
                .map(drop)
        },
        async { instance.shutdown(Duration::from_secs(1)).await },
    );
    let took = begun.elapsed();
    advance(Duration::ZERO).await;
    resume();
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    let kinds = [
        asked.0.map(drop).unwrap_err(),
        asked.1.unwrap_err(),
        asked.2.unwrap_err(),
        asked.3.unwrap_err(),
        asked.4.unwrap_err(),
        asked.5.unwrap_err(),
        asked.6.unwrap_err(),
    ]
    .map(|error| error.kind());
    assert_eq!(kinds, [ErrorKind::TimedOut; 7]);
    assert!(took < Duration::from_mins(3), "{took:?}");
    // It goes on, and what was asked of it may still happen; that is its end here.
    instance.shutdown(Duration::from_secs(1)).await.ok();
}

//! Connections that break, are carried over other streams, or lead to somebody else.

use std::{
    fmt,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex},
};

use futures_util::StreamExt as _;
use groundcrew_core::{
    async_trait,
    error::{Error, ErrorKind},
    instance::Instance as _,
    process::{ExitStatus, FrameKind, Lease, Offset, Role},
};
use groundcrew_supervisor::{Connector, ControlStream, SupervisorInstance, UnixConnector};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::Notify,
    task::JoinHandle,
};

use crate::place::{LONG, Place, process, rest, shell, source, written};

/// Leads through a relay that can be cut, or stuck.
#[derive(Default)]
struct Relay {
    socket: PathBuf,
    relays: Mutex<Vec<JoinHandle<()>>>,
    stuck: Arc<Notify>,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").finish_non_exhaustive()
    }
}

impl Relay {
    fn cut(&self) {
        self.relays
            .lock()
            .unwrap()
            .drain(..)
            .for_each(|relay| relay.abort());
    }
}

#[async_trait]
impl Connector for Relay {
    async fn open(&self) -> Result<Box<dyn ControlStream>, Error> {
        let (ours, mut theirs) = tokio::io::duplex(64 << 10);
        let mut socket = tokio::net::UnixStream::connect(&self.socket).await.unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test has no launcher")]
        let relay = tokio::spawn({
            let stuck = Arc::clone(&self.stuck);
            async move {
                tokio::select! {
                    copied = tokio::io::copy_bidirectional(&mut theirs, &mut socket) => drop(copied),
                    // Nothing passes any more, and neither end is told.
                    () = stuck.notified() => std::future::pending().await,
                }
            }
        });
        self.relays.lock().unwrap().push(relay);
        Ok(Box::new(ours))
    }
}

#[tokio::test]
async fn c07_a_cut_connection_loses_no_byte() {
    let (place, direct) = Place::up(Lease::UNTIL_COMMIT).await;
    let relay = Arc::new(Relay {
        socket: place.path("control.sock"),
        ..Relay::default()
    });
    let connector = Arc::clone(&relay);
    let instance = SupervisorInstance::connect(connector, &place.id, None)
        .await
        .unwrap();
    let agent = process("agent");
    instance
        .start(
            &agent,
            &shell("head -c 30000000 /dev/urandom; read x; exit 2"),
        )
        .await
        .unwrap();
    let mut output = instance
        .attach(&agent, Offset(0), Role::Viewer)
        .await
        .unwrap()
        .output;
    written(&direct, 30_000_000).await;
    let wait = instance.wait(&agent);
    let read = async {
        let (mut bytes, mut cuts) = (Vec::new(), 0);
        while bytes.len() < 30_000_000 {
            let frame = tokio::time::timeout(LONG, output.next())
                .await
                .unwrap()
                .unwrap()
                .unwrap();
            assert_eq!(
                frame.offset,
                Offset(bytes.len() as u64),
                "a gap or a duplicate"
            );
            let FrameKind::Stdout(piece) = frame.kind else {
                panic!("{frame:?}")
            };
            bytes.extend_from_slice(&piece);
            if bytes.len() / 10_000_000 > cuts {
                cuts += 1;
                relay.cut();
            }
        }
        direct.close_stdin(&agent).await.unwrap();
        bytes
    };
    let (status, bytes) = futures_util::future::join(wait, read).await;
    assert_eq!(status.unwrap(), ExitStatus::exited(2));
    let (again, _) = rest(
        direct
            .attach(&agent, Offset(0), Role::Viewer)
            .await
            .unwrap()
            .output,
        Offset(0),
    )
    .await;
    assert!(bytes == again);
}

#[tokio::test]
async fn a_connection_that_stands_still_is_replaced() {
    let (place, direct) = Place::up(Lease::UNTIL_COMMIT).await;
    let relay = Arc::new(Relay {
        socket: place.path("control.sock"),
        ..Relay::default()
    });
    let connector = Arc::clone(&relay);
    let instance = SupervisorInstance::connect(connector, &place.id, None)
        .await
        .unwrap();
    let agent = process("agent");
    direct
        .start(&agent, &shell("echo here; read x"))
        .await
        .unwrap();
    relay.stuck.notify_waiters();
    let stdio = instance.attach(&agent, Offset(0), Role::Viewer);
    let stdio = tokio::time::timeout(LONG, stdio).await.unwrap().unwrap();
    assert_eq!(relay.relays.lock().unwrap().len(), 2);
    direct.close_stdin(&agent).await.unwrap();
    let (bytes, _) = rest(stdio.output, Offset(0)).await;
    assert_eq!(bytes, b"here\n");
}

/// Leads through the bridge, as `docker exec` and ssh do.
#[derive(Debug)]
struct Bridge {
    socket: PathBuf,
}

#[async_trait]
impl Connector for Bridge {
    async fn open(&self) -> Result<Box<dyn ControlStream>, Error> {
        #[expect(clippy::disallowed_methods, reason = "the program under test")]
        let mut bridge = tokio::process::Command::new(source().program())
            .arg("bridge")
            .arg(&self.socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Ok(Box::new(tokio::io::join(
            bridge.stdout.take().unwrap(),
            bridge.stdin.take().unwrap(),
        )))
    }
}

#[tokio::test]
async fn the_bridge_carries_everything_both_ways() {
    let (place, _direct) = Place::up(Lease::UNTIL_COMMIT).await;
    let connector = Arc::new(Bridge {
        socket: place.path("control.sock"),
    });
    let instance = SupervisorInstance::connect(connector, &place.id, None)
        .await
        .unwrap();
    let agent = process("agent");
    instance.start(&agent, &shell("cat")).await.unwrap();
    let stdio = instance
        .attach(&agent, Offset(0), Role::Writer)
        .await
        .unwrap();
    let mut input = stdio.input.unwrap();
    let write = async {
        input.write_all(&vec![b'y'; 2_000_000]).await.unwrap();
        input.shutdown().await.unwrap();
    };
    let ((bytes, exit), ()) =
        futures_util::future::join(rest(stdio.output, Offset(0)), write).await;
    assert_eq!(
        (bytes, exit),
        (vec![b'y'; 2_000_000], Some(ExitStatus::exited(0)))
    );
}

#[tokio::test]
async fn another_instance_is_not_taken_for_ours() {
    let (place, _instance) = Place::up(Lease::UNTIL_COMMIT).await;
    let connector = Arc::new(UnixConnector::new(place.path("control.sock")));
    let error = SupervisorInstance::connect(connector, &"other".parse().unwrap(), None)
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.get("wanted")),
        (ErrorKind::Conflict, Some("other"))
    );
}

#[tokio::test]
async fn f013_what_answers_and_is_no_supervisor_is_a_typed_error() {
    let root = tempfile::tempdir().unwrap();
    let socket = root.path().join("socket");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        // An older server that knows nothing of HTTP/2.
        stream.read_exact(&mut [0; 24]).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
    };
    let connector = Arc::new(UnixConnector::new(&socket));
    let id = "x".parse().unwrap();
    let connect = SupervisorInstance::connect(connector, &id, None);
    let (instance, ()) = futures_util::future::join(connect, serve).await;
    assert_eq!(instance.unwrap_err().kind(), ErrorKind::Unavailable);
    drop(listener);
    let connector = Arc::new(UnixConnector::new(&socket));
    let error = SupervisorInstance::connect(connector, &id, None)
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.is_retryable()),
        (ErrorKind::Unavailable, true)
    );
}

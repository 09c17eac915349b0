//! A relay between the command and an engine, which passes on what it is told to, and spoils the rest.
//!
//! Every request has a connection of its own on the engine's side, so that one that is spoiled spoils no other.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use rustix::process::Signal;

use super::engine::Engine;

/// What happens to a request.
#[derive(Clone, Debug)]
pub(crate) enum Deed {
    /// Nothing.
    Pass,
    /// Who asks is killed before the engine hears of it.
    KillBefore,
    /// Who asks is killed when the engine has done it, before the answer.
    KillAfter,
    /// The engine does it, and the connection ends without an answer.
    Lose,
    /// The engine does it, and the connection ends after so many bytes of the answer.
    Cut(usize),
    /// The engine does not hear of it; this is the answer.
    Answer(String),
    /// The engine does it; this is the answer.
    Instead(String),
}

/// A request, as it is told to who decides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asked {
    /// Method and path, with ids replaced by a word: `POST /containers/ID/start`.
    pub(crate) call: String,
    /// How many of this call came before.
    pub(crate) before: usize,
    /// The id in the path, if there is one.
    pub(crate) id: String,
}

type Rule = dyn Fn(&Asked) -> Deed + Send + Sync;

/// A socket on which an engine seems to listen.
#[derive(Debug)]
pub(crate) struct Relay {
    directory: tempfile::TempDir,
    seen: Arc<Mutex<Vec<Asked>>>,
}

impl Relay {
    /// Stands in front of an engine until the test ends.
    pub(crate) fn new(
        engine: &Engine,
        rule: impl Fn(&Asked) -> Deed + Send + Sync + 'static,
    ) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("gc-relay")
            .tempdir()
            .unwrap();
        let listener = UnixListener::bind(directory.path().join("s")).unwrap();
        let seen = Arc::<Mutex<Vec<Asked>>>::default();
        let (engine, rule) = (engine.socket().to_owned(), Arc::new(rule) as Arc<Rule>);
        let board = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (engine, rule) = (engine.clone(), Arc::clone(&rule));
                let board = Arc::clone(&board);
                thread::spawn(move || {
                    // Whoever hangs up on either side is what is tested, not a failure of the relay.
                    drop(serve(stream, &engine, &*rule, &board));
                });
            }
        });
        Self { directory, seen }
    }

    /// Returns where it listens.
    pub(crate) fn endpoint(&self) -> String {
        format!("unix://{}/s", self.directory.path().display())
    }

    /// Returns what was asked so far, in order.
    pub(crate) fn seen(&self) -> Vec<Asked> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }
}

/// An answer with a status and a body.
pub(crate) fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn is_id(part: &str) -> bool {
    let bare = part.strip_prefix("groundcrew-").unwrap_or(part);
    bare.len() >= 32 && bare.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Tells a call from its first line; versions and queries are left out.
fn told(line: &str, seen: &[Asked]) -> Asked {
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let path = target.split('?').next().unwrap();
    let mut id = String::new();
    let parts: Vec<_> = path
        .split('/')
        .filter(|part| !part.is_empty() && !part.starts_with("v1."))
        .map(|part| {
            if is_id(part) {
                part.clone_into(&mut id);
                "ID"
            } else {
                part
            }
        })
        .collect();
    let call = format!("{method} /{}", parts.join("/"));
    let before = seen.iter().filter(|asked| asked.call == call).count();
    Asked { call, before, id }
}

fn serve(
    mut stream: UnixStream,
    engine: &PathBuf,
    rule: &Rule,
    board: &Mutex<Vec<Asked>>,
) -> std::io::Result<()> {
    let (head, body) = request(&mut stream)?;
    let asked = {
        let mut seen = board.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = told(head.lines().next().unwrap_or_default(), &seen);
        seen.push(asked.clone());
        asked
    };
    let deed = rule(&asked);
    let kill = |stream: &UnixStream| {
        let peer = rustix::net::sockopt::socket_peercred(stream).unwrap();
        rustix::process::kill_process(peer.pid, Signal::KILL).unwrap();
    };
    match &deed {
        Deed::KillBefore => {
            kill(&stream);
            return Ok(());
        }
        Deed::Answer(text) => return stream.write_all(text.as_bytes()),
        _ => {}
    }
    let mut upstream = UnixStream::connect(engine)?;
    let upgrades = head.to_ascii_lowercase().contains("\r\nupgrade:");
    let close = if upgrades {
        ""
    } else {
        "Connection: close\r\n"
    };
    let (first, rest) = head.split_once("\r\n").unwrap_or_default();
    write!(upstream, "{first}\r\n{close}{rest}")?;
    upstream.write_all(&body)?;
    if matches!(deed, Deed::Pass) {
        let (mut from, mut to) = (stream.try_clone()?, upstream.try_clone()?);
        thread::spawn(move || std::io::copy(&mut from, &mut to));
        return std::io::copy(&mut upstream, &mut stream).map(drop);
    }
    let mut reply = Vec::new();
    upstream.read_to_end(&mut reply)?;
    match deed {
        Deed::KillAfter => kill(&stream),
        Deed::Cut(length) => stream.write_all(&reply[..length.min(reply.len())])?,
        Deed::Instead(text) => stream.write_all(text.as_bytes())?,
        _ => {}
    }
    Ok(())
}

/// Reads a request: its head, with the empty line, and its body.
fn request(stream: &mut UnixStream) -> std::io::Result<(String, Vec<u8>)> {
    let mut read = Vec::new();
    let mut byte = [0];
    while !read.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        read.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&read).into_owned();
    let headers: BTreeMap<_, _> = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    let length = headers
        .get("content-length")
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((head, body))
}

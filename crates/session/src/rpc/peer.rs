//! One side of a conversation in JSON-RPC: calls with their answers, notifications, and the requests of the other side.
//!
//! * One task reads, one writes; neither waits for a person, and the reader never for the writer.
//! * The ids of calls carry the controller's epoch, so that no answer to an earlier controller is taken for one to us.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use groundcrew_core::{
    error::{Error, ErrorKind, ErrorReport},
    process::Offset,
    redact::Redactor,
};
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    call::{CallError, Refusal},
    fence::Fence,
    incoming::Incoming,
    message::{Envelope, Reply, WireId},
    reader::{Heard, Reader},
    tail,
    waiters::{Answer, Waiters},
    writer::Writer,
};
use crate::transport::Connection;

/// Where the epoch stands in an id; below it, calls are counted. Numbers of JavaScript are exact up to 2^53.
const EPOCH_SHIFT: u32 = 32;

/// Who takes what comes in; it is called by the reader, in order, and must not wait for a person or for the peer.
#[async_trait]
pub(crate) trait Listener: Send + Sync + 'static {
    /// Takes one thing, the peer that it came from, and the offset of the output behind it.
    async fn take(&self, peer: &Peer, incoming: Incoming, behind: Offset);
}

/// What a peer is made with.
#[derive(Debug)]
pub(crate) struct PeerOptions {
    pub(crate) envelope: Envelope,
    pub(crate) epoch: u32,
    /// Where in the output it begins to read.
    pub(crate) from: Offset,
    pub(crate) redactor: Arc<Redactor>,
    pub(crate) tracker: TaskTracker,
}

/// One agent, spoken to in JSON-RPC; a handle that can be cloned.
#[derive(Clone)]
pub struct Peer(Arc<Inner>);

struct Inner {
    connection: Arc<dyn Connection>,
    envelope: Envelope,
    redactor: Arc<Redactor>,
    ids: AtomicU64,
    waiters: Arc<Waiters>,
    writer: Writer,
    heard: Arc<Heard>,
    listener: Mutex<Option<Arc<dyn Listener>>>,
    done: watch::Sender<Option<ErrorReport>>,
    stop: CancellationToken,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("connection", &self.0.connection)
            .field("waiters", &self.0.waiters)
            .field("done", &*self.0.done.borrow())
            .finish_non_exhaustive()
    }
}

/// Forgets a call when whoever made it gives up.
struct Waiting<'a> {
    waiters: &'a Waiters,
    id: u64,
    answer: oneshot::Receiver<Answer>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.waiters.forget(self.id);
    }
}

impl Peer {
    /// Begins to read and to write.
    pub(crate) fn open(
        connection: Arc<dyn Connection>,
        options: PeerOptions,
        listener: Arc<dyn Listener>,
    ) -> Self {
        let stop = CancellationToken::new();
        let writer = Writer::start(Arc::clone(&connection), &options.tracker, stop.clone());
        let peer = Self(Arc::new(Inner {
            connection,
            envelope: options.envelope,
            redactor: options.redactor,
            ids: AtomicU64::new((u64::from(options.epoch) << EPOCH_SHIFT) + 1),
            waiters: Arc::default(),
            writer,
            heard: Arc::default(),
            listener: Mutex::new(Some(listener)),
            done: watch::Sender::new(None),
            stop,
        }));
        let reading = peer.clone();
        let from = options.from;
        options
            .tracker
            .spawn(async move { reading.read(from).await });
        peer
    }

    /// Calls, and waits for the answer.
    ///
    /// # Errors
    ///
    /// Those of [`CallError`], as the source of an error; `limit` counts from now.
    ///
    /// # Cancel safety
    ///
    /// May be dropped; an answer that comes later is nobody's.
    pub async fn call(&self, method: &str, params: Value, limit: Duration) -> Result<Value, Error> {
        Ok(self.ask(method, params, limit, None).await?)
    }

    /// As [`call`](Self::call); a notification may stand for the answer, where that is not on its way already.
    pub async fn call_or(
        &self,
        method: &str,
        params: Value,
        limit: Duration,
        fence: Fence,
    ) -> Result<Value, Error> {
        Ok(self.ask(method, params, limit, Some(fence)).await?)
    }

    pub(crate) async fn ask(
        &self,
        method: &str,
        params: Value,
        limit: Duration,
        fence: Option<Fence>,
    ) -> Result<Value, CallError> {
        let inner = &*self.0;
        let id = self.next_id();
        let mut waiting = Waiting {
            answer: inner.waiters.wait(id, method, fence),
            waiters: &inner.waiters,
            id,
        };
        let line = inner.envelope.call(Some(id), method, &params);
        let asking = async {
            let disconnected = |why| CallError::Disconnected {
                method: method.to_owned(),
                why,
            };
            if let Err(error) = inner.writer.send(line).await {
                // The reader knows better why, if it comes to know it.
                return match tokio::time::timeout(LAST_WORDS, &mut waiting.answer).await {
                    Ok(Ok(answer)) => answer,
                    _ => Err(disconnected(ErrorReport::from(&error))),
                };
            }
            match (&mut waiting.answer).await {
                Ok(answer) => answer,
                Err(_) => Err(CallError::Cancelled {
                    method: method.to_owned(),
                }),
            }
        };
        match tokio::time::timeout(limit, asking).await {
            Ok(answer) => answer,
            Err(_) => Err(CallError::TimedOut {
                method: method.to_owned(),
                limit,
            }),
        }
    }

    /// Tells something.
    ///
    /// # Errors
    ///
    /// With the code `agent.disconnected` when the agent's input is gone.
    pub async fn notify(&self, method: &str, params: Value) -> Result<(), Error> {
        let line = self.0.envelope.call(None, method, &params);
        self.0.writer.send(line).await
    }

    /// Returns the id of a call that is about to be posted.
    pub(crate) fn next_id(&self) -> u64 {
        self.0.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a call whose answer the listener gets, in its place among all else that comes in.
    pub(crate) async fn post(&self, id: u64, method: &str, params: &Value) -> Result<(), Error> {
        let line = self.0.envelope.call(Some(id), method, params);
        self.0.writer.send(line).await
    }

    /// Answers a request, and waits until the answer was written.
    pub(crate) async fn reply(&self, id: &WireId, reply: &Reply) -> Result<(), Error> {
        self.0.writer.send(self.0.envelope.reply(id, reply)).await
    }

    /// Answers a request without waiting; an agent that does not read its answers ends the connection.
    pub(crate) fn reply_now(&self, id: &WireId, reply: &Reply) {
        if let Err(error) = self.0.writer.post(self.0.envelope.reply(id, reply)) {
            self.0.heard.fail(error);
        }
    }

    /// Ends a line that an earlier controller may have begun and not ended.
    pub(crate) async fn end_line(&self) -> Result<(), Error> {
        self.0.writer.send(vec![b'\n']).await
    }

    /// Returns why the connection ended, if it did.
    pub(crate) fn ended(&self) -> Option<ErrorReport> {
        self.0.done.borrow().clone()
    }

    /// Hands nothing on any more: a process that is being closed tells nobody.
    pub(crate) fn mute(&self) {
        let mut listener = self
            .0
            .listener
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *listener = None;
    }

    /// Reads and writes no more: its process is closed.
    pub(crate) fn stop(&self) {
        self.0.stop.cancel();
    }

    /// Returns the end of what the agent told on standard error, with secrets hidden.
    pub(crate) fn stderr_tail(&self) -> String {
        self.0.heard.stderr(|bytes| self.told(bytes))
    }

    /// Counts an answer to a question that nobody asked.
    pub(crate) fn stray(&self) {
        self.0.heard.stray();
    }

    /// Returns how many answers came to questions that nobody asked.
    pub(crate) fn strays(&self) -> u64 {
        self.0.heard.strays()
    }

    /// Waits until everything that the agent wrote before that offset was heard, or the connection ended.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub(crate) async fn heard_to(&self, offset: Offset) {
        let mut done = self.0.done.subscribe();
        tokio::select! {
            () = self.0.heard.reached(offset) => {}
            _ = done.wait_for(Option::is_some) => {}
        }
    }

    fn told(&self, bytes: &[u8]) -> String {
        tail::text(&self.0.redactor.redact(bytes))
    }

    async fn read(&self, from: Offset) {
        let inner = &*self.0;
        let mut reader = Reader::new(
            Arc::clone(&inner.connection),
            Arc::clone(&inner.waiters),
            Arc::clone(&inner.heard),
            from,
        );
        let error = loop {
            let next = tokio::select! {
                biased;
                () = inner.stop.cancelled() => Err(stopped()),
                error = inner.heard.failed() => Err(error),
                next = reader.next() => next,
            };
            match next {
                Ok((incoming, behind)) => self.hand_on(incoming, behind).await,
                Err(error) => break error,
            }
        };
        let error = match error.get("stderr") {
            None if !self.stderr_tail().is_empty() => error.with("stderr", self.stderr_tail()),
            _ => error,
        };
        let error = match error.kind() {
            ErrorKind::Protocol => {
                let said = inner.heard.stdout(|bytes| self.told(bytes));
                error.with("stdout", said)
            }
            _ => error,
        };
        let report = inner.redactor.report(ErrorReport::from(&error));
        // First those who wait, then whoever looks whether it is over, then whoever is told.
        inner.waiters.end(&report);
        inner.done.send_replace(Some(report.clone()));
        self.hand_on(Incoming::Ended(report), reader.behind()).await;
        self.mute();
    }

    async fn hand_on(&self, incoming: Incoming, behind: Offset) {
        let listener = {
            let listener = self
                .0
                .listener
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            listener.clone()
        };
        match (listener, incoming) {
            (Some(listener), incoming) => listener.take(self, incoming, behind).await,
            // Nobody can answer any more; the peer is told so.
            (None, Incoming::Request { id, .. } | Incoming::Unreadable { id: Some(id), .. }) => {
                self.reply_now(&id, &Err(Refusal::new(-32000, "the session is closed")));
            }
            (None, _) => {}
        }
    }
}

/// How long the reader may take to find out why the input is gone.
const LAST_WORDS: Duration = Duration::from_millis(300);

fn stopped() -> Error {
    Error::new(ErrorKind::Cancelled, "the process was closed").with("code", DISCONNECTED)
}

const DISCONNECTED: &str = crate::failure::DISCONNECTED;

//! A process of the scripted agent: a log of output that can be read from any offset, and an input that is read in lines.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use groundcrew_core::{
    error::{Error, ErrorKind},
    id::ProcessId,
    process::{EndCause, ExitStatus, Frame, FrameKind, Offset, Signal},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    ground::Ground,
    script::{Behaviour, CloseResult, Script},
};

/// How it answers what it hears.
pub(crate) type Hears = fn(&Arc<FakeProcess>, &Value);

#[derive(Debug)]
pub(crate) struct FakeProcess {
    pub(crate) id: ProcessId,
    pub(crate) index: usize,
    pub(crate) ground: Arc<Ground>,
    hears: Hears,
    state: Mutex<State>,
    /// Counts everything that happens.
    changed: watch::Sender<u64>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) script: Script,
    frames: Vec<Frame>,
    end: u64,
    input: Vec<u8>,
    /// Everything that was understood, in order.
    pub(crate) heard: Vec<Value>,
    pub(crate) writer: u64,
    pub(crate) exited: bool,
    pub(crate) closed: bool,
    pub(crate) close_calls: u32,
    pub(crate) close_results: VecDeque<CloseResult>,
    pub(crate) close_always: Option<CloseResult>,
    pub(crate) turn: Option<String>,
    pub(crate) thread: Option<String>,
}

impl FakeProcess {
    pub(crate) fn new(
        id: ProcessId,
        index: usize,
        ground: Arc<Ground>,
        hears: Hears,
        script: Script,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            index,
            ground,
            hears,
            state: Mutex::new(State {
                close_always: script.close_always,
                close_results: script.close_results.clone(),
                script,
                frames: Vec::new(),
                end: 0,
                input: Vec::new(),
                heard: Vec::new(),
                writer: 0,
                exited: false,
                closed: false,
                close_calls: 0,
                turn: None,
                thread: None,
            }),
            changed: watch::Sender::new(0),
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn change(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Waits until something holds; a test that waits in vain says for what.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        mut find: impl FnMut(&State) -> Option<T>,
    ) -> T {
        let mut changed = self.changes();
        let waiting = async {
            loop {
                changed.borrow_and_update();
                if let Some(found) = find(&self.state()) {
                    return found;
                }
                changed.changed().await.unwrap();
            }
        };
        match tokio::time::timeout(Duration::from_mins(10), waiting).await {
            Ok(found) => found,
            Err(late) => panic!(
                "{}: never {what} ({late}); heard {:#?}",
                self.id,
                self.state().heard
            ),
        }
    }

    /// Writes bytes to standard output.
    pub(crate) fn write(&self, bytes: impl Into<Bytes>) {
        self.record(FrameKind::Stdout(bytes.into()));
    }

    /// Writes bytes to standard error.
    pub(crate) fn warn(&self, text: &str) {
        self.record(FrameKind::Stderr(Bytes::copy_from_slice(text.as_bytes())));
    }

    /// Says a message.
    pub(crate) fn say(&self, message: &Value) {
        self.write(format!("{message}\n"));
    }

    pub(crate) fn tell(&self, method: &str, params: Value) {
        self.say(&json!({"method": method, "params": params}));
    }

    pub(crate) fn record(&self, kind: FrameKind) {
        {
            let mut state = self.state();
            if state.exited {
                return;
            }
            let offset = Offset(state.end);
            if let FrameKind::Stdout(bytes) | FrameKind::Stderr(bytes) = &kind {
                state.end += bytes.len() as u64;
            }
            state.exited = matches!(kind, FrameKind::Exit(_));
            state.frames.push(Frame {
                offset,
                at_ms: 0,
                kind,
            });
        }
        self.change();
    }

    pub(crate) fn exit(&self, code: i32) {
        self.end_with(ExitStatus::exited(code));
    }

    pub(crate) fn die(&self) {
        self.end_with(ExitStatus {
            code: None,
            signal: Some(Signal::KILL),
            core_dumped: false,
            cause: EndCause::Itself,
        });
    }

    fn end_with(&self, status: ExitStatus) {
        self.record(FrameKind::Exit(status));
        self.ground.let_go(self.index);
    }

    /// Returns the frame at a place, cut where the offset stands in it.
    pub(crate) fn frame(&self, at: &mut usize, from: Offset) -> Option<Frame> {
        let state = self.state();
        loop {
            let frame = state.frames.get(*at)?.clone();
            *at += 1;
            let len = match &frame.kind {
                FrameKind::Stdout(bytes) | FrameKind::Stderr(bytes) => bytes.len() as u64,
                _ => return Some(frame),
            };
            if frame.offset.0 + len <= from.0 {
                continue;
            }
            let cut = usize::try_from(from.0.saturating_sub(frame.offset.0)).unwrap();
            let offset = Offset(frame.offset.0 + cut as u64);
            return Some(match frame.kind {
                FrameKind::Stdout(bytes) => Frame {
                    offset,
                    kind: FrameKind::Stdout(bytes.slice(cut..)),
                    ..frame
                },
                FrameKind::Stderr(bytes) => Frame {
                    offset,
                    kind: FrameKind::Stderr(bytes.slice(cut..)),
                    ..frame
                },
                _ => frame,
            });
        }
    }

    /// Takes input of a writer; an earlier one's is refused.
    pub(crate) fn read(self: &Arc<Self>, writer: u64, bytes: &[u8]) -> Result<(), Error> {
        let lines = {
            let mut state = self.state();
            if state.exited || state.closed || state.writer != writer {
                return Err(Error::new(ErrorKind::Unavailable, "the input is gone"));
            }
            state.input.extend_from_slice(bytes);
            let mut lines = Vec::new();
            while let Some(end) = state.input.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = state.input.drain(..=end).collect();
                lines.push(line);
            }
            lines
        };
        for line in lines {
            // As Codex does, what is no message is passed over.
            let Ok(message) = serde_json::from_slice::<Value>(&line) else {
                continue;
            };
            self.state().heard.push(message.clone());
            (self.hears)(self, &message);
            self.change();
        }
        Ok(())
    }

    pub(crate) fn close(&self) -> Result<(), Error> {
        let result = {
            let mut state = self.state();
            state.close_calls += 1;
            let scripted = state.close_results.pop_front().or(state.close_always);
            if scripted.is_none() {
                state.closed = true;
            }
            scripted
        };
        self.change();
        match result {
            None => {
                self.exit(0);
                Ok(())
            }
            Some(CloseResult::Fails) => {
                Err(Error::new(ErrorKind::Unexpected, "it cannot be closed"))
            }
            Some(CloseResult::NotFound) => {
                self.state().closed = true;
                self.ground.let_go(self.index);
                let gone = Error::new(ErrorKind::NotFound, "session not found");
                Err(Error::new(ErrorKind::Unexpected, "failed to close").with_source(gone))
            }
        }
    }

    pub(crate) fn closes(&self) -> u32 {
        self.state().close_calls
    }

    pub(crate) fn behave(&self, method: &str, behaviour: Behaviour) {
        self.state().script.set(method, behaviour);
    }

    /// Waits for a call of that method, the first or a later one.
    pub(crate) async fn called(&self, method: &str, nth: usize) -> Value {
        let what = format!("called {method} {nth} times");
        self.until(&what, |state| {
            let calls = state
                .heard
                .iter()
                .filter(|message| message["method"] == method);
            calls.clone().nth(nth - 1).cloned()
        })
        .await
    }

    /// Waits for the answer to one of its requests.
    pub(crate) async fn answered(&self, id: Value) -> Value {
        let what = format!("answered {id}");
        self.until(&what, |state| {
            let mut answers = state.heard.iter();
            answers
                .find(|message| message.get("method").is_none() && message["id"] == id)
                .cloned()
        })
        .await
    }

    /// Counts calls of that method.
    pub(crate) fn calls(&self, method: &str) -> usize {
        let state = self.state();
        state
            .heard
            .iter()
            .filter(|message| message["method"] == method)
            .count()
    }

    /// Answers a call that was held.
    pub(crate) fn answer(&self, call: &Value, result: Value) {
        self.say(&json!({"id": call["id"], "result": result}));
    }

    pub(crate) fn refuse(&self, call: &Value, code: i64, message: &str) {
        self.say(&json!({"id": call["id"], "error": {"code": code, "message": message}}));
    }
}

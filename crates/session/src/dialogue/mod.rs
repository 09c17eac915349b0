//! One process's part of a session: hears what the agent says, keeps its turn and its requests, tells events.
//!
//! It never starts or ends a process, and never waits for a person while it hears.

mod answering;
mod asking;
mod interrupting;
mod prompting;
mod requests;
mod turn;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use async_trait::async_trait;
use groundcrew_core::{
    error::{Error, ErrorReport},
    id::ProcessId,
    process::Offset,
};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::{
    book::Book,
    event::{EventKind, TurnOutcome},
    failure,
    protocol::{Happening, Protocol},
    request::{InteractiveRequest, RequestId, RequestPhase, Verdict},
    rpc::{Incoming, Listener, Peer, Reply},
    settings::Conversation,
    state::LiveState,
};
pub(crate) use prompting::Accepted;
use requests::Requests;
pub(crate) use turn::Progress;
pub use turn::TurnEnd;
use turn::{Turn, Turns};

/// How much output may be heard before what was settled is stored, in bytes.
const UNSAVED: u64 = 1 << 20;

/// The dialogue with one process.
pub(crate) struct Dialogue {
    me: Weak<Self>,
    pub(crate) book: Arc<Book>,
    protocol: Arc<dyn Protocol>,
    pub(crate) process: ProcessId,
    pub(crate) number: u64,
    tracker: TaskTracker,
    talk: Mutex<Talk>,
}

struct Talk {
    conversation: Option<Arc<Conversation>>,
    settled: Offset,
    saved: Offset,
    turns: Turns,
    requests: Requests,
    stderr_told: bool,
    /// When a turn ended last.
    rested: Option<Instant>,
    /// Nothing of the agent is heard any more.
    closed: bool,
}

impl std::fmt::Debug for Dialogue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialogue")
            .field("session", &self.book.session)
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}

/// What a dialogue is made with.
pub(crate) struct DialogueParts {
    pub(crate) book: Arc<Book>,
    pub(crate) protocol: Arc<dyn Protocol>,
    pub(crate) process: ProcessId,
    pub(crate) number: u64,
    pub(crate) tracker: TaskTracker,
}

impl Dialogue {
    /// Makes one with a process that was just started.
    pub(crate) fn new(parts: DialogueParts) -> Arc<Self> {
        Self::with(
            parts,
            Talk {
                conversation: None,
                settled: Offset(0),
                saved: Offset(0),
                turns: Turns::default(),
                requests: Requests::default(),
                stderr_told: false,
                rested: None,
                closed: false,
            },
        )
    }

    /// Makes one that goes on where another controller stopped.
    pub(crate) fn restored(parts: DialogueParts, live: &LiveState) -> Arc<Self> {
        let mut turns = Turns::default();
        turns.active = live.turn.as_ref().map(Turn::restored);
        Self::with(
            parts,
            Talk {
                conversation: Some(Arc::new(live.conversation.clone())),
                settled: live.settled,
                saved: live.settled,
                turns,
                requests: Requests::restored(live.requests.clone(), live.ended_requests.clone()),
                stderr_told: false,
                rested: None,
                closed: false,
            },
        )
    }

    fn with(parts: DialogueParts, talk: Talk) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            book: parts.book,
            protocol: parts.protocol,
            process: parts.process,
            number: parts.number,
            tracker: parts.tracker,
            talk: Mutex::new(talk),
        })
    }

    fn talk(&self) -> MutexGuard<'_, Talk> {
        self.talk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the conversation, once one is open.
    pub(crate) fn conversation(&self) -> Option<Arc<Conversation>> {
        self.talk().conversation.clone()
    }

    /// A conversation is open: from now on its protocol's words are heard as its.
    pub(crate) fn opened(&self, conversation: Conversation) {
        self.talk().conversation = Some(Arc::new(conversation));
        let live = self.live();
        self.book.update(|state| state.live = live);
    }

    /// Returns whether a turn runs or a request waits.
    pub(crate) fn is_busy(&self) -> bool {
        let talk = self.talk();
        talk.turns.active.is_some() || !talk.requests.open().is_empty()
    }

    /// Returns when a turn ended last.
    pub(crate) fn rested(&self) -> Option<Instant> {
        self.talk().rested
    }

    /// Takes no prompt any more, because the process goes; returns whether that is so: not while a turn runs or a request waits.
    pub(crate) fn retire(&self) -> bool {
        let mut talk = self.talk();
        let idle = talk.turns.active.is_none() && talk.requests.open().is_empty();
        talk.closed |= idle;
        idle
    }

    /// Returns what waits for an answer.
    pub(crate) fn requests(&self) -> Vec<InteractiveRequest> {
        let talk = self.talk();
        let open = talk.requests.open().iter();
        open.map(|asked| asked.open.request.clone()).collect()
    }

    /// Returns how far the turn is that runs.
    pub(crate) fn turn(&self) -> Option<tokio::sync::watch::Receiver<Progress>> {
        let talk = self.talk();
        let turn = talk.turns.active.as_ref()?;
        Some(turn.progress.subscribe())
    }

    /// Returns where a request is.
    pub(crate) fn phase(&self, request: &RequestId) -> Option<RequestPhase> {
        self.talk().requests.phase(request)
    }

    fn live(&self) -> Option<LiveState> {
        let talk = self.talk();
        let conversation = talk.conversation.as_ref()?;
        Some(LiveState {
            process: self.process.clone(),
            number: self.number,
            settled: talk.settled,
            conversation: Conversation::clone(conversation),
            turn: talk.turns.active.as_ref().map(Turn::state),
            requests: talk
                .requests
                .open()
                .iter()
                .map(|asked| asked.open.clone())
                .collect(),
            ended_requests: talk.requests.last_ended(),
        })
    }

    /// Stores what the next controller needs.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub(crate) async fn save(&self) -> Result<(), Error> {
        let live = {
            let live = self.live();
            let mut talk = self.talk();
            talk.saved = live.as_ref().map_or(talk.saved, |live| live.settled);
            live.filter(|_| !talk.closed)
        };
        if let Some(live) = live {
            self.book.put_live(live);
        }
        self.book.save().await
    }

    /// Stores, where nobody can be told that it failed; a controller that was superseded hears no more.
    async fn save_or_warn(&self, peer: &Peer) {
        let Err(error) = self.save().await else {
            return;
        };
        if failure::is(&error, failure::SUPERSEDED) {
            self.superseded(peer);
            return;
        }
        let text = format!("what the next controller needs could not be stored: {error}");
        self.tell(
            None,
            EventKind::Warning {
                about: "state".to_owned(),
                text,
            },
        );
    }

    /// Another controller goes on: nothing is heard, answered or told here any more.
    pub(crate) fn superseded(&self, peer: &Peer) {
        peer.mute();
        let mut talk = self.talk();
        talk.closed = true;
        if let Some(turn) = talk.turns.end(None) {
            let end = TurnEnd::failed("another controller goes on with the session");
            turn.progress
                .send_modify(|progress| progress.end = Some(end));
        }
    }

    /// Tells an event of this process.
    pub(crate) fn tell(&self, offset: Option<Offset>, kind: EventKind) {
        let turn = self.talk().turns.active.as_ref().map(|turn| turn.number);
        self.book.tell(self.number, turn, offset, kind);
    }

    fn tell_in(&self, talk: &Talk, offset: Option<Offset>, kind: EventKind) {
        let turn = talk.turns.active.as_ref().map(|turn| turn.number);
        self.book.tell(self.number, turn, offset, kind);
    }

    /// Ends what is open, because the process goes: requests are refused, the turn has ended, nothing more is heard.
    pub(crate) fn close(&self, peer: &Peer, verdict: &Verdict, end: TurnEnd) {
        let mut talk = self.talk();
        self.reject(&mut talk, peer, None, verdict);
        let end = match &talk.turns.active {
            Some(turn) if turn.forced => TurnEnd::new(TurnOutcome::Cancelled),
            _ => end,
        };
        self.end_turn(&mut talk, peer, None, None, end);
        talk.closed = true;
    }

    /// Refuses all requests that wait; the turn goes on.
    pub(crate) fn reject_all(&self, peer: &Peer, verdict: &Verdict) {
        self.reject(&mut self.talk(), peer, None, verdict);
    }

    /// Refuses all requests that wait.
    fn reject(&self, talk: &mut Talk, peer: &Peer, offset: Option<Offset>, verdict: &Verdict) {
        for open in talk.requests.interrupt_all() {
            peer.reply_now(&open.wire, &self.protocol.reply(&open, verdict));
            let request = open.request.id;
            self.tell_in(talk, offset, EventKind::Interrupted { request });
        }
    }

    /// Ends the turn that runs, once; what waits for an answer in it is refused: a part of the agent may be parked on it.
    fn end_turn(
        &self,
        talk: &mut Talk,
        peer: &Peer,
        id: Option<crate::settings::TurnId>,
        offset: Option<Offset>,
        end: TurnEnd,
    ) {
        if talk.turns.active.is_none() {
            return;
        }
        self.reject(talk, peer, offset, &Verdict::Cancelled);
        let kind = EventKind::TurnEnded {
            outcome: end.outcome,
            error: end.error.clone(),
            reason: end.reason.clone(),
        };
        self.tell_in(talk, offset, kind);
        talk.rested = Some(Instant::now());
        if let Some(turn) = talk.turns.end(id) {
            turn.progress.send_modify(|progress| {
                progress.acknowledged = true;
                progress.end = Some(end);
            });
        }
    }

    /// Applies what a message means; returns whether it should be stored.
    fn apply(&self, peer: &Peer, happenings: Vec<Happening>, behind: Offset) -> bool {
        let mut talk = self.talk();
        if talk.closed {
            return false;
        }
        let mut save = false;
        for happening in happenings {
            save |= self.happened(&mut talk, peer, happening, behind);
        }
        talk.settled = behind;
        save || behind.0 - talk.saved.0.min(behind.0) > UNSAVED || self.book.wants_save()
    }

    fn happened(&self, talk: &mut Talk, peer: &Peer, happening: Happening, behind: Offset) -> bool {
        let offset = Some(behind);
        match happening {
            Happening::Tell(kind) => {
                if talk.turns.active.is_some() || !belongs_to_a_turn(&kind) {
                    self.tell_in(talk, offset, kind);
                }
                false
            }
            Happening::TellOf(turn, kind) => {
                if talk.turns.hears(&turn) {
                    self.tell_in(talk, offset, kind);
                }
                false
            }
            Happening::TurnNamed(id) => {
                talk.turns.named(id);
                true
            }
            Happening::TurnRuns(id) => talk.turns.runs(&id),
            Happening::TurnEnded {
                turn,
                outcome,
                error,
                reason,
            } => {
                if !talk.turns.ends(turn.as_ref()) {
                    return false;
                }
                let end = TurnEnd {
                    outcome,
                    error,
                    reason,
                };
                self.end_turn(talk, peer, turn, offset, end);
                true
            }
            Happening::RequestSettled(wire) => {
                let Some(open) = talk.requests.supersede(&wire) else {
                    return false;
                };
                let request = open.request.id;
                self.tell_in(talk, offset, EventKind::Superseded { request });
                true
            }
        }
    }

    fn notified(&self, peer: &Peer, method: &str, params: &Value, behind: Offset) -> bool {
        let happenings = match self.conversation() {
            Some(conversation) => self.protocol.notice(&conversation, method, params),
            None => self.protocol.early_notice(method, params),
        };
        self.apply(peer, happenings, behind)
    }

    /// Takes the answer to the call that began the turn; returns none if that was not the question.
    fn turn_answered(
        &self,
        peer: &Peer,
        call: u64,
        result: &Reply,
        behind: Offset,
    ) -> Option<bool> {
        let conversation = {
            let mut talk = self.talk();
            talk.turns
                .active
                .as_ref()
                .filter(|turn| turn.call == call)?;
            if result.is_ok() {
                talk.turns.acknowledged();
            }
            talk.conversation.clone()?
        };
        let save = self.apply(
            peer,
            self.protocol.turn_answered(&conversation, result),
            behind,
        );
        let mut talk = self.talk();
        let refused = talk
            .turns
            .active
            .as_ref()
            .is_some_and(|turn| turn.call == call);
        if let (Err(refusal), true) = (result, refused) {
            self.end_turn(
                &mut talk,
                peer,
                None,
                Some(behind),
                TurnEnd::failed(refusal.to_string()),
            );
            return Some(true);
        }
        Some(save)
    }

    fn ended(&self, peer: &Peer, report: ErrorReport, behind: Offset) {
        let mut talk = self.talk();
        if talk.closed {
            return;
        }
        let end = match &talk.turns.active {
            Some(turn) if turn.forced => TurnEnd::new(TurnOutcome::Cancelled),
            _ => TurnEnd::failed(Error::from(report.clone()).to_string()),
        };
        // Nobody is there to be refused.
        for open in talk.requests.interrupt_all() {
            let request = open.request.id;
            self.tell_in(&talk, Some(behind), EventKind::Interrupted { request });
        }
        self.end_turn(&mut talk, peer, None, Some(behind), end);
        self.tell_in(
            &talk,
            Some(behind),
            EventKind::Disconnected { error: report },
        );
        talk.closed = true;
        drop(talk);
        self.book.drop_live(self.number);
    }
}

#[async_trait]
impl Listener for Dialogue {
    async fn take(&self, peer: &Peer, incoming: Incoming, behind: Offset) {
        let save = match incoming {
            Incoming::Notification { method, params } => {
                self.notified(peer, &method, &params, behind)
            }
            Incoming::Reply { id, result } => self
                .turn_answered(peer, id, &result, behind)
                .unwrap_or_else(|| {
                    peer.stray();
                    self.apply(peer, Vec::new(), behind)
                }),
            Incoming::Request { id, method, params } => {
                self.asked(peer, id, method, params, behind).await;
                self.apply(peer, Vec::new(), behind)
            }
            Incoming::Unreadable { id, method, why } => {
                self.unreadable(peer, id.as_ref(), &method, &why, behind)
            }
            Incoming::Stderr(line) => {
                let telling = self.protocol.stderr(&line);
                let first =
                    telling.is_some() && !std::mem::replace(&mut self.talk().stderr_told, true);
                if let (Some(kind), true) = (telling, first) {
                    self.tell(Some(behind), kind);
                }
                false
            }
            Incoming::Gap(bytes) => {
                let text = format!("{bytes} bytes of what the agent said are no longer kept");
                let about = "output".to_owned();
                self.apply(
                    peer,
                    vec![Happening::Tell(EventKind::Warning { about, text })],
                    behind,
                )
            }
            Incoming::Ended(report) => {
                self.ended(peer, report, behind);
                true
            }
        };
        if save {
            self.save_or_warn(peer).await;
        }
    }
}

/// Returns whether something said after its turn has ended is not worth telling.
fn belongs_to_a_turn(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::TextDelta { .. }
            | EventKind::Text { .. }
            | EventKind::ThoughtDelta { .. }
            | EventKind::Plan { .. }
            | EventKind::ToolStarted { .. }
            | EventKind::ToolOutput { .. }
            | EventKind::ToolEnded { .. }
            | EventKind::FileChanges { .. }
    )
}

//! One turn of a conversation, followed to its end: events are told, requests answered, others at the desk served.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{
    StreamExt as _,
    future::{BoxFuture, FutureExt as _},
    stream::FuturesUnordered,
};
use groundcrew_core::{
    error::{Chain, Error, ErrorReport},
    id::SessionId,
};
use groundcrew_session::{
    Engine, TurnEnd,
    engine::TurnTicket,
    event::{EventKind, SessionEvent, TurnOutcome},
    failure,
    request::{Decision, RequestId},
    settings::Prompt,
};
use tokio::sync::{
    Notify,
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};

use super::{
    Events, Teller,
    desk::{Ask, Desk, Line, Tell},
    person::{self, Person},
};
use crate::{
    args::Approve,
    console::Console,
    signals::{Call, Signals, leaves, unless_called},
};

/// How a turn was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It ended.
    Ended(TurnOutcome),
    /// We leave, and it goes on.
    Left(Call),
    /// We were asked to end everything.
    Stopped(Call),
    /// We were asked to leave before the agent took what was to be said.
    Unsaid(Call),
}

/// Work for others and for signals, beside the turn.
type Works = FuturesUnordered<BoxFuture<'static, Work>>;

/// What came of such work: something that a person should know, where it failed.
type Work = Result<(), Error>;

/// Where those who asked for a turn hear what happens; each reads at its own pace.
type Hearers = Vec<UnboundedSender<SessionEvent>>;

/// How long those who hear may take for what is left when we leave.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A conversation that is open, with us at its desk.
#[derive(Debug)]
pub(crate) struct Talk<'a> {
    pub(crate) console: &'a Console,
    pub(crate) engine: Engine,
    pub(crate) session: SessionId,
    pub(crate) events: Events,
    pub(crate) desk: Desk,
    pub(crate) teller: Teller,
    pub(crate) approve: Approve,
    /// Whether a person sits at our terminal.
    pub(crate) person: bool,
}

impl Talk<'_> {
    /// Tells what was heard and not told yet.
    pub(crate) fn tell_rest(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.teller.tell(&event);
        }
        self.teller.finish();
    }

    /// Says something and follows what comes of it.
    ///
    /// # Errors
    ///
    /// When the agent does not take it.
    pub(crate) async fn prompt(
        &mut self,
        text: &str,
        signals: &mut Signals,
    ) -> Result<Ending, Error> {
        match self.say(text, signals).await? {
            Ok(ticket) => Ok(self.follow(Some(ticket), signals).await),
            Err(ending) => Ok(ending),
        }
    }

    /// Says something; how it is left, if a signal comes before the agent has taken it.
    ///
    /// # Errors
    ///
    /// When the agent does not take it.
    pub(crate) async fn say(
        &mut self,
        text: &str,
        signals: &mut Signals,
    ) -> Result<Result<TurnTicket, Ending>, Error> {
        let said = self.engine.prompt(&self.session, Prompt::new(text));
        match unless_called(signals, leaves, said).await {
            Ok(ticket) => ticket.map(Ok),
            Err(Call::Hangup) => Ok(Err(Ending::Left(Call::Hangup))),
            Err(call) => Ok(Err(Ending::Unsaid(call))),
        }
    }

    /// Follows the turn of a ticket, or the one that runs, to its end, and those that others at the desk were promised meanwhile.
    pub(crate) async fn follow(
        &mut self,
        ticket: Option<TurnTicket>,
        signals: &mut Signals,
    ) -> Ending {
        let mut ended = match ticket {
            Some(mut ticket) => async move { Some(ticket.ended().await) }.boxed(),
            None => next_end(&self.engine, &self.session),
        };
        let mut outcome = None;
        let saying = Arc::new(Saying::default());
        let mut works = Works::new();
        let mut hearers = Hearers::new();
        let mut open: VecDeque<RequestId> = VecDeque::new();
        let mut person = None;
        let mut interrupts = 0;
        let ending = loop {
            tokio::select! {
                biased;
                call = signals.next() => match call {
                    Call::Resized | Call::Continued => {}
                    Call::Hangup => break Ending::Left(call),
                    Call::Interrupt if interrupts == 0 => {
                        interrupts += 1;
                        self.console.note("interrupting the turn; once more ends the run");
                        works.push(interrupt(self.engine.clone(), self.session.clone()));
                    }
                    call => break Ending::Stopped(call),
                },
                // These before the events, which may be without end.
                Some(work) = works.next() => if let Err(error) = work {
                    self.console.warn(&Chain(&error).to_string());
                },
                (ask, line) = self.desk.next() => {
                    let (sender, heard) = unbounded_channel();
                    let mut said = None;
                    if matches!(ask, Ask::Prompt { .. }) {
                        hearers.push(sender);
                        said = Some(Said::begin(&saying));
                    }
                    let (engine, session) = (self.engine.clone(), self.session.clone());
                    works.push(serve(engine, session, ask, line, heard, said).boxed());
                }
                line = answered(&mut person) => match line {
                    Some(line) => self.answer(&line, &mut open, &works),
                    None => person = None,
                },
                Some(event) = self.events.recv() => {
                    self.take(&event, &mut hearers, &mut open, &mut person);
                }
                end = &mut ended => {
                    // What happened before the end was told before it.
                    while let Ok(event) = self.events.try_recv() {
                        self.take(&event, &mut hearers, &mut open, &mut person);
                    }
                    let ours = end.map_or(TurnOutcome::Completed, |end| end.outcome);
                    let ours = *outcome.get_or_insert(ours);
                    // Who came too late for this turn was promised the next one, or is just about to be.
                    ended = next_end(&self.engine, &self.session);
                    if saying.count.load(Ordering::Acquire) > 0 {
                        let saying = Arc::clone(&saying);
                        let (engine, session) = (self.engine.clone(), self.session.clone());
                        ended = async move {
                            saying.over.notified().await;
                            // Not before: the turn is begun only now.
                            next_end(&engine, &session).await
                        }
                        .boxed();
                    } else if (&mut ended).now_or_never().is_some() {
                        break Ending::Ended(ours);
                    }
                }
            }
        };
        drop(hearers);
        // Whoever was promised something gets it; nobody who does not listen keeps us.
        let rest = works.for_each(async |_| {});
        drop(tokio::time::timeout(LAST_WORDS, rest).await);
        ending
    }

    /// Takes one event: tells it, to all who hear, and asks the person where one is to be asked.
    fn take(
        &mut self,
        event: &SessionEvent,
        hearers: &mut Hearers,
        open: &mut VecDeque<RequestId>,
        person: &mut Option<Person>,
    ) {
        let asks = matches!(event.kind, EventKind::Asked { .. });
        let asks = asks && self.approve == Approve::Ask && self.person;
        if asks && person.is_none() {
            // Before they see what they are asked: what was typed earlier answers nothing.
            *person = Person::listen().ok();
        }
        self.teller.tell(event);
        // One that went away hears no more.
        hearers.retain(|hearer| hearer.send(event.clone()).is_ok());
        match &event.kind {
            EventKind::Asked { request } if asks => {
                open.push_back(request.id.clone());
                person::explain(self.console, request);
            }
            EventKind::Answered { request, .. }
            | EventKind::Superseded { request }
            | EventKind::Interrupted { request } => open.retain(|id| id != request),
            _ => {}
        }
    }

    /// Takes a line of the person's as the answer to the oldest request.
    fn answer(&self, line: &str, open: &mut VecDeque<RequestId>, works: &Works) {
        let Some(id) = open.front().cloned() else {
            return;
        };
        let requests = self.engine.requests(&self.session);
        let Some(request) = requests.iter().find(|request| request.id == id) else {
            open.pop_front();
            return;
        };
        match person::decision(request, line) {
            Some(decision) => {
                open.pop_front();
                let (engine, session) = (self.engine.clone(), self.session.clone());
                works.push(async move { engine.answer(&session, &id, decision).await }.boxed());
            }
            None => person::explain(self.console, request),
        }
    }
}

async fn answered(person: &mut Option<Person>) -> Option<String> {
    match person {
        Some(person) => person.line().await,
        None => std::future::pending().await,
    }
}

/// Waits for the end of the turn that runs; none if none does.
fn next_end(engine: &Engine, session: &SessionId) -> BoxFuture<'static, Option<TurnEnd>> {
    let (engine, session) = (engine.clone(), session.clone());
    async move { engine.turn_ended(&session).await }.boxed()
}

fn interrupt(engine: Engine, session: SessionId) -> BoxFuture<'static, Work> {
    async move {
        match engine.interrupt(&session).await {
            Err(error) if !failure::is(&error, failure::NO_TURN) => Err(error),
            _ => Ok(()),
        }
    }
    .boxed()
}

/// Prompts of others that the agent has not taken yet.
#[derive(Debug, Default)]
struct Saying {
    count: AtomicUsize,
    /// Told when one of them is taken, or refused.
    over: Notify,
}

/// One of them, until it is dropped.
#[derive(Debug)]
struct Said(Arc<Saying>);

impl Said {
    fn begin(saying: &Arc<Saying>) -> Self {
        saying.count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(saying))
    }
}

impl Drop for Said {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::AcqRel);
        self.0.over.notify_one();
    }
}

/// Does what somebody at the desk asks for, says what came of it, and what happens in the turn that was asked for.
async fn serve(
    engine: Engine,
    session: SessionId,
    ask: Ask,
    mut line: Line,
    mut heard: UnboundedReceiver<SessionEvent>,
    said: Option<Said>,
) -> Work {
    let follows = matches!(ask, Ask::Prompt { .. });
    if line.say(&Tell::Taken).await.is_err() {
        // Who went away asked for nothing.
        return Ok(());
    }
    let carried_out = carry_out(&engine, &session, ask).await;
    drop(said);
    let turn = match carried_out {
        Ok(turn) => turn,
        Err(error) => {
            let error = ErrorReport::from(&error);
            // Who went away does not want to know.
            drop(line.say(&Tell::Failed { error }).await);
            return Ok(());
        }
    };
    if line.say(&Tell::Done { turn }).await.is_err() || !follows {
        return Ok(());
    }
    while let Some(event) = heard.recv().await {
        let ends = matches!(event.kind, EventKind::TurnEnded { .. }) && event.turn == turn;
        let event = Box::new(event);
        if line.say(&Tell::Happened { event }).await.is_err() || ends {
            break;
        }
    }
    Ok(())
}

/// Does what is asked; returns the turn that takes a prompt.
///
/// # Errors
///
/// Those of the engine.
pub(crate) async fn carry_out(
    engine: &Engine,
    session: &SessionId,
    ask: Ask,
) -> Result<Option<u64>, Error> {
    match ask {
        Ask::Answer { request, decision } => {
            engine.answer(session, &request, decision).await?;
            Ok(None)
        }
        Ask::Interrupt => {
            engine.interrupt(session).await?;
            Ok(None)
        }
        Ask::Prompt { text } => {
            let ticket = engine.prompt(session, Prompt::new(text)).await?;
            Ok(Some(ticket.turn()))
        }
    }
}

/// Reads a decision as it is typed.
///
/// # Errors
///
/// A word that is none.
pub(crate) fn read_decision(word: &str, because: Option<String>) -> Option<Decision> {
    Some(match word {
        "approve" | "yes" => Decision::Approve,
        "approve-session" | "always" => Decision::ApproveForSession,
        "deny" | "no" => Decision::Deny { because },
        "abort" => Decision::Abort,
        _ => {
            let choice = word.strip_prefix("choose=")?.to_owned();
            Decision::Choose { choice }
        }
    })
}

//! A conversation that is open: gone on with by whoever finds its desk free, else asked of whoever sits there.
//!
//! * What runs there is never ended because something that was said, or asked, is refused.

use std::{path::Path, time::Instant};

use groundcrew_core::{
    error::{Error, ErrorKind},
    store::{RunRecord, RunState},
};
use groundcrew_session::{event::EventKind, failure, state::StateStore as _};

use super::talking::{busy, document, finish, leave, of_turn, take_over};
use crate::{
    agents::Conversing,
    args::Approve,
    conversation::{
        self, Ending, Teller,
        desk::{self, Ask, Desk, Line, Seat, Tell},
        states,
    },
    exit,
    failing::Failing,
    program::{Context, Crew},
    signals::{Signals, leaves, unless_called},
};

/// How going on with a conversation went.
#[derive(Debug)]
pub(crate) enum Went {
    /// As far as it was wanted; the exit code.
    Done(u8),
    /// Its agent does not run, and has to be started again by who sits at the desk.
    Closed(Option<Desk>),
}

/// What becomes of a conversation that somebody goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Afterwards {
    /// Its agent ends with the turn.
    End,
    /// It stays open behind the turn.
    Stay,
    /// It is left as soon as the prompt is taken.
    Leave,
}

/// Goes on with a conversation that is up: says something, or follows what runs.
///
/// * Whatever the agent refuses, a turn that runs goes on.
///
/// # Errors
///
/// When the agent, or whoever controls it, does not take it, or `approve` is another one than it was opened with.
pub(crate) async fn go_on(
    context: &Context,
    crew: &Crew,
    record: &RunRecord,
    held: &Conversing,
    approve: Option<Approve>,
    afterwards: Afterwards,
    signals: &mut Signals,
) -> Result<Went, Failing> {
    let directory = states::directory(&crew.home)?;
    let patience = Instant::now() + desk::PATIENCE;
    let desk = loop {
        let line = match desk::take(&directory, &record.session).await? {
            Seat::Ours(desk) => break desk,
            Seat::Theirs(line) => line,
        };
        let text = held.prompt.clone().ok_or_else(|| busy(&record.session))?;
        opened_with(&directory, record, approve).await?;
        let redactor = conversation::hidden(context, crew, record).await?;
        let teller = Teller::new(&context.console, redactor);
        let prompt = Ask::Prompt { text };
        let asked = ask(teller, line, &prompt, signals);
        if let Some(code) = Box::pin(asked).await? {
            return Ok(Went::Done(code));
        }
        untaken(patience)?;
    };
    if !is_up(crew, record).await? {
        return Ok(Went::Closed(Some(desk)));
    }
    let opened_with = opened_with(&directory, record, approve).await?;
    let taken = Box::pin(take_over(context, crew, record, held, desk)).await;
    let mut talk = match taken {
        Ok(talk) => talk,
        Err(failing) if failing.says(failure::NOT_LIVE) => {
            // Its controller died before it was open, or the agent with it: it is begun again.
            crew.launcher.stop(&record.run, None).await?;
            return Ok(Went::Closed(None));
        }
        Err(failing) => return Err(failing),
    };
    talk.approve = opened_with.unwrap_or(talk.approve);
    let ending = match &held.prompt {
        Some(prompt) if afterwards == Afterwards::Leave => {
            match Box::pin(talk.say(prompt, signals)).await {
                Ok(Ok(_)) => {
                    let left = leave(context, crew, record, talk);
                    return Box::pin(left).await.map(Went::Done);
                }
                Ok(Err(ending)) => Ok(ending),
                Err(error) => Err(error),
            }
        }
        Some(prompt) => Box::pin(talk.prompt(prompt, signals)).await,
        None => Ok(Box::pin(talk.follow(None, signals)).await),
    };
    match ending {
        Ok(Ending::Ended(outcome)) if afterwards == Afterwards::Stay => {
            talk.engine.leave(&talk.session).await?;
            let view = crew.launcher.observe(&record.run).await?;
            document(context, &view, talk.teller.report());
            return Ok(Went::Done(of_turn(outcome)));
        }
        // We did not begin what runs there, and nothing of ours came to it.
        Ok(Ending::Unsaid(call)) => {
            Box::pin(leave(context, crew, record, talk)).await?;
            return Ok(Went::Done(exit::signalled(call.number().0)));
        }
        Err(error) if talk.engine.is_live(&talk.session) => {
            talk.engine.leave(&talk.session).await?;
            talk.tell_rest();
            return Err(error.with("run", &record.run).into());
        }
        _ => {}
    }
    let done = Box::pin(finish(context, crew, record, talk, ending)).await?;
    Ok(Went::Done(done))
}

/// Returns who decides what the agent of an open conversation asks for, which is said when it is opened.
///
/// # Errors
///
/// When another one is asked for now.
async fn opened_with(
    directory: &Path,
    record: &RunRecord,
    approve: Option<Approve>,
) -> Result<Option<Approve>, Failing> {
    let states = states::FileStates::new(directory.to_owned());
    let known = states.load(&record.session).await?;
    let Some(live) = known.and_then(|state| state.live) else {
        return Ok(None);
    };
    let opened = conversation::wished(live.conversation.approve);
    match approve {
        Some(asked) if asked != opened => {
            let (asked, opened) = (asked.word(), opened.word());
            Err(Failing::usage(format!(
                "the conversation was opened with `--approve {opened}`, which counts until its agent ends: \
                 leave `--approve {asked}` out, or `groundcrew stop {}` first",
                record.run
            )))
        }
        _ => Ok(Some(opened)),
    }
}

/// Refuses to go to the desk again for ever.
pub(super) fn untaken(patience: Instant) -> Result<(), Error> {
    if Instant::now() < patience {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unavailable,
        "whoever controls the conversation hears nobody; ask again",
    ))
}

/// Tells whether the agent of a run runs.
pub(super) async fn is_up(crew: &Crew, record: &RunRecord) -> Result<bool, Error> {
    let view = crew.launcher.observe(&record.run).await?;
    Ok(view.record.state == RunState::Running)
}

/// Asks whoever controls a conversation, and hears what comes of it; returns the exit code, or none if they left before they
/// took it.
pub(super) async fn ask(
    mut teller: Teller,
    mut line: Line,
    ask: &Ask,
    signals: &mut Signals,
) -> Result<Option<u8>, Failing> {
    let gone = || {
        Error::new(
            ErrorKind::Unavailable,
            "whoever controlled the conversation is gone; ask again",
        )
    };
    let asking = async {
        // What was not heard whole is taken by nobody.
        line.say(ask).await.ok()?;
        match line.hear().await {
            None => None,
            Some(Tell::Taken) => Some(line.hear().await),
            told => Some(told),
        }
    };
    let told = match unless_called(signals, leaves, Box::pin(asking).as_mut()).await {
        Ok(None) => return Ok(None),
        Ok(Some(told)) => told,
        // Whether they do it is not known; they are not asked to stop.
        Err(call) => return Ok(Some(exit::signalled(call.number().0))),
    };
    let turn = match told {
        Some(Tell::Done { turn }) => turn,
        Some(Tell::Failed { error }) => return Err(Error::from(error).into()),
        _ => return Err(gone().into()),
    };
    let Some(turn) = turn else {
        return Ok(Some(exit::DONE));
    };
    loop {
        let heard = match unless_called(signals, leaves, Box::pin(line.hear()).as_mut()).await {
            Ok(heard) => heard,
            // Who only listens leaves, and the turn goes on.
            Err(call) => {
                teller.finish();
                return Ok(Some(exit::signalled(call.number().0)));
            }
        };
        let Some(Tell::Happened { event }) = heard else {
            teller.finish();
            return Err(gone().into());
        };
        teller.tell(&event);
        if let EventKind::TurnEnded { outcome, .. } = event.kind
            && event.turn == Some(turn)
        {
            return Ok(Some(of_turn(outcome)));
        }
    }
}

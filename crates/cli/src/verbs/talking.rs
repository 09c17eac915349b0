//! Conversations: opened in an agent that was just launched, taken over, left, and ended.

use groundcrew_core::{
    CloseOptions, Launched, RunView,
    error::{Error, ErrorKind},
    id::SessionId,
    store::{RunRecord, RunState},
};
use groundcrew_session::{
    Engine, engine::Opening, event::TurnOutcome, failure, settings::ConversationId,
    state::StateStore as _,
};
use serde::Serialize;

use crate::{
    agents::Conversing,
    args::Format,
    conversation::{
        self, Ending, Talk, Teller, TurnReport,
        desk::{self, Desk, Seat},
        states,
    },
    documents::{Document, Run},
    exit,
    failing::Failing,
    human,
    program::{Context, Crew},
    signals::{Signals, leaves, unless_called},
};

/// A run with what came of a turn.
#[derive(Debug, Serialize)]
struct Talked<'a> {
    #[serde(flatten)]
    run: Run,
    turn: &'a TurnReport,
}

/// How a conversation is begun in an agent that was just launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begin {
    /// Whether the run is new: if the conversation cannot be opened, nothing of the run is left.
    pub(crate) fresh: bool,
    /// Whether an earlier conversation is given up for a new one.
    pub(crate) anew: bool,
    /// Whether we leave as soon as the prompt is taken.
    pub(crate) detach: bool,
}

/// Opens a conversation with the agent of a launch, says what there is to say, and stays until the turn ends.
///
/// # Errors
///
/// When it cannot be opened: a new run is then taken back, one that was resumed is stopped.
pub(crate) async fn begin(
    context: &Context,
    crew: &Crew,
    up: Launched,
    held: &Conversing,
    desk: Desk,
    how: Begin,
    signals: &mut Signals,
) -> Result<u8, Failing> {
    let record = up.record.clone();
    context.console.hide(up.redactor.clone());
    let opened = Box::pin(open(context, crew, up, held, desk, how, signals)).await;
    let mut talk = match opened {
        Ok(talk) => talk,
        Err(failing) => {
            take_back(context, crew, &record, how.fresh).await;
            return Err(failing);
        }
    };
    let Some(prompt) = &held.prompt else {
        return Box::pin(leave(context, crew, &record, talk)).await;
    };
    if how.detach {
        let ending = match Box::pin(talk.say(prompt, signals)).await {
            Ok(Ok(_)) => return Box::pin(leave(context, crew, &record, talk)).await,
            Ok(Err(ending)) => Ok(ending),
            Err(error) => Err(error),
        };
        return Box::pin(finish(context, crew, &record, talk, ending)).await;
    }
    let ending = Box::pin(talk.prompt(prompt, signals)).await;
    Box::pin(finish(context, crew, &record, talk, ending)).await
}

/// Sits down at the desk of a conversation whose agent is about to be launched: nobody else comes between the launch and the
/// first word, and what an earlier agent left is not taken for this one's.
///
/// # Errors
///
/// `Busy` when somebody else controls it; those of the file system.
pub(crate) async fn sit(
    crew: &Crew,
    session: &SessionId,
    seat: Option<Desk>,
) -> Result<Desk, Failing> {
    let directory = states::directory(&crew.home)?;
    let seat = match seat {
        Some(desk) => Seat::Ours(desk),
        None => desk::take(&directory, session).await?,
    };
    let Seat::Ours(desk) = seat else {
        return Err(busy(session).into());
    };
    states::FileStates::new(directory).end(session).await?;
    Ok(desk)
}

async fn open<'a>(
    context: &'a Context,
    crew: &Crew,
    up: Launched,
    held: &Conversing,
    desk: Desk,
    how: Begin,
    signals: &mut Signals,
) -> Result<Talk<'a>, Failing> {
    let Launched {
        record,
        greeting,
        redactor,
        ..
    } = up;
    let (engine, events) = conversation::engine(crew, &record, held, &redactor).await?;
    let settings = conversation::settings(crew, &record, held)?;
    let adopted = conversation::adopted(&record, greeting)?;
    let token = match record.resume_token.clone() {
        // Of a controller that died before it wrote the name down there is the state; what nothing was said in is lost to nobody.
        None if !how.fresh => {
            let states = states::FileStates::new(states::directory(&crew.home)?);
            let known = states.load(&record.session).await?;
            let known = known.filter(|state| state.content);
            known.and_then(|state| state.token).map(|token| token.0)
        }
        token => token,
    };
    let token = token.filter(|_| !how.anew);
    let opening = async {
        match token {
            None => engine.start_in(settings, adopted).await,
            Some(token) => {
                let token = Some(ConversationId(token));
                engine.resume_in(settings, token, adopted).await
            }
        }
    };
    let opened = match unless_called(signals, leaves, Box::pin(opening).as_mut()).await {
        Ok(opened) => opened?,
        Err(call) => {
            return Err(Failing::called(
                "the conversation was not opened, for we were asked to leave",
                exit::signalled(call.number().0),
            ));
        }
    };
    match opened {
        Opening::Ready { conversation, .. } => {
            crew.launcher.remember(&record.run, &conversation.0).await?;
        }
        Opening::AuthenticationRequired { message } => {
            return Err(failure::coded(
                ErrorKind::PermissionDenied,
                failure::AUTHENTICATION_REQUIRED,
                "the agent wants a login first",
            )
            .with("say", message)
            .into());
        }
        _ => {}
    }
    let teller = Teller::new(&context.console, redactor);
    Ok(talk(context, &record, held, engine, events, desk, teller))
}

fn talk<'a>(
    context: &'a Context,
    record: &RunRecord,
    held: &Conversing,
    engine: Engine,
    events: conversation::Events,
    desk: Desk,
    teller: Teller,
) -> Talk<'a> {
    Talk {
        console: &context.console,
        engine,
        session: record.session.clone(),
        events,
        desk,
        teller,
        approve: held.approve,
        person: context.has_person(),
    }
}

/// Takes back a run whose conversation could not be opened; what cannot be is owned, and told by `ls`.
pub(crate) async fn take_back(context: &Context, crew: &Crew, record: &RunRecord, fresh: bool) {
    let stopped = crew.launcher.stop(&record.run, None).await.map(drop);
    let closed = match stopped {
        Ok(()) if fresh => {
            let options = CloseOptions {
                remove: true,
                force: false,
            };
            let closed = crew.launcher.close(&record.run, options).await;
            closed.and_then(|_| states::forget(&crew.home, &record.session))
        }
        stopped => stopped,
    };
    if let Err(error) = closed {
        let error = groundcrew_core::error::Chain(&error).to_string();
        context.console.warn(&error);
    }
}

/// Goes on with a conversation whose agent runs, in place of a controller that is gone or left.
///
/// # Errors
///
/// With the code `agent.session_not_found` when it was never opened, or its agent ended.
pub(super) async fn take_over<'a>(
    context: &'a Context,
    crew: &Crew,
    record: &RunRecord,
    held: &Conversing,
    desk: Desk,
) -> Result<Talk<'a>, Failing> {
    let redactor = conversation::hidden(context, crew, record).await?;
    let (engine, events) = conversation::engine(crew, record, held, &redactor).await?;
    let opening = Box::pin(engine.take_over(&record.session)).await?;
    if let Opening::Ready { conversation, .. } = opening
        && record.resume_token.as_deref() != Some(conversation.0.as_str())
    {
        // Whoever opened it died before the name was written down.
        crew.launcher.remember(&record.run, &conversation.0).await?;
    }
    let teller = Teller::new(&context.console, redactor);
    Ok(talk(context, record, held, engine, events, desk, teller))
}

/// Leaves a conversation that is open; its agent goes on under the lease of its run.
pub(super) async fn leave(
    context: &Context,
    crew: &Crew,
    record: &RunRecord,
    mut talk: Talk<'_>,
) -> Result<u8, Failing> {
    talk.engine.leave(&talk.session).await?;
    talk.tell_rest();
    let view = crew.launcher.observe(&record.run).await?;
    let console = &context.console;
    console.result(record.run.as_str());
    if console.format == Format::Human {
        let id = &record.run;
        console.plain(&format!(
            "  go on      groundcrew prompt {id} … · groundcrew resume {id} · groundcrew stop {id}"
        ));
    }
    console.document(&Document::new(Run::new(&view.record, view.report.as_ref())));
    Ok(exit::DONE)
}

/// Ends the agent behind a turn, unless the turn goes on without us; the conversation can be gone on with.
pub(super) async fn finish(
    context: &Context,
    crew: &Crew,
    record: &RunRecord,
    mut talk: Talk<'_>,
    ending: Result<Ending, Error>,
) -> Result<u8, Failing> {
    talk.teller.finish();
    let code = match &ending {
        Ok(Ending::Left(call)) => {
            let code = exit::signalled(call.number().0);
            Box::pin(leave(context, crew, record, talk)).await?;
            return Ok(code);
        }
        Ok(Ending::Ended(outcome)) => of_turn(*outcome),
        Ok(Ending::Stopped(call) | Ending::Unsaid(call)) => exit::signalled(call.number().0),
        Err(_) => exit::OURS,
    };
    let released = match &ending {
        Ok(Ending::Ended(_)) => talk.engine.release(&talk.session).await,
        _ => talk.engine.disconnect(&talk.session).await,
    };
    // How it ended is told as well.
    talk.tell_rest();
    if released
        .as_ref()
        .is_err_and(|e| failure::is(e, failure::BUSY))
    {
        // A turn that was promised to somebody else has just begun: it is not ours to end.
        Box::pin(leave(context, crew, record, talk)).await?;
        return Ok(code);
    }
    if released.is_err() {
        // It can be resumed by nobody, or did not end: it is ended with its run.
        drop(talk.engine.close(&talk.session).await);
        crew.launcher.stop(&record.run, None).await?;
    }
    let view = Box::pin(settled(crew, record)).await?;
    tell(context, &view, talk.teller.report());
    ending.map_err(|error| error.with("run", &record.run))?;
    Ok(code)
}

/// Records the end of an agent that was just ended.
async fn settled(crew: &Crew, record: &RunRecord) -> Result<RunView, Error> {
    crew.launcher.settle(&record.run).await?;
    crew.launcher.observe(&record.run).await
}

fn tell(context: &Context, view: &RunView, turn: &TurnReport) {
    let console = &context.console;
    if console.format == Format::Human {
        human::summary(console, view);
    } else if view.record.state == RunState::Stuck {
        console.warn("something could not be taken away yet; see `groundcrew recover`");
    }
    document(context, view, turn);
}

pub(super) fn document(context: &Context, view: &RunView, turn: &TurnReport) {
    let run = Run::new(&view.record, view.report.as_ref());
    context
        .console
        .document(&Document::new(Talked { run, turn }));
}

/// Returns the exit code of a turn.
pub(super) const fn of_turn(outcome: TurnOutcome) -> u8 {
    match outcome {
        TurnOutcome::Completed => exit::DONE,
        TurnOutcome::Interrupted | TurnOutcome::Cancelled => 130,
        _ => exit::FAILED,
    }
}

pub(super) fn busy(session: &SessionId) -> Error {
    Error::new(
        ErrorKind::Busy,
        "another process controls the conversation; say something with `groundcrew prompt`",
    )
    .with("session", session)
}

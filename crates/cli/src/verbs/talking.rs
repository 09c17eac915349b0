//! Conversations: what `run` and `resume` do with an agent that is spoken to, and `prompt`, `answer` and `interrupt`.

use groundcrew_core::{
    CloseOptions, Launched, RunView,
    error::{Error, ErrorKind},
    id::SessionId,
    process::{Offset, ProcessPhase},
    redact::Redactor,
    store::{RunRecord, RunState},
};
use groundcrew_session::{
    engine::Opening,
    event::{EventKind, TurnOutcome},
    failure,
    request::{Decision, RequestId},
    settings::ConversationId,
};
use serde::Serialize;
use tokio::sync::mpsc::unbounded_channel;

use crate::{
    agents::{self, Conversing},
    args::{AnswerArgs, CommandArgs, Format, IdArgs, PromptArgs, ResumeArgs, WishArgs},
    conversation::{
        self, Ending, Talk, Teller, TurnReport, carry_out,
        desk::{self, Ask, Desk, Line, Seat, Tell},
        states,
    },
    documents::{Document, Run},
    exit,
    failing::Failing,
    human,
    program::{Context, Crew},
    signals::{Signals, leaves, unless_called},
    verbs,
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
        use groundcrew_session::settings::Prompt;
        let said = talk
            .engine
            .prompt(&talk.session, Prompt::new(prompt.as_str()));
        said.await?;
        return Box::pin(leave(context, crew, &record, talk)).await;
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
pub(crate) async fn sit(crew: &Crew, session: &SessionId) -> Result<Desk, Failing> {
    let directory = states::directory(&crew.home)?;
    let Seat::Ours(desk) = desk::take(&directory, session).await? else {
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
    let token = record.resume_token.clone().filter(|_| !how.anew);
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
    engine: groundcrew_session::Engine,
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
async fn take_over<'a>(
    context: &'a Context,
    crew: &Crew,
    record: &RunRecord,
    held: &Conversing,
    desk: Desk,
) -> Result<Talk<'a>, Failing> {
    let redactor = conversation::hidden(context, crew, record).await?;
    let (engine, events) = conversation::engine(crew, record, held, &redactor).await?;
    Box::pin(engine.take_over(&record.session)).await?;
    let teller = Teller::new(&context.console, redactor);
    Ok(talk(context, record, held, engine, events, desk, teller))
}

/// Leaves a conversation that is open; its agent goes on under the lease of its run.
async fn leave(
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
async fn finish(
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
        Ok(Ending::Stopped(call)) => exit::signalled(call.number().0),
        Err(_) => exit::OURS,
    };
    let released = match &ending {
        Ok(Ending::Ended(_)) => talk.engine.release(&talk.session).await,
        _ => talk.engine.disconnect(&talk.session).await,
    };
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

fn document(context: &Context, view: &RunView, turn: &TurnReport) {
    let run = Run::new(&view.record, view.report.as_ref());
    context
        .console
        .document(&Document::new(Talked { run, turn }));
}

/// Returns the exit code of a turn.
const fn of_turn(outcome: TurnOutcome) -> u8 {
    match outcome {
        TurnOutcome::Completed => exit::DONE,
        TurnOutcome::Interrupted | TurnOutcome::Cancelled => 130,
        _ => exit::FAILED,
    }
}

fn busy(session: &SessionId) -> Error {
    Error::new(
        ErrorKind::Busy,
        "another process controls the conversation; say something with `groundcrew prompt`",
    )
    .with("session", session)
}

/// Goes on with a conversation that is up: says something, or follows what runs; none if it has to be resumed.
///
/// * `stay` leaves it open behind the turn.
///
/// # Errors
///
/// When the agent, or whoever controls it, does not take it.
pub(crate) async fn go_on(
    context: &Context,
    crew: &Crew,
    record: &RunRecord,
    held: &Conversing,
    stay: bool,
    signals: &mut Signals,
) -> Result<Option<u8>, Failing> {
    if !is_up(crew, record).await? {
        return Ok(None);
    }
    let directory = states::directory(&crew.home)?;
    let desk = match desk::take(&directory, &record.session).await? {
        Seat::Ours(desk) => desk,
        Seat::Theirs(line) => {
            let prompt = held.prompt.clone().ok_or_else(|| busy(&record.session))?;
            let redactor = conversation::hidden(context, crew, record).await?;
            let teller = Teller::new(&context.console, redactor);
            let asked = ask(teller, line, Ask::Prompt { text: prompt }, signals);
            return Box::pin(asked).await.map(Some);
        }
    };
    let taken = Box::pin(take_over(context, crew, record, held, desk)).await;
    let mut talk = match taken {
        Ok(talk) => talk,
        Err(failing) if failing.says(failure::NOT_LIVE) => {
            // Its controller died before it was open, or the agent with it: it is begun again.
            crew.launcher.stop(&record.run, None).await?;
            return Ok(None);
        }
        Err(failing) => return Err(failing),
    };
    let ending = match &held.prompt {
        Some(prompt) => Box::pin(talk.prompt(prompt, signals)).await,
        None => Ok(Box::pin(talk.follow(None, signals)).await),
    };
    if stay && let Ok(Ending::Ended(outcome)) = ending {
        talk.engine.leave(&talk.session).await?;
        let view = crew.launcher.observe(&record.run).await?;
        document(context, &view, talk.teller.report());
        return Ok(Some(of_turn(outcome)));
    }
    let done = Box::pin(finish(context, crew, record, talk, ending)).await?;
    Ok(Some(done))
}

/// Tells whether the agent of a run runs.
async fn is_up(crew: &Crew, record: &RunRecord) -> Result<bool, Error> {
    let view = crew.launcher.observe(&record.run).await?;
    Ok(view.record.state == RunState::Running)
}

/// Asks whoever controls a conversation, and hears what comes of it; returns the exit code.
async fn ask(
    mut teller: Teller,
    mut line: Line,
    ask: Ask,
    signals: &mut Signals,
) -> Result<u8, Failing> {
    let gone = || {
        Error::new(
            ErrorKind::Unavailable,
            "whoever controlled the conversation is gone; ask again",
        )
    };
    line.say(&ask).await.map_err(|_| gone())?;
    let turn = match line.hear().await {
        Some(Tell::Done { turn }) => turn,
        Some(Tell::Failed { error }) => return Err(Error::from(error).into()),
        _ => return Err(gone().into()),
    };
    let Some(turn) = turn else {
        return Ok(exit::DONE);
    };
    loop {
        let heard = match unless_called(signals, leaves, Box::pin(line.hear()).as_mut()).await {
            Ok(heard) => heard,
            // Who only listens leaves, and the turn goes on.
            Err(call) => {
                teller.finish();
                return Ok(exit::signalled(call.number().0));
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
            return Ok(of_turn(outcome));
        }
    }
}

/// Says something in a conversation: in the one that is up, or in one that is resumed for it.
///
/// # Errors
///
/// When there is no such run, it holds no conversation, or the agent does not take it.
pub(crate) async fn prompt(context: &Context, args: &PromptArgs) -> Result<u8, Failing> {
    let mut signals = Signals::listen()?;
    let mut wishes = args.wishes.wishes();
    wishes.prompt = Some(args.text.clone());
    let resuming = resuming(&args.id, wishes);
    let (sender, events) = unbounded_channel();
    let crew = context.open(sender).await?;
    crew.tend(&context.console).await;
    let record = crew.launcher.find(&args.id).await?;
    conversation::check(&record)?;
    // It is read once: standard input has an end.
    let asked = agents::of_resume(context, &resuming, &record).await?;
    if let Some(held) = &asked.conversation {
        let went = go_on(context, &crew, &record, held, true, &mut signals);
        if let Some(code) = Box::pin(went).await? {
            return Ok(code);
        }
    }
    let signals = &mut signals;
    let resumed = verbs::run::resume_as(context, &crew, &resuming, &record, asked, events, signals);
    Box::pin(resumed).await
}

/// Makes the words of a resumption that says nothing else.
fn resuming(id: &str, wishes: WishArgs) -> ResumeArgs {
    ResumeArgs {
        command: CommandArgs::default(),
        id: id.to_owned(),
        no_setup: false,
        fresh: false,
        wishes,
        argv: Vec::new(),
    }
}

/// Answers a request of an agent.
///
/// # Errors
///
/// When there is no such run, its agent does not run, or the request waits no more.
pub(crate) async fn answer(context: &Context, args: &AnswerArgs) -> Result<u8, Failing> {
    let decision = decision(args)?;
    let ask = Ask::Answer {
        request: RequestId(args.request.clone()),
        decision,
    };
    at_the_desk(context, &args.id, ask).await
}

fn decision(args: &AnswerArgs) -> Result<Decision, Failing> {
    if !args.input.is_empty() {
        let mut answers = std::collections::BTreeMap::<String, Vec<String>>::new();
        for word in &args.input {
            let (question, text) = word
                .split_once('=')
                .ok_or_else(|| Failing::usage("--input is QUESTION=TEXT"))?;
            let given = answers.entry(question.to_owned()).or_default();
            given.push(text.to_owned());
        }
        return Ok(Decision::Input { answers });
    }
    let word = args.decision.as_deref().unwrap_or_default();
    conversation::read_decision(word, args.because.clone()).ok_or_else(|| {
        Failing::usage(
            "a decision is approve, approve-session, deny, abort, or choose=NAME with a choice that was offered",
        )
    })
}

/// Interrupts the turn of a conversation.
///
/// # Errors
///
/// When there is no such run, its agent does not run, or no turn does.
pub(crate) async fn interrupt(context: &Context, args: &IdArgs) -> Result<u8, Failing> {
    at_the_desk(context, &args.id, Ask::Interrupt).await
}

/// Has something done by whoever controls a conversation, or does it where nobody does.
async fn at_the_desk(context: &Context, id: &str, wanted: Ask) -> Result<u8, Failing> {
    let mut signals = Signals::listen()?;
    let crew = context.open(()).await?;
    let record = crew.launcher.find(id).await?;
    conversation::check(&record)?;
    if !is_up(&crew, &record).await? {
        let error = failure::coded(
            ErrorKind::NotFound,
            failure::NOT_LIVE,
            "the conversation is not open; say something with `groundcrew prompt`",
        );
        return Err(error.with("run", &record.run).into());
    }
    let directory = states::directory(&crew.home)?;
    match desk::take(&directory, &record.session).await? {
        // Neither an answer nor an interruption is followed: nothing is told of what happens.
        Seat::Theirs(line) => {
            let teller = Teller::new(&context.console, Redactor::default());
            ask(teller, line, wanted, &mut signals).await
        }
        Seat::Ours(desk) => {
            let resuming = resuming(id, WishArgs::default());
            let asked = agents::of_resume(context, &resuming, &record).await?;
            let held = asked.conversation.ok_or_else(|| busy(&record.session))?;
            let mut talk = Box::pin(take_over(context, &crew, &record, &held, desk)).await?;
            // What waits is heard of first: it stands in the output that was not read yet.
            caught_up(&crew, &record, &talk).await?;
            let done = Box::pin(carry_out(&talk.engine, &talk.session, wanted)).await;
            talk.engine.leave(&talk.session).await?;
            // What we heard nobody hears again.
            talk.tell_rest();
            done?;
            Ok(exit::DONE)
        }
    }
}

/// Waits until everything that the agent said before we came was read.
async fn caught_up(crew: &Crew, record: &RunRecord, talk: &Talk<'_>) -> Result<(), Error> {
    let instance = crew.launcher.instance(record).await?;
    let agent = record.agent_process()?;
    let processes = instance.processes().await?;
    let said = processes.iter().find(|process| process.id == agent);
    let end = match said {
        Some(process) if matches!(process.phase, ProcessPhase::Running(_)) => process.log_end,
        _ => Offset(0),
    };
    talk.engine.heard_to(&talk.session, end).await;
    Ok(())
}

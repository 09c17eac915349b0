//! `prompt`, `answer` and `interrupt`: something is said to an agent by whoever comes along.

use std::time::Instant;

use groundcrew_core::{
    error::{Error, ErrorKind},
    process::{Offset, ProcessPhase},
    redact::Redactor,
    store::RunRecord,
};
use groundcrew_session::{
    Engine, failure,
    request::{Decision, RequestId},
};
use tokio::sync::mpsc::unbounded_channel;

use super::{
    going_on::{Afterwards, Went, ask, go_on, is_up, untaken},
    run::{Again, resume_as},
    talking::{busy, take_over},
};
use crate::{
    agents,
    args::{AnswerArgs, CommandArgs, IdArgs, PromptArgs, ResumeArgs, WishArgs},
    conversation::{
        self, Teller, carry_out,
        desk::{self, Ask, Seat},
        states,
    },
    exit,
    failing::Failing,
    program::{Context, Crew},
    signals::{Signals, leaves, unless_called},
};

/// Says something in a conversation: in the one that is up, or in one that is resumed for it.
///
/// # Errors
///
/// When there is no such run, it holds no conversation, or the agent does not take it.
pub(crate) async fn prompt(context: &Context, args: &PromptArgs) -> Result<u8, Failing> {
    let mut signals = Signals::listen()?;
    let mut wishes = args.wishes.wishes();
    let approve = wishes.approve;
    wishes.prompt = Some(args.text.clone());
    let resuming = resuming(&args.id, wishes);
    let (sender, events) = unbounded_channel();
    let crew = context.open(sender).await?;
    crew.tend(&context.console).await;
    let record = crew.launcher.find(&args.id).await?;
    conversation::check(&record)?;
    // It is read once: standard input has an end.
    let signals = &mut signals;
    let asked = agents::of_resume(context, &resuming, &record, signals).await?;
    let mut seat = None;
    if let Some(held) = &asked.conversation {
        let stay = Afterwards::Stay;
        let went = go_on(context, &crew, &record, held, approve, stay, signals);
        match Box::pin(went).await? {
            Went::Done(code) => return Ok(code),
            Went::Closed(desk) => seat = desk,
        }
    }
    let again = Again {
        args: &resuming,
        record: &record,
        asked,
        seat,
    };
    let resumed = resume_as(context, &crew, again, events, signals);
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
    let directory = states::directory(&crew.home)?;
    let patience = Instant::now() + desk::PATIENCE;
    let desk = loop {
        match desk::take(&directory, &record.session).await? {
            Seat::Ours(desk) => break desk,
            // Neither an answer nor an interruption is followed: nothing is told of what happens.
            Seat::Theirs(line) => {
                let teller = Teller::new(&context.console, Redactor::default());
                if let Some(code) = ask(teller, line, &wanted, &mut signals).await? {
                    return Ok(code);
                }
                untaken(patience)?;
            }
        }
    };
    if !is_up(&crew, &record).await? {
        let error = failure::coded(
            ErrorKind::NotFound,
            failure::NOT_LIVE,
            "the conversation is not open; say something with `groundcrew prompt`",
        );
        return Err(error.with("run", &record.run).into());
    }
    let resuming = resuming(id, WishArgs::default());
    let asked = agents::of_resume(context, &resuming, &record, &mut signals).await?;
    let held = asked.conversation.ok_or_else(|| busy(&record.session))?;
    let mut talk = Box::pin(take_over(context, &crew, &record, &held, desk)).await?;
    let engine = &talk.engine;
    let working = async {
        // What waits is heard of first: it stands in the output that was not read yet.
        caught_up(&crew, &record, engine).await?;
        carry_out(engine, &record.session, wanted).await
    };
    let done = unless_called(&mut signals, leaves, Box::pin(working).as_mut()).await;
    talk.engine.leave(&talk.session).await?;
    // What we heard nobody hears again.
    talk.tell_rest();
    match done {
        Ok(done) => done.map(|_| exit::DONE).map_err(Failing::from),
        Err(call) => Ok(exit::signalled(call.number().0)),
    }
}

/// Waits until everything that the agent said before we came was read.
async fn caught_up(crew: &Crew, record: &RunRecord, engine: &Engine) -> Result<(), Error> {
    let instance = crew.launcher.instance(record).await?;
    let agent = record.agent_process()?;
    let processes = instance.processes().await?;
    let said = processes.iter().find(|process| process.id == agent);
    let end = match said {
        Some(process) if matches!(process.phase, ProcessPhase::Running(_)) => process.log_end,
        _ => Offset(0),
    };
    engine.heard_to(&record.session, end).await;
    Ok(())
}

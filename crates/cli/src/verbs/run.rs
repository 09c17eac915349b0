//! `run` and `resume`: launch, then stay with the command until it ends or we leave.

use std::pin::pin;

use groundcrew_core::{
    Launched, Launcher, Plan, RunView,
    id::RunId,
    instance::McpServer,
    process::Offset,
    store::{RunRecord, RunState},
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::{
    agents::{self, Asked, Conversing},
    args::{CommandArgs, Format, ResumeArgs, RunArgs},
    conversation::{desk::Desk, states},
    documents::{Document, Run},
    exit,
    failing::Failing,
    follow::{Ending, Follow, Meaning, Subject},
    human,
    launching::launch,
    program::{Context, Crew},
    request,
    signals::{Signals, leaves, unless_called},
    verbs::{
        going_on::{self, Afterwards, Went},
        talking::{self, Begin},
    },
};

type Events = UnboundedReceiver<groundcrew_core::event::Event>;

/// Runs a command in a workspace of its own.
///
/// # Errors
///
/// Our own failures; those of the command are its exit code.
pub(crate) async fn run(context: &Context, args: &RunArgs) -> Result<u8, Failing> {
    let mut signals = Signals::listen()?;
    let Asked {
        agent,
        conversation,
    } = agents::of_run(context, args, &mut signals).await?;
    let servers = servers(conversation.as_ref());
    let request = request::fresh(
        args,
        agent,
        servers,
        context.console.format,
        context.settings.config()?,
        &context.surroundings,
    )?;
    let (sender, events) = unbounded_channel();
    let crew = context.open(sender).await?;
    crew.tend(&context.console).await;
    let plan = crew.launcher.plan(request).await?;
    if let Some(held) = conversation {
        let how = Begin {
            fresh: true,
            anew: false,
            detach: args.command.detach,
        };
        let talked = conversing(
            context,
            &crew,
            plan,
            events,
            (&held, None),
            how,
            &mut signals,
        );
        return Box::pin(talked).await;
    }
    Box::pin(attended(
        context,
        &crew.launcher,
        plan,
        events,
        &args.command,
        &mut signals,
    ))
    .await
}

/// Launches the agent of a conversation, and holds that, from our seat at its desk if we have one.
async fn conversing(
    context: &Context,
    crew: &Crew,
    plan: Plan,
    mut events: Events,
    (held, seat): (&Conversing, Option<Desk>),
    how: Begin,
    signals: &mut Signals,
) -> Result<u8, Failing> {
    let console = &context.console;
    let session = plan.session().clone();
    let desk = talking::sit(crew, &session, seat).await?;
    let launched = launch(&crew.launcher, plan, &mut events, console, signals);
    let (up, called) = match Box::pin(launched).await {
        Ok(launched) => launched,
        Err(failing) => {
            drop(desk);
            if how.fresh {
                // Of a conversation that never began nothing is left.
                states::forget(&crew.home, &session)?;
            }
            return Err(failing);
        }
    };
    if let Some(call) = called {
        // It came too late to cancel the launch; a run in which nobody said anything is taken back all the same.
        talking::take_back(context, crew, &up.record, how.fresh).await;
        return Err(Failing::called(
            "the conversation was not opened, for we were asked to leave",
            exit::signalled(call.number().0),
        ));
    }
    Box::pin(talking::begin(context, crew, up, held, desk, how, signals)).await
}

/// Returns the tool servers that a conversation opens with.
fn servers(held: Option<&Conversing>) -> Vec<McpServer> {
    held.map(|held| held.servers.clone()).unwrap_or_default()
}

/// Runs a command again in the workspace that a run kept.
///
/// # Errors
///
/// As for [`run`].
pub(crate) async fn resume(context: &Context, args: &ResumeArgs) -> Result<u8, Failing> {
    let mut signals = Signals::listen()?;
    let (sender, events) = unbounded_channel();
    let crew = context.open(sender).await?;
    crew.tend(&context.console).await;
    let record = crew.launcher.find(&args.id).await?;
    let signals = &mut signals;
    let asked = agents::of_resume(context, args, &record, signals).await?;
    let mut seat = None;
    if let Some(held) = &asked.conversation {
        let approve = args.wishes.approve;
        let afterwards = match (args.command.detach, &held.prompt) {
            (false, _) => Afterwards::End,
            (true, None) => Afterwards::Stay,
            (true, Some(_)) => Afterwards::Leave,
        };
        let went = going_on::go_on(context, &crew, &record, held, approve, afterwards, signals);
        match Box::pin(went).await? {
            Went::Done(code) => return Ok(code),
            Went::Closed(desk) => seat = desk,
        }
    }
    let again = Again {
        args,
        record: &record,
        asked,
        seat,
    };
    let resumed = resume_as(context, &crew, again, events, signals);
    Box::pin(resumed).await
}

/// What is launched again.
#[derive(Debug)]
pub(crate) struct Again<'a> {
    pub(crate) args: &'a ResumeArgs,
    pub(crate) record: &'a RunRecord,
    pub(crate) asked: Asked,
    /// Our seat at the desk of its conversation, where we sit there already.
    pub(crate) seat: Option<Desk>,
}

/// Launches what was asked for in the workspace that a run kept.
///
/// # Errors
///
/// As for [`run`].
pub(crate) async fn resume_as(
    context: &Context,
    crew: &Crew,
    again: Again<'_>,
    events: Events,
    signals: &mut Signals,
) -> Result<u8, Failing> {
    let Again {
        args,
        record,
        asked,
        seat,
    } = again;
    let Asked {
        agent,
        conversation,
    } = asked;
    let request = request::resumed(
        args,
        record,
        agent,
        servers(conversation.as_ref()),
        context.console.format,
        context.settings.config()?,
        &context.surroundings,
    )?;
    let plan = crew.launcher.plan(request).await?;
    if let Some(held) = conversation {
        let how = Begin {
            fresh: false,
            anew: args.fresh,
            detach: args.command.detach,
        };
        let talked = conversing(context, crew, plan, events, (&held, seat), how, signals);
        return Box::pin(talked).await;
    }
    Box::pin(attended(
        context,
        &crew.launcher,
        plan,
        events,
        &args.command,
        signals,
    ))
    .await
}

async fn attended(
    context: &Context,
    launcher: &Launcher,
    plan: Plan,
    mut events: Events,
    args: &CommandArgs,
    signals: &mut Signals,
) -> Result<u8, Failing> {
    let console = &context.console;
    let (up, called) = Box::pin(launch(launcher, plan, &mut events, console, signals)).await?;
    let Launched {
        record, redactor, ..
    } = up;
    console.hide(redactor.clone());
    if args.detach && called.is_none() {
        let view = launcher.observe(&record.run).await?;
        detached(context, &view);
        return Ok(exit::DONE);
    }
    let follow = Follow {
        launcher,
        record: &record,
        subject: Subject::Agent,
        detach_keys: &args.streams.detach_keys,
        redactor: &redactor,
        console,
        from: Offset(0),
        inward: request::inward(
            &args.streams,
            console.format,
            context.surroundings.terminals,
        ),
        meaning: Meaning::Command,
        called,
    };
    let followed = Box::pin(follow.follow(signals)).await;
    match followed {
        Ok(Ending::Detached(call)) => {
            left(context, &record);
            let view = launcher.observe(&record.run).await?;
            console.document(&Document::new(Run::new(&view.record, view.report.as_ref())));
            Ok(call.map_or(exit::DONE, |call| exit::signalled(call.number().0)))
        }
        Ok(Ending::Left(call)) => {
            let view = launcher.observe(&record.run).await?;
            tell(context, &view);
            Ok(exit::signalled(call.number().0))
        }
        Ok(Ending::Ended(status)) => {
            let view = settled(context, launcher, &record.run, signals).await?;
            tell(context, &view);
            Ok(exit::of_command(status))
        }
        Ok(Ending::Lost(error)) => {
            // What it came to is put right first; why it was lost is what is told.
            drop(launcher.settle(&record.run).await);
            Err(error.with("run", &record.run).into())
        }
        Err(failing) => {
            drop(launcher.settle(&record.run).await);
            Err(failing)
        }
    }
}

/// Settles a run whose command ended, and reads it again; the second signal leaves at once.
async fn settled(
    context: &Context,
    launcher: &Launcher,
    run: &RunId,
    signals: &mut Signals,
) -> Result<RunView, Failing> {
    let mut settling = pin!(async {
        launcher.settle(run).await?;
        launcher.observe(run).await
    });
    // Whoever pressed Ctrl-C twice to end the command does not mean this.
    if let Ok(view) = unless_called(signals, leaves, settling.as_mut()).await {
        return Ok(view?);
    }
    context
        .console
        .note("taking back what the command used; once more leaves at once");
    match unless_called(signals, leaves, settling).await {
        Ok(view) => Ok(view?),
        Err(call) => Err(Failing::called(
            "left before everything was taken back; the rest is owned: see `groundcrew recover`",
            exit::signalled(call.number().0),
        )),
    }
}

fn tell(context: &Context, view: &RunView) {
    let console = &context.console;
    if console.format == Format::Human {
        human::summary(console, view);
    } else if view.record.state == RunState::Stuck {
        console.warn("something could not be taken away yet; see `groundcrew recover`");
    }
    console.document(&Document::new(Run::new(&view.record, view.report.as_ref())));
}

fn detached(context: &Context, view: &RunView) {
    let console = &context.console;
    let id = &view.record.run;
    console.result(id.as_str());
    if console.format == Format::Human {
        for line in human::facts(&view.record, view.report.as_ref(), console.err_style) {
            console.plain(&line);
        }
        console.plain(&format!(
            "  go on      groundcrew attach {id} · groundcrew logs -f {id} · groundcrew stop {id}"
        ));
    }
    console.document(&Document::new(Run::new(&view.record, view.report.as_ref())));
}

fn left(context: &Context, record: &RunRecord) {
    use groundcrew_core::process::Lease;
    let id = &record.run;
    let lease = match record.lease {
        Lease::Unlimited => String::new(),
        Lease::After(duration) => format!(
            " for {} unless somebody attaches",
            humantime::format_duration(duration)
        ),
    };
    context.console.note(&format!(
        "detached; {id} runs on{lease}: groundcrew attach {id}"
    ));
}

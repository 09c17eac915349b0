//! `run` and `resume`: launch, then stay with the command until it ends or we leave.

use groundcrew_core::{
    Launched, Launcher, Plan, RunView,
    error::Error,
    id::RunId,
    process::Offset,
    store::{RunRecord, RunState},
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::{
    args::{CommandArgs, Format, ResumeArgs, RunArgs},
    documents::{Document, Run},
    exit,
    failing::Failing,
    follow::{Ending, Follow, Meaning},
    human,
    launching::launch,
    program::Context,
    request,
    signals::Signals,
};

type Events = UnboundedReceiver<groundcrew_core::event::Event>;

/// Runs a command in a workspace of its own.
///
/// # Errors
///
/// Our own failures; those of the command are its exit code.
pub(crate) async fn run(context: &Context, args: &RunArgs) -> Result<u8, Failing> {
    let mut signals = Signals::listen()?;
    let request = request::fresh(args, context.console.format, &context.surroundings)?;
    let (sender, events) = unbounded_channel();
    let crew = context.open(sender).await?;
    let plan = crew.launcher.plan(request).await?;
    attended(
        context,
        &crew.launcher,
        plan,
        events,
        &args.command,
        &mut signals,
    )
    .await
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
    let record = crew.launcher.find(&args.id).await?;
    let request = request::resumed(args, &record, context.console.format, &context.surroundings)?;
    let plan = crew.launcher.plan(request).await?;
    attended(
        context,
        &crew.launcher,
        plan,
        events,
        &args.command,
        &mut signals,
    )
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
    let (Launched { record, .. }, called) =
        Box::pin(launch(launcher, plan, &mut events, console, signals)).await?;
    if args.detach && called.is_none() {
        let view = launcher.observe(&record.run).await?;
        detached(context, &view);
        return Ok(exit::DONE);
    }
    let follow = Follow {
        launcher,
        record: &record,
        console,
        from: Offset(0),
        inward: request::inward(args, console.format, context.surroundings.terminals),
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
        Ok(Ending::Ended(status)) => {
            let view = settled(launcher, &record.run).await?;
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

/// Settles a run whose command ended, and reads it again.
async fn settled(launcher: &Launcher, run: &RunId) -> Result<RunView, Error> {
    launcher.settle(run).await?;
    launcher.observe(run).await
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

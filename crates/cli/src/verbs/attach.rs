//! `attach`: watch the command of a run, and work in its terminal if it has one.

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::ProcessId,
    process::{Offset, ProcessPhase, ProcessState},
    redact::Redactor,
    store::RunRecord,
};

use crate::{
    args::{AttachArgs, Format},
    console::Console,
    documents::{Document, Run},
    exit,
    failing::Failing,
    follow::{Ending, Follow, Inward, Meaning, Subject},
    human,
    program::{Context, Crew},
    signals::Signals,
    terminal,
};

/// How much of a terminal's past is replayed: enough for its present screen.
const REPLAYED: u64 = 256 * 1024;

/// Returns what hides a run's secrets, also in what we say from now on; nothing if the output is wanted as it is.
///
/// # Errors
///
/// When the store of secrets cannot tell what must be hidden.
pub(crate) async fn hidden(
    crew: &Crew,
    record: &RunRecord,
    console: &Console,
    raw: bool,
) -> Result<Redactor, Error> {
    if raw {
        return Ok(Redactor::default());
    }
    let redactor = crew.launcher.redactor(record).await.map_err(|error| {
        let message = "the run's secrets cannot be revealed, so nobody knows what to hide; --raw shows its output as it is";
        Error::new(error.kind(), message).with_source(error)
    })?;
    console.hide(redactor.clone());
    Ok(redactor)
}

/// Attaches.
///
/// # Errors
///
/// When there is no such run, or nothing of it can be reached.
pub(crate) async fn attach(context: &Context, args: &AttachArgs) -> Result<u8, Failing> {
    let console = &context.console;
    let mut signals = Signals::listen()?;
    let crew = context.open(()).await?;
    let record = crew.launcher.find(&args.id).await?;
    let process = process(&crew, &record, args.process.as_ref()).await?;
    let running = matches!(process.phase, ProcessPhase::Running(_));
    let interactive =
        context.surroundings.terminals.interactive() && console.format == Format::Human;
    let terminal = running
        && interactive
        && !args.no_terminal
        && !args.view
        && has_terminal(&crew, &record, &process.id).await?;
    let inward = match (terminal, args.interactive && running) {
        (true, _) => Inward::Terminal,
        (false, true) => Inward::Pipe,
        (false, false) => Inward::Nothing,
    };
    let from = match args.from {
        Some(from) => Offset(from),
        None if terminal => Offset(
            process
                .log_end
                .0
                .saturating_sub(REPLAYED)
                .max(process.log_start.0),
        ),
        None => Offset(0),
    };
    let redactor = hidden(&crew, &record, console, args.raw).await?;
    let follow = Follow {
        launcher: &crew.launcher,
        record: &record,
        subject: Subject::of(args.process.as_ref()),
        detach_keys: &args.detach_keys,
        redactor: &redactor,
        console,
        from,
        inward,
        meaning: Meaning::Watching,
        called: None,
    };
    match Box::pin(follow.follow(&mut signals)).await? {
        // Nothing is ended from here: whoever leaves, leaves a run that goes on.
        Ending::Detached(_) | Ending::Left(_) => {
            console.note(&format!("detached; {} runs on", record.run));
            let view = crew.launcher.observe(&record.run).await?;
            console.document(&Document::new(Run::new(&view.record, view.report.as_ref())));
        }
        Ending::Ended(status) if args.process.is_some() => {
            // The run goes on, or its own end is told by whoever follows that.
            console.note(&format!("{} of {} {status}", process.id, record.run));
        }
        Ending::Ended(_) => {
            // Whoever runs it settles it as well; the first one does.
            crew.launcher.settle(&record.run).await?;
            let view = crew.launcher.observe(&record.run).await?;
            if console.format == Format::Human {
                human::summary(console, &view);
            }
            console.document(&Document::new(Run::new(&view.record, view.report.as_ref())));
        }
        Ending::Lost(error) => {
            drop(crew.launcher.settle(&record.run).await);
            return Err(error.with("run", &record.run).into());
        }
    }
    Ok(exit::DONE)
}

/// Finds a process of a run: its command if none is named.
///
/// # Errors
///
/// `NotFound` when the run has none of that name, listing those it has, or when nothing is left of it.
pub(crate) async fn process(
    crew: &Crew,
    record: &RunRecord,
    name: Option<&ProcessId>,
) -> Result<ProcessState, Error> {
    let instance = crew.launcher.instance(record).await?;
    let wanted = name.map_or_else(|| record.agent_process(), |name| Ok(name.clone()))?;
    let all = instance.processes().await?;
    if let Some(found) = all.iter().find(|process| process.id == wanted) {
        return Ok(found.clone());
    }
    let error = if name.is_none() {
        Error::new(
            ErrorKind::NotFound,
            "the run has no command, or it was never started",
        )
    } else {
        let known: Vec<_> = all.iter().map(|process| process.id.as_str()).collect();
        Error::new(
            ErrorKind::NotFound,
            "the run has no process of this name; see `show`",
        )
        .with("process", wanted)
        .with("known", known.join(", "))
    };
    Err(error.with("run", &record.run))
}

/// Finds out whether a process has a terminal, by giving it the size of ours.
async fn has_terminal(crew: &Crew, record: &RunRecord, process: &ProcessId) -> Result<bool, Error> {
    let instance = crew.launcher.instance(record).await?;
    match instance.resize(process, terminal::size()).await {
        Ok(()) => Ok(true),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::Unsupported | ErrorKind::Unavailable
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

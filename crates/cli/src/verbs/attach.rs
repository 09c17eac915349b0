//! `attach`: watch the command of a run, and work in its terminal if it has one.

use groundcrew_core::{
    agent_process,
    error::{Error, ErrorKind},
    process::{Offset, ProcessPhase},
    redact::Redactor,
    store::RunRecord,
};

use crate::{
    args::{AttachArgs, Format},
    console::Console,
    documents::{Document, Run},
    exit,
    failing::Failing,
    follow::{Ending, Follow, Inward, Meaning},
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
    let process = agent(&crew, &record).await?;
    let running = matches!(process.phase, ProcessPhase::Running(_));
    let interactive =
        context.surroundings.terminals.interactive() && console.format == Format::Human;
    let terminal =
        running && interactive && !args.no_terminal && has_terminal(&crew, &record).await?;
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

/// Finds the agent of a run.
///
/// # Errors
///
/// `NotFound` when the run has none, or nothing is left of it.
pub(crate) async fn agent(
    crew: &Crew,
    record: &RunRecord,
) -> Result<groundcrew_core::process::ProcessState, Error> {
    let instance = crew.launcher.instance(record).await?;
    let agent = agent_process()?;
    let found = instance
        .processes()
        .await?
        .into_iter()
        .find(|process| process.id == agent);
    found.ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            "the run has no command, or it was never started",
        )
        .with("run", &record.run)
    })
}

/// Finds out whether the agent has a terminal, by giving it the size of ours.
async fn has_terminal(crew: &Crew, record: &RunRecord) -> Result<bool, Error> {
    let instance = crew.launcher.instance(record).await?;
    match instance.resize(&agent_process()?, terminal::size()).await {
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

//! `exec`: one more process in the instance of a run, with the run's own environment.

use groundcrew_core::{
    command::Command,
    env::{Environment, Key},
    error::{Error, ErrorKind},
    executor::Isolation,
    id::{ProcessId, RunId},
    process::{
        DEFAULT_LOG_LIMIT, EndCause, EnvironmentSource, ExitStatus, Milliseconds, Offset,
        ProcessSpec, StdinPolicy, StdioKind, StopOrder,
    },
    store::{RunRecord, RunState},
};
use serde::Serialize;

use crate::{
    args::ExecArgs,
    documents::Document,
    exit,
    failing::Failing,
    follow::{Ending, Follow, Inward, Meaning, Subject},
    program::{Context, Crew},
    request,
    signals::Signals,
    terminal,
    text::Text,
    variables::TERM,
    verbs::attach::hidden,
};

/// The document of an end, or of a process that was left.
#[derive(Debug, Serialize)]
struct Executed {
    /// The run.
    id: String,
    /// The process, for `logs --process` and `attach --process`.
    process: String,
    command: Vec<Text>,
    /// The code that `exec` ends with; none while the process runs on.
    exit_code: Option<u8>,
    signal: Option<String>,
    cause: Option<EndCause>,
}

impl Executed {
    fn new(
        record: &RunRecord,
        process: &ProcessId,
        spec: &ProcessSpec,
        status: Option<ExitStatus>,
    ) -> Self {
        Self {
            id: record.run.to_string(),
            process: process.to_string(),
            command: spec.command.arguments().iter().map(Text::os).collect(),
            exit_code: status.map(exit::of_command),
            signal: status
                .and_then(|status| status.signal)
                .map(|signal| signal.to_string()),
            cause: status.map(|status| status.cause),
        }
    }
}

/// Runs a process in the instance of a run, and stays with it until it ends or we leave.
///
/// # Errors
///
/// Our own failures; those of the command are its exit code.
pub(crate) async fn exec(context: &Context, args: &ExecArgs) -> Result<u8, Failing> {
    let console = &context.console;
    let mut signals = Signals::listen()?;
    let crew = context.open(()).await?;
    let record = crew.launcher.find(&args.id).await?;
    let redactor = hidden(&crew, &record, console, args.raw).await?;
    let (spec, inward) = specified(context, args, &crew, &record)?;
    // Ours alone: nobody else starts a process of this name, so asking twice can only mean the same.
    let process = ProcessId::new(format!("exec-{}", RunId::generate()?))?;
    let instance = crew.launcher.instance(&record).await?;
    instance
        .start(&process, &spec)
        .await
        .map_err(|error| unstarted(error, &record))?;
    let follow = Follow {
        launcher: &crew.launcher,
        record: &record,
        subject: Subject::Process(&process),
        redactor: &redactor,
        console,
        from: Offset(0),
        inward,
        detach_keys: &args.streams.detach_keys,
        meaning: Meaning::Command,
        called: None,
    };
    match Box::pin(follow.follow(&mut signals)).await? {
        Ending::Ended(status) => {
            console.document(&Document::new(Executed::new(
                &record,
                &process,
                &spec,
                Some(status),
            )));
            Ok(exit::of_command(status))
        }
        Ending::Detached(call) => {
            let run = &record.run;
            console.note(&format!(
                "detached; {process} of {run} runs on: groundcrew attach --process {process} {run}"
            ));
            console.document(&Document::new(Executed::new(
                &record, &process, &spec, None,
            )));
            Ok(call.map_or(exit::DONE, |call| exit::signalled(call.number().0)))
        }
        Ending::Left(call) => Ok(exit::signalled(call.number().0)),
        Ending::Lost(error) => Err(error.with("run", &record.run).into()),
    }
}

/// Makes the specification of the process, and decides what goes to it.
fn specified(
    context: &Context,
    args: &ExecArgs,
    crew: &Crew,
    record: &RunRecord,
) -> Result<(ProcessSpec, Inward), Failing> {
    let Some(workspace) = &record.workspace else {
        let error = Error::new(
            ErrorKind::Unsupported,
            "the run has no workspace to work in",
        );
        return Err(error.with("run", &record.run).into());
    };
    let (format, terminals) = (context.console.format, context.surroundings.terminals);
    let wanted = request::wants_terminal(&args.streams, format, terminals);
    let inward = request::inward(&args.streams, format, terminals);
    let mut overlay = Environment::new();
    if wanted {
        // The terminal is ours, and not that of whoever started the run.
        let term = context.surroundings.variable("TERM");
        let term = term.map_or(TERM.as_bytes(), std::os::unix::ffi::OsStrExt::as_bytes);
        overlay.set(Key::new("TERM")?, term);
    }
    let executor = &crew.launcher.registry().get(&record.executor)?.executor;
    let spec = ProcessSpec {
        command: Command::new(args.argv.iter().cloned())?,
        directory: workspace.directory.clone(),
        environment: EnvironmentSource::Run(overlay),
        stdio: if wanted {
            StdioKind::Terminal(terminal::size())
        } else {
            StdioKind::Pipes
        },
        stdin: if inward == Inward::Nothing {
            StdinPolicy::Empty
        } else {
            StdinPolicy::Open
        },
        time_limit: args.timeout.map(Milliseconds),
        idle_limit: None,
        stop: StopOrder::default(),
        no_new_privileges: executor.capabilities().isolation != Isolation::Process,
        main: false,
        log_limit: DEFAULT_LOG_LIMIT,
    };
    Ok((spec, inward))
}

/// Says what to do where the run is not up.
fn unstarted(error: Error, record: &RunRecord) -> Error {
    if error.kind() == ErrorKind::Unavailable && record.state != RunState::Preparing {
        let message = "the run is not up, so nothing can be started in it; see `groundcrew resume`";
        return Error::new(ErrorKind::Unavailable, message)
            .with("run", &record.run)
            .with_source(error);
    }
    error.with("run", &record.run)
}

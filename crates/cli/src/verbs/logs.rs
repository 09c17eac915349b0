//! `logs`: what the command of a run printed, also after it ended.

use groundcrew_core::{
    error::{Chain, Error},
    process::{ExitStatus, Offset, ProcessPhase, ProcessState, Role},
    redact::HOLD_FOR_PIPE,
    store::RunRecord,
};
use serde::Serialize;

use crate::{
    args::{Format, LogsArgs},
    documents::{Document, SCHEMA_VERSION},
    exit,
    failing::Failing,
    masking::Masking,
    output::{Filter, Output, Shape},
    program::{Context, Crew},
    signals::{Signals, leaves, unless_called},
    verbs::attach::{hidden, process},
};

/// What is told at the end, after all output.
#[derive(Debug, Serialize)]
struct Told<'a> {
    id: &'a str,
    /// Where the next reading goes on.
    offset: u64,
}

/// Prints recorded output.
///
/// # Errors
///
/// When there is no such run, or its output is no longer kept.
pub(crate) async fn logs(context: &Context, args: &LogsArgs) -> Result<u8, Failing> {
    let console = &context.console;
    let mut signals = Signals::listen()?;
    let crew = context.open(()).await?;
    let record = crew.launcher.find(&args.id).await?;
    let process = process(&crew, &record, args.process.as_ref()).await?;
    let id = record.run.as_str();
    let shape = match console.format {
        Format::Human => Shape::Streams,
        Format::Jsonl => Shape::Events,
        Format::Json => Shape::Members { first: true },
    };
    let redactor = hidden(&crew, &record, console, args.raw).await?;
    let masking = Masking::new(&redactor, HOLD_FOR_PIPE);
    let mut output = Output::start(shape, Offset(args.from), masking)?;
    output.only(Filter {
        since_ms: args.since.unwrap_or(0),
        stdout: args.stdout || !args.stderr,
        stderr: args.stderr || !args.stdout,
    });
    // Only now: what fails before is told by a document of its own.
    if console.format == Format::Json {
        console.raw(&format!(
            "{{\"schema_version\": {SCHEMA_VERSION}, \"id\": \"{id}\", \"frames\": ["
        ));
    }
    let reading = read(&crew, &record, &process, args.follow, &mut output);
    let read = unless_called(&mut signals, leaves, reading).await;
    let offset = output.at();
    let written = unless_called(&mut signals, leaves, output.finish()).await;
    if console.format == Format::Json {
        // What went wrong half-way belongs into the one document.
        let error = match &read {
            Ok(Err(error)) => serde_json::json!(Chain(error).to_string()),
            _ => serde_json::Value::Null,
        };
        console.raw(&format!("], \"offset\": {offset}, \"error\": {error}}}"));
    }
    match read {
        Ok(Err(error)) if console.format == Format::Json => {
            console.note(&Chain(&error).to_string());
            return Ok(exit::of_failure(error.kind()));
        }
        Ok(Err(error)) => return Err(error.into()),
        Ok(Ok(_)) | Err(_) => {}
    }
    if let Ok(Err(error)) = written {
        return Err(Error::io("standard output cannot be written", error).into());
    }
    if console.format == Format::Jsonl {
        console.document(&Document::new(Told {
            id,
            offset: offset.0,
        }));
    }
    Ok(exit::DONE)
}

/// Copies recorded output; with `follow` until the command ends, else up to what is recorded now.
async fn read(
    crew: &Crew,
    record: &RunRecord,
    process: &ProcessState,
    follow: bool,
    output: &mut Output,
) -> Result<Option<ExitStatus>, Error> {
    let running = matches!(process.phase, ProcessPhase::Running(_));
    let until = (!follow && running).then_some(process.log_end);
    // One that is gone without a word has no last frame to wait for.
    let until = if process.phase == ProcessPhase::Lost {
        Some(process.log_end)
    } else {
        until
    };
    if until.is_some_and(|until| output.at() >= until) {
        return Ok(None);
    }
    let instance = crew.launcher.instance(record).await?;
    let mut stdio = instance
        .attach(&process.id, output.at(), Role::Viewer)
        .await?;
    output.copy(&mut stdio, until).await
}

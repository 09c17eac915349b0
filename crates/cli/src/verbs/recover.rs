//! `recover`: settle what an interrupted groundcrew left behind, and name what stays.

use groundcrew_core::{
    RecoveryReport,
    error::{Chain, Error, ErrorReport},
    store::RunState,
};
use serde::Serialize;

use crate::{
    args::Format,
    console::Console,
    documents::{Document, Failure, KeptDocument},
    exit,
    failing::Failing,
    program::Context,
    text::printable,
};

#[derive(Debug, Serialize)]
struct Recovered {
    settled: Vec<SettledRun>,
    rolled_back: Vec<String>,
    closed: Vec<String>,
    kept: Vec<KeptOfRun>,
    stuck: Vec<StuckOfRun>,
    strays: Vec<String>,
    unknown: Vec<Failure>,
    busy: Vec<String>,
}

#[derive(Debug, Serialize)]
struct SettledRun {
    id: String,
    state: RunState,
}

#[derive(Debug, Serialize)]
struct KeptOfRun {
    id: String,
    #[serde(flatten)]
    kept: KeptDocument,
}

#[derive(Debug, Serialize)]
struct StuckOfRun {
    id: String,
    what: String,
    error: Failure,
}

/// Recovers.
///
/// # Errors
///
/// When the state cannot be read, or is damaged.
pub(crate) async fn recover(context: &Context) -> Result<u8, Failing> {
    let console = &context.console;
    let crew = context.open(()).await?;
    let report = crew.launcher.recover().await?;
    if console.format == Format::Human {
        tell(console, &report);
    }
    console.document(&Document::new(document(&report)));
    Ok(if report.is_clean() {
        exit::DONE
    } else {
        exit::LEFTOVERS
    })
}

fn document(report: &RecoveryReport) -> Recovered {
    let ids = |runs: &[groundcrew_core::id::RunId]| runs.iter().map(ToString::to_string).collect();
    Recovered {
        settled: report
            .settled
            .iter()
            .map(|(run, state)| SettledRun {
                id: run.to_string(),
                state: *state,
            })
            .collect(),
        rolled_back: ids(&report.rolled_back),
        closed: ids(&report.closed),
        kept: report
            .kept
            .iter()
            .map(|(run, kept)| KeptOfRun {
                id: run.to_string(),
                kept: KeptDocument::new(&kept.what, &kept.findings),
            })
            .collect(),
        stuck: report
            .stuck
            .iter()
            .map(|(run, what, error)| StuckOfRun {
                id: run.to_string(),
                what: what.clone(),
                error: Failure::from(error),
            })
            .collect(),
        strays: report.strays.clone(),
        unknown: report.unknown.iter().map(Failure::from).collect(),
        busy: ids(&report.busy),
    }
}

fn chain(report: &ErrorReport) -> String {
    let error = Error::from(report.clone());
    Chain(&error).to_string()
}

fn tell(console: &Console, report: &RecoveryReport) {
    let mut said = false;
    let mut say = |line: String| {
        said = true;
        console.result(&printable(&line));
    };
    for (run, state) in &report.settled {
        say(format!("{run} is {state}"));
    }
    for run in &report.rolled_back {
        say(format!(
            "{run} was not launched to its end and is taken back"
        ));
    }
    for run in &report.closed {
        say(format!("{run} is closed"));
    }
    for (run, kept) in &report.kept {
        let kept = KeptDocument::new(&kept.what, &kept.findings);
        say(format!("{run} keeps {}: {}", kept.what, kept.why));
    }
    for (run, what, error) in &report.stuck {
        say(format!("{run} still owns {what}: {}", chain(error)));
    }
    for stray in &report.strays {
        say(format!(
            "{stray} carries our mark and belongs to no run we know; it is left alone"
        ));
    }
    for error in &report.unknown {
        say(format!("not everything could be listed: {}", chain(error)));
    }
    for run in &report.busy {
        say(format!("{run} is being worked on and left alone"));
    }
    if !said {
        console.note("nothing to recover");
    }
}

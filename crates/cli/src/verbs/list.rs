//! `ls` and `show`: runs as they really are; nothing is written.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use groundcrew_core::{
    RunView,
    process::{EndCause, ProcessPhase, ProcessState},
    store::RunRecord,
};
use serde::Serialize;

use crate::{
    args::{Format, IdArgs, LsArgs},
    documents::{Document, Run, Runs},
    exit,
    failing::Failing,
    human,
    program::{Context, Crew},
    style::Style,
    text::{printable, printable_os},
};

/// How long an instance may take to tell its processes.
const ANSWER: Duration = Duration::from_secs(5);

/// Lists runs.
///
/// # Errors
///
/// When the state cannot be read.
pub(crate) async fn ls(context: &Context, args: &LsArgs) -> Result<u8, Failing> {
    let console = &context.console;
    let crew = context.open(()).await?;
    let mut views = crew.launcher.runs().await?;
    views.retain(|view| args.all || view.record.state.is_live());
    if console.format == Format::Human {
        for line in table(&views, SystemTime::now(), console.out_style) {
            console.result(&line);
        }
        if views.is_empty() {
            console.note(if args.all {
                "no runs"
            } else {
                "no runs; --all lists closed and failed ones as well"
            });
        }
    }
    let runs = views
        .iter()
        .map(|view| Run::new(&view.record, view.report.as_ref()))
        .collect();
    console.document(&Document::new(Runs { runs }));
    Ok(exit::DONE)
}

/// Shows one run.
///
/// # Errors
///
/// When there is no such run.
pub(crate) async fn show(context: &Context, args: &IdArgs) -> Result<u8, Failing> {
    let console = &context.console;
    let crew = context.open(()).await?;
    let record = crew.launcher.find(&args.id).await?;
    let view = crew.launcher.observe(&record.run).await?;
    let processes = processes(&crew, &view.record).await;
    for line in human::details(&view, console.out_style) {
        console.result(&line);
    }
    for process in &processes {
        console.result(&format!("  process    {process}"));
    }
    console.document(&Document::new(Shown {
        run: Run::new(&view.record, view.report.as_ref()),
        processes,
    }));
    Ok(exit::DONE)
}

/// The document of one run: what `run` tells, and its processes.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    run: Run,
    /// Those that were started in its present instance, in that order; empty once nothing is left of it.
    processes: Vec<Process>,
}

/// A process of a run.
#[derive(Debug, Serialize)]
struct Process {
    /// Its name, for `logs --process`.
    name: String,
    /// Whether it is the command: its end ends the run.
    main: bool,
    /// `running`, `ended` or `lost`.
    state: &'static str,
    /// Its number while it runs.
    pid: Option<u32>,
    /// The code that `run` or `exec` ends with for it.
    exit_code: Option<u8>,
    signal: Option<String>,
    cause: Option<EndCause>,
    /// The first byte of its output that is still kept.
    log_start: u64,
    /// How much it printed.
    log_end: u64,
    #[serde(skip)]
    words: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.words)
    }
}

impl From<ProcessState> for Process {
    fn from(process: ProcessState) -> Self {
        let (mut pid, mut status) = (None, None);
        let (state, words) = match process.phase {
            ProcessPhase::Running(started) => {
                pid = Some(started.pid);
                ("running", format!("running, pid {}", started.pid))
            }
            ProcessPhase::Ended(ended) => {
                status = Some(ended);
                ("ended", ended.to_string())
            }
            ProcessPhase::Lost => ("lost", "lost: nobody knows how it ended".to_owned()),
        };
        Self {
            name: process.id.to_string(),
            main: process.main,
            state,
            pid,
            exit_code: status.map(exit::of_command),
            signal: status
                .and_then(|status| status.signal)
                .map(|signal| signal.to_string()),
            cause: status.map(|status| status.cause),
            log_start: process.log_start.0,
            log_end: process.log_end.0,
            words,
        }
    }
}

/// Returns the processes of a run; none where nothing is left of it, or nothing answers.
async fn processes(crew: &Crew, record: &RunRecord) -> Vec<Process> {
    let asked = async {
        let instance = crew.launcher.instance(record).await?;
        instance.processes().await
    };
    let answered = tokio::time::timeout(ANSWER, asked).await;
    let all = answered.unwrap_or_else(|_| Ok(Vec::new()));
    all.unwrap_or_default()
        .into_iter()
        .map(Process::from)
        .collect()
}

/// Makes a table: id, state, age, place, words.
fn table(views: &[RunView], now: SystemTime, style: Style) -> Vec<String> {
    if views.is_empty() {
        return Vec::new();
    }
    let mut rows = vec![["ID", "STATE", "AGE", "PLACE", "WHAT"].map(str::to_owned)];
    rows.extend(views.iter().map(|view| {
        let record = &view.record;
        [
            record.run.to_string(),
            record.state.to_string(),
            human::age(record.created_ms, now),
            place(record),
            what(record),
        ]
    }));
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths = [0, 1, 2, 3].map(width);
    rows.iter()
        .enumerate()
        .map(|(index, row)| {
            let pad = |column: usize| {
                let missing = widths[column].saturating_sub(row[column].chars().count());
                format!("{}{}", row[column], " ".repeat(missing))
            };
            if index == 0 {
                return style.faint(&format!(
                    "{}  {}  {}  {}  {}",
                    pad(0),
                    pad(1),
                    pad(2),
                    pad(3),
                    row[4]
                ));
            }
            // Colour is put around the padded word, so that it takes no room.
            let word = pad(1);
            let coloured = human::state(views[index - 1].record.state, style);
            let rest = &word[row[1].len()..];
            format!(
                "{}  {coloured}{rest}  {}  {}  {}",
                pad(0),
                pad(2),
                pad(3),
                row[4]
            )
        })
        .collect()
}

/// Returns where the work is: the branch, else the path.
fn place(record: &RunRecord) -> String {
    match &record.workspace {
        Some(workspace) => match &workspace.branch {
            Some(branch) => printable(branch),
            None => printable_os(&workspace.path),
        },
        None => "-".to_owned(),
    }
}

fn what(record: &RunRecord) -> String {
    match (&record.title, human::command(record)) {
        (Some(title), _) => printable(title),
        (None, Some(command)) => command,
        (None, None) => "-".to_owned(),
    }
}

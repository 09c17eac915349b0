//! `doctor`: whether everything that a launch needs is there, and what to do where it is not.

use std::path::Path;

use groundcrew_core::{
    error::{Chain, Error},
    store::RunState,
};
use serde::Serialize;

use crate::{
    args::Format,
    documents::{Document, Failure},
    exit,
    failing::{Failing, in_words},
    git,
    program::{Context, Crew},
    text::{Text, printable},
    variables::caches_directory,
};

/// The answer of `doctor`.
#[derive(Debug, Serialize)]
struct Diagnosis {
    healthy: bool,
    state_directory: Text,
    checks: Vec<Check>,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: String,
    ok: bool,
    facts: Vec<Fact>,
    warnings: Vec<String>,
    error: Option<Failure>,
}

/// Something that was found.
#[derive(Debug, Serialize)]
struct Fact {
    name: String,
    value: String,
}

impl Check {
    fn new(name: impl Into<String>, result: Result<Vec<(String, String)>, Error>) -> Self {
        let (facts, error) = match result {
            Ok(facts) => (facts, None),
            Err(error) => (Vec::new(), Some(Failure::from(&error))),
        };
        Self {
            name: name.into(),
            ok: error.is_none(),
            facts: facts
                .into_iter()
                .map(|(name, value)| Fact { name, value })
                .collect(),
            warnings: Vec::new(),
            error,
        }
    }
}

/// Looks at everything.
///
/// # Errors
///
/// When the state directory cannot be opened at all.
pub(crate) async fn doctor(context: &Context) -> Result<u8, Failing> {
    let console = &context.console;
    let crew = context.open(()).await?;
    let mut checks = vec![
        Check::new("state", crew.store.check().await.map(|()| Vec::new())),
        Check::new("git", git::version(&context.surroundings).await),
    ];
    for registration in crew.launcher.registry().distinct_executors() {
        let name = format!("executor {}", registration.executor.name());
        checks.push(match registration.executor.probe().await {
            Ok(report) => Check {
                warnings: report.warnings,
                ..Check::new(name, Ok(report.facts))
            },
            Err(error) => Check::new(name, Err(error)),
        });
    }
    checks.push(runs(&crew).await);
    let root = caches_directory(&context.surroundings)?;
    checks.push(Check::new("caches", caches(&root)));
    let healthy = checks.iter().all(|check| check.ok);
    if console.format == Format::Human {
        let style = console.out_style;
        console.result(&format!("state directory {}", crew.home.display()));
        for check in &checks {
            let mark = if check.ok {
                style.green("ok")
            } else {
                style.red("failed")
            };
            console.result(&format!("{mark} {}", printable(&check.name)));
            for fact in &check.facts {
                console.result(&printable(&format!("   {}: {}", fact.name, fact.value)));
            }
            for warning in &check.warnings {
                console.result(&format!(
                    "   {} {}",
                    style.yellow("warning:"),
                    printable(warning)
                ));
            }
            if let Some(error) = &check.error {
                console.result(&format!("   {}", in_words(error)));
            }
        }
    }
    console.document(&Document::new(Diagnosis {
        healthy,
        state_directory: Text::os(&crew.home),
        checks,
    }));
    Ok(if healthy { exit::DONE } else { exit::FAILED })
}

/// Lists managed caches, which outlive every run: each name and where it is.
fn caches(root: &Path) -> Result<Vec<(String, String)>, Error> {
    let failed = |e| Error::io("failed to list the managed caches", e).with("path", root.display());
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed(e)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let path = entry.path().display().to_string();
        found.push((entry.file_name().to_string_lossy().into_owned(), path));
    }
    found.sort();
    Ok(found)
}

/// Looks for what could not be taken away yet.
async fn runs(crew: &Crew) -> Check {
    let (runs, attempts) = match (crew.store.runs().await, crew.store.attempts().await) {
        (Ok(runs), Ok(attempts)) => (runs, attempts),
        (Err(error), _) | (_, Err(error)) => return Check::new("runs", Err(error)),
    };
    let live = runs.iter().filter(|run| run.state.is_live()).count();
    let mut check = Check::new("runs", Ok(vec![("live".to_owned(), live.to_string())]));
    for run in runs.iter().filter(|run| run.state == RunState::Stuck) {
        let why = run.problem.clone().map(Error::from);
        let why = why.map_or_else(String::new, |error| format!(": {}", Chain(&error)));
        check.warnings.push(format!(
            "{} is stuck{why}; run `groundcrew recover`",
            run.run
        ));
    }
    for armed in attempts.iter().flat_map(|attempt| &attempt.armed) {
        if let Some(error) = &armed.last_error {
            let error = Error::from(error.clone());
            check.warnings.push(format!(
                "{} could not be taken away {} times: {}; run `groundcrew recover`",
                armed.record.label,
                armed.tries,
                Chain(&error)
            ));
        }
    }
    check.ok = check.warnings.is_empty();
    check
}

//! The suite for executors: the contract of `Executor` and `Instance`, and launches that fail, through a real launcher.

mod bench;
mod cases;
mod controller;
mod faults;
mod finding;
mod fixture;
mod leftovers;
mod making;
mod part;
mod removing;
mod rolling_back;
mod surroundings;
mod workspace;

use std::{process::ExitCode, sync::Arc};

use groundcrew_core::{error::Error, executor::Capabilities};

use super::{
    broken::Broken,
    cases as instance_cases,
    place::{Ground, Land},
    report::{Outcome, Report},
    running,
    trial::{self, Standing, Suite, Trial},
};

use self::bench::{Bench, Opening};

pub use self::fixture::ExecutorFixture;

/// The `main` of a test program that judges an executor.
///
/// * `open` makes the executor as a program that was just started would; it is called again for each restart, also in processes
///   that the suite starts of this program, and finds everything below [`Ground::directory`].
/// * Each case is a test of its own to `cargo test` and `cargo nextest`; `--report FILE` writes a report of all of them.
/// * A program that is its own supervisor asks for that first, before it calls this.
pub fn main(
    open: impl Fn(&Ground) -> Result<ExecutorFixture, Error> + Send + Sync + 'static,
) -> ExitCode {
    let open: Opening = Arc::new(open);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(code) = part::run_if_asked(&open, &arguments) {
        return code;
    }
    running::run(suite(&open))
}

/// Judges an executor within this process, one case after the other; what needs other processes is run by [`main`] only.
///
/// # Errors
///
/// When the executor cannot be made.
pub async fn executor(
    open: impl Fn(&Ground) -> Result<ExecutorFixture, Error> + Send + Sync + 'static,
) -> Result<Report, Error> {
    executor_where(open, |_| true).await
}

/// The same with only those cases whose name is wanted.
///
/// # Errors
///
/// When the executor cannot be made.
pub async fn executor_where(
    open: impl Fn(&Ground) -> Result<ExecutorFixture, Error> + Send + Sync + 'static,
    wanted: impl Fn(&str) -> bool + Send,
) -> Result<Report, Error> {
    let mut suite = suite(&(Arc::new(open) as Opening))?;
    let kept = |trial: &Trial| wanted(&trial.name) && !cases::needs_processes(&trial.name);
    suite.trials.retain(kept);
    suite.with_report(|report| report.size = suite.trials.len());
    Ok(suite.judge_all().await)
}

fn suite(open: &Opening) -> Result<Suite, Error> {
    let ground = Land::new()?;
    let fixture = open(ground.ground())?;
    let capabilities = fixture.executor.capabilities();
    let trials: Vec<Trial> = cases::all()
        .map(|case| {
            let open = Arc::clone(open);
            let standing = standing(&fixture, &capabilities, case);
            Trial {
                name: case.name(),
                sentence: case.sentence(),
                standing,
                run: Box::new(move || Box::pin(judge(Arc::clone(&open), case))),
            }
        })
        .collect();
    let report = Report {
        subject: ("executor", fixture.executor.name().to_string()),
        capabilities: serde_json::to_value(&capabilities).unwrap_or_default(),
        missing: fixture.missing.clone(),
        size: trials.len(),
        ..Report::default()
    };
    check(&fixture, &trials)?;
    Ok(Suite {
        trials,
        report: report.into(),
    })
}

/// Runs a case on a ground of its own, takes away what it made – whatever became of it – and looks for what is left.
async fn judge(open: Opening, case: cases::AnyCase) -> Outcome {
    let bench = match Bench::new(open) {
        Ok(bench) => bench,
        Err(Broken(why)) => return Outcome::Failed(why),
    };
    let judged = trial::outcome_within(bench.fixture.patience, async {
        match case {
            cases::AnyCase::Executor(case) => (case.run)(&bench).await,
            cases::AnyCase::Instance(case) => instance_cases::judge(case, &bench).await,
        }
    });
    let judged = judged.await;
    let left = bench.end().await;
    match (judged, left.as_slice()) {
        (Outcome::Passed, []) => Outcome::Passed,
        (Outcome::Passed, left) => Outcome::Failed(format!(
            "the case is over, and there is still {}",
            left.join("; ")
        )),
        (judged, _) => judged,
    }
}

fn standing(
    fixture: &ExecutorFixture,
    capabilities: &Capabilities,
    case: cases::AnyCase,
) -> Standing {
    let lacking = case
        .needs()
        .iter()
        .find(|need| !fixture.has(capabilities, **need));
    let name = case.name();
    let excepted = fixture.exceptions.iter().find(|(case, _)| *case == name);
    match (lacking, excepted) {
        (Some(need), _) => Standing::Lacking(*need),
        (None, Some((_, why))) => Standing::Excepted(why),
        (None, None) => Standing::Due,
    }
}

/// Refuses declarations that cannot be meant.
fn check(fixture: &ExecutorFixture, trials: &[Trial]) -> Result<(), Error> {
    let capabilities = fixture.executor.capabilities();
    let wrong = |message: &'static str, what: &str| {
        Err(
            Error::new(groundcrew_core::error::ErrorKind::InvalidInput, message)
                .with("declared", what),
        )
    };
    for (need, _) in &fixture.missing {
        if fixture::capability(&capabilities, *need).is_some() {
            return wrong(
                "what an executor is capable of is said by its capabilities, not by the fixture",
                need.as_str(),
            );
        }
    }
    for (case, _) in &fixture.exceptions {
        if !trials.iter().any(|trial| trial.name == *case) {
            return wrong("an exception names no case of this suite", case);
        }
    }
    Ok(())
}

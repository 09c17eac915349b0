//! Cases that hold for every instance: each is one sentence of the contract, and needs nothing but the contract to be judged.
//!
//! Nothing here knows how an instance is made or what runs in it: a [`Fixture`] says so.

mod bench;
mod broken;
mod cases;
mod ending;
mod files;
mod fixture;
mod programs;
mod report;
mod starting;
mod streams;
mod terminals;

use std::{any::Any, time::Duration};

use futures_util::FutureExt as _;

use self::broken::Broken;

pub use self::{
    fixture::{Fixture, Need},
    programs::{Program, posix},
    report::{Outcome, Report},
};

/// How long a case may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Runs every case against instances of a fixture, one after the other.
pub async fn instance(fixture: &dyn Fixture) -> Report {
    let mut report = Report { cases: Vec::new() };
    for case in cases::CASES {
        let lacking = case.needs.iter().find(|need| !fixture.has(**need));
        let outcome = match lacking {
            Some(need) => Outcome::Skipped(*need),
            None => judge(case, fixture).await,
        };
        report.cases.push((case.name, case.sentence, outcome));
    }
    report
}

async fn judge(case: &cases::Case, fixture: &dyn Fixture) -> Outcome {
    let work = async {
        let bench = bench::Bench::new(fixture).await?;
        (case.run)(bench).await
    };
    let work = std::panic::AssertUnwindSafe(work).catch_unwind();
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(Ok(Ok(()))) => Outcome::Passed,
        Ok(Ok(Err(Broken(why)))) => Outcome::Failed(why),
        Ok(Err(panic)) => Outcome::Failed(format!("a panic: {}", words(&*panic))),
        Err(_) => Outcome::Failed(format!("nothing happened within {PATIENCE:?}")),
    }
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without words")
}

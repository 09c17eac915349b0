//! Cases that hold for every instance: each is one sentence of the contract, and needs nothing but the contract to be judged.
//!
//! Nothing here knows how an instance is made or what runs in it: a [`Fixture`] says so.

mod bench;
mod cases;
mod ending;
mod files;
mod programs;
mod starting;
mod streams;
mod terminals;

use std::{any::Any, fmt, path::PathBuf, time::Duration};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use groundcrew_core::{
    error::{Chain, Error},
    instance::SharedInstance,
    wire::OsText,
};

pub use programs::{Program, posix};

/// How long a case may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// What not every instance has; a case that needs it is skipped, and listed as such, where it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Need {
    /// Processes with a terminal of their own.
    Terminals,
    /// Directories and files that processes and archives share.
    Files,
    /// Processes that start others.
    Trees,
}

/// What the cases are run against.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// Makes a fresh instance, to which no environment was handed over. Taking it away again is the fixture's business.
    async fn instance(&self) -> Result<SharedInstance, Error>;

    /// Returns the command that does this inside.
    fn command(&self, program: &Program<'_>) -> Vec<OsText>;

    /// Returns the variables without which no command is found, such as `PATH`.
    fn variables(&self) -> Vec<(&'static str, String)>;

    /// Returns a directory that exists inside and may be written to.
    fn directory(&self) -> PathBuf;

    /// Returns whether the instance has something.
    fn has(&self, need: Need) -> bool;
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds.
    Passed,
    /// It does not, for that reason.
    Failed(String),
    /// The instance lacks what it needs.
    Skipped(Need),
}

/// What became of every case.
#[derive(Clone, Debug)]
pub struct Report {
    /// The name and the sentence of each case, and its outcome, in order.
    pub cases: Vec<(&'static str, &'static str, Outcome)>,
}

impl Report {
    /// Returns the names of the cases that failed.
    pub fn failed(&self) -> Vec<&'static str> {
        let failed = |outcome: &Outcome| matches!(outcome, Outcome::Failed(_));
        let cases = self.cases.iter().filter(|(_, _, outcome)| failed(outcome));
        cases.map(|(name, _, _)| *name).collect()
    }

    /// Returns what was skipped for.
    pub fn skipped(&self) -> Vec<Need> {
        let needs = self
            .cases
            .iter()
            .filter_map(|(_, _, outcome)| match outcome {
                Outcome::Skipped(need) => Some(*need),
                _ => None,
            });
        needs.collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, sentence, outcome) in &self.cases {
            match outcome {
                Outcome::Passed => writeln!(f, "passed  {name}")?,
                Outcome::Skipped(need) => writeln!(f, "skipped {name}: it needs {need:?}")?,
                Outcome::Failed(why) => writeln!(f, "FAILED  {name}: {sentence}\n        {why}")?,
            }
        }
        Ok(())
    }
}

/// Why a case does not hold.
#[derive(Debug)]
pub(crate) struct Broken(String);

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self(format!(
            "an error that the contract does not know: {}",
            Chain(&error)
        ))
    }
}

impl From<std::io::Error> for Broken {
    fn from(error: std::io::Error) -> Self {
        Self(format!("an error that the contract does not know: {error}"))
    }
}

/// Fails a case with a reason.
macro_rules! broken {
    ($($text:tt)*) => { return Err($crate::conformance::Broken(format!($($text)*))) };
}

/// Fails a case unless something is so.
macro_rules! hold {
    ($so:expr, $($text:tt)*) => { if !$so { $crate::conformance::broken!($($text)*) } };
}

pub(crate) use {broken, hold};

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

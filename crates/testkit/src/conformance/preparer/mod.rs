//! The suite for preparers.

mod bench;
mod cases;
mod delivering;
mod fixture;
mod making;
mod removing;

use std::{process::ExitCode, sync::Arc};

use groundcrew_core::error::Error;

use super::{
    case::Case,
    fixture::Need,
    place::{Ground, Land},
    report::Report,
    running,
    trial::{self, Standing, Suite, Trial},
};

use self::bench::{Bench, Opening};

pub use self::fixture::PreparerFixture;

/// The `main` of a test program that judges a preparer; see [`main`](super::main) for executors.
pub fn preparer_main(
    open: impl Fn(&Ground) -> Result<PreparerFixture, Error> + Send + Sync + 'static,
) -> ExitCode {
    running::run(suite(&(Arc::new(open) as Opening)))
}

/// Judges a preparer, one case after the other.
///
/// # Errors
///
/// When the preparer cannot be made.
pub async fn preparer(
    open: impl Fn(&Ground) -> Result<PreparerFixture, Error> + Send + Sync + 'static,
) -> Result<Report, Error> {
    Ok(suite(&(Arc::new(open) as Opening))?.judge_all().await)
}

fn standing(fixture: &PreparerFixture, case: &Case<Bench>) -> Standing {
    let name = format!("{}::{}", case.group, case.name);
    let excepted = fixture.exceptions.iter().find(|(case, _)| *case == name);
    if case.needs.contains(&Need::Files) && fixture.work.is_none() {
        return Standing::Lacking(Need::Files);
    }
    if case.needs.contains(&Need::Delivery) && fixture.delivery.is_none() {
        return Standing::Lacking(Need::Delivery);
    }
    match excepted {
        Some((_, why)) => Standing::Excepted(why),
        None => Standing::Due,
    }
}

fn suite(open: &Opening) -> Result<Suite, Error> {
    let land = Land::new()?;
    let fixture = open(land.ground())?;
    let trials = cases::CASES.iter().map(|case| {
        let open = Arc::clone(open);
        Trial {
            name: format!("{}::{}", case.group, case.name),
            sentence: case.sentence,
            standing: standing(&fixture, case),
            run: Box::new(move || Box::pin(trial::outcome(Bench::judge(Arc::clone(&open), case)))),
        }
    });
    let report = Report {
        subject: ("preparer", fixture.preparer.name().to_string()),
        size: cases::CASES.len(),
        ..Report::default()
    };
    Ok(Suite {
        trials: trials.collect(),
        report: report.into(),
    })
}

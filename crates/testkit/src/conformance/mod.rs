//! Suites for what strangers write: each case is one sentence of a contract, and needs nothing but the contract to be judged.
//!
//! | suite | judges | begins with |
//! |---|---|---|
//! | [`main`] | an executor, the instances that it makes, and launches on it | [`ExecutorFixture`] |
//! | [`instance`] | instances alone | [`Fixture`] |
//! | [`preparer_main`] | a preparer | [`PreparerFixture`] |
//! | [`secrets_main`] | a store of secrets | [`SecretsFixture`] |
//!
//! Nothing here knows how a thing is made: a fixture says so.

mod bench;
mod broken;
mod case;
mod cases;
mod ending;
mod executor;
mod files;
mod fixture;
mod place;
mod preparer;
mod programs;
mod report;
mod running;
mod secrets;
mod starting;
mod streams;
mod terminals;
mod trial;

pub use self::{
    executor::{ExecutorFixture, executor, executor_where, main},
    fixture::{Fixture, Need},
    place::Ground,
    preparer::{PreparerFixture, preparer, preparer_main},
    programs::{Program, posix},
    report::{Judged, Outcome, Report},
    secrets::{SecretsFixture, secrets, secrets_main},
};

/// Runs the cases for instances alone, one after the other.
pub async fn instance(fixture: &dyn Fixture) -> Report {
    let mut report = Report {
        subject: ("instance", String::new()),
        size: cases::CASES.len(),
        ..Report::default()
    };
    for case in cases::CASES {
        let lacking = case.needs.iter().find(|need| !fixture.has(**need));
        let outcome = match lacking {
            Some(need) => Outcome::Skipped(*need),
            None => trial::outcome(cases::judge(case, fixture)).await,
        };
        report.cases.push(Judged {
            name: case.name.to_owned(),
            sentence: case.sentence,
            outcome,
        });
    }
    report
}

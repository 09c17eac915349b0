//! What became of every case.

use std::fmt;

use super::fixture::Need;

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

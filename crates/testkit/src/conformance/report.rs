//! What became of every case, for people and as a document that an author can publish.

use std::fmt;

use serde_json::{Value, json};

use super::fixture::Need;

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It holds.
    Passed,
    /// It does not, for that reason.
    Failed(String),
    /// What is judged lacks what it needs.
    Skipped(Need),
    /// It does not, as was declared; the reason that was declared.
    Excepted(String),
}

/// A case and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Judged {
    /// The name of the case.
    pub name: String,
    /// The sentence of the contract that it stands for.
    pub sentence: &'static str,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of every case.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// What was judged: the kind of suite, and the name of what it was run against.
    pub subject: (&'static str, String),
    /// What it says that it can do.
    pub capabilities: Value,
    /// Every case, in order.
    pub cases: Vec<Judged>,
    /// What was declared as missing, and why.
    pub missing: Vec<(Need, &'static str)>,
    /// What was found around it after its cases, and should not have been there.
    pub leftovers: Vec<String>,
    /// How many cases the suite has; fewer in `cases` were asked for.
    pub size: usize,
}

impl Report {
    /// Returns the names of the cases that failed.
    pub fn failed(&self) -> Vec<&str> {
        let failed = |judged: &&Judged| matches!(judged.outcome, Outcome::Failed(_));
        let cases = self.cases.iter().filter(failed);
        cases.map(|judged| judged.name.as_str()).collect()
    }

    /// Returns what was skipped for.
    pub fn skipped(&self) -> Vec<Need> {
        let needs = self.cases.iter().filter_map(|judged| match judged.outcome {
            Outcome::Skipped(need) => Some(need),
            _ => None,
        });
        needs.collect()
    }

    /// Returns whether every case of the suite was judged, none failed and nothing was left.
    pub fn certifies(&self) -> bool {
        self.cases.len() == self.size && self.failed().is_empty() && self.leftovers.is_empty()
    }

    /// Returns the document: the same report for programs.
    pub fn document(&self) -> Value {
        let cases: Vec<Value> = self.cases.iter().map(case).collect();
        let of = |outcome: &str| {
            let same = |case: &&Value| case["outcome"] == outcome;
            cases.iter().filter(same).count()
        };
        let exceptions: Vec<Value> = self
            .cases
            .iter()
            .filter_map(|judged| match &judged.outcome {
                Outcome::Excepted(why) => Some(json!({"case": judged.name, "why": why})),
                _ => None,
            })
            .collect();
        let missing = self.missing.iter();
        let missing: Vec<Value> = missing
            .map(|(need, why)| json!({"need": need.as_str(), "why": why}))
            .collect();
        json!({
            "schema_version": 1,
            "suite": self.subject.0,
            "suite_version": env!("CARGO_PKG_VERSION"),
            "subject": self.subject.1,
            "certified": self.certifies(),
            "capabilities": self.capabilities,
            "missing": missing,
            "exceptions": exceptions,
            "leftovers": self.leftovers,
            "counts": {
                "cases": self.size,
                "passed": of("passed"),
                "failed": of("failed"),
                "not_supported": of("not_supported"),
                "excepted": of("excepted"),
            },
            "cases": cases,
        })
    }
}

fn case(judged: &Judged) -> Value {
    let (outcome, why) = match &judged.outcome {
        Outcome::Passed => ("passed", None),
        Outcome::Failed(why) => ("failed", Some(why.as_str())),
        Outcome::Skipped(need) => ("not_supported", Some(need.as_str())),
        Outcome::Excepted(why) => ("excepted", Some(why.as_str())),
    };
    let mut case = json!({"name": judged.name, "sentence": judged.sentence, "outcome": outcome});
    if let Some(why) = why {
        case["why"] = why.into();
    }
    case
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for judged in &self.cases {
            let (name, sentence) = (&judged.name, judged.sentence);
            match &judged.outcome {
                Outcome::Passed => writeln!(f, "passed  {name}")?,
                Outcome::Skipped(need) => writeln!(f, "skipped {name}: it needs {need:?}")?,
                Outcome::Excepted(why) => writeln!(f, "excepted {name}: {why}")?,
                Outcome::Failed(why) => writeln!(f, "FAILED  {name}: {sentence}\n        {why}")?,
            }
        }
        for left in &self.leftovers {
            writeln!(f, "LEFT    {left}")?;
        }
        Ok(())
    }
}

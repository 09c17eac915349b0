//! `cargo xtask behaviours`: each behaviour that is promised has tests, and they passed.
//!
//! The map is `tests/behaviours.toml`. It is complete in both directions: a test that carries an id in its name must stand
//! under that id, and a test that the map names must exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::console;
use crate::metadata::Metadata;
use crate::test::{self, Options, results::Outcome, results::Results};

const MAP: &str = "tests/behaviours.toml";

/// The letters of the ids: launch behaviours, sessions, cases, faults.
const LETTERS: [char; 4] = ['K', 'T', 'C', 'F'];

/// A letter and a number: `K1`, `K01` and `k001` are one id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    letter: char,
    number: u32,
}

impl Id {
    fn parse(text: &str) -> Result<Self> {
        let mut chars = text.chars();
        let letter = chars.next().map(|letter| letter.to_ascii_uppercase());
        let digits = chars.as_str();
        match (letter, digits.parse()) {
            (Some(letter), Ok(number))
                if LETTERS.contains(&letter)
                    && digits.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                Ok(Self { letter, number })
            }
            _ => bail!("`{text}` is no id; an id is one of K, T, C, F and a number, such as C05"),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = match self.letter {
            'C' => 2,
            'F' => 3,
            _ => 1,
        };
        write!(f, "{}{:0width$}", self.letter, self.number)
    }
}

/// Reads a list such as `K1-K7,C05`.
///
/// # Errors
///
/// Fails on what is no id or no range.
fn parse_list(text: &str) -> Result<BTreeSet<Id>> {
    let mut ids = BTreeSet::new();
    for part in text.split(',').map(str::trim) {
        match part.split_once('-') {
            None => {
                ids.insert(Id::parse(part)?);
            }
            Some((first, last)) => {
                let first = Id::parse(first.trim())?;
                // `K1-7` says the same as `K1-K7`.
                let last = match last.trim().parse() {
                    Ok(number) => Id { number, ..first },
                    Err(_) => Id::parse(last.trim())?,
                };
                if first.letter != last.letter || first.number > last.number {
                    bail!("`{part}` is no range");
                }
                let letter = first.letter;
                ids.extend((first.number..=last.number).map(|number| Id { letter, number }));
            }
        }
    }
    Ok(ids)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MapFile {
    #[serde(default)]
    behaviour: Vec<Entry>,
}

/// One behaviour as the map writes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    sentence: String,
    tests: Vec<String>,
    red: String,
}

/// What is wrong; a behaviour without a passing test is kept apart.
#[derive(Debug, Default)]
struct Verdict {
    problems: Vec<String>,
    holding: BTreeSet<Id>,
}

/// Checks the map, or what is required of it; runs the tests first where there are no results of these sources.
///
/// # Errors
///
/// Fails when a behaviour of the map, or a required one, has no passing test, or when the map is not complete.
pub(crate) fn run(metadata: &Metadata, require: Option<&str>) -> Result<()> {
    let required = require.map(parse_list).transpose()?;
    let map = load_map(metadata)?;
    check(&map, &results(metadata)?, required.as_ref())
}

/// Checks the whole map against the run that just ended.
///
/// # Errors
///
/// Fails as [`run`] does, and when that run left no results.
pub(crate) fn check_last_run(metadata: &Metadata) -> Result<()> {
    let map = load_map(metadata)?;
    let Some((results, _)) = Results::load(metadata)? else {
        bail!("the tests left no results");
    };
    check(&map, &results, None)
}

fn load_map(metadata: &Metadata) -> Result<MapFile> {
    let text = fs::read_to_string(metadata.workspace_root.join(MAP))
        .with_context(|| format!("cannot read {MAP}"))?;
    toml::from_str(&text).with_context(|| format!("cannot understand {MAP}"))
}

fn check(map: &MapFile, results: &Results, required: Option<&BTreeSet<Id>>) -> Result<()> {
    let verdict = judge(map, results);
    for problem in &verdict.problems {
        console::say(problem);
    }
    let Some(required) = required else {
        if !verdict.problems.is_empty() {
            bail!("{MAP}: {} problems", verdict.problems.len());
        }
        console::say(format!("{} behaviours hold", verdict.holding.len()));
        return Ok(());
    };
    // What is asked for must hold; the rest of the map is not the question.
    let missing: Vec<_> = required
        .difference(&verdict.holding)
        .map(ToString::to_string)
        .collect();
    if !missing.is_empty() {
        bail!("no passing test for {}", missing.join(", "));
    }
    console::say(format!("{} required behaviours hold", required.len()));
    Ok(())
}

/// Returns results that are newer than every source, running the tests where there are none.
fn results(metadata: &Metadata) -> Result<Results> {
    match Results::load(metadata)? {
        Some((results, written)) if newest_source(&metadata.workspace_root)? <= written => {
            return Ok(results);
        }
        Some(_) => console::remark("the results are older than the sources; running the tests"),
        None => console::remark("there are no results; running the tests"),
    }
    let summary = test::run(metadata, &Options::default());
    console::say(summary.to_string());
    match Results::load(metadata)? {
        Some((results, _)) => Ok(results),
        None => bail!("the tests could not be run"),
    }
}

fn newest_source(root: &Path) -> Result<SystemTime> {
    let mut newest = SystemTime::UNIX_EPOCH;
    for file in crate::tidy::source_paths(root)? {
        let changed = fs::metadata(&file)
            .and_then(|found| found.modified())
            .with_context(|| format!("cannot read {}", file.display()))?;
        newest = newest.max(changed);
    }
    Ok(newest)
}

fn judge(map: &MapFile, results: &Results) -> Verdict {
    let mut verdict = Verdict::default();
    let mut named: BTreeMap<Id, BTreeSet<&str>> = BTreeMap::new();
    for entry in &map.behaviour {
        let id = match Id::parse(&entry.id) {
            Ok(id) => id,
            Err(error) => {
                verdict.problems.push(error.to_string());
                continue;
            }
        };
        let tests: BTreeSet<_> = entry.tests.iter().map(String::as_str).collect();
        let mut wrong = Vec::new();
        if entry.sentence.trim().is_empty() {
            wrong.push("has no sentence".to_owned());
        }
        if entry.red.trim().is_empty() {
            wrong.push("does not say what turns it red".to_owned());
        }
        if tests.is_empty() {
            wrong.push("names no test".to_owned());
        }
        for test in &tests {
            match results.tests.get(*test) {
                Some(Outcome::Passed) => {}
                Some(Outcome::Failed) => wrong.push(format!("`{test}` failed")),
                Some(Outcome::Skipped) => wrong.push(format!("`{test}` was not run")),
                None => wrong.push(format!("`{test}` does not exist")),
            }
        }
        if named.insert(id, tests).is_some() {
            wrong.push("stands in the map twice".to_owned());
        }
        if wrong.is_empty() {
            verdict.holding.insert(id);
        } else {
            verdict.holding.remove(&id);
        }
        verdict
            .problems
            .extend(wrong.into_iter().map(|what| format!("{id}: {what}")));
    }
    for test in results.tests.keys() {
        for id in ids_of(test) {
            if !named
                .get(&id)
                .is_some_and(|tests| tests.contains(test.as_str()))
            {
                verdict
                    .problems
                    .push(format!("{id}: `{test}` carries the id and is not in {MAP}"));
            }
        }
    }
    verdict
}

/// Returns the ids that a test carries at the start of its own name: `c06_f009_stop_ends_all` has two.
fn ids_of(test: &str) -> Vec<Id> {
    let name = test.split_once(' ').map_or(test, |(_, path)| path);
    let name = name.rsplit("::").next().unwrap_or(name);
    let mut ids = Vec::new();
    let mut rest = name;
    while let Some((word, next)) = rest.split_once('_') {
        // Ids of tests are written small, so `C` in a name is no id.
        match Id::parse(word) {
            Ok(id) if word.starts_with(|c: char| c.is_ascii_lowercase()) => ids.push(id),
            _ => break,
        }
        rest = next;
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(ids: impl IntoIterator<Item = Id>) -> Vec<String> {
        ids.into_iter().map(|id| id.to_string()).collect()
    }

    #[test]
    fn ids_are_one_however_they_are_padded() {
        assert_eq!(Id::parse("K1").unwrap(), Id::parse("k01").unwrap());
        assert_eq!(Id::parse("F5").unwrap(), Id::parse("F005").unwrap());
        assert_eq!(Id::parse("c6").unwrap().to_string(), "C06");
        for text in ["", "K", "K+1", "X1", "KK1", "K1a", "1"] {
            assert!(Id::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lists_and_ranges() {
        assert_eq!(
            shown(parse_list("K9-K11, C05,f7,K9,T1-2").unwrap()),
            ["C05", "F007", "K9", "K10", "K11", "T1", "T2"]
        );
        for text in ["", "K1-C3", "K7-K1", "K1-", "K1,,K2"] {
            assert!(parse_list(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_test_carries_the_ids_it_starts_with() {
        assert_eq!(shown(ids_of("p::it m::c06_stop_ends_all")), ["C06"]);
        assert_eq!(shown(ids_of("p::it m::k1_f009_x")), ["K1", "F009"]);
        assert_eq!(shown(ids_of("p::it c06_module::plain")), [""; 0]);
        assert_eq!(shown(ids_of("p f64_is_exact")), ["F064"]);
        assert_eq!(shown(ids_of("p stop_c06_x")), [""; 0]);
        assert_eq!(shown(ids_of("p c06")), [""; 0]);
    }

    fn verdict(map: &str, tests: &[(&str, Outcome)]) -> Verdict {
        let results = Results {
            tests: tests
                .iter()
                .map(|(name, outcome)| ((*name).to_owned(), *outcome))
                .collect(),
        };
        judge(&toml::from_str(map).unwrap(), &results)
    }

    const MAP_OF_ONE: &str = "[[behaviour]]\nid = 'C6'\nsentence = 's'\nred = 'r'\ntests = ['p::it m::c06_a', 'p other']\n";

    #[test]
    fn a_behaviour_holds_when_all_its_tests_passed() {
        let passed = [
            ("p::it m::c06_a", Outcome::Passed),
            ("p other", Outcome::Passed),
        ];
        let good = verdict(MAP_OF_ONE, &passed);
        assert_eq!(good.problems, [""; 0]);
        assert_eq!(shown(good.holding), ["C06"]);
        for (outcome, said) in [
            (Some(Outcome::Failed), "C06: `p other` failed"),
            (Some(Outcome::Skipped), "C06: `p other` was not run"),
            (None, "C06: `p other` does not exist"),
        ] {
            let mut tests = vec![passed[0]];
            tests.extend(outcome.map(|outcome| ("p other", outcome)));
            let bad = verdict(MAP_OF_ONE, &tests);
            assert_eq!(bad.problems, [said]);
            assert!(bad.holding.is_empty());
        }
    }

    #[test]
    fn what_is_required_is_judged_alone() {
        let map = toml::from_str(MAP_OF_ONE).unwrap();
        let tests = [
            ("p::it m::c06_a", Outcome::Passed),
            ("p other", Outcome::Passed),
            ("p k2_b", Outcome::Passed),
        ];
        let results = Results {
            tests: tests
                .map(|(name, outcome)| (name.to_owned(), outcome))
                .into(),
        };
        check(&map, &results, Some(&parse_list("C6").unwrap())).unwrap();
        let error = check(&map, &results, Some(&parse_list("C5-C7,K2").unwrap())).unwrap_err();
        assert_eq!(error.to_string(), "no passing test for C05, C07, K2");
        assert!(check(&map, &results, None).is_err());
    }

    #[test]
    fn a_forgotten_test_is_found() {
        let tests = [
            ("p::it m::c06_a", Outcome::Passed),
            ("p::it m::c06_k2_b", Outcome::Passed),
            ("p other", Outcome::Passed),
        ];
        assert_eq!(
            verdict(MAP_OF_ONE, &tests).problems,
            [
                "C06: `p::it m::c06_k2_b` carries the id and is not in tests/behaviours.toml",
                "K2: `p::it m::c06_k2_b` carries the id and is not in tests/behaviours.toml",
            ]
        );
    }

    #[test]
    fn an_entry_says_everything_and_stands_once() {
        let map = "[[behaviour]]\nid = 'K1'\nsentence = ' '\nred = ''\ntests = []\n\
                   [[behaviour]]\nid = 'K01'\nsentence = 's'\nred = 'r'\ntests = ['p a']\n\
                   [[behaviour]]\nid = 'what'\nsentence = 's'\nred = 'r'\ntests = ['p a']\n";
        let bad = verdict(map, &[("p a", Outcome::Passed)]);
        assert_eq!(bad.problems.len(), 5, "{:?}", bad.problems);
        assert!(bad.holding.is_empty());
        let twice = format!("{MAP_OF_ONE}{MAP_OF_ONE}");
        let passed = [
            ("p::it m::c06_a", Outcome::Passed),
            ("p other", Outcome::Passed),
        ];
        let bad = verdict(&twice, &passed);
        assert_eq!(bad.problems, ["C06: stands in the map twice"]);
        assert!(bad.holding.is_empty());
        assert!(toml::from_str::<MapFile>("[[behaviour]]\nid = 'K1'\n").is_err());
        assert!(toml::from_str::<MapFile>(&MAP_OF_ONE.replace("red", "reed")).is_err());
    }
}

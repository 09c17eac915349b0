//! `cargo xtask test`: builds and runs every test, says what it left out and why, and writes down how each one ended.

pub(crate) mod agents;
pub(crate) mod cells;
pub(crate) mod engine;
mod junit;
mod libtest;
mod listing;
mod needs;
pub(crate) mod results;

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, bail, ensure};

use crate::console;
use crate::metadata::Metadata;
use crate::process::{self, Cmd};

use self::cells::Chosen;
use self::engine::Engine;
use self::listing::Listing;
use self::needs::Need;
use self::results::{Outcome, Results, Summary};

/// Where nextest leaves its report, below the root of the workspace: its store, the profile, our file.
const REPORT: &str = "target/nextest/ci/junit.xml";

/// What to run, and what must not be skipped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) require: Vec<String>,
    pub(crate) filter: Vec<String>,
    /// The cells of the matrix; all of them without a word.
    pub(crate) cells: Chosen,
}

/// Lists what may be required.
pub(crate) fn known_needs() -> Vec<String> {
    needs::of_all()
}

/// Builds and runs the tests; the results are on disk when it returns.
///
/// What keeps the tests from being run, such as a failed build, is shown and counts as one failure.
pub(crate) fn run(metadata: &Metadata, options: &Options) -> Summary {
    match run_all(metadata, options) {
        Ok(results) => results.summary(),
        Err(error) => {
            console::remark(format!("error: {error:#}"));
            Summary {
                passed: 0,
                failed: 1,
                skipped: 0,
            }
        }
    }
}

fn run_all(metadata: &Metadata, options: &Options) -> Result<Results> {
    results::forget(metadata)?;
    needs::check_names(&options.require)?;
    needs::settle_always()?;
    let listing = Listing::build(metadata)?;
    let mut tests = listing.tests();
    tests.retain(|test| options.cells.chooses(test));
    let chosen = chosen(&tests, options);
    let lacking = needs::settle(&chosen, &options.require)?;
    let engine = engine(metadata, &chosen, &lacking)?;
    let mut told: Vec<_> = engine.iter().flat_map(Engine::variables).collect();
    told.push((agents::VARIABLE, agents::directory().display().to_string()));
    let told = &told[..];
    let mut outcomes = if process::is_installed("cargo-nextest") {
        with_nextest(metadata, options, &lacking, told, &tests)?
    } else {
        ensure!(
            options.cells.is_all(),
            "cells are chosen by cargo-nextest, which is not installed"
        );
        console::remark("cargo-nextest is not installed; running plain `cargo test`");
        let mut what = vec!["--workspace"];
        for package in lacking.iter().filter_map(|need| need.package()) {
            what.extend(["--exclude", package]);
        }
        with_libtest(metadata, options, &listing, &lacking, told, &what)?
    };
    for test in tests {
        outcomes.entry(test).or_insert(Outcome::Skipped);
    }
    let results = Results { tests: outcomes };
    results.write(metadata)?;
    for need in &lacking {
        console::say(format!(
            "skipped for want of {}: {}",
            need.name,
            need.dependents()
        ));
    }
    for (name, outcome) in &results.tests {
        if *outcome == Outcome::Failed {
            console::say(format!("failed: {name}"));
        }
    }
    Ok(results)
}

/// Lists the tests that are run, unless they lack something.
fn chosen(tests: &[String], options: &Options) -> Vec<String> {
    let mut tests = tests.to_vec();
    let filter = &options.filter;
    tests.retain(|test| filter.is_empty() || filter.iter().any(|text| test.contains(text)));
    tests
}

/// Starts the engine, if a test that is run needs it and may have it.
fn engine(metadata: &Metadata, tests: &[String], lacking: &[&Need]) -> Result<Option<Engine>> {
    let lacks = lacking.iter().any(|need| need.name == needs::ENGINE);
    if lacks || !needs::an_engine_is_needed(tests) {
        return Ok(None);
    }
    Engine::start(metadata).map(Some)
}

/// What tests are told in their environment.
type Told<'a> = &'a [(&'static str, String)];

fn with_nextest(
    metadata: &Metadata,
    options: &Options,
    lacking: &[&Need],
    told: Told<'_>,
    tests: &[String],
) -> Result<BTreeMap<String, Outcome>> {
    let root = &metadata.workspace_root;
    let report = root.join(REPORT);
    results::remove(&report)?;
    let mut command = Cmd::cargo(root)
        .args([
            "nextest",
            "run",
            "--workspace",
            "--profile",
            "ci",
            "--no-tests",
            "pass",
        ])
        .args(&options.filter);
    // One expression: nextest runs what any of several would choose.
    let without: Vec<_> = lacking
        .iter()
        .map(|need| format!("not {}", need.expression()))
        .chain((!options.cells.is_all()).then(|| only(tests)))
        .collect();
    if !without.is_empty() {
        command = command.arg("-E").arg(without.join(" and "));
    }
    for (name, value) in told {
        command = command.variable(name, value);
    }
    let status = command.status()?;
    let mut outcomes = BTreeMap::new();
    if report.exists() {
        let text = fs::read_to_string(&report)
            .with_context(|| format!("cannot read {}", report.display()))?;
        outcomes = junit::read(&text)?;
    } else if status.success() {
        // Nothing was run, so nothing was reported.
        console::remark("nextest ran no test");
    } else {
        bail!("`{command}` failed and left no report: {status}");
    }
    let failed = outcomes.values().any(|outcome| *outcome == Outcome::Failed);
    if !status.success() && !failed {
        outcomes.insert(format!("nextest ended with {status}"), Outcome::Failed);
    }
    if !options.cells.chooses_documentation() {
        return Ok(outcomes);
    }
    let listing = Listing::of_libraries(metadata);
    outcomes.extend(with_libtest(
        metadata,
        options,
        &listing,
        lacking,
        told,
        &["--workspace", "--doc"],
    )?);
    Ok(outcomes)
}

/// Returns the expression that chooses exactly these tests.
fn only(tests: &[String]) -> String {
    let mut binaries: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for test in tests {
        if let Some((binary, path)) = test.split_once(' ') {
            binaries.entry(binary).or_default().push(path);
        }
    }
    let of = |(binary, paths): (&&str, &Vec<&str>)| {
        let paths: Vec<_> = paths.iter().map(|path| format!("test(={path})")).collect();
        format!("(binary_id(={binary}) & ({}))", paths.join(" | "))
    };
    if binaries.is_empty() {
        return "none()".to_owned();
    }
    let each: Vec<_> = binaries.iter().map(of).collect();
    format!("({})", each.join(" | "))
}

/// Lists the cells with their tests, which are built for it.
///
/// # Errors
///
/// Fails when the build does.
pub(crate) fn list_cells(metadata: &Metadata) -> Result<()> {
    let listing = Listing::build(metadata)?;
    for line in cells::lines(&listing.tests()) {
        console::say(line);
    }
    Ok(())
}

/// Runs plain `cargo test`, for want of nextest or for what nextest does not run.
fn with_libtest(
    metadata: &Metadata,
    options: &Options,
    listing: &Listing,
    lacking: &[&Need],
    told: Told<'_>,
    what: &[&str],
) -> Result<BTreeMap<String, Outcome>> {
    let mut command = Cmd::cargo(&metadata.workspace_root)
        .args(["test", "--no-fail-fast"])
        .args(what)
        .variable("CARGO_TERM_COLOR", "never")
        .arg("--")
        .args(&options.filter);
    for (name, value) in told {
        command = command.variable(name, value);
    }
    for need in lacking {
        command = command.args(["--skip".to_owned(), need.marker()]);
    }
    let mut reader = libtest::Reader::new(listing);
    let status = command.follow(|line| reader.line(line))?;
    let mut outcomes = reader.finish();
    let failed = outcomes.values().any(|outcome| *outcome == Outcome::Failed);
    if !status.success() && !failed {
        outcomes.insert(format!("`{command}` ended with {status}"), Outcome::Failed);
    }
    Ok(outcomes)
}

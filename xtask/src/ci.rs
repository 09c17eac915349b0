//! `cargo xtask ci`: every gate in turn, all of them whatever the others say, and one summary.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::metadata::Metadata;
use crate::test::Options;
use crate::{behaviours, certify, console, endurance, fuzz, gates, package, test, tidy};

/// A gate that has been passed, or not.
struct Stage {
    name: &'static str,
    took: Duration,
    passed: bool,
}

/// Runs everything; tells whether all of it passed. The last line it prints is the line of the tests.
pub(crate) fn run(metadata: &Metadata) -> bool {
    let root = &metadata.workspace_root;
    let options = Options {
        require: test::known_needs(),
        ..Options::default()
    };
    let mut summary = None;
    let stages = [
        // The quick ones first: they say most, soonest.
        stage("fmt", || gates::fmt(root, true)),
        stage("tidy", || tidy::run(metadata)),
        stage("lint", || gates::lint(root)),
        stage("doc", || gates::doc(root)),
        stage("package", || package::run(metadata)),
        stage("test", || {
            let counted = test::run(metadata, &options);
            summary = Some(counted);
            anyhow::ensure!(counted.failed == 0, "{counted}");
            Ok(())
        }),
        stage("certify", || certify::run(metadata)),
        stage("endurance", || {
            endurance::run(metadata, endurance::Size::Gate)
        }),
        stage("fuzz", || fuzz::run(metadata, fuzz::CASES)),
        stage("behaviours", || behaviours::check_last_run(metadata)),
    ];
    console::heading("summary");
    for stage in &stages {
        let word = if stage.passed { "passed" } else { "FAILED" };
        console::say(format!(
            "{:<12} {word} {:>7.1} s",
            stage.name,
            stage.took.as_secs_f64()
        ));
    }
    if let Some(summary) = summary {
        console::say(summary.to_string());
    }
    stages.iter().all(|stage| stage.passed)
}

fn stage(name: &'static str, gate: impl FnOnce() -> Result<()>) -> Stage {
    console::heading(name);
    let started = Instant::now();
    let result = gate();
    if let Err(error) = &result {
        console::say(format!("{name}: {error:#}"));
    }
    Stage {
        name,
        took: started.elapsed(),
        passed: result.is_ok(),
    }
}

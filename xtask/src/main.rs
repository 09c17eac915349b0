//! `cargo xtask`: the project's own commands.
//!
//! It links no crate of the product: it builds it and uses it from outside, as everybody else does.

mod behaviours;
mod bench;
mod certify;
mod ci;
mod console;
mod endurance;
mod features;
mod fuzz;
mod gates;
mod metadata;
mod mutate;
mod package;
mod process;
mod profile;
mod semver;
mod soak;
mod supervisor;
mod test;
mod tidy;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use self::metadata::Metadata;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The project's own commands.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Format every crate.
    Fmt {
        /// Only say what is not formatted.
        #[arg(long)]
        check: bool,
    },
    /// Run clippy over every target; a warning is a failure.
    Lint,
    /// Build the documentation; a warning is a failure.
    Doc,
    /// Check the rules of the house: layers, licences, manifests, files, papers.
    Tidy,
    /// Build and run every test; the last line counts them.
    Test {
        /// What must not be skipped: git, cc, tmux, strace, `git_lfs`, docker, agents, claude, bwrap, python3.
        #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
        require: Vec<String>,
        /// Run only tests whose name contains this.
        #[arg(long, value_name = "TEXT")]
        filter: Vec<String>,
        /// Run only these cells of the matrix: whole names, rows such as docker, or columns such as faults.
        #[arg(long = "cell", value_name = "NAME", num_args = 1..)]
        cells: Vec<String>,
        /// Run only the cells that the changes since the main branch concern.
        #[arg(long, conflicts_with = "cells")]
        changed: bool,
        /// List the cells, and run nothing.
        #[arg(long)]
        list: bool,
    },
    /// Certify the example executor in a clean copy outside of the workspace; writes its report.
    Certify,
    /// Make the package of every crate, and build each from its package alone.
    Package,
    /// Check that every crate compiles alone, with each of its features, with none and with all; cargo-hack does it.
    Features,
    /// Tell what changed in the public API of the libraries; cargo-semver-checks does it.
    Semver {
        /// The commit to compare with.
        #[arg(long, default_value = "HEAD^", value_name = "COMMIT")]
        since: String,
    },
    /// Check that every promised behaviour has tests that passed.
    Behaviours {
        /// Behaviours that must hold, such as K1-K7,C05.
        #[arg(long, value_name = "ID,…")]
        require: Option<String>,
    },
    /// Measure launches against what they are made of, as ratios.
    Bench {
        /// Also measure a repository of 30,000 files.
        #[arg(long)]
        full: bool,
        /// Measure only what speaking to an agent costs.
        #[arg(long, conflicts_with = "full")]
        sessions: bool,
        /// Measure this program, in place of one that is built for it.
        #[arg(long, value_name = "PROGRAM")]
        command: Option<PathBuf>,
        /// How often each pair is measured.
        #[arg(long, default_value_t = 30, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
        iterations: u16,
    },
    /// Run the properties of everything that reads what strangers wrote, many times each.
    Fuzz {
        /// How often each.
        #[arg(long, default_value_t = fuzz::CASES, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        cases: u32,
    },
    /// Run the loops of the fault tests, and the tests of endurance, at their full length.
    Soak {
        /// Where random draws begin, to repeat a failure.
        #[arg(long, value_name = "N")]
        seed: Option<u64>,
    },
    /// Take one guard away at a time, in a copy, and check that its tests notice.
    Mutate {
        /// Only guards whose name contains this.
        #[arg(default_value = "")]
        filter: String,
    },
    /// Build the supervisor for containers, and print where it is.
    Supervisor,
    /// Run every gate; the last line counts the tests.
    Ci,
    /// Write down the time at which this program runs, and end.
    #[command(hide = true)]
    BenchAgent { file: PathBuf },
    /// Write so many bytes to standard output, and end.
    #[command(hide = true)]
    BenchFlood { bytes: u64 },
    /// Speak as the Codex app-server does, and say as many bytes as one is asked for.
    #[command(hide = true)]
    BenchPeer,
}

fn main() -> ExitCode {
    // Before anything else: the time it notes must not contain our own work.
    let started = bench::clock::now();
    match run(Arguments::parse().command, started) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            console::remark(format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command, started: u64) -> Result<bool> {
    if let Command::BenchAgent { file } = command {
        bench::agent(&file, started)?;
        return Ok(true);
    }
    if let Command::BenchFlood { bytes } = command {
        bench::streams::flood(bytes)?;
        return Ok(true);
    }
    if let Command::BenchPeer = command {
        bench::peer::serve()?;
        return Ok(true);
    }
    let metadata = Metadata::load()?;
    let root = &metadata.workspace_root;
    match command {
        Command::Fmt { check } => gates::fmt(root, check)?,
        Command::Lint => gates::lint(root)?,
        Command::Doc => gates::doc(root)?,
        Command::Tidy => tidy::run(&metadata)?,
        Command::Test { list: true, .. } => test::list_cells(&metadata)?,
        Command::Test {
            require,
            filter,
            cells,
            changed,
            list: false,
        } => {
            let cells = if changed {
                test::cells::Chosen::changed(root)?
            } else {
                test::cells::Chosen::named(&cells)?
            };
            let options = test::Options {
                require,
                filter,
                cells,
            };
            let summary = test::run(&metadata, &options);
            console::say(summary.to_string());
            return Ok(summary.failed == 0);
        }
        Command::Behaviours { require } => behaviours::run(&metadata, require.as_deref())?,
        Command::Bench {
            full,
            sessions,
            command,
            iterations,
        } => {
            let rows = match (sessions, full) {
                (true, _) => bench::Rows::Sessions,
                (false, true) => bench::Rows::Full,
                (false, false) => bench::Rows::Usual,
            };
            bench::run(&metadata, rows, command, usize::from(iterations))?;
        }
        Command::Fuzz { cases } => fuzz::run(&metadata, cases)?,
        Command::Soak { seed } => {
            soak::run(&metadata, seed)?;
            endurance::run(&metadata, endurance::Size::Release)?;
        }
        Command::Mutate { filter } => mutate::run(&metadata, &filter)?,
        Command::Certify => certify::run(&metadata)?,
        Command::Package => package::run(&metadata)?,
        Command::Features => features::run(&metadata)?,
        Command::Semver { since } => semver::run(&metadata, &since)?,
        Command::Supervisor => console::say(supervisor::build(&metadata)?.display().to_string()),
        Command::Ci => return Ok(ci::run(&metadata)),
        Command::BenchAgent { .. } | Command::BenchFlood { .. } | Command::BenchPeer => {}
    }
    Ok(true)
}

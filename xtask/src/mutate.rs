//! `cargo xtask mutate`: takes one guard away at a time, in a copy of the sources, and looks which tests notice.
//!
//! A test that stays green without the guard it is for is no test. The sources themselves are never touched.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::{
    console,
    metadata::Metadata,
    process::Cmd,
    supervisor,
    test::engine::{Engine, SUPERVISOR},
};

/// Where the mutations are written, below the root of the workspace.
const FILE: &str = "tests/mutations.toml";

/// How long one test may take, in seconds.
const TEST_SECONDS: &str = "180";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MutationFile {
    mutation: Vec<Mutation>,
}

/// One guard, how it is taken away, and the tests that must turn red.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutation {
    name: String,
    file: PathBuf,
    find: String,
    replace: String,
    package: String,
    test: String,
    red: Vec<String>,
    /// Whether the tests need the engine for containers, and a supervisor that has the mutation as well.
    #[serde(default)]
    engine: bool,
}

/// Applies each mutation whose name contains `filter`, alone, and runs its tests.
///
/// # Errors
///
/// Fails when a mutation cannot be applied, when its tests are not green without it, or when one stays green with it.
pub(crate) fn run(metadata: &Metadata, filter: &str) -> Result<()> {
    let root = &metadata.workspace_root;
    let text =
        fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    let all: MutationFile =
        toml::from_str(&text).with_context(|| format!("cannot understand {FILE}"))?;
    let chosen: Vec<_> = all
        .mutation
        .iter()
        .filter(|mutation| mutation.name.contains(filter))
        .collect();
    ensure!(!chosen.is_empty(), "no mutation has a name with {filter:?}");
    let scratch = metadata.target_directory.join("mutate");
    let mut copy = Copy::make(root, &scratch)?;
    if chosen.iter().any(|mutation| mutation.engine) {
        copy.engine = Some(Engine::start(metadata)?);
    }
    for mutation in &chosen {
        let red = copy.failing(mutation).context("without a mutation")?;
        ensure!(red.is_empty(), "{}: red without it: {red:?}", mutation.name);
    }
    let mut survivors = Vec::new();
    for mutation in &chosen {
        let red = copy.mutated(mutation)?;
        let green: Vec<_> = mutation
            .red
            .iter()
            .filter(|test| !red.iter().any(|name| name.contains(test.as_str())))
            .collect();
        let word = if green.is_empty() {
            "caught"
        } else {
            "SURVIVED"
        };
        console::say(format!(
            "{word:<9} {:<24} {}",
            mutation.name,
            mutation.red.join(", ")
        ));
        if !green.is_empty() {
            survivors.push(mutation.name.as_str());
        }
    }
    console::say(format!(
        "{} of {} mutations caught",
        chosen.len() - survivors.len(),
        chosen.len()
    ));
    ensure!(
        survivors.is_empty(),
        "not noticed: {}",
        survivors.join(", ")
    );
    Ok(())
}

/// A copy of every file that git knows, with a target directory of its own.
#[derive(Debug)]
struct Copy {
    sources: PathBuf,
    target: PathBuf,
    engine: Option<Engine>,
}

impl Copy {
    fn make(root: &Path, scratch: &Path) -> Result<Self> {
        let sources = scratch.join("src");
        if sources.exists() {
            fs::remove_dir_all(&sources)?;
        }
        let listed = Cmd::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .directory(root)
            .read()?;
        for name in listed
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
        {
            let name = std::str::from_utf8(name).context("a file name is no UTF-8")?;
            let (from, to) = (root.join(name), sources.join(name));
            if !from.is_file() {
                continue;
            }
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::copy(&from, &to).with_context(|| format!("cannot copy {name}"))?;
        }
        Ok(Self {
            sources,
            target: scratch.join("target"),
            engine: None,
        })
    }

    /// Applies a mutation, runs its tests, and takes it back; returns the tests that failed.
    fn mutated(&self, mutation: &Mutation) -> Result<BTreeSet<String>> {
        let path = self.sources.join(&mutation.file);
        let before = fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", mutation.file.display()))?;
        let places = before.matches(&mutation.find).count();
        if places != 1 {
            bail!(
                "{}: the place to change is there {places} times",
                mutation.name
            );
        }
        fs::write(&path, before.replacen(&mutation.find, &mutation.replace, 1))?;
        let red = self.failing(mutation);
        fs::write(&path, before)?;
        red
    }

    /// Returns what the tests of a mutation are told; the supervisor of containers is built from the copy.
    fn told(&self, mutation: &Mutation) -> Result<Vec<(&'static str, String)>> {
        let Some(engine) = self.engine.as_ref().filter(|_| mutation.engine) else {
            return Ok(Vec::new());
        };
        let supervisor = supervisor::build_at(&self.sources, &self.target)?;
        let mut told = engine.variables().to_vec();
        told.push((SUPERVISOR, supervisor.display().to_string()));
        Ok(told)
    }

    /// Runs the tests of a mutation; returns those that failed. What does not build tells nothing and is an error.
    fn failing(&self, mutation: &Mutation) -> Result<BTreeSet<String>> {
        let told = self.told(mutation)?;
        let here = |cmd: Cmd, tail: &[&str]| {
            let told = told.iter();
            let cmd = told.fold(cmd, |cmd, (name, value)| cmd.variable(name, value));
            cmd.directory(&self.sources)
                .args(["test", "-p", &mutation.package, "--test", &mutation.test])
                .args(tail)
                .variable("CARGO_TARGET_DIR", &self.target)
                .variable("CARGO_INCREMENTAL", "0")
                .variable("RUST_BACKTRACE", "0")
        };
        let built = here(Cmd::cargo(&self.sources), &["--no-run"]).output()?;
        ensure!(
            built.status.success(),
            "{} does not build:\n{}",
            mutation.name,
            String::from_utf8_lossy(&built.stderr)
        );
        let mut red = BTreeSet::new();
        for test in &mutation.red {
            // Without a guard a test may never end; that is red as well.
            let limited = Cmd::new("timeout").args(["--kill-after=5", TEST_SECONDS, "cargo"]);
            let ran = here(limited, &["--", test]).output()?;
            let text = String::from_utf8_lossy(&ran.stdout);
            let named = text
                .lines()
                .filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "))
                .inspect(|(_, end)| debug_assert!(!end.is_empty()))
                .filter(|(_, end)| end.starts_with("FAILED") || end.starts_with("failed"))
                .map(|(name, _)| name.to_owned());
            red.extend(named);
            // A test that takes its whole program along is red as well.
            if !ran.status.success() {
                red.insert(test.clone());
            }
            ensure!(
                text.contains(test.as_str()) || !ran.status.success(),
                "{}: there is no test {test}",
                mutation.name
            );
        }
        Ok(red)
    }
}

//! `cargo xtask soak`: the loops of the fault tests at their full length.
//!
//! The same tests run short among all others; here only their sizes differ. They read `GROUNDCREW_SOAK`, and `GROUNDCREW_SEED`
//! where they draw at random: a failure names the seed to begin at.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::{
    console,
    metadata::Metadata,
    process::{self, Cmd},
    test::engine::Engine,
};

/// The tests with loops: the package, the binary, and the beginning of their names.
const LOOPS: [(&str, &str, &[&str]); 2] = [
    ("groundcrew-tests", "it", &["faults::f127_g01_"]),
    (
        "groundcrew-testkit",
        "engine",
        &[
            "cancelling::",
            "compound::",
            "load::",
            "misbehaving::",
            "model::",
            "races::",
        ],
    ),
];

/// Those that need an engine for containers; one after the other, for each lets engines of its own suffer.
const OF_CONTAINERS: (&str, &str, &[&str]) = (
    "groundcrew-tests",
    "it",
    &[
        "docker_endurance::",
        "docker_faults::",
        "docker_outage::",
        "docker_replies::",
    ],
);

/// Runs every loop in full; prints each test with its time.
///
/// # Errors
///
/// Fails when one of them does, or when none was found.
pub(crate) fn run(metadata: &Metadata, seed: Option<u64>) -> Result<()> {
    let mut soak = Soak {
        metadata,
        seed,
        variables: Vec::new(),
        threads: "2",
    };
    for (package, binary, names) in LOOPS {
        soak.all(package, binary, names)?;
    }
    if !process::is_installed("dockerd") || !rustix::process::geteuid().is_root() {
        console::remark(
            "SKIPPED: the loops with containers; root and an engine are needed for them",
        );
        return Ok(());
    }
    let engine = Engine::start(metadata)?;
    soak.variables.extend(engine.variables());
    soak.threads = "1";
    let (package, binary, names) = OF_CONTAINERS;
    soak.all(package, binary, names)
}

/// How loops are run.
#[derive(Debug)]
struct Soak<'a> {
    metadata: &'a Metadata,
    seed: Option<u64>,
    /// What the tests are told.
    variables: Vec<(&'static str, String)>,
    threads: &'static str,
}

impl Soak<'_> {
    fn all(&self, package: &str, binary: &str, names: &[&str]) -> Result<()> {
        for name in names {
            self.one(package, binary, name)?;
        }
        Ok(())
    }

    fn one(&self, package: &str, binary: &str, name: &str) -> Result<()> {
        let began = Instant::now();
        let mut passed = 0;
        let mut cmd = Cmd::cargo(&self.metadata.workspace_root)
            .args(["test", "-p", package, "--test", binary, "--"])
            .args([name, "--nocapture", "--test-threads", self.threads])
            .variable("GROUNDCREW_SOAK", "1")
            .variable("RUST_BACKTRACE", "0");
        if let Some(seed) = self.seed {
            cmd = cmd.variable("GROUNDCREW_SEED", seed.to_string());
        }
        for (name, value) in &self.variables {
            cmd = cmd.variable(name, value);
        }
        let status = cmd.follow(|line| {
            passed += usize::from(line.starts_with("test ") && line.ends_with(" ok"));
        })?;
        ensure!(status.success(), "{package} {name} failed");
        ensure!(passed > 0, "no test of {package} begins with {name}");
        let took = began.elapsed().as_secs_f64();
        console::say(format!("{name:<18} {passed:>3} tests {took:>7.1} s"));
        Ok(())
    }
}

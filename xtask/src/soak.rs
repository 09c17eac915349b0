//! `cargo xtask soak`: the loops of the fault tests at their full length.
//!
//! The same tests run short among all others; here only their sizes differ. They read `GROUNDCREW_SOAK`, and `GROUNDCREW_SEED`
//! where they draw at random: a failure names the seed to begin at.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::{console, metadata::Metadata, process::Cmd};

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

/// Runs every loop in full; prints each test with its time.
///
/// # Errors
///
/// Fails when one of them does, or when none was found.
pub(crate) fn run(metadata: &Metadata, seed: Option<u64>) -> Result<()> {
    for (package, binary, names) in LOOPS {
        for name in names {
            let began = Instant::now();
            let mut passed = 0;
            let mut cmd = Cmd::cargo(&metadata.workspace_root)
                .args(["test", "-p", package, "--test", binary, "--"])
                .args([name, "--nocapture", "--test-threads", "2"])
                .variable("GROUNDCREW_SOAK", "1")
                .variable("RUST_BACKTRACE", "0");
            if let Some(seed) = seed {
                cmd = cmd.variable("GROUNDCREW_SEED", seed.to_string());
            }
            let status = cmd.follow(|line| {
                passed += usize::from(line.starts_with("test ") && line.ends_with(" ok"));
            })?;
            ensure!(status.success(), "{package} {name} failed");
            ensure!(passed > 0, "no test of {package} begins with {name}");
            let took = began.elapsed().as_secs_f64();
            console::say(format!("{name:<16} {passed:>3} tests {took:>7.1} s"));
        }
    }
    Ok(())
}

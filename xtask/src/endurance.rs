//! The tests of endurance, larger than among all others: nothing may add up, however often.
//!
//! The same tests run small with every run of the tests; here only their number differs.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::{console, metadata::Metadata, process::Cmd};

/// How large the tests are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Size {
    /// A minute or two on a machine that does nothing else.
    Gate,
    /// As large as the targets say.
    Release,
}

/// A test binary, and the tests in it: package, binary, names.
const TESTS: [(&str, &str, &[&str]); 2] = [
    (
        "groundcrew-supervisor",
        "processes_real",
        &["soak::g8_heavy_processes_by_the_thousand_leave_nothing_here"],
    ),
    (
        "groundcrew-executor-local",
        "local",
        &[
            "g8_instances_one_after_the_other_leave_nothing_here",
            "g10_g11_many_instances_at_once_take_few_descriptors_and_end_together",
        ],
    ),
];

/// Runs them, one at a time, and shows their figures.
///
/// # Errors
///
/// Fails when one does, or is not there.
pub(crate) fn run(metadata: &Metadata, size: Size) -> Result<()> {
    let size = match size {
        Size::Gate => "gate",
        Size::Release => "release",
    };
    for (package, binary, names) in TESTS {
        let mut passed = BTreeSet::new();
        let status = Cmd::cargo(&metadata.workspace_root)
            .args(["test", "--package", package, "--test", binary, "--"])
            .args(names)
            .args(["--exact", "--test-threads=1", "--show-output"])
            .variable("GROUNDCREW_SOAK", size)
            .follow(|line| {
                let name = line
                    .strip_prefix("test ")
                    .and_then(|rest| rest.strip_suffix(" ... ok"));
                passed.extend(name.map(str::to_owned));
            })?;
        ensure!(status.success(), "a test of endurance of {package} failed");
        for name in names {
            ensure!(passed.contains(*name), "{name} of {package} was not run");
        }
    }
    console::say("nothing adds up");
    Ok(())
}

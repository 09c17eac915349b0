//! `cargo xtask semver`: what changed in the public API of the libraries, against an earlier commit.

use anyhow::Result;

use crate::{metadata::Metadata, process::Cmd, tools::Tool};

const CHECKS: Tool = Tool {
    name: "cargo-semver-checks",
    version: "0.51.0",
};

/// Compares with the API at a commit.
///
/// # Errors
///
/// Fails when something changed that the version does not tell, or the tool cannot be had.
pub(crate) fn run(metadata: &Metadata, since: &str) -> Result<()> {
    let mut command = Cmd::new(CHECKS.program(metadata)?)
        .directory(&metadata.workspace_root)
        .args(["semver-checks", "check-release", "--baseline-rev", since]);
    for package in metadata.published().filter(|package| package.is_library()) {
        command = command.args(["--package", &package.name]);
    }
    command.check()
}

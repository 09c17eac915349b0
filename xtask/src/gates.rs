//! The gates that are cargo's own: format, lints, documentation.

use std::path::Path;

use anyhow::Result;

use crate::process::{self, Cmd};

/// Formats every crate, or only says which files are not formatted.
///
/// # Errors
///
/// Fails when rustfmt does.
pub(crate) fn fmt(root: &Path, check: bool) -> Result<()> {
    let command = Cmd::cargo(root).args(["fmt", "--all"]);
    if check {
        command.args(["--", "--check"]).check()
    } else {
        command.check()
    }
}

/// Runs clippy over every target; a warning is a failure.
///
/// # Errors
///
/// Fails when clippy finds anything.
pub(crate) fn lint(root: &Path) -> Result<()> {
    Cmd::cargo(root)
        .args(["clippy", "--workspace", "--all-targets"])
        .args(["--", "-D", "warnings"])
        .check()
}

/// Builds the documentation of our crates; a warning is a failure.
///
/// Doctests are run by `test`.
///
/// # Errors
///
/// Fails when rustdoc finds anything.
pub(crate) fn doc(root: &Path) -> Result<()> {
    let mut flags = process::variable("RUSTDOCFLAGS").unwrap_or_default();
    flags.push(" -D warnings");
    Cmd::cargo(root)
        .args(["doc", "--workspace", "--no-deps"])
        .variable("RUSTDOCFLAGS", flags)
        .check()
}

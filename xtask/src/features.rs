//! `cargo xtask features`: every crate compiles alone, with each of its features, with none and with all.
//!
//! In the workspace cargo unites the features that all members ask of a crate; whoever takes one crate gets only what that one asks for.

use anyhow::Result;

use crate::{metadata::Metadata, process::Cmd, tools::Tool};

const HACK: Tool = Tool {
    name: "cargo-hack",
    version: "0.6.46",
};

/// Checks every crate that others depend on.
///
/// # Errors
///
/// Fails when one does not compile, or cargo-hack cannot be had.
pub(crate) fn run(metadata: &Metadata) -> Result<()> {
    let mut command = Cmd::new(HACK.program(metadata)?)
        .directory(&metadata.workspace_root)
        .args(["hack", "check", "--each-feature", "--lib", "--bins"]);
    for package in metadata.published() {
        command = command.args(["--package", &package.name]);
    }
    command.check()
}

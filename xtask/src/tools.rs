//! Programs of others that a few of these commands run: those of the machine, else built once into the target directory.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::{console, metadata::Metadata, process, process::Cmd};

/// A subcommand of cargo that is a crate.
#[derive(Debug)]
pub(crate) struct Tool {
    /// Its name, of the crate as of the program.
    pub(crate) name: &'static str,
    /// Which is built where the machine has none.
    pub(crate) version: &'static str,
}

impl Tool {
    /// Returns the program; it is built if the machine has none.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be built.
    pub(crate) fn program(&self, metadata: &Metadata) -> Result<PathBuf> {
        if process::is_installed(self.name) {
            return Ok(self.name.into());
        }
        let directory = metadata.own_directory().join("tools");
        let program = directory.join("bin").join(self.name);
        if !program.is_file() {
            console::remark(format!(
                "there is no {}; building {}",
                self.name, self.version
            ));
            Cmd::cargo(&metadata.workspace_root)
                .args(["install", "--quiet", "--locked", self.name, "--version", self.version])
                .arg("--root")
                .arg(&directory)
                // What it is built of is of no use to anybody else.
                .variable("CARGO_TARGET_DIR", directory.join("target"))
                .check()
                .with_context(|| format!("{} cannot be built", self.name))?;
        }
        Ok(program)
    }
}

//! `cargo xtask package`: every crate that others depend on can be packaged, with all that its users are to have.
//!
//! Nothing is published and nothing asked of a registry: the packages are made, looked into, and left below the target directory.

use anyhow::{Result, ensure};

use crate::{console, metadata::Metadata, process::Cmd};

/// Packages every library and the command.
///
/// # Errors
///
/// Fails when one cannot be packaged, or lacks its readme or its licence.
pub(crate) fn run(metadata: &Metadata) -> Result<()> {
    let root = &metadata.workspace_root;
    let crates: Vec<_> = metadata
        .members()
        .filter(|package| package.directory().starts_with(root.join("crates")))
        .collect();
    for package in &crates {
        let listed = Cmd::cargo(root)
            .args([
                "package",
                "--list",
                "--allow-dirty",
                "--offline",
                "--package",
            ])
            .arg(&package.name)
            .read()?;
        let listed = String::from_utf8_lossy(&listed).into_owned();
        for file in ["README.md", "Cargo.toml"] {
            ensure!(
                listed.lines().any(|line| line == file),
                "the package of {} has no {file}",
                package.name
            );
        }
        ensure!(
            package.license.is_some(),
            "{} names no licence",
            package.name
        );
        console::say(format!(
            "{:<28} {:>4} files",
            package.name,
            listed.lines().count()
        ));
    }
    Ok(())
}

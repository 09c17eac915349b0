//! The profile that all builds of the workspace share, for builds that are not of the workspace.
//!
//! With it what is foreign and built already is used again; without it everything would be built once more.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use toml::{Table, Value};

/// Returns the profile for development, as a manifest has it.
///
/// # Errors
///
/// Fails when the manifest of the workspace cannot be read.
pub(crate) fn development(root: &Path) -> Result<Value> {
    let manifest = root.join("Cargo.toml");
    let text = fs::read_to_string(&manifest)
        .with_context(|| format!("cannot read {}", manifest.display()))?;
    let mut manifest: Table = text.parse()?;
    let profiles = manifest.get_mut("profile").and_then(Value::as_table_mut);
    let own = profiles.and_then(|profiles| profiles.remove("dev"));
    let profiles = Table::from_iter([("dev".to_owned(), own.context("there is no profile")?)]);
    Ok(profiles.into())
}

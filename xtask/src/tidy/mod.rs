//! `cargo xtask tidy`: the rules of the house that no compiler checks.
//!
//! Each rule is a function from what it reads to findings, so that each can be shown to fail on a small fixture.

mod cycles;
mod layers;
mod lexer;
mod licences;
mod manifests;
mod modules;
mod papers;
mod repository;
mod signatures;
mod sources;
mod tree;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::console;
use crate::metadata::Metadata;

use self::repository::Finding;

/// Runs every check and prints what they find.
///
/// # Errors
///
/// Fails when there is a finding, or something cannot be read.
pub(crate) fn run(metadata: &Metadata) -> Result<()> {
    let findings = collect(metadata)?;
    for finding in &findings {
        console::say(finding.to_string());
    }
    if !findings.is_empty() {
        bail!("{} findings", findings.len());
    }
    console::say("nothing found");
    Ok(())
}

/// Lists the files that a build or a test may depend on.
///
/// # Errors
///
/// Fails when a directory cannot be read.
pub(crate) fn source_paths(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = repository::read(root)?;
    files.retain(|file| file.has_extension("rs") || file.path.ends_with("Cargo.toml"));
    Ok(files.into_iter().map(|file| root.join(file.path)).collect())
}

fn collect(metadata: &Metadata) -> Result<Vec<Finding>> {
    let root: &Path = &metadata.workspace_root;
    let files = repository::read(root)?;
    let policy = licences::Policy::load(&root.join("deny.toml"))?;
    let mut findings = Vec::new();
    findings.extend(layers::check(metadata));
    findings.extend(licences::check(metadata, &policy));
    findings.extend(manifests::check(metadata)?);
    findings.extend(sources::check(&files));
    findings.extend(papers::check(root, metadata, &files));
    findings.extend(signatures::check(root, metadata, &files));
    findings.extend(cycles::check(root, metadata, &files));
    Ok(findings)
}

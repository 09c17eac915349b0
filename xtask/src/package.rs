//! `cargo xtask package`: every crate that others depend on is packaged, and compiled from its package alone.
//!
//! Nothing is published and nothing asked of a registry. The packages are unpacked beside each other, and stand in for each other
//! where one asks for another; each is then checked on its own. So what is missing in a package is found, and a feature that only
//! the workspace gives. Cargo's own check of packages builds everything foreign anew for each of them.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use toml::{Table, Value};

use crate::metadata::{Metadata, Package};
use crate::{console, process::Cmd, profile};

/// Packages every library and the command.
///
/// # Errors
///
/// Fails when one cannot be packaged or compiled, or lacks its readme or its licence.
pub(crate) fn run(metadata: &Metadata) -> Result<()> {
    let root = &metadata.workspace_root;
    let made = metadata.own_directory().join("packages");
    let mut all = Cmd::cargo(root)
        .args(["package", "--quiet", "--no-verify", "--allow-dirty"])
        .args(["--offline", "--target-dir"])
        .arg(&made);
    for package in metadata.published() {
        let files = listed(root, package)?;
        console::say(format!("{:<28} {files:>4} files", package.name));
        all = all.args(["--package", &package.name]);
    }
    all.check()?;
    let unpacked = metadata.own_directory().join("unpacked");
    unpack(metadata, &made.join("package"), &unpacked)?;
    for package in metadata.published() {
        Cmd::cargo(&unpacked)
            .args(["check", "--quiet", "--offline", "--package", &package.name])
            .variable("CARGO_TARGET_DIR", &metadata.target_directory)
            .check()
            .with_context(|| format!("the package of {} does not compile", package.name))?;
    }
    console::say("each compiles from its package alone");
    Ok(())
}

/// Counts the files of a package, among which must be what its users are to have.
fn listed(root: &Path, package: &Package) -> Result<usize> {
    let listed = Cmd::cargo(root)
        .args(["package", "--list", "--allow-dirty", "--offline"])
        .args(["--package", &package.name])
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
    Ok(listed.lines().count())
}

/// Unpacks them into a workspace of their own, in which each is found where another asks the registry for it.
fn unpack(metadata: &Metadata, from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    let (mut members, mut patch) = (Vec::new(), Table::new());
    for package in metadata.published() {
        let directory = format!("{}-{}", package.name, package.version);
        Cmd::new("tar")
            .arg("-xzf")
            .arg(from.join(format!("{directory}.crate")))
            .arg("-C")
            .arg(to)
            .check()?;
        let place = Table::from_iter([("path".to_owned(), directory.as_str().into())]);
        patch.insert(package.name.clone(), place.into());
        members.push(Value::from(directory));
    }
    let workspace = Table::from_iter([
        ("resolver".to_owned(), "3".into()),
        ("members".to_owned(), members.into()),
    ]);
    let registry = Table::from_iter([("crates-io".to_owned(), patch.into())]);
    let manifest = Table::from_iter([
        ("workspace".to_owned(), workspace.into()),
        ("patch".to_owned(), registry.into()),
        // What is foreign is built the same way, and so only once.
        (
            "profile".to_owned(),
            profile::development(&metadata.workspace_root)?,
        ),
    ]);
    fs::write(to.join("Cargo.toml"), toml::to_string(&manifest)?)?;
    // The same versions as here: nothing is looked up.
    let lock = metadata.workspace_root.join("Cargo.lock");
    fs::copy(lock, to.join("Cargo.lock"))?;
    Ok(())
}

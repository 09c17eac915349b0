//! `cargo xtask supervisor`: the supervisor for containers, linked into one static file.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::metadata::Metadata;
use crate::process::Cmd;

/// Where it is built, below the directory of all builds: apart from all else, because its flags differ.
const DIRECTORY: &str = "supervisor";

/// Builds it, and returns where it is; nothing is done when it is up to date.
///
/// The C library's own static archive is linked; a target is named so that only the program is static, not what builds it.
///
/// # Errors
///
/// Fails when the build does.
pub(crate) fn build(metadata: &Metadata) -> Result<PathBuf> {
    build_at(&metadata.workspace_root, &metadata.target_directory)
}

/// The same of the workspace at `root`, with the directory of all its builds.
///
/// # Errors
///
/// Fails when the build does.
pub(crate) fn build_at(root: &Path, builds: &Path) -> Result<PathBuf> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let directory = builds.join(DIRECTORY);
    Cmd::cargo(root)
        .args(["build", "--quiet", "--locked", "--profile", "supervisor"])
        .args(["--package", "groundcrew-supervisor", "--target", &target])
        .arg("--target-dir")
        .arg(&directory)
        .variable("RUSTFLAGS", "-C target-feature=+crt-static")
        .check()?;
    let program = directory
        .join(target)
        .join("supervisor")
        .join("groundcrew-supervisor");
    if program.is_file() {
        Ok(program)
    } else {
        bail!("the build left no {}", program.display())
    }
}

//! `cargo xtask certify`: the example executor as a stranger has it – a directory of its own, with path dependencies –
//! built and certified by one command.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use toml::{Table, Value};

use crate::{console, metadata::Metadata, process::Cmd, profile};

const EXAMPLE: &str = "examples/executor-bwrap";

/// Copies it out, certifies it, and keeps the report.
///
/// # Errors
///
/// Fails when it does not build, a case fails, or the report certifies nothing.
pub(crate) fn run(metadata: &Metadata) -> Result<()> {
    let root = &metadata.workspace_root;
    let checkout = tempfile::Builder::new()
        .prefix("certify")
        .tempdir()
        .context("cannot make a directory for the checkout")?;
    copy(&root.join(EXAMPLE), checkout.path())?;
    let manifest = standalone(root, &checkout.path().join("Cargo.toml"))?;
    fs::write(checkout.path().join("Cargo.toml"), manifest)?;
    // The same versions as here: nothing is looked up.
    fs::copy(root.join("Cargo.lock"), checkout.path().join("Cargo.lock"))?;
    fs::create_dir_all(metadata.own_directory())?;
    let report = metadata.own_directory().join("certified-bwrap.json");
    let status = Cmd::cargo(checkout.path())
        .directory(checkout.path())
        .args(["test", "--test", "conformance", "--", "--report"])
        .arg(&report)
        .variable("CARGO_TARGET_DIR", &metadata.target_directory)
        .status()?;
    ensure!(status.success(), "the example does not certify: {status}");
    let text = fs::read(&report).context("there is no report")?;
    let report_of: serde_json::Value = serde_json::from_slice(&text)?;
    ensure!(
        report_of["certified"] == true,
        "the report certifies nothing"
    );
    console::say(format!(
        "certified: {} cases, {} not supported, {} exceptions; {}",
        report_of["counts"]["cases"],
        report_of["counts"]["not_supported"],
        report_of["counts"]["excepted"],
        report.display()
    ));
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Writes out what a manifest inherits; our own crates become absolute paths.
fn standalone(root: &Path, manifest: &Path) -> Result<String> {
    let read = |path: &Path| -> Result<Table> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(text.parse()?)
    };
    let workspace = read(&root.join("Cargo.toml"))?;
    let mut own = read(manifest)?;
    let inherited = |section: &str, key: &str| workspace["workspace"][section].get(key).cloned();
    if let Some(package) = own.get_mut("package").and_then(Value::as_table_mut) {
        for (key, value) in package.iter_mut() {
            if value.get("workspace").is_some() {
                *value = inherited("package", key).with_context(|| format!("no {key}"))?;
            }
        }
    }
    own.remove("lints");
    for section in ["dependencies", "dev-dependencies"] {
        let Some(table) = own.get_mut(section).and_then(Value::as_table_mut) else {
            continue;
        };
        for (name, value) in table.iter_mut() {
            let features = value.get("features").cloned();
            let from = inherited("dependencies", name).with_context(|| format!("no {name}"))?;
            let mut written = match from {
                Value::Table(table) => table,
                version => Table::from_iter([("version".to_owned(), version)]),
            };
            if let Some(path) = written.get("path").and_then(Value::as_str) {
                let path = root.join(path).display().to_string();
                written.insert("path".to_owned(), path.into());
            }
            if let Some(features) = features {
                written.insert("features".to_owned(), features);
            }
            *value = written.into();
        }
    }
    // What is foreign is built the same way, and so only once.
    own.insert("profile".to_owned(), profile::development(root)?);
    // A workspace of its own, wherever it lies.
    own.insert("workspace".to_owned(), Table::new().into());
    Ok(toml::to_string(&own)?)
}

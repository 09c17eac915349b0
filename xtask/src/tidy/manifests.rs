//! What every manifest of the workspace inherits: lints, edition, licence, Rust version, versions of dependencies.

use anyhow::{Context as _, Result};
use toml::Table;

use crate::metadata::Metadata;

use super::repository::Finding;

/// The keys of `[package]` that come from the workspace.
const INHERITED: [&str; 3] = ["edition", "license", "rust-version"];

/// Checks the manifest of every member.
///
/// # Errors
///
/// Fails when a manifest cannot be read.
pub(crate) fn check(metadata: &Metadata) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for package in metadata.members() {
        let path = &package.manifest_path;
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let manifest: Table =
            toml::from_str(&text).with_context(|| format!("cannot read {}", path.display()))?;
        findings.extend(check_one(&package.name, &manifest));
    }
    Ok(findings)
}

fn check_one(name: &str, manifest: &Table) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut expect = |path: String, holds: bool| {
        if !holds {
            findings.push(Finding::new(
                name,
                format!("`{path}` must come from the workspace"),
            ));
        }
    };
    expect("lints".into(), inherits(manifest, "lints"));
    let package = manifest.get("package").and_then(toml::Value::as_table);
    for key in INHERITED {
        expect(
            format!("package.{key}"),
            package.is_some_and(|package| inherits(package, key)),
        );
    }
    for (section, dependencies) in dependency_sections(manifest) {
        for key in dependencies.keys() {
            expect(format!("{section}.{key}"), inherits(dependencies, key));
        }
    }
    findings
}

fn inherits(table: &Table, key: &str) -> bool {
    table
        .get(key)
        .and_then(toml::Value::as_table)
        .and_then(|value| value.get("workspace"))
        .and_then(toml::Value::as_bool)
        .unwrap_or(false)
}

/// Lists the tables of dependencies, those of one platform included.
fn dependency_sections(manifest: &Table) -> Vec<(String, &Table)> {
    let platforms = manifest.get("target").and_then(toml::Value::as_table);
    let mut tables = vec![(String::new(), manifest)];
    for (platform, value) in platforms.into_iter().flatten() {
        if let Some(table) = value.as_table() {
            tables.push((format!("target.{platform}."), table));
        }
    }
    let mut sections = Vec::new();
    for (prefix, table) in tables {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            if let Some(found) = table.get(kind).and_then(toml::Value::as_table) {
                sections.push((format!("{prefix}{kind}"), found));
            }
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::super::repository::rendered;
    use super::*;

    #[test]
    fn a_manifest_that_inherits_passes() {
        let manifest = r#"
            package = { name = "x", edition.workspace = true, license.workspace = true, rust-version.workspace = true }
            lints.workspace = true
            dependencies = { a.workspace = true, b = { workspace = true, features = ["c"] } }
        "#;
        assert_eq!(
            rendered(&check_one("x", &toml::from_str(manifest).unwrap())),
            [""; 0]
        );
    }

    #[test]
    fn whatever_is_not_inherited_is_named() {
        let manifest = r#"
            package = { name = "x", edition = "2024", rust-version.workspace = true }
            lints.workspace = false
            dev-dependencies = { a = "1" }
            target."cfg(unix)".dependencies = { b = { version = "1" } }
        "#;
        assert_eq!(
            rendered(&check_one("x", &toml::from_str(manifest).unwrap())),
            [
                "x: `lints` must come from the workspace",
                "x: `package.edition` must come from the workspace",
                "x: `package.license` must come from the workspace",
                "x: `dev-dependencies.a` must come from the workspace",
                "x: `target.cfg(unix).dependencies.b` must come from the workspace",
            ]
        );
    }
}

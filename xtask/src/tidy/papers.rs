//! The papers: links between files lead somewhere, and the papers that must exist do.

use std::path::{Component, Path, PathBuf};

use crate::metadata::Metadata;

use super::repository::{Finding, SourceFile};

/// What stands at the root of the repository.
const AT_ROOT: [&str; 6] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
];

/// Checks links and the presence of papers.
pub(crate) fn check(root: &Path, metadata: &Metadata, files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in AT_ROOT {
        findings.extend(missing(&root.join(name), name));
    }
    for package in metadata.members() {
        findings.extend(missing(
            &package.directory().join("README.md"),
            &package.name,
        ));
    }
    for file in files.iter().filter(|file| file.has_extension("md")) {
        findings.extend(broken_links(root, file));
    }
    findings
}

fn missing(path: &Path, place: &str) -> Option<Finding> {
    let empty = std::fs::metadata(path).map_or(true, |found| found.len() == 0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    empty.then(|| Finding::new(place, format!("{name} is missing or empty")))
}

fn broken_links(root: &Path, file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in prose(&file.text) {
        for target in targets(&text) {
            let Some(path) = local(target) else { continue };
            let base = if path.starts_with('/') {
                PathBuf::new()
            } else {
                file.path.parent().unwrap_or(Path::new("")).to_owned()
            };
            let inside = normal(&base.join(path.trim_start_matches('/')));
            if !inside.is_some_and(|inside| root.join(inside).exists()) {
                findings.push(Finding::at(
                    file,
                    line,
                    format!("link to `{target}`, which is not in the repository"),
                ));
            }
        }
    }
    findings
}

/// Returns the lines of Markdown outside of code, code spans blanked, each with its number.
pub(crate) fn prose(text: &str) -> Vec<(usize, String)> {
    let mut fence: Option<&str> = None;
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let start = line.trim_start();
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(_)) => fence = mark,
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
            (None, None) => lines.push((number + 1, without_code_spans(line))),
        }
    }
    lines
}

fn without_code_spans(line: &str) -> String {
    let mut kept = String::new();
    for (index, part) in line.split('`').enumerate() {
        if index % 2 == 0 {
            kept.push_str(part);
        }
    }
    kept
}

/// Finds `[text](target)` and `[name]: target`.
fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("](") {
        let rest = &line[at + 2..];
        if let Some(end) = rest.find([')', ' ']) {
            found.push(&rest[..end]);
        }
    }
    if line.starts_with('[')
        && let Some((_, target)) = line.split_once("]: ")
    {
        found.extend(target.split_whitespace().next());
    }
    found
}

/// Returns the path of a link to a file; other links are not ours to check.
fn local(target: &str) -> Option<&str> {
    let path = target.split(['#', '?']).next().unwrap_or_default();
    let path = path.trim_start_matches('<').trim_end_matches('>');
    // With `::` it is a path of Rust in a README that is also crate documentation; rustdoc checks those.
    let foreign = target.contains("://") || target.starts_with("mailto:") || target.contains("::");
    (!path.is_empty() && !foreign).then_some(path)
}

/// Resolves `.` and `..`; nothing when the path leaves the repository.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => result.push(name),
            Component::ParentDir if result.pop() => {}
            Component::ParentDir => return None,
            _ => {}
        }
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::repository::{fixture, rendered};
    use super::*;

    #[test]
    fn links_lead_to_files_of_the_repository() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("docs")).unwrap();
        std::fs::write(root.path().join("README.md"), "x").unwrap();
        let good = "[a](../README.md) [b](https://example.org/x) [c](#part) [d](/docs) [e](../README.md#part)\n\
                    `[f](nowhere.md)` [g](crate::Thing)\n```\n[h](nowhere.md)\n```\n[i]: ../README.md\n";
        let file = fixture("docs/a.md", good);
        assert_eq!(rendered(&broken_links(root.path(), &file)), [""; 0]);
        let bad = "x\n[a](nowhere.md)\n[b](../../README.md)\n[c]: gone.md \"title\"\n";
        let found = rendered(&broken_links(root.path(), &fixture("docs/b.md", bad)));
        assert_eq!(
            found,
            [
                "docs/b.md:2: link to `nowhere.md`, which is not in the repository",
                "docs/b.md:3: link to `../../README.md`, which is not in the repository",
                "docs/b.md:4: link to `gone.md`, which is not in the repository",
            ]
        );
    }

    #[test]
    fn papers_exist_and_say_something() {
        let root = tempfile::tempdir().unwrap();
        for name in AT_ROOT {
            std::fs::write(root.path().join(name), "x").unwrap();
        }
        std::fs::write(root.path().join("CHANGELOG.md"), "").unwrap();
        std::fs::create_dir_all(root.path().join("a")).unwrap();
        let package = |name: &str| {
            json!({"id": name, "name": name, "version": "1.0.0", "license": null, "source": null, "dependencies": [],
                   "targets": [],
                   "manifest_path": root.path().join(name).join("Cargo.toml")})
        };
        let metadata: Metadata = serde_json::from_value(json!({
            "packages": [package("a"), package("b")],
            "workspace_members": ["a", "b"], "resolve": {"nodes": []},
            "workspace_root": root.path(), "target_directory": "/t",
        }))
        .unwrap();
        assert_eq!(
            rendered(&check(root.path(), &metadata, &[])),
            [
                "CHANGELOG.md: CHANGELOG.md is missing or empty",
                "a: README.md is missing or empty",
                "b: README.md is missing or empty",
            ]
        );
    }
}

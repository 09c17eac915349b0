//! The tests that exist: built, then asked of each binary itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::metadata::{Metadata, Target};
use crate::process::Cmd;

/// The test binaries with their tests, and the libraries whose documentation may hold more.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// By name of the file: cargo prints paths, sometimes relative ones.
    binaries: BTreeMap<String, Binary>,
    /// Package by the name its crate has in Rust.
    libraries: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Binary {
    id: String,
    tests: Vec<String>,
}

/// A line of `cargo build --message-format json`.
#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    package_id: Option<String>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

impl Listing {
    /// Builds all tests, and the programs that tests of other packages start, and asks for their names.
    ///
    /// # Errors
    ///
    /// Fails when the build does, or a binary cannot list its tests.
    pub(super) fn build(metadata: &Metadata) -> Result<Self> {
        let command = Cmd::cargo(&metadata.workspace_root)
            .args(["build", "--workspace", "--bins", "--tests"])
            .args(["--message-format", "json-render-diagnostics"]);
        let output = command.read_beside_stderr()?;
        if !output.status.success() {
            bail!("`{command}` failed: {}", output.status);
        }
        let packages = metadata.by_id();
        let mut listing = Self::of_libraries(metadata);
        for line in output.stdout.split(|byte| *byte == b'\n') {
            if line.first() != Some(&b'{') {
                continue;
            }
            let message: Message =
                serde_json::from_slice(line).context("cannot read what cargo built")?;
            let is_test = message.profile.as_ref().is_some_and(|profile| profile.test);
            let (Some(id), Some(target), Some(executable)) =
                (message.package_id, message.target, message.executable)
            else {
                continue;
            };
            let Some(package) = packages.get(id.as_str()) else {
                continue;
            };
            if message.reason != "compiler-artifact" || !is_test {
                continue;
            }
            let listed = Cmd::new(&executable)
                .args(["--list", "--format", "terse"])
                .directory(package.directory())
                .read()?;
            // What a suite lists and does not run is a case that does not apply: its report says why.
            let left_out = Cmd::new(&executable)
                .args(["--list", "--format", "terse", "--ignored"])
                .directory(package.directory())
                .read()?;
            let left_out = names(&String::from_utf8_lossy(&left_out));
            let mut tests = names(&String::from_utf8_lossy(&listed));
            tests.retain(|test| !left_out.contains(test));
            let binary = Binary {
                id: binary_id(&package.name, &target),
                tests,
            };
            listing.binaries.insert(file_name(&executable), binary);
        }
        Ok(listing)
    }

    /// Knows the libraries only: enough to read doctests.
    pub(super) fn of_libraries(metadata: &Metadata) -> Self {
        let libraries = metadata
            .members()
            .flat_map(|package| {
                package
                    .targets
                    .iter()
                    .filter(|target| target.kind.iter().any(|kind| kind == "lib"))
                    .map(|target| (target.name.replace('-', "_"), package.name.clone()))
            })
            .collect();
        Self {
            binaries: BTreeMap::new(),
            libraries,
        }
    }

    /// Lists the full name of every test.
    pub(super) fn tests(&self) -> Vec<String> {
        self.binaries
            .values()
            .flat_map(|binary| {
                binary
                    .tests
                    .iter()
                    .map(|test| format!("{} {test}", binary.id))
            })
            .collect()
    }

    /// Names the binary at a path; one that is not known keeps its file's name.
    pub(super) fn binary_at(&self, path: &Path) -> String {
        let name = file_name(path);
        self.binaries
            .get(&name)
            .map_or(name, |binary| binary.id.clone())
    }

    /// Names the doctests of a crate.
    pub(super) fn doctests_of(&self, library: &str) -> String {
        let package = self.libraries.get(library).map_or(library, String::as_str);
        format!("{package}::doc")
    }

    /// Makes a listing without building anything.
    #[cfg(test)]
    pub(super) fn fixture(binaries: &[(&str, &str)], libraries: &[(&str, &str)]) -> Self {
        Self {
            binaries: binaries
                .iter()
                .map(|(path, id)| {
                    let binary = Binary {
                        id: (*id).to_owned(),
                        tests: Vec::new(),
                    };
                    (file_name(Path::new(path)), binary)
                })
                .collect(),
            libraries: libraries
                .iter()
                .map(|(library, package)| ((*library).to_owned(), (*package).to_owned()))
                .collect(),
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Names a binary as nextest does.
fn binary_id(package: &str, target: &Target) -> String {
    match target.kind.first().map(String::as_str) {
        Some("test") => format!("{package}::{}", target.name),
        Some(kind @ ("bin" | "example" | "bench")) => format!("{package}::{kind}/{}", target.name),
        _ => package.to_owned(),
    }
}

fn names(listed: &str) -> Vec<String> {
    listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_are_named_as_nextest_names_them() {
        let id = |kind: &str, name: &str| {
            let target = Target {
                name: name.into(),
                kind: vec![kind.into()],
                src_path: PathBuf::new(),
            };
            binary_id("p", &target)
        };
        assert_eq!(id("lib", "p"), "p");
        assert_eq!(id("proc-macro", "p"), "p");
        assert_eq!(id("test", "it"), "p::it");
        assert_eq!(id("bin", "p"), "p::bin/p");
    }

    #[test]
    fn only_tests_are_listed() {
        assert_eq!(
            names("a::b: test\nc: benchmark\nd e: test\n\n1 test, 1 benchmark\n"),
            ["a::b", "d e"]
        );
    }
}

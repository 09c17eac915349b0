//! The matrix of the tests: each cell is a set of tests by name, and a test belongs to the first cell that claims it.
//!
//! Cells are data: what is chosen, from what, and by which change, can be read off the table.

use std::path::Path;

use anyhow::{Result, bail};

use crate::process::Cmd;

/// Everything that no other cell claims.
const UNITS: &str = "units";

/// Whatever every cell is made of: a change there runs all of them.
const SHARED: [&str; 8] = [
    "Cargo.toml",
    "Cargo.lock",
    "rust-toolchain.toml",
    ".config/",
    "crates/core/",
    "crates/supervisor/",
    "crates/testkit/",
    "xtask/",
];

/// One cell.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) name: &'static str,
    /// Test binaries, as nextest names them, and what the path of the test in them begins with; none is any.
    claims: &'static [(&'static str, &'static str)],
    /// What the tests need beside what all need.
    needs: &'static [&'static str],
    /// What it is made of beside what all are, as beginnings of paths.
    paths: &'static [&'static str],
}

/// The order matters: faults before the rest of the same binary.
const CELLS: [Cell; 15] = [
    cell(
        "memory/faults",
        &[("groundcrew-testkit::conformance", "faults::")],
        &[],
        &[],
    ),
    cell(
        "memory/conformance",
        &[
            ("groundcrew-testkit::conformance", ""),
            ("groundcrew-testkit::wrong", ""),
        ],
        &[],
        &[],
    ),
    cell(
        "local/faults",
        &[("groundcrew-executor-local::conformance", "faults::")],
        &[],
        &["crates/executor-local/"],
    ),
    cell(
        "local/conformance",
        &[("groundcrew-executor-local::conformance", "")],
        &[],
        &["crates/executor-local/"],
    ),
    cell(
        "worktree/faults",
        &[("groundcrew-tests::it", "faults::")],
        &[],
        &[
            "crates/preparer/",
            "crates/executor-local/",
            "crates/state/",
            "crates/cli/",
            "tests/",
        ],
    ),
    cell(
        "worktree/conformance",
        &[
            ("groundcrew-preparer::conformance", ""),
            ("groundcrew-preparer::conformance-clones", ""),
        ],
        &[],
        &["crates/preparer/"],
    ),
    cell(
        "docker/faults",
        &[
            ("groundcrew-executor-docker::conformance", "faults::"),
            ("groundcrew-tests::it", "docker_faults::"),
        ],
        &["docker"],
        &["crates/executor-docker/"],
    ),
    cell(
        "docker/conformance",
        &[("groundcrew-executor-docker::", "")],
        &["docker"],
        &["crates/executor-docker/"],
    ),
    cell(
        "bwrap/faults",
        &[("example-executor-bwrap::conformance", "faults::")],
        &["bwrap"],
        &["examples/executor-bwrap/"],
    ),
    cell(
        "bwrap/conformance",
        &[("example-executor-bwrap", "")],
        &["bwrap"],
        &["examples/executor-bwrap/"],
    ),
    cell(
        "exec/faults",
        &[("groundcrew-executor-exec::conformance", "faults::")],
        &["python3"],
        &["crates/executor-exec/"],
    ),
    cell(
        "exec/conformance",
        &[("groundcrew-executor-exec", "")],
        &["python3"],
        &["crates/executor-exec/"],
    ),
    cell(
        "agents",
        &[
            ("groundcrew-session::", ""),
            ("groundcrew-tests::it", "real_agents::"),
        ],
        &["agents", "docker"],
        &[
            "crates/session/",
            "crates/cli/",
            "crates/executor-docker/",
            "tests/",
            "xtask/agents/",
        ],
    ),
    cell(
        "behaviours",
        &[("groundcrew-tests::it", "")],
        &[],
        &["crates/", "tests/"],
    ),
    cell(
        UNITS,
        &[],
        &[],
        &["crates/", "examples/", "tests/", "docs/"],
    ),
];

const fn cell(
    name: &'static str,
    claims: &'static [(&'static str, &'static str)],
    needs: &'static [&'static str],
    paths: &'static [&'static str],
) -> Cell {
    Cell {
        name,
        claims,
        needs,
        paths,
    }
}

impl Cell {
    fn claims(&self, test: &str) -> bool {
        let (binary, path) = test.split_once(' ').unwrap_or((test, ""));
        let is_of = |wanted: &str| match wanted.strip_suffix("::") {
            // A package: its binaries, and its own unit tests.
            Some(package) => binary == package || binary.starts_with(wanted),
            None => binary == wanted || binary.starts_with(&format!("{wanted}::")),
        };
        let claims = |(wanted, begins): &(&str, &str)| is_of(wanted) && path.starts_with(begins);
        self.claims.iter().any(claims)
    }
}

/// Names the cell that a test belongs to.
fn cell_of(test: &str) -> &'static str {
    let claimed = CELLS.iter().find(|cell| cell.claims(test));
    claimed.map_or(UNITS, |cell| cell.name)
}

/// Which cells are run; none named is all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Chosen(Option<Vec<&'static str>>);

impl Chosen {
    /// Reads names, whole or what they begin with up to a slash, such as `docker`.
    ///
    /// # Errors
    ///
    /// Fails on a name that is not in the table, and lists the known ones.
    pub(crate) fn named(names: &[String]) -> Result<Self> {
        if names.is_empty() {
            return Ok(Self(None));
        }
        let mut chosen = Vec::new();
        for name in names {
            let row = format!("{name}/");
            let found: Vec<_> = CELLS
                .iter()
                .map(|cell| cell.name)
                .filter(|cell| {
                    cell == name || cell.starts_with(&row) || cell.ends_with(&format!("/{name}"))
                })
                .collect();
            if found.is_empty() {
                let known: Vec<_> = CELLS.iter().map(|cell| cell.name).collect();
                bail!("unknown cell `{name}`; known are {}", known.join(", "));
            }
            chosen.extend(found);
        }
        Ok(Self(Some(chosen)))
    }

    /// Chooses by what differs from the main branch, committed or not.
    ///
    /// # Errors
    ///
    /// Fails when git does.
    pub(crate) fn changed(root: &Path) -> Result<Self> {
        let git = |words: &[&str]| Cmd::new("git").args(words).directory(root).read();
        let base = git(&["merge-base", "HEAD", "main"]).unwrap_or_else(|_| b"HEAD".to_vec());
        let base = String::from_utf8_lossy(&base).trim().to_owned();
        let mut text = git(&["diff", "--name-only", &base])?;
        text.extend(git(&["ls-files", "--others", "--exclude-standard"])?);
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(Self(Some(by_paths(text.lines()))))
    }

    pub(super) fn is_all(&self) -> bool {
        self.0.is_none()
    }

    fn has(&self, cell: &str) -> bool {
        let chosen = self.0.as_ref();
        chosen.is_none_or(|chosen| chosen.contains(&cell))
    }

    /// Whether a test is run.
    pub(super) fn chooses(&self, test: &str) -> bool {
        self.has(cell_of(test))
    }

    /// Whether the tests in the documentation are run: they are nobody's but those of the units.
    pub(super) fn chooses_documentation(&self) -> bool {
        self.has(UNITS)
    }
}

/// Returns the cells that a change of these paths concerns.
fn by_paths<'a>(paths: impl Iterator<Item = &'a str>) -> Vec<&'static str> {
    let paths: Vec<&str> = paths.collect();
    let touches = |beginnings: &[&str]| {
        let begins = |path: &&str| {
            beginnings
                .iter()
                .any(|beginning| path.starts_with(beginning))
        };
        paths.iter().any(begins)
    };
    let all = touches(&SHARED);
    let cells = CELLS.iter().filter(|cell| all || touches(cell.paths));
    cells.map(|cell| cell.name).collect()
}

/// Lists the cells, a line each, with the number of their tests and what they need.
pub(crate) fn lines(tests: &[String]) -> Vec<String> {
    let line = |cell: &Cell| {
        let count = tests
            .iter()
            .filter(|test| cell_of(test) == cell.name)
            .count();
        let needs = match cell.needs {
            [] => String::new(),
            needs => format!("needs {}", needs.join(", ")),
        };
        format!("{:<22} {count:>5} tests  {needs}", cell.name)
            .trim_end()
            .to_owned()
    };
    CELLS.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_has_one_cell() {
        for (test, cell) in [
            ("groundcrew-testkit::conformance faults::x", "memory/faults"),
            (
                "groundcrew-testkit::conformance making::x",
                "memory/conformance",
            ),
            ("groundcrew-testkit::engine matrix::x", UNITS),
            (
                "example-executor-bwrap::conformance ending::x",
                "bwrap/conformance",
            ),
            ("groundcrew-executor-exec call::x", "exec/conformance"),
            (
                "groundcrew-executor-docker::docker life::x",
                "docker/conformance",
            ),
            ("groundcrew-executor-docker labels::x", "docker/conformance"),
            ("groundcrew-tests::it faults::x", "worktree/faults"),
            ("groundcrew-tests::it real_agents::codex::x", "agents"),
            ("groundcrew-tests::it run::x", "behaviours"),
            ("groundcrew-core id::x", UNITS),
        ] {
            assert_eq!(cell_of(test), cell, "{test}");
        }
    }

    #[test]
    fn cells_are_named_whole_by_row_or_by_column() {
        let named = |name: &str| Chosen::named(&[name.to_owned()]).unwrap();
        assert_eq!(
            named("exec"),
            Chosen(Some(vec!["exec/faults", "exec/conformance"]))
        );
        assert_eq!(named("bwrap/faults"), Chosen(Some(vec!["bwrap/faults"])));
        assert_eq!(named("faults").0.unwrap().len(), 6);
        assert!(named("bwrap").chooses("example-executor-bwrap::conformance making::x"));
        assert!(!named("bwrap").chooses("groundcrew-core id::x"));
        let error = Chosen::named(&["podman".to_owned()])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("`podman`") && error.contains("memory/faults"),
            "{error}"
        );
        assert!(Chosen::named(&[]).unwrap().is_all());
    }

    #[test]
    fn a_change_of_what_all_are_made_of_runs_all_and_another_only_its_own() {
        assert_eq!(
            by_paths(["crates/core/src/id.rs"].into_iter()).len(),
            CELLS.len()
        );
        let bwrap = by_paths(["examples/executor-bwrap/src/lib.rs"].into_iter());
        assert_eq!(bwrap, ["bwrap/faults", "bwrap/conformance", UNITS]);
        assert!(by_paths(["README.md"].into_iter()).is_empty());
    }
}

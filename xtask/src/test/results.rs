//! How each test ended: the record that `test` leaves and `behaviours` reads.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::metadata::Metadata;

/// How one test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    Passed,
    Failed,
    Skipped,
}

/// Every test by its full name, `<binary id> <path of the test>`, as nextest writes it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) tests: BTreeMap<String, Outcome>,
}

/// The counts; its text is the last line of `test` and of `ci`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

impl Results {
    /// Counts.
    pub(crate) fn summary(&self) -> Summary {
        let count = |wanted| {
            self.tests
                .values()
                .filter(|found| **found == wanted)
                .count()
        };
        Summary {
            passed: count(Outcome::Passed),
            failed: count(Outcome::Failed),
            skipped: count(Outcome::Skipped),
        }
    }

    /// Writes the record.
    ///
    /// # Errors
    ///
    /// Fails when the file cannot be written.
    pub(super) fn write(&self, metadata: &Metadata) -> Result<()> {
        let path = file(metadata);
        let text = serde_json::to_string_pretty(self).context("cannot render the results")?;
        fs::create_dir_all(metadata.own_directory())
            .and_then(|()| fs::write(&path, text))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads the record of the last run; nothing when there is none.
    ///
    /// # Errors
    ///
    /// Fails when the record cannot be read.
    pub(crate) fn load(metadata: &Metadata) -> Result<Option<(Self, SystemTime)>> {
        let path = file(metadata);
        let unreadable = || format!("cannot read {}", path.display());
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(unreadable),
        };
        let written = fs::metadata(&path)
            .and_then(|found| found.modified())
            .with_context(unreadable)?;
        let results = serde_json::from_slice(&text).with_context(unreadable)?;
        Ok(Some((results, written)))
    }
}

/// Removes the record: a run that does not finish must not leave an older one standing.
pub(super) fn forget(metadata: &Metadata) -> Result<()> {
    remove(&file(metadata))
}

/// Removes a file that may be gone already.
pub(super) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn file(metadata: &Metadata) -> PathBuf {
    metadata.own_directory().join("results.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_each_outcome() {
        let tests = [
            ("a", Outcome::Passed),
            ("b", Outcome::Passed),
            ("c", Outcome::Failed),
            ("d", Outcome::Skipped),
        ];
        let results = Results {
            tests: tests
                .map(|(name, outcome)| (name.to_owned(), outcome))
                .into(),
        };
        assert_eq!(
            results.summary().to_string(),
            "2 passed, 1 failed, 1 skipped"
        );
    }
}

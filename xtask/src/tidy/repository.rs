//! The files of the repository, read once for all checks.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Something that breaks a rule, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    place: String,
    line: Option<usize>,
    text: String,
}

impl Finding {
    /// Makes a finding about a whole file or crate.
    pub(crate) fn new(place: impl fmt::Display, text: impl Into<String>) -> Self {
        Self {
            place: place.to_string(),
            line: None,
            text: text.into(),
        }
    }

    /// Makes a finding about one line.
    pub(crate) fn at(file: &SourceFile, line: usize, text: impl Into<String>) -> Self {
        Self {
            place: file.path.display().to_string(),
            line: Some(line),
            text: text.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.place, self.text),
            None => write!(f, "{}: {}", self.place, self.text),
        }
    }
}

/// A text file, its path relative to the root.
#[derive(Debug, Clone)]
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl SourceFile {
    /// Tells whether the file's name ends with this extension.
    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        self.path
            .extension()
            .is_some_and(|found| found == extension)
    }
}

/// Reads every `.rs`, `.md` and `.toml` file below `root`, in order of path.
///
/// What cargo and git make is left out, and so is every hidden directory but our own two.
///
/// # Errors
///
/// Fails when a directory or file cannot be read, or a file is not UTF-8.
pub(crate) fn read(root: &Path) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    walk(root, Path::new(""), &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn walk(root: &Path, below: &Path, files: &mut Vec<SourceFile>) -> Result<()> {
    let directory = root.join(below);
    let unreadable = || format!("cannot read {}", directory.display());
    for entry in std::fs::read_dir(&directory).with_context(unreadable)? {
        let entry = entry.with_context(unreadable)?;
        let name = entry.file_name();
        let path = below.join(&name);
        let kind = entry.file_type().with_context(unreadable)?;
        if kind.is_dir() {
            let hidden = name.as_encoded_bytes().starts_with(b".");
            let made = name == "target" || root.join(&path).join("CACHEDIR.TAG").exists();
            if (!hidden || name == ".ci" || name == ".config") && !made {
                walk(root, &path, files)?;
            }
        } else if kind.is_file() && is_ours(&path) {
            let text = std::fs::read_to_string(root.join(&path))
                .with_context(|| format!("cannot read {}", path.display()))?;
            files.push(SourceFile { path, text });
        }
    }
    Ok(())
}

fn is_ours(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "rs" || extension == "md" || extension == "toml")
}

/// Makes a file of a fixture.
#[cfg(test)]
pub(crate) fn fixture(path: &str, text: &str) -> SourceFile {
    SourceFile {
        path: path.into(),
        text: text.into(),
    }
}

/// Renders findings for comparison.
#[cfg(test)]
pub(crate) fn rendered(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_or_hidden_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("a.rs", ""),
            ("b/c.md", ""),
            (".config/nextest.toml", ""),
            (".hidden/d.rs", ""),
            ("target/e.rs", ""),
            ("other/CACHEDIR.TAG", ""),
            ("other/f.rs", ""),
            ("g.txt", ""),
        ] {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let paths: Vec<_> = read(root.path())
            .unwrap()
            .into_iter()
            .map(|file| file.path.display().to_string())
            .collect();
        assert_eq!(paths, [".config/nextest.toml", "a.rs", "b/c.md"]);
    }
}

//! Which files the rules of the start point ignore; rules that a run added hide nothing.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::Path};

use git2::{Repository, Tree};
use groundcrew_core::error::Error;

use super::{
    repository::{git_error, open_common},
    tree,
};

/// The rules: those of every `.gitignore` of a commit, of `info/exclude` and of the user.
pub(crate) struct BaseRules {
    repository: Repository,
}

impl BaseRules {
    /// Reads the rules of a tree.
    ///
    /// The repository is opened without a work tree, so libgit2 reads no `.gitignore` from any disk.
    pub(crate) fn read(
        common: &Path,
        tree: &Tree<'_>,
        config: &git2::Config,
    ) -> Result<Self, Error> {
        let failed = |error| git_error("failed to read the ignore rules of the start point", error);
        let repository = open_common(common)?;
        repository.set_config(config).map_err(failed)?;
        repository.clear_ignore_rules().map_err(failed)?;
        let mut rules = Vec::new();
        for file in tree::files(&repository, tree)? {
            let Some(directory) = file.name.strip_suffix(b".gitignore") else {
                continue;
            };
            let is_file = directory.is_empty() || directory.ends_with(b"/");
            // Rules of a directory whose name is no text cannot be said here: then they hide nothing.
            if let Ok(directory) = String::from_utf8(directory.to_vec())
                && is_file
                && file.mode & 0o170_000 == 0o100_000
            {
                let blob = repository.find_blob(file.id).map_err(failed)?;
                rules.push((directory, blob.content().to_vec()));
            }
        }
        // Deeper rules are stronger: a later rule wins, and a directory comes after those above it.
        rules.sort_by_key(|(directory, _)| directory.matches('/').count());
        for (directory, text) in rules {
            let text: String = String::from_utf8_lossy(&text)
                .lines()
                .filter_map(|line| anchored(&directory, line))
                .collect();
            if !text.is_empty() {
                repository.add_ignore_rule(&text).map_err(failed)?;
            }
        }
        Ok(Self { repository })
    }

    /// Tells whether a path is ignored; a directory's ends with a slash.
    pub(crate) fn ignores(&self, path: &[u8]) -> bool {
        self.repository
            .is_path_ignored(Path::new(OsStr::from_bytes(path)))
            .unwrap_or(false)
    }
}

/// Rewrites a rule of the `.gitignore` in `directory`, which ends with a slash or is empty, as one of the root.
fn anchored(directory: &str, line: &str) -> Option<String> {
    let trimmed = line.trim_start_matches('\u{feff}');
    if trimmed.trim().is_empty() || trimmed.starts_with('#') {
        return None;
    }
    if directory.is_empty() {
        return Some(format!("{trimmed}\n"));
    }
    let (negated, rule) = trimmed
        .strip_prefix('!')
        .map_or(("", trimmed), |rule| ("!", rule));
    let directory: String = directory
        .chars()
        .flat_map(|c| {
            let special = matches!(c, '*' | '?' | '[' | ']' | '\\' | ' ' | '#' | '!');
            special.then_some('\\').into_iter().chain([c])
        })
        .collect();
    let body = rule.trim_end().trim_end_matches('/');
    Some(match rule.strip_prefix('/') {
        Some(rest) => format!("{negated}/{directory}{rest}\n"),
        None if body.contains('/') => format!("{negated}/{directory}{rule}\n"),
        None => format!("{negated}/{directory}**/{rule}\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_below_the_root_are_anchored() {
        assert_eq!(anchored("", "a").as_deref(), Some("a\n"));
        assert_eq!(anchored("", "# a"), None);
        assert_eq!(anchored("x/y/", "a").as_deref(), Some("/x/y/**/a\n"));
        assert_eq!(anchored("x/", "!a/").as_deref(), Some("!/x/**/a/\n"));
        assert_eq!(anchored("x/", "/a").as_deref(), Some("/x/a\n"));
        assert_eq!(anchored("x/", "a/b").as_deref(), Some("/x/a/b\n"));
        assert_eq!(anchored("x*/", "a").as_deref(), Some("/x\\*/**/a\n"));
    }
}

//! Names of directories and branches, made from words that people typed.

use groundcrew_core::error::{Error, ErrorKind};

/// The longest slug, in bytes.
const MAX_SLUG_LEN: usize = 40;
/// The longest branch name, in bytes: a loose ref and its lock file must fit in a file name.
const MAX_BRANCH_LEN: usize = 240;

/// Turns words into lower-case ASCII letters, digits and single dashes: at most 40, never none.
pub(crate) fn slug(words: &str) -> String {
    let mut slug = String::new();
    for c in words.chars() {
        if slug.len() >= MAX_SLUG_LEN {
            break;
        }
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() {
        "run".to_owned()
    } else {
        slug.to_owned()
    }
}

/// Returns the beginning of a run's id, for names that people read.
fn suffix(run: &str) -> String {
    run.chars()
        .filter(char::is_ascii_alphanumeric)
        .take(6)
        .collect::<String>()
        .to_ascii_lowercase()
}

/// Names the branch of a run.
pub(crate) fn default_branch(title: Option<&str>, run: &str) -> String {
    format!(
        "groundcrew/{}-{}",
        slug(title.unwrap_or_default()),
        suffix(run)
    )
}

/// Names the directory of a work tree after the repository's directory, since tools show it as the project's name, and the run.
///
/// Git names its entry of the worktree after it: so even one that a killed git left empty can be told to be ours.
pub(crate) fn tree_directory(repository: &str, run: &str) -> String {
    let name: String = repository
        .strip_suffix(".git")
        .unwrap_or(repository)
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') {
                c
            } else {
                '-'
            }
        })
        .take(64)
        .collect();
    let name = name.trim_matches(['.', '-']);
    let name = if name.is_empty() { "repository" } else { name };
    format!("{name}-{}", suffix(run))
}

/// Checks the name that a person gave to a branch.
///
/// # Errors
///
/// `InvalidInput` for what git refuses, and for names that git takes but people misread.
pub(crate) fn check_branch(name: &str) -> Result<(), Error> {
    let misleading = matches!(
        name,
        "@" | "HEAD" | "FETCH_HEAD" | "ORIG_HEAD" | "MERGE_HEAD"
    ) || name.starts_with('-')
        || name.starts_with("refs/")
        || name.len() > MAX_BRANCH_LEN;
    let valid = !name.contains('\0') && git2::Branch::name_is_valid(name).unwrap_or(false);
    if misleading || !valid {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "the branch name is not one that git allows, or is misleading; choose one like `topic/name`",
        )
        .with("branch", format!("{name:?}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c23_any_title_gives_a_valid_name() {
        let long = "日".repeat(300);
        let many = "a".repeat(5000);
        for title in [
            "update yarn.lock",
            "fix 2.0..rc1",
            "../../etc/passwd",
            "-x",
            "HEAD",
            "@{-1}",
            "a//b",
            ".hidden",
            "foo.",
            "x~1^2:3?*[",
            "tab\tand\nnewline",
            "DOMAIN\\name",
            "🙂🙂",
            "修正する",
            "",
            " ",
            &long,
            &many,
        ] {
            let slug = slug(title);
            assert!(!slug.is_empty() && slug.len() <= 40, "{title:?}");
            assert!(!slug.starts_with('-') && !slug.ends_with('-'), "{slug}");
            let branch = default_branch(Some(title), "abcdefghij");
            assert!(check_branch(&branch).is_ok(), "{branch}");
            assert!(branch.ends_with("-abcdef"), "{branch}");
            assert!(!tree_directory(title, "abcdefghij").contains('/'));
        }
        assert_eq!(slug("Fix the Tests!"), "fix-the-tests");
        assert_eq!(default_branch(None, "a.b"), "groundcrew/run-ab");
    }

    #[test]
    fn f088_bad_and_misleading_branch_names_are_refused() {
        for bad in [
            "",
            "a..b",
            "-x",
            "x.lock",
            "@{",
            "a:b",
            "a b",
            "a\u{7}b",
            "a\0b",
            "@",
            "HEAD",
            "refs/heads/q",
            "/a",
            "a/",
            "a//b",
            ".a",
            "a~1",
            "a^",
            "a?",
            "a*",
            "a[",
            "a\\b",
            "a.",
        ] {
            let error = check_branch(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad:?}");
        }
        for good in ["main", "topic/x", "ä", "a.b", "x@y"] {
            assert!(check_branch(good).is_ok(), "{good}");
        }
    }
}

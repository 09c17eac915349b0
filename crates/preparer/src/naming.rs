//! Names of directories and branches, made from words that people typed.
//!
//! What is put on a disk is lower-case ASCII: two names that differ must differ on every filesystem.

use git2::{ObjectType, Oid};
use groundcrew_core::error::{Error, ErrorKind};

/// How a branch is named if nobody says how.
pub(crate) const DEFAULT_TEMPLATE: &str = "groundcrew/{title}-{suffix}";
/// The longest slug, in bytes.
const MAX_SLUG_LEN: usize = 40;
/// The longest slug of a whole title, in bytes.
const MAX_FULL_LEN: usize = 150;
/// The longest branch name, in bytes: a loose ref and its lock file must fit in a file name.
const MAX_BRANCH_LEN: usize = 240;
/// The placeholders of a template, for people.
const PLACEHOLDERS: &str = "{title}, {title_full}, {task}, {ticket}, {suffix}";

/// What a branch is named after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'a> {
    /// What a person called the run.
    pub(crate) title: Option<&'a str>,
    /// The task.
    pub(crate) task: &'a str,
    /// What a tracker calls it.
    pub(crate) ticket: Option<&'a str>,
    /// The run.
    pub(crate) run: &'a str,
}

/// A branch name that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// It, without `refs/heads/`.
    pub(crate) name: String,
    /// Whether the run's id is in it, so that nobody else uses it.
    pub(crate) unique: bool,
}

/// Turns words into lower-case ASCII letters, digits and single dashes: at most 40, never none.
pub(crate) fn slug(words: &str) -> String {
    slug_within(words, MAX_SLUG_LEN)
}

fn slug_within(words: &str, longest: usize) -> String {
    let mut slug = String::new();
    for c in words.chars() {
        if slug.len() >= longest {
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

/// Returns characters that stand for a text, the same for the same text alone.
fn hash(text: &str) -> String {
    // It only has to tell names apart; nothing rests on nobody finding two with one hash.
    Oid::hash_object(ObjectType::Blob, text.as_bytes())
        .map(|id| id.to_string())
        .unwrap_or_default()
        .chars()
        .take(8)
        .collect()
}

/// Returns the beginning of a run's id, for names that people read; of an id that is not random, a hash.
fn suffix(run: &str) -> String {
    let random = run.len() == 12
        && run
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let of = if random { run.to_owned() } else { hash(run) };
    of.chars().take(6).collect()
}

/// Makes a file name of an id: itself, or with a hash where another id could become the same name.
pub(crate) fn on_disk(id: &str) -> String {
    let plain = !id.ends_with('.') && !id.bytes().any(|b| b.is_ascii_uppercase());
    if plain {
        return id.to_owned();
    }
    let lower = id.trim_end_matches('.').to_ascii_lowercase();
    format!("{lower}-{}", hash(id))
}

/// Makes a part of a ref's name of an id: itself, unless git refuses it.
pub(crate) fn ref_part(id: &str) -> String {
    if git2::Reference::is_valid_name(&format!("refs/groundcrew/{id}")) {
        id.to_owned()
    } else {
        hash(id)
    }
}

/// Names a branch after a template.
///
/// # Errors
///
/// `InvalidInput` for a placeholder that is none, one that stands for nothing here, and a name that git refuses.
pub(crate) fn branch(template: &str, words: &Words<'_>) -> Result<Named, Error> {
    let wrong = |message: String| {
        Error::new(ErrorKind::InvalidInput, message).with("template", format!("{template:?}"))
    };
    let mut name = String::new();
    let mut unique = false;
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        let (text, tail) = rest.split_at(at);
        name.push_str(text);
        let closed = tail
            .strip_prefix('{')
            .and_then(|tail| tail.split_once('}'))
            .ok_or_else(|| {
                wrong("the branch template has a brace without its other one".to_owned())
            })?;
        let (placeholder, behind) = closed;
        match placeholder {
            "title" => name.push_str(&slug(words.title.unwrap_or_default())),
            "title_full" => {
                name.push_str(&slug_within(words.title.unwrap_or_default(), MAX_FULL_LEN));
            }
            "task" => name.push_str(&slug(words.task)),
            "ticket" => name.push_str(&ticket(words.ticket).ok_or_else(|| {
                wrong("the branch template has {ticket}, and no ticket is named".to_owned())
            })?),
            "suffix" => {
                unique = true;
                name.push_str(&suffix(words.run));
            }
            other => {
                return Err(wrong(format!(
                    "the branch template has {{{}}}, which is none of {PLACEHOLDERS}",
                    other.escape_debug()
                )));
            }
        }
        rest = behind;
    }
    name.push_str(rest);
    check_branch(&name).map_err(|error| error.with("template", format!("{template:?}")))?;
    Ok(Named { name, unique })
}

/// Cleans the name of a ticket, whose case counts to trackers; `None` if nothing is left of it.
fn ticket(ticket: Option<&str>) -> Option<String> {
    let clean: String = ticket?
        .chars()
        .take(64)
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '-'
            }
        })
        .collect();
    let clean = clean.trim_matches('-');
    (!clean.is_empty()).then(|| clean.to_owned())
}

/// Names the directory of a work tree after the repository's directory, since tools show it as the project's name, and the run.
///
/// Git names its entry of the worktree after it: so even one that a killed git left empty can be told to be ours.
pub(crate) fn tree_directory(repository: &str, slug: Option<&str>, run: &str) -> String {
    let name: String = repository
        .strip_suffix(".git")
        .unwrap_or(repository)
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .take(64)
        .collect();
    let name = name.trim_matches(['.', '-']);
    let name = if name.is_empty() { "repository" } else { name };
    match slug {
        Some(slug) => format!("{name}-{slug}-{}", suffix(run)),
        None => format!("{name}-{}", suffix(run)),
    }
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
            let words = Words {
                title: Some(title),
                task: title,
                ticket: Some(title),
                run: "abcdefghijkm",
            };
            for template in [DEFAULT_TEMPLATE, "x/{title_full}/{task}-{suffix}"] {
                let named = branch(template, &words).unwrap();
                assert!(named.unique && named.name.ends_with("-abcdef"), "{named:?}");
            }
            assert!(!tree_directory(title, None, "abcdefghijkm").contains('/'));
        }
        assert_eq!(slug("Fix the Tests!"), "fix-the-tests");
    }

    const WORDS: Words<'_> = Words {
        title: Some("Fix the Tests, all of them, and whatever else is broken"),
        task: "Task.1",
        ticket: Some("ABC-123"),
        run: "abcdefghijkm",
    };

    #[test]
    fn c23_a_template_names_the_branch() {
        let name = |template: &str| branch(template, &WORDS).map(|named| named.name);
        let full = "fix-the-tests-all-of-them-and-whatever-else-is-broken";
        assert_eq!(
            name("{ticket}/{title_full}").unwrap(),
            format!("ABC-123/{full}")
        );
        assert_eq!(name("u/{title}").unwrap().len(), 2 + 40);
        assert_eq!(name("{task}-{suffix}").unwrap(), "task-1-abcdef");
        assert_eq!(name("plain").unwrap(), "plain");
        assert!(!branch("plain", &WORDS).unwrap().unique);
        let none = Words {
            title: None,
            ticket: None,
            ..WORDS
        };
        assert_eq!(
            branch(DEFAULT_TEMPLATE, &none).unwrap().name,
            "groundcrew/run-abcdef"
        );
        let error = branch("{ticket}", &none).unwrap_err();
        assert!(error.message().contains("ticket"), "{error}");
    }

    #[test]
    fn c23_a_bad_template_is_told_with_what_is_wrong_in_it() {
        for (template, words) in [
            ("{nonsense}", "{nonsense}, which is none of {title}"),
            ("{title", "brace"),
            ("title}", "brace"),
            ("{{title}}", "none of"),
            ("", "branch name"),
            ("a..b", "branch name"),
            ("/{title}", "branch name"),
            ("{title}.lock", "branch name"),
            ("refs/heads/{title}", "branch name"),
        ] {
            let error = branch(template, &WORDS).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{template}");
            assert!(error.message().contains(words), "{template}: {error}");
            assert_eq!(error.get("template"), Some(&*format!("{template:?}")));
        }
    }

    #[test]
    fn f063_names_on_disk_differ_on_every_filesystem() {
        let names = ["task", "Task", "TASK", "task.", "task..", "a.b"].map(on_disk);
        assert_eq!((&*names[0], &*names[5]), ("task", "a.b"));
        for (at, name) in names.iter().enumerate() {
            assert_eq!(*name, name.to_ascii_lowercase());
            assert!(!name.ends_with('.'), "{name}");
            assert!(!names[..at].contains(name), "{names:?}");
        }
        assert_eq!(
            tree_directory("My.App.git", Some("topic"), "abcdefghijkm"),
            "my.app-topic-abcdef"
        );
        // Ids that somebody chose may begin alike.
        let suffixes = ["same-run-1", "same-run-2", "SAME-RUN-1"].map(suffix);
        assert!(suffixes[0] != suffixes[1] && suffixes[0] != suffixes[2]);
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

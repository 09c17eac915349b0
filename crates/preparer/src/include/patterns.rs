//! The patterns of files to take along: those of git's ignore files, and `:symlink` at their end.

use std::{io::Read as _, os::fd::OwnedFd, path::Path};

use groundcrew_core::error::{Error, ErrorKind};
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use rustix::{
    fs::{FileType, Mode, OFlags, fstat},
    io::Errno,
};

use crate::files::beneath;

/// The file of a checkout that names what is taken along.
const FILE: &str = ".worktreeinclude";
/// The longest one that is read.
const MAX_LEN: u64 = 64 * 1024;
/// What makes a link of a copy.
const SYMLINK: &str = ":symlink";

/// The patterns of one checkout, in order: a later one is stronger.
pub(crate) struct Patterns(Vec<Pattern>);

struct Pattern {
    rule: Gitignore,
    link: bool,
}

/// What the patterns say of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing: what holds for the directory above holds for it.
    Silent,
    /// It stays.
    Stays,
    /// It is copied.
    Copied,
    /// A link to it is made.
    Linked,
}

impl Patterns {
    /// Reads patterns.
    ///
    /// # Errors
    ///
    /// As for [`check`].
    pub(crate) fn new(lines: &[String]) -> Result<Self, Error> {
        let read = |line: &String| pattern(line).transpose();
        lines
            .iter()
            .filter_map(read)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn verdict(&self, path: &Path, is_directory: bool) -> Verdict {
        for pattern in self.0.iter().rev() {
            match pattern.rule.matched(path, is_directory) {
                Match::None => {}
                Match::Whitelist(_) => return Verdict::Stays,
                Match::Ignore(_) if pattern.link => return Verdict::Linked,
                Match::Ignore(_) => return Verdict::Copied,
            }
        }
        Verdict::Silent
    }
}

/// Checks a pattern.
///
/// # Errors
///
/// `InvalidInput`, naming the pattern and what is wrong with it.
pub(crate) fn check(line: &str) -> Result<(), Error> {
    pattern(line).map(drop)
}

/// Reads one pattern; `None` for an empty line and a comment.
fn pattern(line: &str) -> Result<Option<Pattern>, Error> {
    let wrong = |why: &'static str| {
        Error::new(ErrorKind::InvalidInput, why).with("pattern", line.escape_debug())
    };
    let text = line.trim_end();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    // Two colons mean a file whose name ends so.
    let (rule, as_link) = match text.strip_suffix(SYMLINK) {
        Some(rule) if !rule.ends_with(':') => (rule.to_owned(), true),
        Some(rule) => (format!("{}{SYMLINK}", rule.trim_end_matches(':')), false),
        None => (text.to_owned(), false),
    };
    let body = rule.trim_start_matches('!').trim_matches('/');
    if body.is_empty() {
        return Err(wrong("a pattern of files to take along names no file"));
    }
    if as_link && rule.starts_with('!') {
        return Err(wrong("a pattern that leaves files out cannot make links"));
    }
    if rule.contains('\0') || body.split('/').any(|part| part == "..") {
        return Err(wrong(
            "a pattern of files to take along must stay inside the repository",
        ));
    }
    if body.split('/').any(|part| part == ".git") {
        return Err(wrong("the git directory is never taken along"));
    }
    let mut builder = GitignoreBuilder::new("");
    let built = builder
        .add_line(None, &rule)
        .and_then(|builder| builder.build());
    let rule = built.map_err(|error| {
        wrong("a pattern of files to take along cannot be read").with_source(error)
    })?;
    Ok(Some(Pattern {
        rule,
        link: as_link,
    }))
}

/// Reads the lines of the file in a checkout; none if there is none.
///
/// # Errors
///
/// `InvalidInput` for one that is no regular text file of a sane size, or holds a wrong pattern.
pub(crate) fn of_file(checkout: &OwnedFd) -> Result<Vec<String>, Error> {
    let wrong = |why: &'static str| Error::new(ErrorKind::InvalidInput, why).with("file", FILE);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let file = match beneath::open(checkout, FILE.as_ref(), flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(Errno::LOOP | Errno::XDEV) => {
            return Err(wrong("the list of files to take along is a link"));
        }
        Err(errno) => {
            let doing = "failed to open the list of files to take along";
            return Err(Error::io(doing, errno.into()).with("file", FILE));
        }
    };
    let regular = fstat(&file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
    if !regular {
        return Err(wrong("the list of files to take along is no regular file"));
    }
    let mut text = String::new();
    let read = std::fs::File::from(file)
        .take(MAX_LEN + 1)
        .read_to_string(&mut text);
    read.map_err(|error| wrong("the list of files to take along is no text").with_source(error))?;
    if text.len() as u64 > MAX_LEN {
        return Err(wrong(
            "the list of files to take along is longer than 64 KiB",
        ));
    }
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for line in &lines {
        check(line).map_err(|error| error.with("file", FILE))?;
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(lines: &[&str], paths: &[&str]) -> Vec<Verdict> {
        let lines: Vec<_> = lines.iter().map(|&line| line.to_owned()).collect();
        let patterns = Patterns::new(&lines).unwrap();
        let of = |path: &&str| {
            let directory = path.ends_with('/');
            patterns.verdict(Path::new(path.trim_end_matches('/')), directory)
        };
        paths.iter().map(of).collect()
    }

    #[test]
    fn patterns_are_those_of_git_and_the_last_one_wins() {
        use Verdict::{Copied, Linked, Silent, Stays};
        let lines = [
            "# a comment",
            "",
            ".env*",
            "!.env.prod",
            "/only-here",
            "deps/:symlink",
            "a/**/b",
            "odd::symlink",
            "*.log",
            "keep.log:symlink",
        ];
        for (path, verdict) in [
            (".env", Copied),
            ("sub/.env.local", Copied),
            (".env.prod", Stays),
            ("only-here", Copied),
            ("sub/only-here", Silent),
            ("deps/", Linked),
            ("deps", Silent),
            ("a/x/y/b", Copied),
            ("odd:symlink", Copied),
            ("odd", Silent),
            ("x.log", Copied),
            ("keep.log", Linked),
        ] {
            assert_eq!(verdicts(&lines, &[path]), [verdict], "{path}");
        }
    }

    #[test]
    fn f062_patterns_that_lead_out_are_refused_by_name() {
        for wrong in [
            "../x",
            "a/../../b",
            "!",
            "/",
            ":symlink",
            "!a:symlink",
            ".git/config",
            "a/.git",
            "[z-a",
            "a\0b",
        ] {
            let error = check(wrong).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{wrong}");
            assert!(error.get("pattern").is_some(), "{wrong}");
        }
        for fine in ["..x", "a..b", "x:y", "{a,b}"] {
            check(fine).unwrap();
        }
    }
}

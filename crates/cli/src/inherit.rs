//! Which of the caller's variables reach the command: all but a written list, each with its reason.
//!
//! People's logins, `PATH`, `HOME`, proxies, API keys, git identity (`GIT_AUTHOR_*`, `GIT_COMMITTER_*`), `GIT_SSH_COMMAND` and
//! `GIT_CONFIG_GLOBAL` must reach an agent as in their own shell; what would send it to another place must not.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
};

use groundcrew_core::env::{Definition, Key, Tier};

/// What inherited variables are said to come from.
pub const ORIGIN: &str = "caller's environment";

/// Names that are not handed on.
pub const STRIPPED: &[(&str, &str)] = &[
    (
        "GIT_DIR",
        "outranks the directory that git is told to work in",
    ),
    (
        "GIT_WORK_TREE",
        "outranks the directory that git is told to work in",
    ),
    ("GIT_COMMON_DIR", "names another repository's shared part"),
    (
        "GIT_INDEX_FILE",
        "names another work tree's index; set by git inside hooks",
    ),
    (
        "GIT_OBJECT_DIRECTORY",
        "sends new objects to another repository",
    ),
    (
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "borrows objects that may vanish",
    ),
    (
        "GIT_QUARANTINE_PATH",
        "belongs to the push that a hook runs in; makes git refuse ref updates",
    ),
    ("GIT_NAMESPACE", "hides the refs of the repository"),
    (
        "GIT_PREFIX",
        "the subdirectory of the git command that called us",
    ),
    (
        "GIT_IMPLICIT_WORK_TREE",
        "belongs to the git command that called us",
    ),
    (
        "GIT_SHALLOW_FILE",
        "belongs to the git command that called us",
    ),
    ("GIT_GRAFT_FILE", "another repository's history"),
    ("GIT_REPLACE_REF_BASE", "another repository's replacements"),
    (
        "GIT_REFLOG_ACTION",
        "belongs to the git command that called us",
    ),
    (
        "GIT_EXEC_PATH",
        "set inside hooks and aliases; pins the inner programs of the git that called us",
    ),
    (
        "GIT_DEFAULT_HASH",
        "decides what new repositories are made of; belongs to the caller's git",
    ),
    (
        "GIT_DISCOVERY_ACROSS_FILESYSTEM",
        "decides which repository is found",
    ),
    (
        "GIT_CEILING_DIRECTORIES",
        "decides which repository is found; would hide a workspace below it",
    ),
    (
        "GIT_ATTR_SOURCE",
        "reads attributes from a commit of another repository",
    ),
    (
        "CLAUDECODE",
        "marks a nested agent; agents refuse to start below it",
    ),
    (
        "CLAUDE_CODE_ENTRYPOINT",
        "says how the outer agent was started",
    ),
    (
        "CLAUDE_CODE_SSE_PORT",
        "connects to the outer agent's editor",
    ),
    ("CLAUDE_CODE_SESSION_ID", "the outer agent's conversation"),
    ("CLAUDE_CODE_EXECPATH", "the outer agent's own program"),
    (
        "CODEX_SANDBOX",
        "says that the outer agent's sandbox is in force, which it is not here",
    ),
    (
        "CODEX_SANDBOX_NETWORK_DISABLED",
        "says that the outer agent's network policy is in force, which it is not here",
    ),
    ("CODEX_THREAD_ID", "the outer agent's conversation"),
    ("GEMINI_CLI", "marks a nested agent"),
    ("CURSOR_AGENT", "marks a nested agent"),
    ("CURSOR_TRACE_ID", "the outer agent's conversation"),
    ("OPENCODE", "marks a nested agent"),
    ("AGENT_SESSION_ID", "the outer agent's conversation"),
    ("OLDPWD", "a place of the caller's shell"),
    (
        "PWD",
        "the caller's directory, not the workspace; shells and programs trust it",
    ),
    ("_", "the program that the caller's shell started last: us"),
    ("SHLVL", "counts the caller's shells"),
    (
        "LINES",
        "the size of the caller's terminal; goes stale, and the command asks its own",
    ),
    (
        "COLUMNS",
        "the size of the caller's terminal; goes stale, and the command asks its own",
    ),
];

/// Beginnings of names that are not handed on.
pub const STRIPPED_PREFIXES: &[(&str, &str)] = &[
    ("GROUNDCREW_", "our own controls, and who an outer run is"),
    ("GIT_INTERNAL_", "belongs to the git command that called us"),
    (
        "GIT_TRACE2_PARENT_",
        "belongs to the git command that called us",
    ),
];

/// Git's trace switches: kept when they name a file or turn tracing off; else they write into the agent's output.
const TRACE_PREFIX: &[u8] = b"GIT_TRACE";

/// Returns why a variable is not handed on, if it is not.
pub fn stripped(name: &OsStr, value: &OsStr) -> Option<&'static str> {
    let name = name.as_bytes();
    if let Some((_, why)) = STRIPPED.iter().find(|(known, _)| known.as_bytes() == name) {
        return Some(why);
    }
    if let Some((_, why)) = STRIPPED_PREFIXES
        .iter()
        .find(|(start, _)| name.starts_with(start.as_bytes()))
    {
        return Some(why);
    }
    // A number is an open descriptor of the caller, which the command does not have; a shell word such as `true` is standard error.
    if name.starts_with(TRACE_PREFIX) && !value.as_bytes().starts_with(b"/") {
        return Some("traces into a descriptor of the caller, or into the command's own output");
    }
    None
}

/// Makes definitions of what may be inherited; a name that is none is left out, as a shell does.
///
/// * Of a name that stands twice the first one counts, as for `getenv`; names that differ in case only are two names.
pub fn inherited(
    environment: &[(OsString, OsString)],
) -> impl Iterator<Item = Definition> + use<'_> {
    let mut seen = BTreeSet::new();
    environment
        .iter()
        .filter(move |(name, _)| seen.insert(name.as_os_str()))
        .filter(|(name, value)| stripped(name, value).is_none())
        .filter_map(|(name, value)| {
            let key = Key::new(name.clone()).ok()?;
            Some(Definition::literal(
                key,
                value.clone(),
                Tier::Inherited,
                ORIGIN,
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pairs: &[(&str, &str)]) -> Vec<String> {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(k, v)| (OsString::from(k), OsString::from(v)))
            .collect();
        inherited(&pairs).map(|d| d.key.to_string()).collect()
    }

    #[test]
    fn c05_repository_locations_are_dropped_and_harmless_ones_kept() {
        let located = [
            "GIT_DIR",
            "GIT_WORK_TREE",
            "GIT_COMMON_DIR",
            "GIT_INDEX_FILE",
            "GIT_OBJECT_DIRECTORY",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES",
            "GIT_NAMESPACE",
            "GIT_PREFIX",
            "GIT_QUARANTINE_PATH",
            "GIT_CEILING_DIRECTORIES",
            "GIT_INTERNAL_SUPER_PREFIX",
        ];
        for name in located {
            assert_eq!(names(&[(name, "/x")]), [""; 0], "{name}");
        }
        for kept in [
            "GIT_AUTHOR_NAME",
            "GIT_COMMITTER_EMAIL",
            "GIT_SSH_COMMAND",
            "GIT_CONFIG_GLOBAL",
            "GIT_CONFIG_COUNT",
            "GIT_ASKPASS",
            "PATH",
            "HOME",
            "TERM",
            "HTTPS_PROXY",
            "OPENAI_API_KEY",
            "NODE_ENV",
            "PORT",
            "CLAUDE_CONFIG_DIR",
            "CODEX_HOME",
        ] {
            assert_eq!(names(&[(kept, "x")]), [kept]);
        }
    }

    #[test]
    fn c08_nesting_markers_and_our_own_controls_are_absent() {
        for name in [
            "CLAUDECODE",
            "CLAUDE_CODE_ENTRYPOINT",
            "GROUNDCREW_HOME",
            "GROUNDCREW_RUN_ID",
            "GROUNDCREW_ANYTHING",
        ] {
            assert_eq!(names(&[(name, "1"), ("KEEP", "1")]), ["KEEP"], "{name}");
        }
    }

    #[test]
    fn traces_reach_files_only() {
        assert_eq!(
            names(&[
                ("GIT_TRACE", "1"),
                ("GIT_TRACE2_EVENT", "9"),
                ("GIT_TRACE_SETUP", "/tmp/t")
            ]),
            ["GIT_TRACE_SETUP"]
        );
    }

    #[test]
    fn f042_of_a_name_that_stands_twice_the_first_counts_and_case_makes_another_name() {
        let pairs = [("A", "first"), ("a", "other"), ("A", "second")];
        let pairs = pairs.map(|(k, v)| (OsString::from(k), OsString::from(v)));
        let values: Vec<_> = inherited(&pairs)
            .map(|d| (d.key.to_string(), d.value))
            .collect();
        let literal = |text: &str| groundcrew_core::env::Value::Literal(text.into());
        assert_eq!(
            values,
            [
                ("A".to_owned(), literal("first")),
                ("a".to_owned(), literal("other"))
            ]
        );
    }

    #[test]
    fn f039_a_name_that_is_none_is_skipped() {
        assert_eq!(names(&[("", "x"), ("A", "y")]), ["A"]);
    }

    #[test]
    fn every_entry_has_a_reason_and_stands_once() {
        let mut seen = BTreeSet::new();
        for (name, why) in STRIPPED.iter().chain(STRIPPED_PREFIXES) {
            assert!(!why.is_empty() && seen.insert(*name), "{name}");
        }
    }
}

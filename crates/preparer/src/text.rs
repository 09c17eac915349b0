//! Paths as words for people, and lists of findings.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

use groundcrew_core::workspace::Finding;

/// How many items a finding shows.
const SHOWN: usize = 20;

/// Shows bytes as text; what is not text is replaced.
pub(crate) fn lossy(bytes: &[u8]) -> String {
    OsStr::from_bytes(bytes).display().to_string()
}

/// Makes a finding of some items; `None` if there are none.
pub(crate) fn finding<T>(what: &str, items: &[T], show: impl Fn(&T) -> String) -> Option<Finding> {
    (!items.is_empty()).then(|| Finding {
        what: what.to_owned(),
        items: items.iter().take(SHOWN).map(show).collect(),
        count: items.len(),
    })
}

/// Makes a finding of one item.
pub(crate) fn single(what: &str, item: impl Into<String>) -> Finding {
    Finding {
        what: what.to_owned(),
        items: vec![item.into()],
        count: 1,
    }
}

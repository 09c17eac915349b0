//! What a supervisor says of its own troubles.

use std::io::Write as _;

/// Tells one line of our own on standard error, which is the supervisor's log file; a full disk is no reason to end.
pub(crate) fn note(line: std::fmt::Arguments<'_>) {
    drop(writeln!(std::io::stderr(), "{line}"));
}

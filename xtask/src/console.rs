//! What the commands print: results on stdout, remarks on stderr, each flushed at once.
//!
//! A closed pipe ends nothing: whoever stopped reading does not want the rest.

use std::io::Write as _;

/// Prints one line on stdout.
pub(crate) fn say(line: impl AsRef<str>) {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{}", line.as_ref()).and_then(|()| out.flush());
    drop(written);
}

/// Prints one line on stderr.
pub(crate) fn remark(line: impl AsRef<str>) {
    let mut err = std::io::stderr().lock();
    let written = writeln!(err, "{}", line.as_ref());
    drop(written);
}

/// Prints the heading of a stage.
pub(crate) fn heading(name: &str) {
    say(format!("\n== {name}"));
}

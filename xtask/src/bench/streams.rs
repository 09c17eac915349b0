//! How fast output goes through the supervisor, its log and the command, against a pipe between two processes.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::process::{Cmd, Drained};

use super::place::Place;
use super::sample::{Row, Target};

/// How much a measurement moves, in bytes: more than any buffer holds, less than what a log keeps.
const MUCH: u64 = 256 << 20;

/// What one write gives away.
const PIECE: usize = 64 << 10;

/// At least two fifths of the bytes per second of a pipe.
const MOST: f64 = 2.5;

/// Writes so many bytes to standard output.
///
/// # Errors
///
/// Fails when nobody reads them.
pub(crate) fn flood(bytes: u64) -> Result<()> {
    let piece: Vec<u8> = (0..PIECE).map(|n| b"0123456789abcdef"[n % 16]).collect();
    let mut stdout = std::io::stdout().lock();
    let mut left = bytes;
    while left > 0 {
        let length = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        stdout
            .write_all(&piece[..length])
            .context("nobody reads the flood")?;
        left -= length as u64;
    }
    stdout.flush().context("nobody reads the flood")
}

/// Measures from the first byte that arrives to the end.
///
/// # Errors
///
/// Fails when a run does, or bytes are lost.
pub(super) fn stdout(place: &Place, iterations: usize) -> Result<Row> {
    Row::measure(
        format!(
            "{} MiB of standard output, logged, to the caller",
            MUCH >> 20
        ),
        "a pipe between two processes",
        Target::Times(MOST),
        iterations,
        || {
            let options = ["run", "--executor", "local", "--title", "flood", "--"];
            let taken = whole(&place.command().args(options).args(place.flood(MUCH)))?;
            place.clear_all()?;
            Ok(taken)
        },
        || {
            let [program, arguments @ ..] = &place.flood(MUCH);
            whole(&Cmd::new(program).args(arguments))
        },
    )
}

fn whole(command: &Cmd) -> Result<Duration> {
    let Drained { bytes, taken } = command.drain()?;
    ensure!(bytes == MUCH, "`{command}` gave {bytes} bytes of {MUCH}");
    Ok(taken)
}

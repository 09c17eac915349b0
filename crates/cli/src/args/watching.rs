//! Options of the verbs that look at a run that is there, or work in it.

use std::{
    ffi::OsString,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::Args;
use groundcrew_core::id::ProcessId;

use super::{durations::duration, streams::StreamArgs};
use crate::detaching::DetachKeys;

/// Arguments of `logs`.
#[derive(Clone, Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of its own on the command line"
)]
pub(crate) struct LogsArgs {
    /// Show output as it was recorded: secrets of the run are not hidden.
    #[arg(long)]
    pub raw: bool,
    /// Go on with what the command prints, until it ends.
    #[arg(long, short = 'f')]
    pub follow: bool,
    /// Begin behind that many bytes of output.
    #[arg(long, value_name = "OFFSET", default_value_t = 0)]
    pub from: u64,
    /// Leave out what was printed before that moment, such as 10m (ago), 2026-05-01 or 2026-05-01T10:30:00Z.
    #[arg(long, value_name = "TIME|DURATION", value_parser = moment)]
    pub since: Option<u64>,
    /// Show standard output; without --stderr nothing else.
    #[arg(long)]
    pub stdout: bool,
    /// Show standard error; without --stdout nothing else.
    #[arg(long)]
    pub stderr: bool,
    /// Process of the run, as `show` lists it [default: the command].
    #[arg(long, value_name = "NAME")]
    pub process: Option<ProcessId>,
    /// Run id, or a unique prefix of one.
    #[arg(value_name = "ID")]
    pub id: String,
}

/// Arguments of `attach`.
#[derive(Clone, Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of its own on the command line"
)]
pub(crate) struct AttachArgs {
    /// Show output as it was recorded: secrets of the run are not hidden.
    #[arg(long)]
    pub raw: bool,
    /// Begin behind that many bytes of output [default: 0; with a terminal, near the end].
    #[arg(long, value_name = "OFFSET")]
    pub from: Option<u64>,
    /// Forward standard input to its end, in place of whoever does so now.
    #[arg(long, short = 'i')]
    pub interactive: bool,
    /// Only watch: write nothing, and leave the size of the terminal to whoever works in it.
    #[arg(long, conflicts_with = "interactive")]
    pub view: bool,
    /// Only watch, even with a terminal.
    #[arg(long, short = 'T', conflicts_with = "interactive")]
    pub no_terminal: bool,
    /// Keys that leave a terminal, such as ctrl-p,ctrl-q, or `none`.
    #[arg(long, value_name = "KEYS", default_value_t)]
    pub detach_keys: DetachKeys,
    /// Process of the run, as `show` lists it [default: the command].
    #[arg(long, value_name = "NAME")]
    pub process: Option<ProcessId>,
    /// Run id, or a unique prefix of one.
    #[arg(value_name = "ID")]
    pub id: String,
}

/// Arguments of `exec`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExecArgs {
    /// What is at its standard streams.
    #[command(flatten)]
    pub streams: StreamArgs,
    /// End the command after that long, such as 90s, 30m or 1h30m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Show output as it is: secrets of the run are not hidden.
    #[arg(long)]
    pub raw: bool,
    /// Run id, or a unique prefix of one.
    #[arg(value_name = "ID")]
    pub id: String,
    /// The command and its arguments.
    #[arg(required = true, last = true, value_name = "ARGV")]
    pub argv: Vec<OsString>,
}

/// Reads a moment, in milliseconds since 1970: RFC 3339, its date alone, or how long ago.
fn moment(text: &str) -> Result<u64, String> {
    let at = match duration(text) {
        Ok(ago) => SystemTime::now().checked_sub(ago),
        Err(_) => humantime::parse_rfc3339_weak(text)
            .or_else(|_| humantime::parse_rfc3339_weak(&format!("{text} 00:00:00")))
            .ok(),
    };
    at.and_then(|at| at.duration_since(UNIX_EPOCH).ok())
        .and_then(|since| u64::try_from(since.as_millis()).ok())
        .ok_or_else(|| {
            format!("{text:?} is no moment; write it like 10m (ago) or 2026-05-01T10:30:00Z")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_as_they_are_or_as_how_long_ago() {
        assert_eq!(moment("1970-01-01T00:00:01Z"), Ok(1000));
        assert_eq!(moment("1970-01-02"), Ok(86_400_000));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let ago = u128::from(moment("1h").unwrap()) + 3_600_000;
        assert!(ago.abs_diff(now.as_millis()) < 60_000);
        for bad in ["", "90", "yesterday", "2026-13-01", "99999999999y"] {
            assert!(moment(bad).unwrap_err().contains("10m"), "{bad}");
        }
    }
}

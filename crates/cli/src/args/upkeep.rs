//! The words of `restore`, `trash` and `gc`.

use std::{ffi::OsString, time::Duration};

use clap::{Args, Subcommand};

/// Arguments of `restore`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Bring it back to this directory, which must not exist, as a plain worktree that belongs to nobody.
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub to: Option<OsString>,
    /// Run id, or a unique prefix of one.
    #[arg(value_name = "ID")]
    pub id: String,
}

/// Arguments of `trash`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TrashArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: TrashVerb,
}

/// What to do with the trash.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TrashVerb {
    /// List what is in the trash: of which run it was, and where.
    Ls,
    /// Delete what is in the trash; snapshots in repositories stay.
    Empty(TrashEmptyArgs),
}

/// Arguments of `trash empty`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TrashEmptyArgs {
    /// Only what has been there for longer, such as 12h or 7d.
    #[arg(long, value_name = "DURATION", value_parser = age)]
    pub older_than: Option<Duration>,
    /// Say what would go, and delete nothing.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
}

/// Arguments of `gc`.
#[derive(Clone, Debug, Args)]
pub(crate) struct GcArgs {
    /// Say what would go, and delete nothing.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// How old logs and what is in the trash must be [default: 7d].
    #[arg(long, value_name = "DURATION", value_parser = age)]
    pub older_than: Option<Duration>,
    /// Also delete snapshots that are older, in the repositories of known runs [default: never].
    #[arg(long, value_name = "DURATION", value_parser = age)]
    pub snapshots_older_than: Option<Duration>,
    /// Also delete managed caches; only while no run is live.
    #[arg(long)]
    pub caches: bool,
}

/// Reads an age such as `7d`.
fn age(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    humantime::parse_duration(text).map_err(|e| format!("{e}; write it like 12h, 7d or 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_needs_its_unit() {
        assert_eq!(age("7d"), Ok(Duration::from_hours(7 * 24)));
        assert_eq!(age("0"), Ok(Duration::ZERO));
        for bad in ["7", "", "old", "-1d"] {
            assert!(age(bad).unwrap_err().contains("7d"), "{bad}");
        }
    }
}

//! The words of setup and teardown scripts, and of files that are taken along.

use std::{ffi::OsString, time::Duration};

use clap::Args;
use groundcrew_core::workspace::Submodules;

use super::durations::duration;

/// Files that are taken along.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct IncludeArgs {
    /// Untracked files to take along, as a pattern of git's ignore files; with `:symlink` at its end as links. May be repeated.
    ///
    /// What the file `.worktreeinclude` of the checkout names is taken along as well.
    #[arg(long, value_name = "PATTERN[:symlink]")]
    pub include: Vec<String>,
    /// Leave out what `.worktreeinclude` names.
    #[arg(long)]
    pub no_include_file: bool,
    /// Fill submodules: those of the start point, or with `all` theirs as well.
    ///
    /// Their commits are taken from the repository's own submodules where they are there, else fetched by https or ssh.
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "top")]
    pub submodules: Option<WhichSubmodules>,
    /// Write files that git-lfs keeps outside of git as they are; without it they are pointers.
    #[arg(long)]
    pub lfs: bool,
}

/// Which submodules are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WhichSubmodules {
    /// Those of the start point.
    Top,
    /// Those of submodules as well.
    All,
}

impl From<WhichSubmodules> for Submodules {
    fn from(which: WhichSubmodules) -> Self {
        match which {
            WhichSubmodules::Top => Self::Top,
            WhichSubmodules::All => Self::All,
        }
    }
}

/// Scripts around a run.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ScriptArgs {
    /// Shell line that readies the workspace before the command starts; its failure ends the run. May be repeated.
    #[arg(long, value_name = "LINE", value_hint = clap::ValueHint::CommandString)]
    pub setup: Vec<OsString>,
    /// How long each --setup may run [default: 10m].
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "setup")]
    pub setup_timeout: Option<Duration>,
    /// Shell line that clears up when the run is closed while it is up, for a minute at most. May be repeated.
    #[arg(long, value_name = "LINE", value_hint = clap::ValueHint::CommandString)]
    pub teardown: Vec<OsString>,
    /// Run no scripts of `config.toml`.
    #[arg(long)]
    pub no_scripts: bool,
}

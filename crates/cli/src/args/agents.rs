//! The words about agents: which one is run, and what is asked of profiles.

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueEnum};
use groundcrew_core::id::ProfileName;

/// Which agent is run, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct AgentArgs {
    /// Profile of the agent to run; what stands behind `--` are further arguments for it. See `groundcrew profile ls`.
    #[arg(long, value_name = "PROFILE")]
    pub agent: Option<ProfileName>,
    /// What is wanted of it.
    #[command(flatten)]
    pub wishes: WishArgs,
}

/// What is wanted of an agent, at its start or when it goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct WishArgs {
    /// Model that the agent uses [default: the profile's, else the agent's own].
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// What is approved beforehand, in the way that the profile says [default: never].
    #[arg(long, value_enum, value_name = "WHEN")]
    pub approve: Option<Approve>,
    /// Prompt, as one argument: text, @FILE, or - for standard input to its end.
    #[arg(long, value_name = "TEXT|@FILE|-", allow_hyphen_values = true, value_parser = clap::value_parser!(OsString))]
    pub prompt: Option<OsString>,
    /// Exact version of the profile's package, on this machine only [default: the profile's].
    #[arg(long, value_name = "VERSION")]
    pub agent_version: Option<String>,
}

/// What is approved beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Approve {
    /// Nothing: the agent asks as it does.
    Never,
    /// Everything, as the profile says.
    Always,
}

/// Arguments of `profile`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProfileArgs {
    /// What to do with profiles.
    #[command(subcommand)]
    pub verb: ProfileVerb,
}

/// What to do with profiles.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ProfileVerb {
    /// List profiles: those of the program, and those in the `profiles` directory beside `config.toml`.
    Ls,
    /// Show one profile, and the commands that would be run; never a secret.
    Show {
        /// Its name.
        #[arg(value_name = "NAME")]
        name: ProfileName,
    },
    /// Tell everything that is wrong with profiles; exit code 1 if anything is.
    Check {
        /// Profiles, or files that are to become some: what holds a `/` or ends in `.toml` [default: all profiles].
        #[arg(value_name = "NAME|FILE", value_hint = clap::ValueHint::FilePath)]
        which: Vec<OsString>,
    },
}

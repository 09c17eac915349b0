//! The words about a command's standard streams, the same for every verb that runs one.

use clap::Args;

use crate::detaching::DetachKeys;

/// What is at the command's standard streams.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct StreamArgs {
    /// Forward standard input to its end.
    #[arg(long, short = 'i')]
    pub interactive: bool,
    /// Give the command a terminal [default: if standard input and output are terminals and the format is human].
    #[arg(long, short = 't', overrides_with = "no_terminal")]
    pub terminal: bool,
    /// Give the command no terminal.
    #[arg(long, short = 'T', overrides_with = "terminal")]
    pub no_terminal: bool,
    /// Keys that leave a terminal, such as ctrl-p,ctrl-q, or `none`.
    #[arg(long, value_name = "KEYS", default_value_t)]
    pub detach_keys: DetachKeys,
}

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
    /// Who decides what the agent asks for [default: ask, or never without a terminal].
    #[arg(long, value_enum, value_name = "WHEN")]
    pub approve: Option<Approve>,
    /// Prompt, as one argument: text, @FILE, or - for standard input to its end.
    #[arg(long, value_name = "TEXT|@FILE|-", allow_hyphen_values = true, value_parser = clap::value_parser!(OsString))]
    pub prompt: Option<OsString>,
    /// File of tool servers that a conversation opens with: JSON with `mcpServers`, by name. It is read anew each time.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, value_parser = clap::value_parser!(OsString))]
    pub mcp: Option<OsString>,
    /// Exact version of the profile's package, on this machine only [default: the profile's].
    #[arg(long, value_name = "VERSION")]
    pub agent_version: Option<String>,
    /// Program to run in place of the profile's package, as the place has it where the agent runs, such as an image: a path, or a name in PATH.
    #[arg(long, value_name = "PROGRAM", conflicts_with = "agent_version", value_parser = clap::value_parser!(OsString))]
    pub agent_program: Option<OsString>,
    /// Directory in which the agent keeps its login and its conversations; a container sees it at the same place, and the next one finds it again.
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, value_parser = clap::value_parser!(OsString))]
    pub agent_home: Option<OsString>,
}

/// Who decides what the agent asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Approve {
    /// Nobody: what it asks for in a conversation is declined; in its own interface it asks as it does.
    Never,
    /// You: on the terminal, or with `groundcrew answer`.
    Ask,
    /// Nobody: everything is approved, in its own interface as the profile says.
    Always,
}

impl Approve {
    /// Its word on the command line.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Ask => "ask",
            Self::Always => "always",
        }
    }
}

/// Arguments of `prompt`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PromptArgs {
    /// Run id, or a unique prefix of one.
    #[arg(value_name = "ID")]
    pub id: String,
    /// What is said: text, @FILE, or - for standard input to its end.
    #[arg(value_name = "TEXT|@FILE|-", allow_hyphen_values = true, value_parser = clap::value_parser!(OsString))]
    pub text: OsString,
    /// What is wanted of the agent, where it has to be started again.
    #[command(flatten)]
    pub wishes: TalkArgs,
}

/// What is wanted of an agent that may have to be started again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct TalkArgs {
    /// Model that the agent uses [default: the run's].
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Who decides what the agent asks for [default: ask, or never without a terminal].
    #[arg(long, value_enum, value_name = "WHEN")]
    pub approve: Option<Approve>,
    /// File of tool servers that the conversation opens with: JSON with `mcpServers`, by name.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, value_parser = clap::value_parser!(OsString))]
    pub mcp: Option<OsString>,
}

impl TalkArgs {
    /// Returns what is wanted of the agent, where nothing is said to it.
    pub(crate) fn wishes(&self) -> WishArgs {
        WishArgs {
            model: self.model.clone(),
            approve: self.approve,
            mcp: self.mcp.clone(),
            ..WishArgs::default()
        }
    }
}

/// Arguments of `answer`.
#[derive(Clone, Debug, Args)]
pub(crate) struct AnswerArgs {
    /// Run id, or a unique prefix of one.
    #[arg(value_name = "ID")]
    pub id: String,
    /// The request, as it was told, such as q1.
    #[arg(value_name = "REQUEST")]
    pub request: String,
    /// approve, approve-session, deny, abort, or choose=NAME with a choice that was offered.
    #[arg(value_name = "DECISION", required_unless_present = "input")]
    pub decision: Option<String>,
    /// Why not, or what to do instead; told the agent with a `deny`.
    #[arg(long, value_name = "TEXT")]
    pub because: Option<String>,
    /// Answer to a question that was asked, by the question's name. May be repeated.
    #[arg(long, value_name = "QUESTION=TEXT", conflicts_with = "decision")]
    pub input: Vec<String>,
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

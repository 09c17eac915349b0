//! The words of the command line, as they are typed; what they mean is decided elsewhere.

mod agents;
mod containers;
mod durations;
mod limits;
mod scripts;
mod secret;
mod streams;
mod upkeep;
mod watching;

use std::{ffi::OsString, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum, builder::PossibleValue};
use groundcrew_core::{
    id::{ExecutorName, SessionId},
    process::Lease,
};

use durations::{duration, lease};

pub(crate) use self::scripts::{IncludeArgs, ScriptArgs};
pub(crate) use self::secret::{
    SecretArgs, SecretLsArgs, SecretMvArgs, SecretRmArgs, SecretSetArgs, SecretVerb,
};
pub(crate) use self::streams::StreamArgs;
pub(crate) use self::upkeep::{GcArgs, RestoreArgs, TrashArgs, TrashEmptyArgs, TrashVerb};
pub(crate) use agents::{
    AgentArgs, AnswerArgs, Approve, ProfileArgs, ProfileVerb, PromptArgs, WishArgs,
};
pub(crate) use containers::ContainerArgs;
pub(crate) use limits::LimitArgs;
pub(crate) use watching::{AttachArgs, ExecArgs, LogsArgs};

/// Launches coding agents in isolated workspaces, and takes everything back.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "groundcrew",
    version,
    about,
    infer_subcommands = false,
    disable_help_subcommand = true,
    after_help = "A run, and everything that it owns, is listed by `groundcrew ls`. Ids may be shortened to a unique prefix.\n\
                  State lives in $GROUNDCREW_HOME, else $XDG_STATE_HOME/groundcrew, else ~/.local/state/groundcrew."
)]
pub(crate) struct Cli {
    /// How results are printed.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub format: Format,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// Words for people.
    #[default]
    Human,
    /// One document on standard output.
    Json,
    /// One event a line on standard output.
    Jsonl,
}

impl ValueEnum for Format {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Human, Self::Json, Self::Jsonl]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Human => PossibleValue::new("human").help("words for people"),
            Self::Json => PossibleValue::new("json").help("one document on standard output"),
            Self::Jsonl => PossibleValue::new("jsonl").help("one event a line on standard output"),
        })
    }
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a command in a workspace of its own.
    ///
    /// Inside a git repository the workspace is a worktree on a new branch; elsewhere it is a scratch directory. The
    /// command's exit code is passed through; 124 says that the time limit passed, 125 that we failed, 126 that the
    /// command cannot be executed, 127 that it does not exist, 128+N that signal N ended it.
    Run(RunArgs),
    /// Show what `run` would do, without an effect.
    Plan(PlanArgs),
    /// List runs.
    Ls(LsArgs),
    /// Show one run.
    Show(IdArgs),
    /// Print the recorded output of a run.
    Logs(LogsArgs),
    /// Attach to the command of a run: its output so far, then live.
    ///
    /// With a terminal, keys are sent to it, in place of whoever worked in it before; Ctrl-] detaches. Without one, Ctrl-C only detaches.
    Attach(AttachArgs),
    /// Run one more command in a run, with its environment and in its workspace.
    ///
    /// Its exit code is passed through, as for `run`. What it leaves running is ended when it ends; the run goes on. The
    /// run's own end, or `stop`, ends it as well.
    Exec(ExecArgs),
    /// Say something in the conversation of a run, and stay until the turn ends.
    ///
    /// A conversation that is open takes it, and stays open; one that is not is resumed for it, and ends with the turn.
    Prompt(PromptArgs),
    /// Answer what the agent of a conversation asks for.
    Answer(AnswerArgs),
    /// Interrupt the turn of a conversation; the conversation goes on.
    Interrupt(IdArgs),
    /// End the processes of a run; its workspace stays.
    Stop(StopArgs),
    /// Run a command again in the workspace that a run kept.
    Resume(ResumeArgs),
    /// End a run and remove its workspace if its work survives elsewhere; the branch stays.
    Close(IdArgs),
    /// Close a run and remove its branch as well; refuses (exit code 4) to lose work.
    Rm(RmArgs),
    /// Bring back what `rm --force`, or removing ignored files, took away; never over anything that exists.
    Restore(RestoreArgs),
    /// List or delete what was removed and is kept for a while.
    Trash(TrashArgs),
    /// Remove old logs, what is old in the trash, and what dead processes left; names what it keeps, and why.
    Gc(GcArgs),
    /// Settle what an interrupted groundcrew left behind.
    Recover,
    /// List, show and check the profiles of agents.
    Profile(ProfileArgs),
    /// Check the state directory, git and the executors.
    Doctor,
    /// Store, list, move and remove secrets.
    Secret(SecretArgs),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
}

impl Verb {
    /// Returns whether exit codes are those of the command that is run.
    pub(crate) const fn passes_code_through(&self) -> bool {
        matches!(
            self,
            Self::Run(_) | Self::Resume(_) | Self::Exec(_) | Self::Prompt(_)
        )
    }
}

/// Kinds of workspaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A git worktree of each repository, on a branch of its own; `bind` is another word for it.
    #[value(alias = "bind")]
    Worktree,
    /// A private clone of each repository; its branch is brought back when the run is closed.
    Clone,
    /// A private clone that is in a volume of the container's engine while the run lives.
    Volume,
    /// The directory itself, as it is.
    InPlace,
    /// A directory of the task's own, which stays.
    Scratch,
    /// A directory of the session's own, which goes when the run is closed.
    Ephemeral,
}

/// Where a run works, and with which variables.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PlaceArgs {
    /// Executor: `worktree`, `local` or `docker` [default: `worktree` inside a repository, else `local`].
    #[arg(long, value_name = "NAME")]
    pub executor: Option<ExecutorName>,
    /// Kind of the workspace [default: `worktree` inside a repository, `clone` with `docker`, else `scratch`].
    #[arg(long, value_enum, value_name = "KIND")]
    pub workspace: Option<Kind>,
    /// Repository, or a directory in it [default: the current directory]. May be repeated.
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub repo: Vec<OsString>,
    /// Commit, tag or branch that the new branch starts from [default: HEAD].
    #[arg(long, value_name = "REF")]
    pub base: Option<String>,
    /// Name of the new branch [default: groundcrew/ and the title].
    #[arg(long, value_name = "NAME")]
    pub branch: Option<String>,
    /// How the new branch is named: `{title}`, `{title_full}`, `{task}`, `{ticket}` and `{suffix}` are filled in.
    #[arg(long, value_name = "TEMPLATE", conflicts_with = "branch")]
    pub branch_template: Option<String>,
    /// What `{ticket}` stands for in a branch template.
    #[arg(long, value_name = "TEXT")]
    pub ticket: Option<String>,
    /// Look for the start point on its remote first; never asks for a password, and gives up after 30 s.
    #[arg(long)]
    pub fetch: bool,
    /// Let a clone read the objects of its repository instead of copying them.
    #[arg(long)]
    pub share_objects: bool,
    /// Files from the checkout.
    #[command(flatten)]
    pub files: IncludeArgs,
    /// Words that say what the run is for.
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// Conversation that the run belongs to; it has one run at most [default: one of its own].
    #[arg(long, value_name = "ID")]
    pub session: Option<SessionId>,
    /// Keep the workspace even if nothing was changed in it.
    #[arg(long)]
    pub keep: bool,
    /// What a container is, with `docker`.
    #[command(flatten)]
    pub container: ContainerArgs,
}

/// How a command is run.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CommandArgs {
    /// Variable for the command, stronger than one that is inherited; without `=` its value here. May be repeated.
    ///
    /// With `plan`, --env alone explains every variable: who says so, and what lost.
    #[arg(long, value_name = "KEY[=VALUE]", num_args = 0..=1, default_missing_value = "", value_parser = clap::value_parser!(OsString))]
    pub env: Vec<OsString>,
    /// File of variables, one KEY=VALUE a line, taken as it stands; KEY<<WORD begins one of several lines. May be repeated.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub env_file: Vec<OsString>,
    /// Variable whose value is a secret, by the secret's name; see `groundcrew secret`. May be repeated.
    #[arg(long, value_name = "KEY=[TENANT:]NAME")]
    pub secret: Vec<String>,
    /// Variable whose value is in a file, or on standard input for `-`. May be repeated.
    ///
    /// Above 64 KiB the command gets a private file instead, outside the workspace; `KEY_PATH` says where.
    #[arg(long, value_name = "KEY=FILE", value_hint = clap::ValueHint::FilePath)]
    pub payload: Vec<OsString>,
    /// Variable that names a cache directory which outlives the run [default NAME: the variable's]. May be repeated.
    #[arg(long, value_name = "KEY[=NAME]")]
    pub cache: Vec<String>,
    /// End the command after that long, such as 90s, 30m or 1h30m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// End the command when it printed nothing and got no input for that long.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub idle_timeout: Option<Duration>,
    /// How much of the machine it may use.
    #[command(flatten)]
    pub limits: LimitArgs,
    /// How long the run lives on without us: a duration or `none` for ever [default: 15m; with --detach: none].
    #[arg(long, value_name = "DURATION", value_parser = lease)]
    pub lease: Option<Lease>,
    /// Return as soon as the command runs.
    #[arg(long, short = 'd', conflicts_with = "interactive")]
    pub detach: bool,
    /// What is at its standard streams.
    #[command(flatten)]
    pub streams: StreamArgs,
}

impl CommandArgs {
    /// Returns whether `--env` stands alone: `plan` then explains every variable.
    pub(crate) fn explains(&self) -> bool {
        self.env.iter().any(|word| word.is_empty())
    }
}

/// Arguments of `run`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// Where.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// How.
    #[command(flatten)]
    pub command: CommandArgs,
    /// What runs before and after.
    #[command(flatten)]
    pub scripts: ScriptArgs,
    /// Which agent, where not a command.
    #[command(flatten)]
    pub agent: AgentArgs,
    /// The command and its arguments; with --agent, further arguments for the agent.
    #[arg(required_unless_present = "agent", last = true, value_name = "ARGV")]
    pub argv: Vec<OsString>,
}

/// Arguments of `plan`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PlanArgs {
    /// Those of `run`.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Arguments of `ls`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LsArgs {
    /// Also list closed and failed runs.
    #[arg(long, short = 'a')]
    pub all: bool,
    /// List the directories of workspaces instead: whose each is, what proves it, and what it holds.
    #[arg(long, conflicts_with = "all")]
    pub workspaces: bool,
}

/// Which run.
#[derive(Clone, Debug, Args)]
pub(crate) struct IdArgs {
    /// Run id, or a unique prefix of one.
    #[arg(value_name = "ID")]
    pub id: String,
}

/// Arguments of `stop`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StopArgs {
    /// How long processes may take before they are killed [default: 10s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub grace: Option<Duration>,
    /// Run id, or a unique prefix of one.
    #[arg(value_name = "ID")]
    pub id: String,
}

/// Arguments of `resume`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ResumeArgs {
    /// How.
    #[command(flatten)]
    pub command: CommandArgs,
    /// Run id, or a unique prefix of one.
    #[arg(value_name = "ID")]
    pub id: String,
    /// Go on although the run's setup scripts did not all run; else they run first.
    #[arg(long)]
    pub no_setup: bool,
    /// Give the conversation up, once a new one is open in its place.
    #[arg(long)]
    pub fresh: bool,
    /// What is wanted of the agent, if it is one.
    #[command(flatten)]
    pub wishes: WishArgs,
    /// The command and its arguments [default: those of the run].
    #[arg(last = true, value_name = "ARGV")]
    pub argv: Vec<OsString>,
}

/// Arguments of `rm`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RmArgs {
    /// Save the work that would be lost in a snapshot, then remove everything.
    #[arg(long, short = 'f')]
    pub force: bool,
    /// Run id, or a unique prefix of one.
    #[arg(value_name = "ID")]
    pub id: String,
}

/// Arguments of `completions`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use std::os::unix::ffi::OsStringExt as _;

    fn parse(words: &[&str]) -> Result<Verb, clap::Error> {
        let words = std::iter::once("groundcrew").chain(words.iter().copied());
        Cli::try_parse_from(words).map(|cli| cli.verb)
    }

    fn run(words: &[&str]) -> RunArgs {
        match parse(words).unwrap() {
            Verb::Run(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn c13_everything_behind_the_dashes_belongs_to_the_command() {
        let args = run(&[
            "run", "--title", "x", "--", "codex", "--format", "json", "-t", "--", "",
        ]);
        assert_eq!(args.argv, ["codex", "--format", "json", "-t", "--", ""]);
        assert!(!args.command.streams.terminal);
    }

    #[test]
    fn c36_arguments_and_values_that_are_not_text_pass() {
        let odd = OsString::from_vec(b"A=\xff".to_vec());
        let words = [
            OsString::from("groundcrew"),
            "run".into(),
            "--env".into(),
            odd.clone(),
            "--".into(),
            odd.clone(),
        ];
        let Verb::Run(args) = Cli::try_parse_from(words).unwrap().verb else {
            panic!("not run")
        };
        assert_eq!(
            (args.command.env, args.argv),
            (vec![odd.clone()], vec![odd])
        );
    }

    #[test]
    fn durations_say_how_they_are_written() {
        let args = run(&["run", "--timeout", "1h30m", "--lease", "none", "--", "a"]);
        assert_eq!(args.command.timeout, Some(Duration::from_mins(90)));
        assert_eq!(args.command.lease, Some(Lease::Unlimited));
        for bad in ["90", "soon", "", "-1s"] {
            let text = parse(&["run", &format!("--timeout={bad}"), "--", "a"])
                .unwrap_err()
                .to_string();
            assert!(
                text.contains("such as") || text.contains("write it like"),
                "{bad}: {text}"
            );
        }
        assert_eq!(
            run(&["run", "--lease", "0", "--", "a"]).command.lease,
            Some(Lease::After(Duration::ZERO))
        );
    }

    #[test]
    fn the_last_word_on_the_terminal_wins() {
        let args = run(&["run", "-t", "-T", "--", "a"]);
        assert!(args.command.streams.no_terminal && !args.command.streams.terminal);
    }

    #[test]
    fn a_run_needs_a_command_and_a_resumption_does_not() {
        assert!(parse(&["run"]).is_err());
        assert!(parse(&["run", "--"]).is_err());
        assert!(
            matches!(parse(&["resume", "abc"]), Ok(Verb::Resume(args)) if args.argv.is_empty())
        );
        assert!(parse(&["run", "-i", "--detach", "--", "a"]).is_err());
    }

    #[test]
    fn the_format_stands_before_or_behind_the_verb() {
        for words in [
            ["groundcrew", "--format", "json", "ls"],
            ["groundcrew", "ls", "--format", "json"],
        ] {
            assert_eq!(Cli::try_parse_from(words).unwrap().format, Format::Json);
        }
    }

    #[test]
    fn f062_ids_that_are_none_are_refused() {
        assert!(parse(&["run", "--session", "../x", "--", "a"]).is_err());
        assert!(parse(&["run", "--executor", "", "--", "a"]).is_err());
    }
}

#![doc = include_str!("../README.md")]

mod agent;
mod agents;
mod args;
mod bounded;
mod config;
mod console;
mod conversation;
mod detaching;
mod documents;
mod env_file;
pub mod exit;
mod explanation;
mod failing;
mod follow;
mod git;
mod human;
pub mod inherit;
mod launching;
mod masking;
mod output;
mod paths;
mod printer;
mod profile_document;
mod profiles;
mod program;
mod progress;
mod prompt;
mod request;
mod screen;
mod scripts;
mod secrecy;
mod settings;
mod signals;
mod stdin;
mod style;
mod surroundings;
mod terminal;
mod text;
mod toml_file;
mod tool_servers;
mod variables;
mod verbs;

use std::{ffi::OsString, io::Write as _, process::ExitCode, sync::Arc};

use clap::{CommandFactory as _, Parser as _};

pub use program::Program;

/// The example of the project's README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

use crate::{
    args::{Cli, Format, Verb},
    console::Console,
    failing::Failing,
    program::Context,
    settings::Settings,
    surroundings::Surroundings,
    terminal::Terminals,
};

/// Runs the command on the arguments of this process, and returns its exit code.
///
/// It is the whole of a custom binary's `main`, behind `groundcrew_supervisor::run_if_invoked`.
pub fn main(program: Program) -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return exit::code(misread(&error, &arguments)),
    };
    let passes = cli.verb.passes_code_through();
    let surroundings = match Surroundings::read() {
        Ok(surroundings) => surroundings,
        Err(error) => {
            let console = Console::new(cli.format, Terminals::ask(), false);
            let failing = Failing::from(error);
            failing.tell(&console);
            return exit::code(failing.code(passes));
        }
    };
    let console = Console::new(cli.format, surroundings.terminals, surroundings.colours());
    let context = Context {
        program,
        settings: Arc::new(Settings::new(surroundings.clone())),
        surroundings,
        console,
    };
    let number = match carry_out(&context, &cli.verb) {
        Ok(number) => number,
        Err(failing) => {
            failing.tell(&context.console);
            failing.code(passes)
        }
    };
    let unwritten = context.console.failed() && number == exit::DONE;
    exit::code(match (unwritten, passes) {
        (true, true) => exit::OURS,
        (true, false) => exit::FAILED,
        (false, _) => number,
    })
}

fn carry_out(context: &Context, verb: &Verb) -> Result<u8, Failing> {
    if let Verb::Completions(args) = verb {
        completions(context, args.shell);
        return Ok(exit::DONE);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        match verb {
            Verb::Run(args) => Box::pin(verbs::run::run(context, args)).await,
            Verb::Resume(args) => Box::pin(verbs::run::resume(context, args)).await,
            Verb::Plan(args) => Box::pin(verbs::plan::plan(context, args)).await,
            Verb::Ls(args) if args.workspaces => verbs::places::workspaces(context).await,
            Verb::Ls(args) => verbs::list::ls(context, args).await,
            Verb::Show(args) => verbs::list::show(context, args).await,
            Verb::Logs(args) => verbs::logs::logs(context, args).await,
            Verb::Attach(args) => Box::pin(verbs::attach::attach(context, args)).await,
            Verb::Exec(args) => Box::pin(verbs::exec::exec(context, args)).await,
            Verb::Prompt(args) => Box::pin(verbs::prompting::prompt(context, args)).await,
            Verb::Answer(args) => Box::pin(verbs::prompting::answer(context, args)).await,
            Verb::Interrupt(args) => Box::pin(verbs::prompting::interrupt(context, args)).await,
            Verb::Stop(args) => verbs::stop::stop(context, args).await,
            Verb::Close(args) => verbs::closing::close(context, args).await,
            Verb::Rm(args) => verbs::closing::rm(context, args).await,
            Verb::Restore(args) => Box::pin(verbs::restore::restore(context, args)).await,
            Verb::Trash(args) => verbs::trash::trash(context, args).await,
            Verb::Gc(args) => Box::pin(verbs::gc::gc(context, args)).await,
            Verb::Recover => verbs::recover::recover(context).await,
            Verb::Profile(args) => verbs::profile::profile(context, args),
            Verb::Doctor => verbs::doctor::doctor(context).await,
            Verb::Secret(args) => verbs::secret::secret(context, args).await,
            Verb::Completions(args) => {
                completions(context, args.shell);
                Ok(exit::DONE)
            }
        }
    });
    // What was to be waited for was waited for; what a second signal left is owned, and found by the next recovery.
    runtime.shutdown_background();
    result
}

fn completions(context: &Context, shell: clap_complete::Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "groundcrew", &mut script);
    context
        .console
        .raw(String::from_utf8_lossy(&script).trim_end());
}

/// Tells that the words of the command line are wrong, or answers `--help` and `--version`; returns the exit code.
fn misread(error: &clap::Error, arguments: &[OsString]) -> u8 {
    if !error.use_stderr() {
        // A reader who is gone has seen enough.
        drop(error.print());
        drop(std::io::stdout().flush());
        return exit::DONE;
    }
    drop(error.print());
    let format = wished_format(arguments);
    if format != Format::Human {
        let console = Console::new(format, Terminals::ask(), false);
        Failing::usage(first_paragraph(error)).document(&console);
    }
    exit::USAGE
}

/// Finds out which format was wished for in words that could not be read.
fn wished_format(arguments: &[OsString]) -> Format {
    let ours = arguments
        .iter()
        .map(|word| word.to_string_lossy())
        .take_while(|word| word != "--");
    let mut format = Format::Human;
    let mut follows = false;
    for word in ours {
        let value = word.strip_prefix("--format=").or(follows.then_some(&*word));
        match value {
            Some("json") => format = Format::Json,
            Some("jsonl") => format = Format::Jsonl,
            _ => {}
        }
        follows = word == "--format";
    }
    format
}

fn first_paragraph(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    first.trim_start_matches("error: ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usage_error_is_told_in_the_format_that_was_wished_for() {
        let wished =
            |words: &[&str]| wished_format(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(
            wished(&["groundcrew", "--format", "json", "ls", "--nope"]),
            Format::Json
        );
        assert_eq!(
            wished(&["groundcrew", "run", "--format=jsonl"]),
            Format::Jsonl
        );
        assert_eq!(
            wished(&["groundcrew", "run", "--", "--format=jsonl"]),
            Format::Human
        );
        assert_eq!(wished(&["groundcrew", "--format"]), Format::Human);
    }

    #[test]
    fn a_usage_error_is_one_paragraph() {
        let error = Cli::try_parse_from(["groundcrew", "run"]).unwrap_err();
        let text = first_paragraph(&error);
        assert!(text.contains("ARGV") && !text.contains("Usage"), "{text}");
    }
}

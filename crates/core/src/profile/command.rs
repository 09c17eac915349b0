//! The commands of an agent: prefix, command, flags, extra arguments, prompt; words are put side by side, never joined and split.

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    command::Command,
    error::{Error, ErrorKind, ErrorReport},
    id::ProfileName,
    profile::{
        agent::{AgentProfile, PromptRule},
        identity::{ProfileUse, Route},
        package::check_version,
        template::fill,
        tokens::split,
    },
    wire::OsText,
};

/// What ends the options of a command line.
pub(super) const END_OF_OPTIONS: &[u8] = b"--";

/// What a request wants of a profile; stored with the run, but for prompts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CommandWishes {
    /// Arguments behind those of the profile, as they are.
    pub extra: Vec<OsText>,
    /// The model; beats the route's and the profile's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The agent's own name of the conversation to go on with; an empty one is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_token: Option<String>,
    /// Whether the agent is to ask nobody.
    pub auto_approve: bool,
    /// Whether it is spoken to in its protocol, and not shown as its own interface.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub conversation: bool,
    /// The version of the profile's package; on this machine only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The program that is run in place of the profile's package, as the place where it runs has it: a path, or a name that
    /// is looked for in `PATH` there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<OsText>,
    /// The directory in which the agent keeps what it knows, absolute; where it runs elsewhere it is seen there at the same
    /// place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home: Option<OsText>,
    /// What a router decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<Route>,
    /// The first prompt; part of the start command only.
    #[serde(skip)]
    pub prompt: Option<OsText>,
    /// The next prompt; part of the continue command only.
    #[serde(skip)]
    pub follow_up: Option<OsText>,
}

/// What is stored of the agent with its run: enough to make its next command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentUse {
    /// Who it is, and how it was run.
    pub profiles: ProfileUse,
    /// What was asked for.
    pub wishes: CommandWishes,
}

/// Where the command is going to run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Host {
    /// On this machine.
    Here {
        /// Where the profile's program was found on it.
        native: Option<PathBuf>,
    },
    /// Elsewhere: in a container or on another machine.
    Elsewhere,
}

/// Makes the commands of an agent.
#[derive(Clone, Copy, Debug)]
pub struct AgentCommand<'a> {
    /// The profile.
    pub profile: &'a AgentProfile,
    /// What the request wants.
    pub wishes: &'a CommandWishes,
    /// Where it is going to run.
    pub host: &'a Host,
}

/// The commands of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuiltCommand {
    /// The command that starts it.
    pub start: Command,
    /// The command of a follow-up; none where the profile has none.
    pub continued: Option<Command>,
    /// What goes to its standard input, to the end: the first prompt, where the profile says so.
    pub stdin: Option<Vec<u8>>,
    /// The same for the follow-up.
    pub continued_stdin: Option<Vec<u8>>,
    /// Whether `start` goes on with the conversation of the resume token.
    pub resumes: bool,
    /// Flags that are left out; each is a warning that the user must see.
    pub dropped: Vec<DroppedFlag>,
}

/// A flag that cannot be split in words, and is left out alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DroppedFlag {
    /// The profile.
    pub profile: ProfileName,
    /// The flag as it was written.
    pub flag: String,
    /// Why it is left out.
    pub why: ErrorReport,
}

impl fmt::Display for DroppedFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { profile, flag, why } = self;
        let why = Error::from(why.clone());
        write!(
            f,
            "the flag {flag:?} of profile {profile} is left out: {why}"
        )
    }
}

/// Returns the model: the request's, else the route's, else the profile's.
pub(super) fn chosen_model<'a>(
    profile: &'a AgentProfile,
    wishes: &'a CommandWishes,
) -> Option<&'a str> {
    let route = wishes.route.as_ref().and_then(Route::overlay);
    let asked = wishes.model.as_ref();
    let model = asked.or_else(|| route.and_then(|route| route.model.as_ref()));
    model.or(profile.model.default.as_ref()).map(String::as_str)
}

impl AgentCommand<'_> {
    /// Makes the commands.
    ///
    /// * The order is prefix, command, resumption, model, approval, flags of the profile, flags of the route, extra arguments,
    ///   prompt; a continue command has no resumption, and its own prompt.
    /// * A flag that cannot be split is left out alone, and named.
    /// * A prefix that cannot be split, or begins with a blank word or an option, gives no command: it is sandbox policy.
    /// * What the request wants and the profile cannot do is an error; only a resumption is left out, see
    ///   [`BuiltCommand::resumes`].
    ///
    /// # Errors
    ///
    /// All problems at once.
    pub fn build(self) -> Result<BuiltCommand, Vec<Error>> {
        let Self {
            profile, wishes, ..
        } = self;
        let mut problems = Vec::new();
        let prefix = profile.prefix_words();
        let prefix = prefix.unwrap_or_else(|error| note(&mut problems, error));
        self.check_version(&mut problems);
        self.check_program(&mut problems);
        self.check_home(&mut problems);
        let (resume, resumes) = self.resumption().unwrap_or_else(|error| {
            problems.push(error);
            (Vec::new(), false)
        });
        let model = self
            .model()
            .unwrap_or_else(|error| note(&mut problems, error));
        let approval = self
            .approval()
            .unwrap_or_else(|error| note(&mut problems, error));
        let (flags, dropped) = self.flags();
        let options: Vec<OsText> = [model, approval, flags, wishes.extra.clone()].concat();
        let mut prompt = |prompt: &Option<OsText>| {
            self.prompt(prompt.as_ref(), &options)
                .unwrap_or_else(|error| {
                    problems.push(error);
                    (Vec::new(), None)
                })
        };
        let (first, stdin) = prompt(&wishes.prompt);
        let (next, continued_stdin) = prompt(&wishes.follow_up);
        let base = self.supplied(&profile.command);
        let start = assemble("agent", &prefix, &[&base, &resume, &options, &first]);
        let continued = profile.continue_command.as_ref().map(|command| {
            let base = self.supplied(command);
            // Extra arguments are the run's flags, and hold for its follow-ups as well.
            assemble("continue", &prefix, &[&base, &options, &next])
        });
        let start = start.map_err(|error| problems.push(error)).ok();
        let continued = match continued {
            None => Some(None),
            Some(built) => built.map(Some).map_err(|error| problems.push(error)).ok(),
        };
        if continued == Some(None) && wishes.follow_up.is_some() {
            problems.push(Error::new(
                ErrorKind::Unsupported,
                "the profile has no continue command to give a further prompt to",
            ));
        }
        match (start, continued) {
            (Some(start), Some(continued)) if problems.is_empty() => Ok(BuiltCommand {
                start,
                continued,
                stdin,
                continued_stdin,
                resumes,
                dropped,
            }),
            _ => Err(problems
                .into_iter()
                .map(|error| match error.get("profile") {
                    Some(_) => error,
                    None => error.with("profile", &profile.name),
                })
                .collect()),
        }
    }

    /// Puts the call of npm, or the program that was found, in place of the program that a package supplies.
    fn supplied(&self, command: &[OsText]) -> Vec<OsText> {
        let (Some(package), Some((program, rest))) = (&self.profile.package, command.split_first())
        else {
            return command.to_vec();
        };
        if program.as_bytes() != package.program.as_bytes() {
            return command.to_vec();
        }
        let version = self.wishes.version.as_deref();
        let head = match (&self.wishes.program, self.host) {
            (Some(program), _) => vec![program.clone()],
            (
                None,
                Host::Here {
                    native: Some(native),
                },
            ) if package.prefer_native && version.is_none() => vec![OsText::new(native)],
            (None, Host::Here { .. } | Host::Elsewhere) => package.words(version),
        };
        [head, rest.to_vec()].concat()
    }

    fn check_home(&self, problems: &mut Vec<Error>) {
        if self.wishes.home.is_some() && self.profile.home.is_none() {
            problems.push(Error::new(
                ErrorKind::Unsupported,
                "a directory was named for what the agent keeps, and the profile does not say which variable names it",
            ));
        }
    }

    fn check_program(&self, problems: &mut Vec<Error>) {
        if self.wishes.program.is_none() {
            return;
        }
        let mut refuse = |kind, why| problems.push(Error::new(kind, why));
        if self.profile.package.is_none() {
            refuse(
                ErrorKind::Unsupported,
                "a program was named in place of a package, and the profile's program comes from none",
            );
        }
        if self.wishes.version.is_some() {
            refuse(
                ErrorKind::InvalidInput,
                "a program that is there has its own version; ask for one of both",
            );
        }
    }

    fn check_version(&self, problems: &mut Vec<Error>) {
        let Some(version) = &self.wishes.version else {
            return;
        };
        if self.profile.package.is_none() {
            problems.push(Error::new(
                ErrorKind::Unsupported,
                "a version was asked for, and the profile's program comes from no package",
            ));
        } else if *self.host == Host::Elsewhere {
            problems.push(Error::new(
                ErrorKind::Unsupported,
                "a version can be asked for on this machine only; elsewhere the profile's own is used",
            ));
        }
        problems.extend(check_version(version).err());
    }

    fn resumption(&self) -> Result<(Vec<OsText>, bool), Error> {
        let rule = &self.profile.resume;
        let token = self.wishes.resume_token.as_deref().unwrap_or_default();
        if !rule.takes(token) {
            return Ok((Vec::new(), false));
        }
        refuse_option("the resume token", token)?;
        Ok((fill(&rule.arguments, "{token}", token.as_bytes()), true))
    }

    fn model(&self) -> Result<Vec<OsText>, Error> {
        let rule = &self.profile.model;
        let Some(model) = chosen_model(self.profile, self.wishes) else {
            return Ok(Vec::new());
        };
        refuse_option("the model", model)?;
        let says_it_itself = self.wishes.conversation && rule.arguments.is_empty();
        if rule.arguments.is_empty() && rule.variable.is_none() && !says_it_itself {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "a model was asked for, and the profile does not say how one is chosen",
            )
            .with("model", model));
        }
        Ok(fill(&rule.arguments, "{model}", model.as_bytes()))
    }

    fn approval(&self) -> Result<Vec<OsText>, Error> {
        match (&self.profile.approval, self.wishes.auto_approve) {
            (_, false) => Ok(Vec::new()),
            (Some(rule), true) => Ok(rule.arguments.clone()),
            (None, true) => Err(Error::new(
                ErrorKind::Unsupported,
                "the agent is to ask nobody, and the profile does not say how it is told so",
            )),
        }
    }

    fn flags(&self) -> (Vec<OsText>, Vec<DroppedFlag>) {
        let own = self.profile.flags.iter().filter(|flag| flag.enabled);
        let route = self.wishes.route.as_ref().and_then(Route::overlay);
        let texts = own
            .map(|flag| &flag.text)
            .chain(route.iter().flat_map(|route| &route.flags));
        let mut words = Vec::new();
        let mut dropped = Vec::new();
        for text in texts {
            match split(text) {
                Ok(some) => words.extend(some.iter().map(|word| OsText::from(word.as_str()))),
                Err(why) => dropped.push(DroppedFlag {
                    profile: self.profile.name.clone(),
                    flag: text.clone(),
                    why: ErrorReport::from(&why),
                }),
            }
        }
        (words, dropped)
    }

    fn prompt(
        &self,
        prompt: Option<&OsText>,
        options: &[OsText],
    ) -> Result<(Vec<OsText>, Option<Vec<u8>>), Error> {
        let Some(prompt) = prompt else {
            return Ok((Vec::new(), None));
        };
        match &self.profile.prompt {
            Some(PromptRule::Stdin) => Ok((Vec::new(), Some(prompt.as_bytes().to_vec()))),
            Some(PromptRule::Argument(words)) => {
                // A second `--` would be taken for an argument, and so would the options behind the first.
                if options.iter().any(|word| word.as_bytes() == END_OF_OPTIONS) {
                    return Err(Error::new(
                        ErrorKind::InvalidInput,
                        "the extra arguments or flags hold `--`, and the prompt would stand behind it; leave `--` out",
                    ));
                }
                Ok((fill(words, "{prompt}", prompt.as_bytes()), None))
            }
            None => Err(Error::new(
                ErrorKind::Unsupported,
                "there is a prompt, and the profile does not say how the agent gets one",
            )),
        }
    }
}

impl AgentProfile {
    /// Returns the words of the prefix; none where there is no prefix.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, `resolve command_prefix for profile …`, when it cannot be split, or begins with a blank or an option.
    pub(super) fn prefix_words(&self) -> Result<Vec<OsText>, Error> {
        if self.prefix.is_empty() {
            return Ok(Vec::new());
        }
        let words = self.prefix.words().and_then(|words| {
            check_program(&words)?;
            Ok(words)
        });
        words.map_err(|why| {
            let message = format!(
                "resolve command_prefix for profile {}: {}",
                self.name,
                why.message()
            );
            let error = Error::new(why.kind(), message).with("profile", &self.name);
            why.context().fold(error, |error, (key, value)| {
                error.with(key.to_owned(), value)
            })
        })
    }
}

/// Checks that a command line begins with a program.
///
/// # Errors
///
/// `InvalidInput` when there is no word, or the first is blank or an option.
pub(super) fn check_program(words: &[OsText]) -> Result<(), Error> {
    let why = match words.first().map(OsText::as_bytes) {
        None => "there is no program",
        Some(word) if word.trim_ascii().is_empty() => "the first word is blank",
        Some(word) if word.starts_with(b"-") => "the first word is an option, not a program",
        Some(_) => return Ok(()),
    };
    Err(Error::new(ErrorKind::InvalidInput, why).with("words", words.len()))
}

/// Puts the words side by side and checks what came of it; the agent's own part must begin with a program as well, else the
/// prefix would take its first option for one of the prefix's.
fn assemble(what: &str, prefix: &[OsText], parts: &[&[OsText]]) -> Result<Command, Error> {
    let agent = parts.concat();
    let checked = check_program(&agent).and_then(|()| Command::new([prefix, &agent].concat()));
    checked.map_err(|why| {
        let message = format!("validate {what} command: {}", why.message());
        why.context()
            .fold(Error::new(why.kind(), message), |error, (key, value)| {
                error.with(key.to_owned(), value)
            })
    })
}

fn refuse_option(what: &str, value: &str) -> Result<(), Error> {
    if value.trim().is_empty() || value.starts_with('-') {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("{what} must not be blank nor begin with `-`"),
        )
        .with("value", format!("{value:?}")));
    }
    Ok(())
}

fn note(problems: &mut Vec<Error>, error: Error) -> Vec<OsText> {
    problems.push(error);
    Vec::new()
}

#[cfg(test)]
mod tests;

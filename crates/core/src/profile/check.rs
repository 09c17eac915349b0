//! Whether a profile can be used: everything that is wrong with it, at once, before anybody runs it.

use std::path::{Component, Path, PathBuf};

use crate::{
    command::Command,
    error::{Error, ErrorKind},
    handshake::Handshake,
    profile::{
        agent::{AgentProfile, PromptRule},
        command::{END_OF_OPTIONS, check_program},
        template::holds,
        tokens::split,
        variable::Variable,
        words::Prefix,
    },
    wire::OsText,
};

/// The longest that a profile may let a stopped agent live on.
const MAX_GRACE_SECONDS: u32 = 3600;

impl AgentProfile {
    /// Returns everything that is wrong with it; nothing is wrong with a profile that can be used.
    pub fn check(&self) -> Vec<Error> {
        let mut problems = Vec::new();
        // A request may name the whole command instead; nothing stands in for a continue command.
        if !self.command.is_empty() {
            problems.extend(command_problem("command", &self.command));
        }
        if let Some(command) = &self.continue_command {
            problems.extend(command_problem("continue_command", command));
        }
        problems.extend(self.prefix_words().err());
        for flag in &self.flags {
            let why = match split(&flag.text) {
                Ok(words) if words.is_empty() => wrong("the flag is empty"),
                Ok(_) => continue,
                Err(why) => why,
            };
            problems.push(
                why.with("in", "flags")
                    .with("flag", format!("{:?}", flag.text)),
            );
        }
        problems.extend(self.package_problems());
        problems.extend(self.template_problems());
        problems.extend(self.reserved_problems());
        let twice = self
            .environment
            .keys()
            .filter(|key| self.defaults.contains_key(key));
        problems.extend(twice.map(|key| {
            wrong("the variable stands in `environment` and in `defaults`; one of both is enough")
                .with("variable", key)
        }));
        problems.extend(self.strip.iter().filter(|pattern| !is_pattern(pattern)).map(|pattern| {
            wrong("a name to strip must not be empty nor hold `=` or NUL, and `*` stands at its end and not alone")
                .with("in", "strip")
                .with("name", format!("{pattern:?}"))
        }));
        problems.extend(self.cache_problems());
        problems.extend(self.handshake_problems());
        problems.extend(self.session_problems());
        if self.stop.grace_seconds > MAX_GRACE_SECONDS {
            problems.push(
                wrong("the time to end is longer than an hour")
                    .with("in", "stop")
                    .with("grace_seconds", self.stop.grace_seconds),
            );
        }
        let own = |error: Error| match error.get("profile") {
            Some(_) => error,
            None => error.with("profile", &self.name),
        };
        problems.into_iter().map(own).collect()
    }

    /// Returns what is wrong with its handshake.
    pub(crate) fn handshake_problems(&self) -> Vec<Error> {
        let mut problems: Vec<_> = self.handshake.iter().flat_map(Handshake::check).collect();
        if self.handshake.is_some() && self.prompt == Some(PromptRule::Stdin) {
            problems.push(
                wrong("a handshake and a prompt cannot both have the standard input")
                    .with("in", "handshake"),
            );
        }
        problems
    }

    /// Returns cache directories that would lie elsewhere than below the place for caches.
    pub(crate) fn cache_problems(&self) -> impl Iterator<Item = Error> {
        let elsewhere = self
            .caches
            .iter()
            .filter(|cache| !is_name(&cache.directory));
        elsewhere.map(|cache| {
            wrong("a cache directory is one plain name")
                .with("in", "caches")
                .with("directory", format!("{:?}", cache.directory))
                .with("profile", &self.name)
        })
    }

    /// Makes paths absolute that were written into a profile: programs of the commands and of the prefix, and variables that
    /// are paths. `absolute` gets a path as it was written. A program that is a bare name is searched for later.
    ///
    /// # Errors
    ///
    /// All of those of `absolute`, with the place in the profile.
    pub fn resolve_paths(
        mut self,
        absolute: impl Fn(&Path) -> Result<PathBuf, Error>,
    ) -> Result<Self, Vec<Error>> {
        let mut problems = Vec::new();
        let mut program = |place: &'static str, words: &mut [OsText]| {
            let Some(word) = words.first_mut() else {
                return;
            };
            if word.as_bytes().contains(&b'/') || word.as_bytes().starts_with(b"~") {
                match absolute(Path::new(word)) {
                    Ok(path) => *word = OsText::new(path),
                    Err(error) => problems.push(error.with("in", place)),
                }
            }
        };
        program("command", &mut self.command);
        program(
            "continue_command",
            self.continue_command.as_deref_mut().unwrap_or_default(),
        );
        let session = self.session.as_mut();
        program(
            "session.command",
            session.map_or(&mut [], |session| &mut session.command[..]),
        );
        // One that cannot be split stays as it is: check and build tell why.
        if let Ok(mut words) = self.prefix.words()
            && !self.prefix.is_empty()
            && check_program(&words).is_ok()
        {
            program("prefix", &mut words);
            self.prefix = Prefix::List(words);
        }
        let approval = self
            .approval
            .iter_mut()
            .flat_map(|rule| &mut rule.variables);
        let variables = self
            .environment
            .iter_mut()
            .chain(&mut self.defaults)
            .chain(approval);
        for (key, value) in variables {
            if let Variable::Path(path) = value {
                match absolute(path) {
                    Ok(found) => *path = found,
                    Err(error) => problems.push(error.with("variable", key)),
                }
            }
        }
        if problems.is_empty() {
            Ok(self)
        } else {
            Err(problems
                .into_iter()
                .map(|error| error.with("profile", &self.name))
                .collect())
        }
    }

    fn package_problems(&self) -> Vec<Error> {
        let Some(package) = &self.package else {
            return Vec::new();
        };
        let mut problems = package.problems();
        if self.command.first().map(OsText::as_bytes) != Some(package.program.as_bytes()) {
            problems.push(
                wrong("the package's program must be the first word of the command, in whose place it is put")
                    .with("program", format!("{:?}", package.program)),
            );
        }
        problems
            .into_iter()
            .map(|error| error.with("in", "package"))
            .collect()
    }

    fn template_problems(&self) -> Vec<Error> {
        let mut problems = Vec::new();
        let mut needs = |place: &'static str, words: &[OsText], placeholder: &'static str| {
            let found = words.iter().filter(|word| holds(word, placeholder)).count();
            if found != 1 && !words.is_empty() {
                problems.push(
                    wrong("exactly one of the arguments must hold the placeholder")
                        .with("in", place)
                        .with("placeholder", placeholder),
                );
            }
        };
        needs("model.arguments", &self.model.arguments, "{model}");
        needs("resume.arguments", &self.resume.arguments, "{token}");
        let Some(PromptRule::Argument(words)) = &self.prompt else {
            return problems;
        };
        needs("prompt.argument", words, "{prompt}");
        if words.is_empty() {
            problems.push(wrong("no argument holds the prompt").with("in", "prompt.argument"));
        }
        let at = words.iter().position(|word| holds(word, "{prompt}"));
        let protected = at.is_none_or(|at| {
            let (before, rest) = words.split_at(at);
            let ended = before.iter().any(|word| word.as_bytes() == END_OF_OPTIONS);
            ended
                || rest.first().is_some_and(|word| {
                    word.as_bytes().starts_with(b"--") && word.as_bytes().ends_with(b"={prompt}")
                })
        });
        if !protected {
            problems.push(
                wrong("a prompt that begins with `-` would be taken for an option; write it behind `--`, or as `--option={prompt}`")
                    .with("in", "prompt.argument"),
            );
        }
        problems
    }
}

fn command_problem(place: &'static str, words: &[OsText]) -> Option<Error> {
    let checked = check_program(words).and_then(|()| Command::new(words.iter().cloned()).map(drop));
    checked.err().map(|error| error.with("in", place))
}

fn wrong(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

fn is_pattern(pattern: &str) -> bool {
    let name = pattern.strip_suffix('*').unwrap_or(pattern);
    !name.is_empty() && !name.contains(['*', '=', '\0'])
}

fn is_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name);
    plain && !name.contains('\0')
}

#[cfg(test)]
mod tests;

//! `profile`: which profiles there are, what they say, and what is wrong with them.

use std::{ffi::OsString, os::unix::ffi::OsStrExt as _};

use groundcrew_core::{
    command::Command,
    error::Error,
    id::ProfileName,
    profile::{AgentCommand, AgentProfile, CommandWishes, Host},
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    agent,
    args::{Format, ProfileArgs, ProfileVerb},
    documents::{Document, Failure},
    exit,
    failing::{Failing, in_words},
    paths::absolute,
    profile_document::{fields, shown},
    profiles::{self, Found, Profiles, Source},
    program::Context,
    text::{Text, printable, printable_os},
};

/// The answer of `profile ls`.
#[derive(Debug, Serialize)]
struct Listed {
    profiles: Vec<Entry>,
    problems: Vec<Failure>,
}

/// One profile in a list.
#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    title: Option<String>,
    file: Option<Text>,
    usable: bool,
    problems: Vec<Failure>,
}

/// The answer of `profile show`.
#[derive(Debug, Serialize)]
struct Shown {
    file: Option<Text>,
    start: Option<Vec<String>>,
    continued: Option<Vec<String>>,
    profile: Map<String, Value>,
    problems: Vec<Failure>,
}

/// The answer of `profile check`.
#[derive(Debug, Serialize)]
struct Checked {
    checked: usize,
    problems: Vec<Failure>,
}

/// Lists, shows or checks profiles.
///
/// # Errors
///
/// When they cannot be read at all, or there is none of that name.
pub(crate) fn profile(context: &Context, args: &ProfileArgs) -> Result<u8, Failing> {
    match &args.verb {
        ProfileVerb::Ls => ls(context),
        ProfileVerb::Show { name } => show(context, name),
        ProfileVerb::Check { which } => check(context, which),
    }
}

fn ls(context: &Context) -> Result<u8, Failing> {
    let console = &context.console;
    let profiles = context.settings.profiles()?;
    let entries: Vec<_> = profiles
        .found
        .iter()
        .map(|(name, found)| entry(name, found))
        .collect();
    let strays = strays(profiles);
    if console.format == Format::Human {
        let width = entries.iter().map(|one| one.name.len()).max().unwrap_or(0);
        for ((name, found), one) in profiles.found.iter().zip(&entries) {
            let name = format!("{name:width$}");
            let what = one
                .title
                .as_deref()
                .unwrap_or("cannot be used; see `groundcrew profile check`");
            let what = if one.usable {
                printable(what)
            } else {
                console.out_style.red(&printable(what))
            };
            let origin = console.out_style.faint(&place(&found.source));
            console.result(&format!("{name}  {what}  {origin}"));
        }
        for problem in &strays {
            console.warn(&in_words(problem));
        }
    }
    console.document(&Document::new(Listed {
        profiles: entries,
        problems: strays,
    }));
    Ok(exit::DONE)
}

fn entry(name: &ProfileName, found: &Found) -> Entry {
    let problems = failures(&found.problems());
    Entry {
        name: name.to_string(),
        title: found
            .profile
            .as_ref()
            .ok()
            .map(|profile| match profile.title.as_str() {
                "" => name.to_string(),
                title => title.to_owned(),
            }),
        file: file(&found.source),
        usable: problems.is_empty(),
        problems,
    }
}

fn show(context: &Context, name: &ProfileName) -> Result<u8, Failing> {
    let console = &context.console;
    let profiles = context.settings.profiles()?;
    let profile = profiles.get(name)?;
    let found = profiles.found.get(name);
    let source = found.map_or(&Source::BuiltIn, |found| &found.source);
    let problems = found.map(Found::problems).unwrap_or_default();
    let Commands { start, continued } = commands(context, profile)?;
    let fields = fields(profile);
    if console.format == Format::Human {
        console.result(&format!(
            "{} {}",
            console.out_style.bold(name.as_str()),
            console.out_style.faint(&place(source))
        ));
        let line =
            |label: &str, text: &str| console.result(&format!("  {label:<17}{}", printable(text)));
        if let Some(words) = &start {
            line("runs", &words.join(" "));
        }
        if let Some(words) = &continued {
            line("goes on with", &words.join(" "));
        }
        for (key, value) in fields.iter().filter(|(key, _)| *key != "name") {
            line(key, &in_one_line(value));
        }
        for problem in &problems {
            console.warn(&in_words(&Failure::from(problem)));
        }
    }
    console.document(&Document::new(Shown {
        file: file(source),
        start,
        continued,
        profile: fields,
        problems: failures(&problems),
    }));
    Ok(exit::DONE)
}

/// Commands as they would be run here, in words; those that cannot be made are left out.
struct Commands {
    start: Option<Vec<String>>,
    continued: Option<Vec<String>>,
}

/// Returns the commands without a model, a prompt or further arguments.
fn commands(context: &Context, profile: &AgentProfile) -> Result<Commands, Failing> {
    let config = context.settings.config()?;
    let path = config.path_before(context.surroundings.variable("PATH"));
    let host = Host::Here {
        native: agent::native(profile, path.as_deref()),
    };
    let wishes = CommandWishes::default();
    let words = |command: &Command| {
        let words: Vec<_> = command
            .arguments()
            .iter()
            .map(|word| word.0.to_string_lossy().into_owned())
            .collect();
        shown(&words)
    };
    let command = AgentCommand {
        profile,
        wishes: &wishes,
        host: &host,
    };
    // What is wrong with it is told beside it.
    let built = command.build().ok();
    let start = built.as_ref().map(|built| words(&built.start));
    let continued = built.and_then(|built| built.continued.as_ref().map(words));
    Ok(Commands { start, continued })
}

fn in_one_line(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) if list.iter().all(Value::is_string) => list
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(" "),
        other => other.to_string(),
    }
}

fn check(context: &Context, which: &[OsString]) -> Result<u8, Failing> {
    let console = &context.console;
    let profiles = context.settings.profiles()?;
    let mut checked = 0;
    let mut problems = Vec::new();
    if which.is_empty() {
        checked = profiles.found.len() + profiles.strays.len();
        problems.extend(strays(profiles));
        problems.extend(
            profiles
                .found
                .values()
                .flat_map(|found| failures(&found.problems())),
        );
    }
    for word in which {
        checked += 1;
        let found = if word.as_bytes().contains(&b'/') || word.as_bytes().ends_with(b".toml") {
            of_file(context, word)?
        } else {
            of_name(profiles, word)?
        };
        problems.extend(failures(&found));
    }
    if console.format == Format::Human {
        for problem in &problems {
            console.result(&in_words(problem));
        }
        let good = if checked == 1 {
            "1 profile is good".to_owned()
        } else {
            format!("{checked} profiles are good")
        };
        if problems.is_empty() {
            console.result(&good);
        }
    }
    let code = if problems.is_empty() {
        exit::DONE
    } else {
        exit::FAILED
    };
    console.document(&Document::new(Checked { checked, problems }));
    Ok(code)
}

fn of_file(context: &Context, word: &OsString) -> Result<Vec<Error>, Failing> {
    let surroundings = &context.surroundings;
    let path = absolute(word, &surroundings.directory, surroundings.home())?;
    let profile = match profiles::read(&path, surroundings.home()) {
        Ok(profile) => profile,
        Err(problems) => return Ok(problems),
    };
    let problems = profile.check();
    Ok(problems
        .into_iter()
        .map(|error| error.with("file", path.display()))
        .collect())
}

fn of_name(profiles: &Profiles, word: &OsString) -> Result<Vec<Error>, Failing> {
    let name = ProfileName::new(word.to_string_lossy())?;
    match profiles.found.get(&name) {
        Some(found) => Ok(found.problems()),
        None => Err(profiles.get(&name).err().unwrap_or_default().into()),
    }
}

fn failures(problems: &[Error]) -> Vec<Failure> {
    problems.iter().map(Failure::from).collect()
}

fn strays(profiles: &Profiles) -> Vec<Failure> {
    profiles.strays.iter().map(Failure::from).collect()
}

fn place(source: &Source) -> String {
    match source {
        Source::BuiltIn => "built in".to_owned(),
        Source::File(path) => printable_os(path),
    }
}

fn file(source: &Source) -> Option<Text> {
    match source {
        Source::BuiltIn => None,
        Source::File(path) => Some(Text::os(path)),
    }
}

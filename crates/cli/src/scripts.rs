//! Makes scripts of the words of a command line and of the user's settings; a repository's own files are never asked.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    time::Duration,
};

use groundcrew_core::{
    command::Command,
    error::{Error, ErrorKind},
    script::{SETUP_LIMIT, Script, TEARDOWN_LIMIT},
    workspace::WorkspaceRequest,
};
use serde::Deserialize;

use crate::{
    args::ScriptArgs,
    paths::{absolute, repository_of},
    text::printable,
};

/// How many characters of a shell line are its name.
const NAME_LEN: usize = 60;

/// A script of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Configured {
    /// It.
    pub script: Script,
    /// The only repository that it is for.
    pub repository: Option<PathBuf>,
}

/// A script as it is written in the settings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    run: Option<String>,
    #[serde(default)]
    command: Option<Vec<String>>,
    #[serde(default)]
    directory: Option<PathBuf>,
    #[serde(default)]
    repository: Option<String>,
    #[serde(default)]
    optional: bool,
    #[serde(default)]
    seconds: Option<u32>,
}

/// Reads the scripts of a list of the settings; `list` is its name.
///
/// # Errors
///
/// `InvalidInput`, naming the script by its place in the list.
pub(crate) fn configured(
    list: &'static str,
    written: Vec<Written>,
    base: &Path,
    home: Option<&Path>,
) -> Result<Vec<Configured>, Error> {
    let limit = if list == "setup" {
        SETUP_LIMIT
    } else {
        TEARDOWN_LIMIT
    };
    let read = |(index, written): (usize, Written)| {
        one(written, limit, base, home)
            .map_err(|error| error.with("setting", format!("{list}[{index}]")))
    };
    written.into_iter().enumerate().map(read).collect()
}

fn one(
    written: Written,
    limit: Duration,
    base: &Path,
    home: Option<&Path>,
) -> Result<Configured, Error> {
    let (command, name) = match (&written.run, written.command) {
        (Some(line), None) => (shell(OsStr::new(line))?, named(OsStr::new(line))),
        (None, Some(words)) => {
            let command = Command::new(words.into_iter().map(OsString::from))?;
            let name = named(OsStr::new(&command.to_string()));
            (command, name)
        }
        _ => {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a script has either `run`, a line for the shell, or `command`, a list of words",
            ));
        }
    };
    let script = Script {
        directory: written.directory,
        required: !written.optional,
        time_limit: written
            .seconds
            .map_or(limit, |seconds| Duration::from_secs(seconds.into())),
        ..Script::new(written.name.unwrap_or(name), command)
    };
    script.check()?;
    let place = |text: String| absolute(OsStr::new(&text), base, home);
    Ok(Configured {
        script,
        repository: written.repository.map(place).transpose()?,
    })
}

/// Makes the scripts of a run: those of the settings first, then those of the command line.
///
/// # Errors
///
/// `InvalidInput` for a line that is none.
pub(crate) fn of_run(
    args: &ScriptArgs,
    setup: Vec<Configured>,
    teardown: Vec<Configured>,
    workspace: &WorkspaceRequest,
) -> Result<(Vec<Script>, Vec<Script>), Error> {
    let made = |lines: &[OsString], limit: Duration| {
        let make = |line: &OsString| {
            Ok(Script {
                time_limit: limit,
                ..Script::new(named(line), shell(line)?)
            })
        };
        lines.iter().map(make).collect::<Result<Vec<_>, Error>>()
    };
    let here = repositories(workspace);
    let meant = |configured: Vec<Configured>| {
        let scripts = configured.into_iter().filter(|script| {
            let wanted = script.repository.as_ref().map(|path| real(path));
            !args.no_scripts && wanted.is_none_or(|wanted| here.contains(&wanted))
        });
        scripts.map(|configured| configured.script)
    };
    let limit = args.setup_timeout.unwrap_or(SETUP_LIMIT);
    Ok((
        meant(setup).chain(made(&args.setup, limit)?).collect(),
        meant(teardown)
            .chain(made(&args.teardown, TEARDOWN_LIMIT)?)
            .collect(),
    ))
}

/// Returns the roots of the repositories that a workspace is made of, or is in.
fn repositories(workspace: &WorkspaceRequest) -> Vec<PathBuf> {
    let paths: Vec<&Path> = match workspace {
        WorkspaceRequest::Worktree(specs)
        | WorkspaceRequest::Clone {
            repositories: specs,
            ..
        } => specs.iter().map(|spec| &*spec.path).collect(),
        WorkspaceRequest::InPlace { path } => vec![path],
        _ => Vec::new(),
    };
    let roots = paths.into_iter().filter_map(repository_of);
    roots.map(real).collect()
}

/// Returns a path without links, or as it is where it cannot be read.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn shell(line: &OsStr) -> Result<Command, Error> {
    if line.is_empty() {
        return Err(Error::new(ErrorKind::InvalidInput, "a script is empty"));
    }
    Command::new([OsStr::new("sh"), OsStr::new("-c"), line].map(OsStr::to_owned))
}

/// Names a script after its words.
fn named(line: &OsStr) -> String {
    let text = line.to_string_lossy();
    let first = text.trim().lines().next().unwrap_or_default().to_owned();
    let plain = printable(&first);
    if plain.chars().count() <= NAME_LEN {
        return if plain.is_empty() {
            "a script".to_owned()
        } else {
            plain
        };
    }
    plain.chars().take(NAME_LEN).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Vec<OsString> {
        vec![text.into()]
    }

    #[test]
    fn c22_flags_come_behind_settings_and_those_of_other_repositories_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            std::fs::create_dir_all(root.path().join(name).join(".git")).unwrap();
        }
        std::fs::create_dir(root.path().join("a/sub")).unwrap();
        let configured = |name: &str, repository: Option<&str>| Configured {
            script: Script::new(name, Command::new(["x"]).unwrap()),
            repository: repository.map(|name| root.path().join(name)),
        };
        let settings = vec![
            configured("all", None),
            configured("of-a", Some("a")),
            configured("of-b", Some("b")),
        ];
        let workspace = WorkspaceRequest::InPlace {
            path: root.path().join("a/sub"),
        };
        let mut args = ScriptArgs {
            setup: line("npm ci"),
            ..ScriptArgs::default()
        };
        let names = |args: &ScriptArgs| {
            let (setup, _) = of_run(args, settings.clone(), Vec::new(), &workspace).unwrap();
            setup
                .into_iter()
                .map(|script| script.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&args), ["all", "of-a", "npm ci"]);
        args.no_scripts = true;
        assert_eq!(names(&args), ["npm ci"]);
        args.setup = line("");
        let error = of_run(&args, Vec::new(), Vec::new(), &workspace).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn c22_names_are_short_and_printable() {
        assert_eq!(named(OsStr::new("  npm ci\nrm x")), "npm ci");
        assert_eq!(named(OsStr::new("\n")), "a script");
        assert_eq!(named(OsStr::new(&"ä".repeat(100))).chars().count(), 61);
        let script = Script::new(
            named(OsStr::new("a\u{1b}[31mb\tc")),
            shell(OsStr::new("x")).unwrap(),
        );
        script.check().unwrap();
    }
}

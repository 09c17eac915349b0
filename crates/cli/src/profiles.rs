//! The profiles that there are: the program's own, and the user's files, which replace those of the same name as a whole.
//!
//! A file that is wrong stands for its profile all the same: nothing is used in its place. Files are read, never changed.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use groundcrew_core::{
    async_trait,
    error::{Error, ErrorKind, ErrorReport},
    id::ProfileName,
    profile::{AgentProfile, ProfileDirectory},
};

use crate::{paths::absolute, surroundings::Surroundings, toml_file};

/// The program's own profiles.
const BUILT_IN: [(&str, &str); 7] = [
    ("claude.toml", include_str!("../profiles/claude.toml")),
    ("codex.toml", include_str!("../profiles/codex.toml")),
    ("codex-acp.toml", include_str!("../profiles/codex-acp.toml")),
    ("copilot.toml", include_str!("../profiles/copilot.toml")),
    ("gemini.toml", include_str!("../profiles/gemini.toml")),
    ("opencode.toml", include_str!("../profiles/opencode.toml")),
    ("plain.toml", include_str!("../profiles/plain.toml")),
];

/// Where a profile comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The program itself.
    BuiltIn,
    /// A file of the user.
    File(PathBuf),
}

/// One profile, or why there is none although its file is there.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Where it comes from.
    pub source: Source,
    /// It.
    pub profile: Result<AgentProfile, Vec<ErrorReport>>,
}

impl Found {
    /// Returns everything that is wrong with it, each with its file.
    pub(crate) fn problems(&self) -> Vec<Error> {
        let problems = match &self.profile {
            Ok(profile) => profile.check(),
            Err(reports) => reports.iter().cloned().map(Error::from).collect(),
        };
        match &self.source {
            Source::BuiltIn => problems,
            Source::File(path) => problems
                .into_iter()
                .map(|error| match error.get("file") {
                    Some(_) => error,
                    None => error.with("file", path.display()),
                })
                .collect(),
        }
    }
}

/// The profiles that there are.
#[derive(Clone, Debug)]
pub(crate) struct Profiles {
    /// By name.
    pub found: BTreeMap<ProfileName, Found>,
    /// Files that can be no profile at all.
    pub strays: Vec<ErrorReport>,
}

impl Profiles {
    /// Reads them all.
    ///
    /// # Errors
    ///
    /// When there is no telling which files there are.
    pub(crate) fn read(surroundings: &Surroundings) -> Result<Self, Error> {
        let mut all = Self::built_in(surroundings.home());
        let Some(directory) = surroundings.config_directory()? else {
            return Ok(all);
        };
        let directory = directory.join("profiles");
        let failed = |e| {
            Error::io("failed to read the directory of profiles", e)
                .with("path", directory.display())
        };
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(all),
            Err(e) => return Err(failed(e)),
        };
        let mut paths = Vec::new();
        for entry in entries {
            paths.push(entry.map_err(failed)?.path());
        }
        paths.sort();
        for path in paths.iter().filter(|path| is_profile(path)) {
            match name_of(path) {
                Ok(name) => {
                    let profile = read(path, surroundings.home());
                    let source = Source::File(path.clone());
                    all.found.insert(name, found(source, profile));
                }
                Err(error) => all.strays.push(ErrorReport::from(&error)),
            }
        }
        Ok(all)
    }

    /// Reads the program's own.
    pub(crate) fn built_in(home: Option<&Path>) -> Self {
        let found = BUILT_IN.iter().filter_map(|(file, text)| {
            let path = Path::new(file);
            let name = name_of(path).ok()?;
            Some((name, found(Source::BuiltIn, parse(text, path, home))))
        });
        Self {
            found: found.collect(),
            strays: Vec::new(),
        }
    }

    /// Returns a profile by name.
    ///
    /// # Errors
    ///
    /// All that is wrong with its file; `NotFound`, with the names that are known, when there is none.
    pub(crate) fn get(&self, name: &ProfileName) -> Result<&AgentProfile, Vec<Error>> {
        match self.found.get(name) {
            Some(Found {
                profile: Ok(profile),
                ..
            }) => Ok(profile),
            Some(broken) => Err(broken.problems()),
            None => {
                let known: Vec<_> = self.found.keys().map(ProfileName::as_str).collect();
                let error = Error::new(ErrorKind::NotFound, "there is no such agent profile");
                Err(vec![
                    error.with("profile", name).with("known", known.join(", ")),
                ])
            }
        }
    }
}

#[async_trait]
impl ProfileDirectory for Profiles {
    async fn profile(&self, name: &ProfileName) -> Result<Option<AgentProfile>, Error> {
        if !self.found.contains_key(name) {
            return Ok(None);
        }
        self.get(name).cloned().map(Some).map_err(|problems| {
            let damaged = Error::new(ErrorKind::InvalidInput, "the profile cannot be read");
            problems.into_iter().next().unwrap_or(damaged)
        })
    }

    async fn list(&self) -> Result<Vec<ProfileName>, Error> {
        Ok(self.found.keys().cloned().collect())
    }
}

/// Reads one file.
///
/// # Errors
///
/// All that is wrong with it, each with the file and, where there is one, line and column.
pub(crate) fn read(path: &Path, home: Option<&Path>) -> Result<AgentProfile, Vec<Error>> {
    let one = |error| vec![error];
    let gone =
        || Error::new(ErrorKind::NotFound, "the profile is gone").with("file", path.display());
    let text = toml_file::read(path).and_then(|text| text.ok_or_else(gone));
    parse(&text.map_err(one)?, path, home)
}

/// Reads the text of a file.
///
/// # Errors
///
/// As for [`read`].
fn parse(text: &str, path: &Path, home: Option<&Path>) -> Result<AgentProfile, Vec<Error>> {
    let expected = name_of(path).map_err(|error| vec![error])?;
    let profile: AgentProfile = toml_file::parse(text, path).map_err(|error| vec![error])?;
    if profile.name != expected {
        let error = Error::new(
            ErrorKind::InvalidInput,
            "a profile has the name of its file; rename one of both",
        );
        return Err(vec![
            error
                .with("file", path.display())
                .with("name", &profile.name),
        ]);
    }
    let base = path.parent().unwrap_or(Path::new("/"));
    let resolved = profile.resolve_paths(|written| absolute(written.as_os_str(), base, home));
    resolved.map_err(|errors| {
        let located = errors
            .into_iter()
            .map(|error| error.with("file", path.display()));
        located.collect()
    })
}

fn found(source: Source, profile: Result<AgentProfile, Vec<Error>>) -> Found {
    Found {
        source,
        profile: profile.map_err(|errors| errors.iter().map(ErrorReport::from).collect()),
    }
}

/// Returns whether a file is meant to be a profile; editors keep hidden ones of their own.
fn is_profile(path: &Path) -> bool {
    let hidden = path
        .file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && path.extension() == Some(OsStr::new("toml"))
}

/// Returns the name that a file gives its profile.
fn name_of(path: &Path) -> Result<ProfileName, Error> {
    let wrong = || {
        Error::new(
            ErrorKind::InvalidInput,
            "a profile is a file NAME.toml, and NAME a profile name",
        )
        .with("file", path.display())
    };
    let stem = path.file_stem().and_then(OsStr::to_str).ok_or_else(wrong)?;
    ProfileName::new(stem).map_err(|why| wrong().with_source(why))
}

#[cfg(test)]
mod tests;

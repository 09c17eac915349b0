//! What the process was started in: its variables, its directory, its streams; read once, here and nowhere else.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use groundcrew_core::error::{Error, ErrorKind};

use crate::{
    paths::{absolute, repository_of, resolved},
    terminal::Terminals,
};

/// The variable that names the directory of settings.
const CONFIG: &str = "GROUNDCREW_CONFIG_DIR";
/// The variable that names the state directory.
const HOME: &str = "GROUNDCREW_HOME";

/// What the process was started in.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    /// Its variables.
    pub environment: Vec<(OsString, OsString)>,
    /// Its directory.
    pub directory: PathBuf,
    /// Its streams.
    pub terminals: Terminals,
}

impl Surroundings {
    /// Reads them.
    ///
    /// # Errors
    ///
    /// When the current directory is gone.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the process's surroundings"
    )]
    pub(crate) fn read() -> Result<Self, Error> {
        let directory = std::env::current_dir().map_err(|e| {
            Error::io(
                "the current directory is gone or cannot be read; change to another one",
                e,
            )
        })?;
        Ok(Self {
            environment: std::env::vars_os().collect(),
            directory,
            terminals: Terminals::ask(),
        })
    }

    /// Returns the value of a variable; an empty one is none.
    pub(crate) fn variable(&self, name: &str) -> Option<&OsStr> {
        let found = self.environment.iter().find(|(known, _)| known == name);
        found
            .map(|(_, value)| value.as_os_str())
            .filter(|value| !value.is_empty())
    }

    /// Returns the home directory, if it is a place.
    pub(crate) fn home(&self) -> Option<&Path> {
        self.variable("HOME")
            .map(Path::new)
            .filter(|home| home.is_absolute())
    }

    /// Returns whether colours are wanted, where they can be shown.
    pub(crate) fn colours(&self) -> bool {
        self.variable("NO_COLOR").is_none()
            && self.variable("TERM").is_none_or(|term| term != "dumb")
    }

    /// Returns the directory of settings; none if there is no place for one.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when `GROUNDCREW_CONFIG_DIR` is no absolute path.
    pub(crate) fn config_directory(&self) -> Result<Option<PathBuf>, Error> {
        if let Some(named) = self.variable(CONFIG) {
            let path = absolute(named, Path::new(""), self.home())?;
            if path.is_absolute() {
                return Ok(Some(path));
            }
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "the directory of settings must be an absolute path",
            )
            .with("path", path.display())
            .with("from", CONFIG));
        }
        // The specification of these directories says that relative ones are ignored.
        let base = self.variable("XDG_CONFIG_HOME").map(Path::new);
        let base = base.filter(|base| base.is_absolute());
        let home = self.home().map(|home| home.join(".config"));
        let base = base.map(Path::to_owned).or(home);
        Ok(base.map(|base| base.join("groundcrew")))
    }

    /// Returns the state directory.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when it is `/`, the home directory, or above the repository that we are in, or is no absolute path.
    pub(crate) fn state_directory(&self) -> Result<PathBuf, Error> {
        let (path, origin) = match (
            self.variable(HOME),
            self.variable("XDG_STATE_HOME").map(Path::new),
            self.home(),
        ) {
            (Some(named), _, home) => (absolute(named, Path::new(""), home)?, HOME),
            // The specification of these directories says that relative ones are ignored.
            (None, Some(state), _) if state.is_absolute() => {
                (state.join("groundcrew"), "XDG_STATE_HOME")
            }
            (None, _, Some(home)) => (home.join(".local/state/groundcrew"), "HOME"),
            (None, _, None) => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "there is no place for the state directory; set GROUNDCREW_HOME or HOME",
                ));
            }
        };
        let refuse = |why: &'static str| {
            Error::new(ErrorKind::InvalidInput, why)
                .with("path", path.display())
                .with("from", origin)
        };
        if !path.is_absolute() {
            return Err(refuse("the state directory must be an absolute path"));
        }
        let real = resolved(&path);
        if real.parent().is_none() {
            return Err(refuse(
                "the state directory must not be the root of the filesystem; set GROUNDCREW_HOME",
            ));
        }
        if self
            .home()
            .is_some_and(|home| resolved(home).starts_with(&real))
        {
            return Err(refuse(
                "the state directory must not be the home directory, nor above it; set GROUNDCREW_HOME",
            ));
        }
        self.refuse_above_repository(&real, refuse)?;
        Ok(path)
    }

    /// A workspace of ours below the state directory is no reason to refuse: launches may be nested.
    fn refuse_above_repository(
        &self,
        real: &Path,
        refuse: impl Fn(&'static str) -> Error,
    ) -> Result<(), Error> {
        const OURS: [&str; 3] = ["worktrees", "tasks", "quick-chat"];
        let Some(repository) = repository_of(&self.directory) else {
            return Ok(());
        };
        let repository = resolved(repository);
        match repository.strip_prefix(real) {
            Ok(below) if !OURS.iter().any(|ours| below.starts_with(ours)) => Err(refuse(
                "the state directory must not be the repository, nor above it; set GROUNDCREW_HOME",
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings(pairs: &[(&str, &str)], directory: &Path) -> Surroundings {
        Surroundings {
            environment: pairs.iter().map(|(k, v)| (k.into(), v.into())).collect(),
            directory: directory.to_owned(),
            terminals: Terminals {
                input: false,
                output: false,
                error: false,
            },
        }
    }

    #[test]
    fn the_state_directory_is_looked_for_in_order() {
        let nowhere = Path::new("/nowhere-at-all");
        let at = |pairs: &[(&str, &str)]| {
            surroundings(pairs, nowhere)
                .state_directory()
                .map_err(|e| e.kind())
        };
        let all = [
            ("GROUNDCREW_HOME", "/g"),
            ("XDG_STATE_HOME", "/x"),
            ("HOME", "/h"),
        ];
        assert_eq!(at(&all).unwrap(), Path::new("/g"));
        assert_eq!(at(&all[1..]).unwrap(), Path::new("/x/groundcrew"));
        assert_eq!(
            at(&all[2..]).unwrap(),
            Path::new("/h/.local/state/groundcrew")
        );
        assert_eq!(
            at(&[("XDG_STATE_HOME", "x"), ("HOME", "/h")]).unwrap(),
            Path::new("/h/.local/state/groundcrew")
        );
        assert_eq!(
            at(&[("GROUNDCREW_HOME", "~/ws"), ("HOME", "/h")]).unwrap(),
            Path::new("/h/ws")
        );
        assert_eq!(
            at(&[("GROUNDCREW_HOME", ""), ("HOME", "/h")]).unwrap(),
            Path::new("/h/.local/state/groundcrew")
        );
        assert_eq!(at(&[]), Err(ErrorKind::InvalidInput));
    }

    #[test]
    fn c17_root_home_and_relative_places_are_refused() {
        for bad in ["/", "/h", "~", "/h/", "rel", "~nobody/x", "/."] {
            let pairs = [("GROUNDCREW_HOME", bad), ("HOME", "/h")];
            let result = surroundings(&pairs, Path::new("/nowhere-at-all")).state_directory();
            assert_eq!(
                result.map_err(|e| e.kind()),
                Err(ErrorKind::InvalidInput),
                "{bad}"
            );
        }
        let pairs = [("GROUNDCREW_HOME", "/srv"), ("HOME", "/srv/u")];
        assert!(
            surroundings(&pairs, Path::new("/nowhere-at-all"))
                .state_directory()
                .is_err()
        );
    }

    #[test]
    fn c17_an_ancestor_of_the_repository_is_refused_and_a_workspace_of_ours_is_not() {
        let root = tempfile::tempdir().unwrap();
        let state = root.path().join("state");
        let project = root.path().join("state/project/sub");
        let nested = root.path().join("state/worktrees/t/repo");
        for repository in [&project, &nested] {
            std::fs::create_dir_all(repository.join(".git")).unwrap();
        }
        let pairs = [("GROUNDCREW_HOME", state.to_str().unwrap())];
        assert!(surroundings(&pairs, &project).state_directory().is_err());
        assert!(surroundings(&pairs, &nested).state_directory().is_ok());
        let pairs = [("GROUNDCREW_HOME", project.to_str().unwrap())];
        assert!(surroundings(&pairs, &project).state_directory().is_err());
        let inside = project.join(".state");
        let pairs = [("GROUNDCREW_HOME", inside.to_str().unwrap())];
        assert!(surroundings(&pairs, &project).state_directory().is_ok());
    }

    #[test]
    fn colours_are_not_forced_on_anybody() {
        let wanted = |pairs: &[(&str, &str)]| surroundings(pairs, Path::new("/")).colours();
        assert!(wanted(&[]));
        assert!(wanted(&[("NO_COLOR", "")]));
        assert!(!wanted(&[("NO_COLOR", "1")]));
        assert!(!wanted(&[("TERM", "dumb")]));
    }
}

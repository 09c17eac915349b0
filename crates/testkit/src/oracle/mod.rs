//! The leak oracle: what exists on the real system before and after, which must be equal but for what was allowed.
//!
//! It looks around the components, never through them, and it never repairs anything.

mod files;
mod git;
mod kernel;
mod processes;
mod snapshot;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use groundcrew_core::error::{Error, ErrorKind};
use tokio::time::Instant;

pub use snapshot::{Allowed, Change, Difference, Kind, Snapshot};

/// What is looked at.
///
/// ```no_run
/// # use groundcrew_testkit::oracle::{Allowed, Oracle};
/// # fn example(home: &std::path::Path, repository: &std::path::Path) -> Result<(), groundcrew_core::error::Error> {
/// let oracle = Oracle::new().root(home).repository(repository);
/// let before = oracle.snapshot()?;
/// // … a launch that fails …
/// let left = before.difference(&oracle.snapshot()?, &Allowed::nothing().path(home.join("state.db")));
/// assert!(left.is_empty(), "{left}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    roots: Vec<PathBuf>,
    repositories: Vec<PathBuf>,
    marks: Vec<String>,
    groups: Option<String>,
}

impl Oracle {
    /// Makes one that looks at nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at a directory: every name below it, mounts on it, and processes that have to do with it.
    ///
    /// A process has to do with it if its directory, program, arguments, environment, control group or an open file names it.
    #[must_use]
    pub fn root(mut self, path: impl Into<PathBuf>) -> Self {
        self.roots.push(path.into());
        self
    }

    /// Looks at a git repository: work tree by content, worktrees, refs, locks, configuration and hooks.
    #[must_use]
    pub fn repository(mut self, path: impl Into<PathBuf>) -> Self {
        self.repositories.push(path.into());
        self
    }

    /// Looks at processes whose arguments, environment or control group hold these words, such as an install id.
    #[must_use]
    pub fn mark(mut self, mark: impl Into<String>) -> Self {
        self.marks.push(mark.into());
        self
    }

    /// Looks at control groups anywhere whose names begin so, such as `groundcrew-`.
    #[must_use]
    pub fn control_groups(mut self, prefix: impl Into<String>) -> Self {
        self.groups = Some(prefix.into());
        self
    }

    /// Looks at everything once; blocks while it does.
    ///
    /// # Errors
    ///
    /// What cannot be looked at is an error: a snapshot with holes would prove nothing.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let mut snapshot = Snapshot::default();
        for root in &self.roots {
            files::names(root, &mut snapshot)?;
        }
        for repository in &self.repositories {
            git::look(repository, &mut snapshot)?;
        }
        processes::look(&self.wanted(), &mut snapshot)?;
        let places: Vec<&Path> = self.roots.iter().map(PathBuf::as_path).collect();
        kernel::mounts(&places, &mut snapshot)?;
        if let Some(prefix) = &self.groups {
            kernel::control_groups(prefix, &mut snapshot)?;
        }
        Ok(snapshot)
    }

    /// Looks again and again until everything is as before, for things that end a moment later.
    ///
    /// # Errors
    ///
    /// `TimedOut` with what is left when `within` has passed; that of a snapshot.
    pub async fn until_as_before(
        &self,
        before: &Snapshot,
        allowed: &Allowed,
        within: Duration,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + within;
        let mut pause = Duration::from_millis(5);
        loop {
            let left = before.difference(&self.snapshot()?, allowed);
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(
                    Error::new(ErrorKind::TimedOut, "the system is not as it was before")
                        .with("difference", left),
                );
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    /// Returns the words that make a process ours.
    fn wanted(&self) -> processes::Wanted {
        processes::Wanted {
            paths: self.roots.clone(),
            marks: self.marks.clone(),
        }
    }
}

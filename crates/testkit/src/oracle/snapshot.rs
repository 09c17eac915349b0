//! What was seen, and what differs between two looks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
};

/// What kind of thing was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A name below a root.
    Path,
    /// A file of a repository's own work tree, with its content.
    Checkout,
    /// A worktree as git lists it.
    Worktree,
    /// An entry of a repository's `worktrees` directory.
    WorktreeEntry,
    /// A ref with its object id; also `HEAD`.
    Ref,
    /// The log of a ref.
    Reflog,
    /// A lock file in a repository.
    Lock,
    /// A configuration file of a repository, with its content.
    Config,
    /// A setting of a branch in a repository's configuration.
    BranchSetting,
    /// A hook, with its content; also the `info` files.
    Hook,
    /// A process.
    Process,
    /// A mount.
    Mount,
    /// A control group.
    ControlGroup,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Path => "path",
            Self::Checkout => "checkout",
            Self::Worktree => "worktree",
            Self::WorktreeEntry => "worktree entry",
            Self::Ref => "ref",
            Self::Reflog => "reflog",
            Self::Lock => "lock",
            Self::Config => "config",
            Self::BranchSetting => "branch setting",
            Self::Hook => "hook",
            Self::Process => "process",
            Self::Mount => "mount",
            Self::ControlGroup => "control group",
        })
    }
}

/// Everything that was seen in one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<(Kind, String), String>);

impl Snapshot {
    /// Notes one thing.
    pub(super) fn see(&mut self, kind: Kind, name: impl Into<String>, what: impl Into<String>) {
        self.0.insert((kind, name.into()), what.into());
    }

    /// Returns the names of everything of one kind.
    pub fn names(&self, kind: Kind) -> Vec<&str> {
        let ours = self.0.keys().filter(|(k, _)| *k == kind);
        ours.map(|(_, name)| name.as_str()).collect()
    }

    /// Compares with a later look.
    pub fn difference(&self, after: &Self, allowed: &Allowed) -> Difference {
        let keys: BTreeSet<_> = self.0.keys().chain(after.0.keys()).collect();
        let changes = keys
            .into_iter()
            .filter(|(kind, name)| !allowed.covers(*kind, name))
            .filter_map(|key| {
                let (before, after) = (self.0.get(key), after.0.get(key));
                (before != after).then(|| Change {
                    kind: key.0,
                    name: key.1.clone(),
                    before: before.cloned(),
                    after: after.cloned(),
                })
            });
        Difference(changes.collect())
    }
}

/// One thing that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// What kind of thing.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// What it was, if it was there.
    pub before: Option<String>,
    /// What it is, if it is there.
    pub after: Option<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match (&self.before, &self.after) {
            (None, _) => '+',
            (Some(_), None) => '-',
            (Some(_), Some(_)) => '~',
        };
        write!(f, "{sign} {} {}", self.kind, self.name)?;
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => write!(f, ": {before:?} → {after:?}"),
            (None, Some(what)) | (Some(what), None) if !what.is_empty() => write!(f, ": {what:?}"),
            _ => Ok(()),
        }
    }
}

/// Everything that is not as it was, one line each: `+` is new, `-` is gone, `~` changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference(pub Vec<Change>);

impl Difference {
    /// Returns whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, change) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{change}")?;
        }
        Ok(())
    }
}

/// What may differ.
#[derive(Clone, Debug, Default)]
pub struct Allowed(Vec<Rule>);

#[derive(Clone, Debug)]
enum Rule {
    Exactly(Kind, String),
    Below(String),
    Kind(Kind),
}

impl Allowed {
    /// Allows no difference.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Allows a path, and everything below it or whose name goes on from it with `-`, as journals of databases do.
    #[must_use]
    pub fn path(mut self, path: impl AsRef<Path>) -> Self {
        self.0.push(Rule::Below(text(path.as_ref())));
        self
    }

    /// Allows a branch, by the name without `refs/heads/`: its ref and its log.
    #[must_use]
    pub fn branch(mut self, repository: impl AsRef<Path>, branch: &str) -> Self {
        let name = in_repository(repository.as_ref(), &format!("refs/heads/{branch}"));
        self.0.push(Rule::Exactly(Kind::Ref, name.clone()));
        self.0.push(Rule::Exactly(Kind::Reflog, name));
        self
    }

    /// Allows a ref, by its full name.
    #[must_use]
    pub fn reference(mut self, repository: impl AsRef<Path>, name: &str) -> Self {
        let name = in_repository(repository.as_ref(), name);
        self.0.push(Rule::Exactly(Kind::Ref, name.clone()));
        self.0.push(Rule::Exactly(Kind::Reflog, name));
        self
    }

    /// Allows everything of one kind.
    #[must_use]
    pub fn kind(mut self, kind: Kind) -> Self {
        self.0.push(Rule::Kind(kind));
        self
    }

    fn covers(&self, kind: Kind, name: &str) -> bool {
        self.0.iter().any(|rule| match rule {
            Rule::Exactly(allowed, exact) => *allowed == kind && exact == name,
            Rule::Kind(allowed) => *allowed == kind,
            Rule::Below(path) => {
                matches!(kind, Kind::Path | Kind::Checkout)
                    && name
                        .strip_prefix(path.as_str())
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '-']))
            }
        })
    }
}

/// Writes a path so that it can be read and no two paths look the same.
pub(super) fn text(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.escape_ascii().to_string()
}

/// Names something in a repository.
pub(super) fn in_repository(repository: &Path, name: &str) -> String {
    format!("{} {name}", text(repository))
}

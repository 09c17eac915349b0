//! What a launch makes of repositories, as data that another process can undo it by.

use std::path::{Path, PathBuf};

use git2::Oid;
use groundcrew_core::{
    error::{Error, ErrorKind},
    id::{AttemptId, InstallId, RunId},
    undo::UndoRecord,
    wire,
};
use serde::{Deserialize, Serialize};

use crate::{
    files::{
        id::FileId,
        marker::{self, Layout, Marker},
        origin::Origin,
        trash::Owner,
    },
    git::{admin, branch::Branch},
    naming,
};

/// The version of what is written here.
const VERSION: u32 = 1;

/// Which of the things it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// The directory of the run, with the marker.
    Directory,
    /// A work tree in it, and its entry in the repository.
    Worktree,
    /// A private clone in it.
    Clone,
    /// A branch.
    Branch,
    /// The ref of ours that holds a start point in the repository.
    Base,
}

impl Kind {
    /// The beginning of the key of its record.
    const fn key(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Worktree => "worktree",
            Self::Clone => "clone",
            Self::Branch => "branch",
            Self::Base => "base",
        }
    }
}

/// What a launch makes of one repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// The how manyeth of the workspace it is, from 0.
    #[serde(default)]
    pub(crate) index: usize,
    /// The work tree in the directory of the run.
    #[serde(with = "wire::path")]
    pub(crate) tree: PathBuf,
    /// The common git directory of the repository.
    #[serde(with = "wire::path")]
    pub(crate) common: PathBuf,
    /// Which directory that was.
    pub(crate) common_id: FileId,
    /// The branch, without `refs/heads/`.
    pub(crate) branch: String,
    /// Whether the branch's name was made from the run's random id.
    pub(crate) unique_branch: bool,
    /// The commit that the branch starts from.
    #[serde(with = "oid")]
    pub(crate) base: Oid,
}

impl Part {
    /// Ends a name, so that the parts of one workspace have different ones; the only one has the plain name.
    fn numbered(&self, name: &str, gap: char) -> String {
        if self.index == 0 {
            name.to_owned()
        } else {
            format!("{name}{gap}{}", self.index + 1)
        }
    }

    /// The key of the record of one of its things; the directory is the workspace's.
    pub(crate) fn key(&self, kind: Kind) -> String {
        self.numbered(kind.key(), '-')
    }

    /// The name of a checkpoint behind one of its effects.
    pub(crate) fn checkpoint(&self, name: &str) -> String {
        self.numbered(name, '-')
    }
}

/// One thing that a launch makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Resource {
    version: u32,
    /// Which one.
    pub(crate) kind: Kind,
    /// The installation.
    pub(crate) install: InstallId,
    /// The run.
    pub(crate) run: RunId,
    /// The attempt.
    pub(crate) attempt: AttemptId,
    /// The directory of the run.
    #[serde(with = "wire::path")]
    pub(crate) directory: PathBuf,
    /// The repository's part.
    #[serde(flatten)]
    pub(crate) part: Part,
    /// The other parts of the workspace: it is kept whole.
    #[serde(default)]
    pub(crate) others: Vec<Part>,
}

/// What a plan decides.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) install: InstallId,
    pub(crate) run: RunId,
    pub(crate) attempt: AttemptId,
    pub(crate) directory: PathBuf,
    pub(crate) parts: Vec<Part>,
}

impl Resource {
    /// Makes one of the things of a part of a plan.
    pub(crate) fn new(kind: Kind, planned: &Planned, part: &Part) -> Self {
        let others = planned
            .parts
            .iter()
            .filter(|other| other.index != part.index);
        Self {
            version: VERSION,
            kind,
            install: planned.install.clone(),
            run: planned.run.clone(),
            attempt: planned.attempt,
            directory: planned.directory.clone(),
            part: part.clone(),
            others: others.cloned().collect(),
        }
    }

    /// Reads the one of a record.
    ///
    /// # Errors
    ///
    /// `Corrupt` when it is not one of ours, of an unknown version, or names another attempt than the record.
    pub(crate) fn of(record: &UndoRecord) -> Result<Self, Error> {
        Self::read(&record.resource, &record.key, record.attempt)
    }

    /// Reads one, of that attempt.
    pub(crate) fn read(text: &str, key: &str, attempt: AttemptId) -> Result<Self, Error> {
        let wrong = |why: String| {
            Error::new(
                ErrorKind::Corrupt,
                "an undo record of a worktree cannot be understood",
            )
            .with("key", key)
            .with_source(why)
        };
        let resource: Self =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if resource.version != VERSION {
            return Err(wrong(format!("version {}", resource.version)));
        }
        if resource.attempt != attempt {
            return Err(wrong(format!("it is of attempt {}", resource.attempt)));
        }
        Ok(resource)
    }

    /// The same thing of another part.
    pub(crate) fn of_other(&self, part: &Part) -> Self {
        let mut others: Vec<_> = self
            .others
            .iter()
            .filter(|other| other.index != part.index)
            .cloned()
            .collect();
        others.push(self.part.clone());
        Self {
            part: part.clone(),
            others,
            ..self.clone()
        }
    }

    /// The key of its record.
    pub(crate) fn key(&self) -> String {
        self.part.key(self.kind)
    }

    /// The work trees of the workspace.
    pub(crate) fn trees(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.part)
            .chain(&self.others)
            .map(|part| &*part.tree)
    }

    /// The directory that processes of the run work in: with several repositories it is the one above them all.
    pub(crate) fn root(&self) -> &Path {
        if self.others.is_empty() {
            &self.part.tree
        } else {
            &self.directory
        }
    }

    /// The reason of the lock of its worktree.
    pub(crate) fn reason(&self) -> String {
        self.part
            .numbered(&admin::lock_reason(&self.install, &self.attempt), '/')
    }

    /// What the log of its branch begins with.
    pub(crate) fn mark(&self) -> String {
        format!("groundcrew:{}", self.attempt)
    }

    /// The ref of ours that holds its start point.
    pub(crate) fn base_ref(&self) -> String {
        let run = naming::ref_part(self.run.as_str());
        self.part
            .numbered(&format!("refs/groundcrew/base/{run}"), '-')
    }

    /// Its branch.
    pub(crate) fn branch<'a>(&'a self, mark: &'a str) -> Branch<'a> {
        Branch {
            common: &self.part.common,
            name: &self.part.branch,
            base: self.part.base,
            mark,
            unique: self.part.unique_branch,
        }
    }

    /// Returns what the marker of the run's directory says; the task and its tenant are the caller's to add.
    pub(crate) fn marker(&self, layout: Layout, ready: bool) -> Marker {
        Marker {
            layout,
            directory: self
                .directory
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            task: None,
            tenant: None,
            run: self.run.clone(),
            install: self.install.clone(),
            attempt: self.attempt,
            created_ms: marker::now_ms(),
            ready,
        }
    }

    /// What is noted of it when it goes to the trash.
    pub(crate) fn origin(&self, id: FileId) -> Origin {
        let path = match self.kind {
            Kind::Worktree | Kind::Clone => &self.part.tree,
            Kind::Directory | Kind::Branch | Kind::Base => &self.directory,
        };
        Origin {
            key: self.key(),
            kind: self.kind.key().to_owned(),
            path: path.clone(),
            repository: Some(self.part.common.clone()),
            branch: Some(self.part.branch.clone()),
            base: Some(self.part.base.to_string()),
            // It was read from such text, so it can be written.
            resource: serde_json::to_string(self).unwrap_or_default(),
            ..Origin::new(&self.run, self.attempt, &self.install, id)
        }
    }

    /// Who it is in the trash.
    pub(crate) fn owner(&self) -> Owner {
        Owner {
            attempt: self.attempt,
            key: self.key(),
        }
    }
}

mod oid {
    use git2::Oid;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(id: &Oid, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Oid, D::Error> {
        let text = String::deserialize(deserializer)?;
        Oid::from_str(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_one_repository_are_understood_as_they_were_written() {
        let attempt = AttemptId::generate().unwrap();
        let json = format!(
            r#"{{"version":1,"kind":"worktree","install":"i","run":"r","attempt":"{attempt}","directory":"/d","tree":"/d/t","common":"/r/.git","common_id":{{"device":1,"inode":18446744073709551615}},"branch":"b","unique_branch":true,"base":"{}"}}"#,
            "1".repeat(40)
        );
        let resource: Resource = serde_json::from_str(&json).unwrap();
        assert_eq!((&*resource.key(), resource.part.index), ("worktree", 0));
        assert_eq!(resource.part.common_id.inode, u64::MAX);
        assert_eq!(resource.reason(), format!("groundcrew:i/{attempt}"));
        assert!(resource.others.is_empty());
        let again = serde_json::to_string(&resource).unwrap();
        assert_eq!(serde_json::from_str::<Resource>(&again).unwrap(), resource);
    }
}

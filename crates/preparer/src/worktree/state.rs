//! What making needs of a plan.

use std::{ffi::OsString, time::Duration};

use groundcrew_core::{
    error::{Error, ErrorKind},
    wire::{self, OsText},
    workspace::CloneObjects,
};
use serde::{Deserialize, Serialize};

use super::resource::Resource;
use crate::git::remote::Located;

/// What is to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct State {
    /// Whether private clones are made, and where their objects are.
    pub(super) clones: Option<CloneObjects>,
    /// One for each repository.
    pub(super) parts: Vec<PartState>,
}

/// What is to be made of one repository.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PartState {
    /// The work tree, or the clone.
    pub(super) tree: Resource,
    /// The user's settings for writing files.
    pub(super) settings: Vec<(OsText, OsText)>,
    /// From where the start point must be fetched, if it is not there.
    pub(super) fetch: Option<FetchState>,
    /// What is written in the configuration of a clone.
    pub(super) configuration: Vec<(String, OsText)>,
    /// Where the remote `origin` of a clone points.
    #[serde(with = "wire::path")]
    pub(super) place: std::path::PathBuf,
    /// The patterns of files that are taken along from that place, if it is a work tree.
    #[serde(default)]
    pub(super) include: Vec<String>,
    /// The branch that a clone shows as its origin's.
    pub(super) upstream: Option<String>,
    /// The submodules that are filled.
    #[serde(default)]
    pub(super) submodules: Option<ModulesState>,
    /// The program that writes files of git-lfs, if they are wanted.
    #[serde(default)]
    pub(super) lfs: Option<OsText>,
}

/// Which submodules are filled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ModulesState {
    /// Whether those of submodules are filled as well.
    pub(super) all: bool,
    /// What an address that is relative begins at.
    pub(super) url: OsText,
}

/// Where a start point is on a remote.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FetchState {
    remote: String,
    url: OsText,
    name: String,
    #[serde(with = "wire::millis")]
    limit: Duration,
}

impl State {
    /// Reads the one of a contribution.
    ///
    /// # Errors
    ///
    /// `Corrupt` when it is none.
    pub(super) fn read(text: &str) -> Result<Self, Error> {
        serde_json::from_str(text).map_err(|error| {
            Error::new(
                ErrorKind::Corrupt,
                "the plan of a worktree cannot be understood",
            )
            .with_source(error)
        })
    }
}

impl PartState {
    /// The settings, as git gets them.
    pub(super) fn settings(&self) -> Vec<(OsString, OsString)> {
        self.settings
            .iter()
            .map(|(key, value)| (key.0.clone(), value.0.clone()))
            .collect()
    }
}

impl From<&Located> for FetchState {
    fn from(located: &Located) -> Self {
        Self {
            remote: located.remote.clone(),
            url: OsText(located.url.clone()),
            name: located.name.clone(),
            limit: located.limit,
        }
    }
}

impl FetchState {
    /// Where `base` is.
    pub(super) fn located(&self, base: git2::Oid) -> Located {
        Located {
            remote: self.remote.clone(),
            url: self.url.0.clone(),
            name: self.name.clone(),
            id: base,
            limit: self.limit,
        }
    }
}

//! A task's directory, as data.

use std::path::PathBuf;

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::{AttemptId, RunId, TaskId, TenantId},
    wire,
};
use serde::{Deserialize, Serialize};

use crate::files::trash::Owner;

/// The key of the record of a task's directory.
pub(super) const KEY: &str = "scratch";

/// A task's directory, as data that another process can undo it by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Resource {
    pub(super) version: u32,
    pub(super) run: RunId,
    pub(super) attempt: AttemptId,
    pub(super) tenant: TenantId,
    pub(super) task: TaskId,
    #[serde(with = "wire::path")]
    pub(super) path: PathBuf,
}

impl Resource {
    pub(super) fn read(text: &str) -> Result<Self, Error> {
        let wrong = |why: String| {
            Error::new(
                ErrorKind::Corrupt,
                "a record of a task's directory cannot be understood",
            )
            .with_source(why)
        };
        let resource: Self =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if resource.version == 1 {
            Ok(resource)
        } else {
            Err(wrong(format!("version {}", resource.version)))
        }
    }

    pub(super) fn owner(&self) -> Owner {
        Owner {
            attempt: self.attempt,
            key: KEY.to_owned(),
        }
    }

    pub(super) fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

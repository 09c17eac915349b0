//! The note of who made an instance; never seen inside of it.

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::{InstallId, InstanceId},
};
use serde::{Deserialize, Serialize};

use crate::options::Control;

const VERSION: u32 = 1;

/// Who made an instance, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    version: u32,
    pub(crate) install: InstallId,
    pub(crate) instance: InstanceId,
    /// Whether the supervisor is reached by a bridge in the container.
    pub(crate) exec: bool,
}

impl Owner {
    pub(crate) fn new(install: &InstallId, instance: &InstanceId, control: Control) -> Self {
        Self {
            version: VERSION,
            install: install.clone(),
            instance: instance.clone(),
            exec: control == Control::Exec,
        }
    }

    /// Reads the note.
    ///
    /// # Errors
    ///
    /// `Corrupt` for what is none, or of another version.
    pub(crate) fn read(text: &[u8]) -> Result<Self, Error> {
        let corrupt = || {
            Error::new(
                ErrorKind::Corrupt,
                "what tells who owns a container cannot be understood",
            )
        };
        let owner: Self = serde_json::from_slice(text).map_err(|e| corrupt().with_source(e))?;
        if owner.version == VERSION {
            Ok(owner)
        } else {
            Err(corrupt().with("version", owner.version))
        }
    }
}

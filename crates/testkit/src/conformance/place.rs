//! The piece of the machine that one case has for itself.

use std::path::{Path, PathBuf};

use groundcrew_core::{error::Error, id::InstallId};
use tempfile::TempDir;

/// Where an executor under test keeps what it has, and for which installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ground {
    directory: PathBuf,
    install: InstallId,
}

impl Ground {
    pub(super) fn new(directory: PathBuf, install: InstallId) -> Self {
        Self { directory, install }
    }

    /// Returns the directory below which everything of the executor lies; what it keeps on purpose goes to `logs` in it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the installation that the executor acts for.
    pub fn install(&self) -> &InstallId {
        &self.install
    }

    /// Returns the directory of the host that instances are given as their workspace; it exists.
    pub fn workspace(&self) -> PathBuf {
        self.directory.join("workspace")
    }

    /// Returns the same place for another installation.
    pub(super) fn of_another(&self) -> Result<Self, Error> {
        Ok(Self::new(self.directory.clone(), InstallId::generate()?))
    }
}

/// A ground that is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Land {
    ground: Ground,
    _directory: TempDir,
}

impl Land {
    pub(super) fn new() -> Result<Self, Error> {
        let failed = |e| Error::io("failed to make a directory for a case", e);
        let directory = tempfile::Builder::new()
            .prefix("conformance-")
            .tempdir()
            .map_err(failed)?;
        let path = directory.path().canonicalize().map_err(failed)?;
        let ground = Ground::new(path, InstallId::generate()?);
        std::fs::create_dir(ground.workspace()).map_err(failed)?;
        Ok(Self {
            ground,
            _directory: directory,
        })
    }

    pub(super) fn ground(&self) -> &Ground {
        &self.ground
    }
}

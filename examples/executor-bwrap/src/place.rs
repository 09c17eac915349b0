//! The directory of an instance: whose it is, and how it is made, found and removed.
//!
//! ```text
//! <directory>/instances/<id>/owner      the installation; never seen inside
//! <directory>/instances/<id>/control/   seen inside: start file, control socket, private files
//! <directory>/logs/<id>/                seen inside, and kept
//! ```

use std::{
    fs::{DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::{InstallId, InstanceId},
    identity::Identity,
};

const OWNER: &str = "owner";
const CONTROL: &str = "control";

/// What the name of a directory begins with that is being removed; no id begins so.
const TRASH: &str = ".trash-";

/// Where an instance is, whether or not anything is there.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    directory: PathBuf,
    trash: PathBuf,
    logs: PathBuf,
}

fn failed(message: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.display().to_string();
    move |e| Error::io(message, e).with("path", path)
}

/// Takes "there is none" for an answer.
fn optional<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

impl Place {
    pub(crate) fn of(root: &Path, id: &InstanceId) -> Self {
        let instances = root.join("instances");
        Self {
            directory: instances.join(id.as_str()),
            trash: instances.join(format!("{TRASH}{id}")),
            logs: root.join("logs").join(id.as_str()),
        }
    }

    pub(crate) fn logs(&self) -> &Path {
        &self.logs
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.directory.join(CONTROL)
    }

    /// Where the program of the supervisor is seen inside.
    pub(crate) fn program(&self) -> PathBuf {
        self.control().join("groundcrew-supervisor")
    }

    /// Makes the directories; a name that is taken, also by what is being removed, is left alone.
    pub(crate) fn create(&self, install: &InstallId) -> Result<(), Error> {
        let failed = || {
            failed(
                "failed to make the directory of an instance",
                &self.directory,
            )
        };
        let taken = || Error::new(ErrorKind::AlreadyExists, "an instance of this name exists");
        make(self.directory.parent().unwrap_or(&self.directory)).map_err(failed())?;
        if optional(std::fs::symlink_metadata(&self.trash))
            .map_err(failed())?
            .is_some()
        {
            return Err(taken());
        }
        match DirBuilder::new().mode(0o700).create(&self.directory) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(taken()),
            made => made.map_err(failed())?,
        }
        std::fs::write(self.directory.join(OWNER), install.as_str()).map_err(failed())?;
        make(&self.control()).map_err(failed())?;
        make(&self.logs).map_err(failed())?;
        File::create(self.program()).map(drop).map_err(failed())
    }

    /// Returns which one is there, or what is left of it; none if certainly none is.
    pub(crate) fn identity(&self) -> Result<Option<Identity>, Error> {
        for path in [&self.directory, &self.trash] {
            let found = optional(std::fs::symlink_metadata(path))
                .map_err(failed("failed to look at an instance", path))?;
            if let Some(found) = found {
                return Ok(Some(Identity(format!("{}:{}", found.dev(), found.ino()))));
            }
        }
        Ok(None)
    }

    /// Tells whether it may be touched: one without an owner was cut short while it was made or removed.
    pub(crate) fn is_of(&self, install: &InstallId) -> Result<bool, Error> {
        for path in [&self.directory, &self.trash] {
            let owner = optional(std::fs::read(path.join(OWNER)))
                .map_err(failed("failed to read whose an instance is", path))?;
            if let Some(owner) = owner {
                return Ok(owner.is_empty() || owner == install.as_str().as_bytes());
            }
        }
        Ok(true)
    }

    /// Removes the directory; its owner goes last. The logs stay.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        let failed = || failed("failed to remove the directory of an instance", &self.trash);
        // Under its own name nobody finds half of one.
        optional(std::fs::rename(&self.directory, &self.trash)).map_err(failed())?;
        optional(std::fs::remove_dir_all(self.trash.join(CONTROL))).map_err(failed())?;
        optional(std::fs::remove_dir_all(&self.trash)).map_err(failed())?;
        Ok(())
    }
}

/// Lists the ids of everything that is there.
pub(crate) fn list(root: &Path) -> Result<Vec<InstanceId>, Error> {
    let instances = root.join("instances");
    let failed = || failed("failed to list the instances", &instances);
    let Some(entries) = optional(std::fs::read_dir(&instances)).map_err(failed())? else {
        return Ok(Vec::new());
    };
    let mut ids = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed())?.file_name();
        let name = name.to_string_lossy();
        ids.extend(InstanceId::new(name.strip_prefix(TRASH).unwrap_or(&name)));
    }
    ids.sort();
    ids.dedup();
    Ok(ids)
}

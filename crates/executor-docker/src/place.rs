//! The host's side of a container: a directory for each instance, of which the container sees only one part.
//!
//! ```text
//! <containers>/<id>/owner.json   ours: who made it; never seen inside
//! <containers>/<id>/creating     ours: the engine was asked to make it, and has not answered yet
//! <containers>/<id>/away         ours: what of it lies in volumes of the engine; see `away`
//! <containers>/<id>/left         ours: what is in the volume of the workspace may be new
//! <containers>/<id>/logged       ours: the logs are back on this host
//! <containers>/<id>/image-volumes ours: there may be volumes that the image wants
//! <containers>/<id>/control/     seen inside as /.groundcrew/control: start file, control socket, private files
//! <logs>/<id>/                   seen inside as /.groundcrew/logs
//! ```
//!
//! What is in `control` and in the logs may be written by anybody inside; nothing there is believed, and no link followed.
//!
//! A removal first gives the directory another name: a container whose creation the engine still has before it is then
//! refused, because what it mounts is not there any more.

use std::{
    ffi::OsString,
    fs::{DirBuilder, File},
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{ffi::OsStringExt as _, fs::DirBuilderExt as _},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::{InstallId, InstanceId},
};
use groundcrew_supervisor::START_FILE;
use rustix::{
    fs::{AtFlags, CWD, Dir, Gid, Mode, OFlags, RenameFlags, Uid},
    io::Errno,
};
use tokio::time::Instant;

use crate::{owner::Owner, tree};

/// The part of the directory that the container sees.
pub(crate) const CONTROL: &str = "control";

const OWNER: &str = "owner.json";
const CREATING: &str = "creating";
/// Written down when the image wants volumes.
pub(crate) const VOLUMES: &str = "image-volumes";

/// What the name of a directory begins with that is being removed; no id begins so.
const TRASH: &str = ".trash-";

const OPEN_DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::RDONLY)
    .union(OFlags::CLOEXEC);

/// The directory that holds those of all instances.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    path: PathBuf,
}

/// The directory of one instance, held open.
#[derive(Debug)]
pub(crate) struct Place {
    root: OwnedFd,
    directory: OwnedFd,
    path: PathBuf,
    pub(crate) trashed: bool,
    /// None while it is made or removed.
    pub(crate) owner: Option<Owner>,
}

fn failed<'a>(message: &'static str, path: &'a Path) -> impl FnOnce(Errno) -> Error + use<'a> {
    move |errno| Error::io(message, errno.into()).with("path", path.display())
}

/// Returns how long this machine is up: the clock that all controllers share, and that nobody sets.
fn uptime() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or_default(),
        u32::try_from(now.tv_nsec).unwrap_or_default(),
    )
}

fn trash_name(id: &InstanceId) -> String {
    format!("{TRASH}{id}")
}

impl Root {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it; none if there certainly is none.
    fn open(&self) -> Result<Option<OwnedFd>, Error> {
        match rustix::fs::openat(CWD, &self.path, OPEN_DIRECTORY, Mode::empty()) {
            Ok(root) => Ok(Some(root)),
            Err(Errno::NOENT) if self.path.parent().is_some_and(Path::is_dir) => Ok(None),
            Err(errno) => Err(failed(
                "failed to open the directory of containers",
                &self.path,
            )(errno)),
        }
    }

    /// Makes the directory of a new instance.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` when the name is taken, also by one that is being removed; what has it is left alone.
    pub(crate) fn create(&self, owner: &Owner) -> Result<Place, Error> {
        let id = &owner.instance;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)
            .map_err(|e| {
                Error::io("failed to make the directory of containers", e)
                    .with("path", self.path.display())
            })?;
        let root = rustix::fs::openat(CWD, &self.path, OPEN_DIRECTORY, Mode::empty()).map_err(
            failed("failed to open the directory of containers", &self.path),
        )?;
        let path = self.path.join(id.as_str());
        let taken = || {
            Error::new(ErrorKind::AlreadyExists, "an instance of this name exists")
                .with("instance", id)
        };
        match rustix::fs::statat(&root, trash_name(id), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Ok(_) => return Err(taken()),
            Err(errno) => return Err(failed("failed to look at an instance", &path)(errno)),
        }
        match rustix::fs::mkdirat(&root, id.as_str(), Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(taken()),
            Err(errno) => {
                return Err(failed("failed to make the directory of a container", &path)(errno));
            }
        }
        let directory = rustix::fs::openat(&root, id.as_str(), OPEN_DIRECTORY, Mode::empty())
            .map_err(failed("failed to open the directory of a container", &path))?;
        let place = Place {
            root,
            directory,
            path,
            trashed: false,
            owner: Some(owner.clone()),
        };
        let text = serde_json::to_vec(owner).map_err(|e| {
            Error::new(
                ErrorKind::Unexpected,
                "failed to write who owns a container",
            )
            .with_source(e)
        })?;
        place.write(OWNER, &text)?;
        Ok(place)
    }

    /// Finds an instance, or what is left of it.
    pub(crate) fn find(&self, id: &InstanceId) -> Result<Option<Place>, Error> {
        for (name, trashed) in [(id.as_str().to_owned(), false), (trash_name(id), true)] {
            let Some(root) = self.open()? else {
                return Ok(None);
            };
            let path = self.path.join(&name);
            let directory = match rustix::fs::openat(&root, &name, OPEN_DIRECTORY, Mode::empty()) {
                Ok(directory) => directory,
                Err(Errno::NOENT) => continue,
                Err(errno) => {
                    return Err(
                        failed("failed to open the directory of a container", &path)(errno),
                    );
                }
            };
            let mut place = Place {
                root,
                directory,
                path,
                trashed,
                owner: None,
            };
            place.owner = place.read_owner()?;
            return Ok(Some(place));
        }
        Ok(None)
    }

    /// Lists the instances that have a directory and are not certainly another installation's.
    pub(crate) fn list_of(&self, install: &InstallId) -> Result<Vec<InstanceId>, Error> {
        let mut ids = self.list()?;
        let mut failed = None;
        ids.retain(|id| match self.find(id) {
            Ok(Some(place)) => place.check_owner(id, install).is_ok(),
            // Removed meanwhile.
            Ok(None) => false,
            // Whose it is cannot be read: it is not forgotten for that.
            Err(error) if error.kind() == ErrorKind::Corrupt => true,
            Err(error) => {
                failed = Some(error);
                false
            }
        });
        failed.map_or(Ok(ids), Err)
    }

    /// Lists the instances that have a directory, with those that are only partly there, whosever they are.
    pub(crate) fn list(&self) -> Result<Vec<InstanceId>, Error> {
        let Some(root) = self.open()? else {
            return Ok(Vec::new());
        };
        let fail = || failed("failed to list the directories of containers", &self.path);
        let mut ids = Vec::new();
        for entry in Dir::read_from(&root).map_err(fail())? {
            let entry = entry.map_err(fail())?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            let Some(name) = name.to_str() else { continue };
            if let Ok(id) = InstanceId::new(name.strip_prefix(TRASH).unwrap_or(name)) {
                ids.push(id);
            }
        }
        ids.sort();
        ids.dedup();
        Ok(ids)
    }
}

impl Place {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Tells whether it may be touched; else why not.
    pub(crate) fn check_owner(&self, id: &InstanceId, install: &InstallId) -> Result<(), String> {
        match &self.owner {
            Some(owner) if owner.install != *install || owner.instance != *id => Err(format!(
                "it is instance {} of installation {}",
                owner.instance, owner.install
            )),
            // One without a word about its owner was cut short while it was made or removed.
            _ => Ok(()),
        }
    }

    fn read_owner(&self) -> Result<Option<Owner>, Error> {
        let Some(text) = self.read(OWNER)? else {
            return Ok(None);
        };
        if text.is_empty() {
            return Ok(None);
        }
        Owner::read(&text)
            .map(Some)
            .map_err(|why| why.with("path", self.path.join(OWNER).display()))
    }

    fn write(&self, name: &str, text: &[u8]) -> Result<(), Error> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(io::Error::from)
            .and_then(|file| File::from(file).write_all(text))
            .map_err(|e| {
                Error::io("failed to write a file of a container", e)
                    .with("path", self.path.join(name).display())
            })
    }

    /// Makes the part that the container sees, for its user; returns it open.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` when this user may not give it to that one.
    pub(crate) fn create_control(&self, user: (u32, u32)) -> Result<OwnedFd, Error> {
        let path = self.path.join(CONTROL);
        rustix::fs::mkdirat(&self.directory, CONTROL, Mode::RWXU)
            .map_err(failed("failed to make the control directory", &path))?;
        let control = rustix::fs::openat(&self.directory, CONTROL, OPEN_DIRECTORY, Mode::empty())
            .map_err(failed("failed to open the control directory", &path))?;
        give(&control, user)?;
        Ok(control)
    }

    /// Opens the part that the container sees; none if it was not made or is gone.
    pub(crate) fn control(&self) -> Result<Option<OwnedFd>, Error> {
        match rustix::fs::openat(&self.directory, CONTROL, OPEN_DIRECTORY, Mode::empty()) {
            Ok(control) => Ok(Some(control)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("failed to open the control directory", &self.path)(
                errno,
            )),
        }
    }

    /// Writes down that the engine is about to be asked, and when.
    pub(crate) fn begin_creating(&self) -> Result<(), Error> {
        self.write(CREATING, uptime().as_nanos().to_string().as_bytes())
    }

    /// Writes down that its container has volumes which do not go with it.
    pub(crate) fn has_volumes(&self) -> Result<(), Error> {
        self.write(VOLUMES, b"")
    }

    /// Writes down that the engine has answered.
    pub(crate) fn done_creating(&self) -> Result<(), Error> {
        match rustix::fs::unlinkat(&self.directory, CREATING, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed(
                "failed to note that the engine answered",
                &self.path,
            )(errno)),
        }
    }

    /// Returns when the engine was asked for a container that it may still be about to make; none if it answered.
    ///
    /// What was written by somebody else's clock, or not to its end, counts as asked now.
    pub(crate) fn creating_since(&self) -> Result<Option<Instant>, Error> {
        let Some(text) = self.read(CREATING)? else {
            return Ok(None);
        };
        let asked = std::str::from_utf8(&text).ok();
        let asked = asked.and_then(|text| text.parse().ok());
        let ago = asked
            .map(Duration::from_nanos)
            .and_then(|asked| uptime().checked_sub(asked));
        let now = Instant::now();
        Ok(Some(
            ago.and_then(|ago| now.checked_sub(ago)).unwrap_or(now),
        ))
    }

    /// Whether something of that name was written down.
    pub(crate) fn has(&self, name: &str) -> Result<bool, Error> {
        match rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed(
                "failed to look at a container's directory",
                &self.path,
            )(errno)),
        }
    }

    /// Writes something down that outlives a loss of power, in place of what had its name.
    pub(crate) fn note(&self, name: &str, text: &[u8]) -> Result<(), Error> {
        let draft = format!("{name}.new");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW;
        rustix::fs::openat(
            &self.directory,
            &draft,
            flags | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        )
        .map_err(io::Error::from)
        .and_then(|file| {
            let mut file = File::from(file);
            file.write_all(text)?;
            file.sync_all()?;
            rustix::fs::renameat(&self.directory, &draft, &self.directory, name)?;
            Ok(rustix::fs::fsync(&self.directory)?)
        })
        .map_err(|e| {
            Error::io("failed to write a file of a container", e)
                .with("path", self.path.join(name).display())
        })
    }

    /// Reads what was written down; none if nothing was.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.directory, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => {
                return Err(failed("failed to read a file of a container", &self.path)(
                    errno,
                ));
            }
        };
        let mut text = Vec::new();
        File::from(file)
            .take(64 << 10)
            .read_to_end(&mut text)
            .map_err(|e| {
                Error::io("failed to read a file of a container", e)
                    .with("path", self.path.join(name).display())
            })?;
        Ok(Some(text))
    }

    /// Makes an empty directory in it, in place of one that was there.
    pub(crate) fn fresh_directory(&self, name: &str) -> Result<OwnedFd, Error> {
        let fail = || failed("failed to make a directory of a container", &self.path);
        fresh(&self.directory, name).map_err(fail())
    }

    /// Takes its name away: from now on the engine makes no container of it.
    pub(crate) fn set_aside(&mut self, id: &InstanceId) -> Result<(), Error> {
        if self.trashed {
            return Ok(());
        }
        let renamed = rustix::fs::renameat_with(
            &self.root,
            id.as_str(),
            &self.root,
            trash_name(id),
            RenameFlags::NOREPLACE,
        );
        match renamed {
            // Another removal set it aside just now, or is over already; it is gone on with what that one leaves.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => {
                let failed = failed(
                    "failed to set the directory of a container aside",
                    &self.path,
                );
                return Err(failed(errno));
            }
        }
        self.trashed = true;
        self.path = self.path.with_file_name(trash_name(id));
        Ok(())
    }

    /// Removes it, once it was set aside; who made it is forgotten last.
    pub(crate) fn remove(&self, id: &InstanceId) -> Result<(), Error> {
        let fail = |e| {
            Error::io("failed to remove the directory of a container", e)
                .with("path", self.path.display())
        };
        groundcrew_supervisor::remove_tree(self.directory.as_fd(), CONTROL).map_err(fail)?;
        groundcrew_supervisor::remove_tree(self.root.as_fd(), &trash_name(id)).map_err(fail)
    }
}

/// Makes an empty directory below another, in place of one that was there.
pub(crate) fn fresh(directory: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let open = || rustix::fs::openat(directory, name, OPEN_DIRECTORY, Mode::empty());
    match rustix::fs::mkdirat(directory, name, Mode::RWXU) {
        Ok(()) => open(),
        Err(Errno::EXIST) => {
            let there = open()?;
            tree::clear(&there)?;
            Ok(there)
        }
        Err(errno) => Err(errno),
    }
}

/// Gives a directory to the user of a container, if it is another than this one.
fn give(directory: &OwnedFd, (user, group): (u32, u32)) -> Result<(), Error> {
    let own = rustix::fs::fstat(directory)
        .map_err(|e| Error::io("failed to look at a directory of a container", e.into()))?;
    if (own.st_uid, own.st_gid) == (user, group) {
        return Ok(());
    }
    rustix::fs::fchown(
        directory,
        Some(Uid::from_raw(user)),
        Some(Gid::from_raw(group)),
    )
    .map_err(|e| {
        Error::new(
            ErrorKind::PermissionDenied,
            "only root may run a container as another user; leave --user out",
        )
        .with("user", user)
        .with("group", group)
        .with_source(io::Error::from(e))
    })
}

/// Gives the start file to the user of a container: its supervisor takes it.
pub(crate) fn give_start_file(control: &OwnedFd, user: (u32, u32)) -> Result<(), Error> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(control, START_FILE, flags, Mode::empty())
        .map_err(|e| Error::io("failed to open the start file", e.into()))?;
    give(&file, user)
}

/// Makes the directory of the logs, for the user of the container.
pub(crate) fn create_logs(logs: &Path, user: (u32, u32)) -> Result<(), Error> {
    let fail = |e: io::Error| {
        Error::io("failed to make the directory of the logs", e).with("path", logs.display())
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(logs)
        .map_err(fail)?;
    let directory =
        rustix::fs::openat(CWD, logs, OPEN_DIRECTORY, Mode::empty()).map_err(|e| fail(e.into()))?;
    give(&directory, user)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Control;

    #[test]
    fn f104_how_long_ago_the_engine_was_asked_is_told_by_a_clock_that_all_share() {
        let ground = tempfile::tempdir().unwrap();
        let root = Root::new(ground.path().join("containers"));
        let install = InstallId::generate().unwrap();
        let id = InstanceId::new("00112233445566778899aabbccddeeff").unwrap();
        let place = root
            .create(&Owner::new(&install, &id, Control::Socket))
            .unwrap();
        assert_eq!(place.creating_since().unwrap(), None);
        place.begin_creating().unwrap();
        let note = place.path().join(CREATING);
        let ago = || {
            let since = place.creating_since().unwrap().unwrap();
            Instant::now().duration_since(since).as_secs()
        };
        assert_eq!(ago(), 0);
        let asked = uptime().saturating_sub(Duration::from_secs(7));
        std::fs::write(&note, asked.as_nanos().to_string()).unwrap();
        assert_eq!(ago(), 7);
        // Of another boot, cut off, or nonsense.
        for text in [u64::MAX.to_string(), String::new(), "x".to_owned()] {
            std::fs::write(&note, text).unwrap();
            assert_eq!(ago(), 0);
        }
    }

    #[test]
    fn f104_a_place_that_is_set_aside_is_still_found_and_not_given_again() {
        let ground = tempfile::tempdir().unwrap();
        let root = Root::new(ground.path().join("containers"));
        assert!(root.list().unwrap().is_empty());
        let install = InstallId::generate().unwrap();
        let id = InstanceId::new("00112233445566778899aabbccddeeff").unwrap();
        let owner = Owner::new(&install, &id, Control::Socket);
        let mut place = root.create(&owner).unwrap();
        let user = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        place.create_control(user).unwrap();
        place.begin_creating().unwrap();
        assert_eq!(
            root.create(&owner).unwrap_err().kind(),
            ErrorKind::AlreadyExists
        );
        place.set_aside(&id).unwrap();
        assert_eq!(
            root.create(&owner).unwrap_err().kind(),
            ErrorKind::AlreadyExists
        );
        let found = root.find(&id).unwrap().unwrap();
        assert!(found.trashed && found.creating_since().unwrap().is_some());
        assert_eq!(found.owner, Some(owner));
        assert_eq!(root.list().unwrap(), std::slice::from_ref(&id));
        let other = InstallId::generate().unwrap();
        assert!(found.check_owner(&id, &other).is_err());
        assert_eq!(root.list_of(&install).unwrap(), std::slice::from_ref(&id));
        assert!(root.list_of(&other).unwrap().is_empty());
        // Another removal looked when the directory had its own name still.
        place.trashed = false;
        place.set_aside(&id).unwrap();
        found.remove(&id).unwrap();
        assert!(root.find(&id).unwrap().is_none());
        assert!(root.list().unwrap().is_empty());
    }
}

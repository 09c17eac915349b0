//! The directories of instances: how one is made, found, recognised and removed.
//!
//! Nothing here follows a link, and nothing is removed but the files that an instance is made of.

use std::{
    ffi::{OsStr, OsString},
    fs::{DirBuilder, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::{
            ffi::{OsStrExt as _, OsStringExt as _},
            fs::DirBuilderExt as _,
        },
    },
    path::{Path, PathBuf},
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::{InstallId, InstanceId},
    identity::Identity,
};
use groundcrew_supervisor::{
    CGROUP_FILE, SOCKET, START_FILE, START_FILE_DRAFT, SUPERVISOR_LOG, StartFile, remove_tree,
};
use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags, RenameFlags},
    io::Errno,
};

/// Everything that an instance's directory is made of; the start file goes last, its lock guards the rest.
const FILES: [&str; 5] = [
    SOCKET,
    CGROUP_FILE,
    SUPERVISOR_LOG,
    START_FILE_DRAFT,
    START_FILE,
];

/// The directory for what the run is handed in files.
pub(crate) const PRIVATE: &str = "private";

/// What the name of a directory begins with that is being removed; no id begins so.
const TRASH: &str = ".trash-";

const OPEN_DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::RDONLY)
    .union(OFlags::CLOEXEC);

/// The directory that holds the directories of all instances.
#[derive(Debug)]
pub(crate) struct Root {
    path: PathBuf,
}

/// What has the name of an instance.
#[derive(Debug)]
pub(crate) enum Found {
    /// Certainly nothing.
    Nothing,
    /// A directory.
    Directory(InstanceDirectory),
    /// Something that is no directory.
    Foreign(Identity),
}

/// The directory of one instance, held open.
#[derive(Debug)]
pub(crate) struct InstanceDirectory {
    root: OwnedFd,
    directory: OwnedFd,
    path: PathBuf,
    trashed: bool,
    device_and_inode: String,
    /// None if it has not got one, yet or any more.
    pub(crate) start: Option<Box<StartFile>>,
}

fn failed<'a>(message: &'static str, path: &'a Path) -> impl FnOnce(Errno) -> Error + use<'a> {
    move |errno| Error::io(message, errno.into()).with("path", path.display())
}

fn trash_name(id: &InstanceId) -> String {
    format!("{TRASH}{id}")
}

/// Tells which thing it is, by what cannot be copied.
fn device_and_inode(stat: &rustix::fs::Stat) -> String {
    format!("{}:{}", stat.st_dev, stat.st_ino)
}

impl Root {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it; none if there certainly is none, because the directory that would hold it is there.
    fn open(&self) -> Result<Option<OwnedFd>, Error> {
        match rustix::fs::openat(CWD, &self.path, OPEN_DIRECTORY, Mode::empty()) {
            Ok(root) => Ok(Some(root)),
            Err(Errno::NOENT) if self.path.parent().is_some_and(Path::is_dir) => Ok(None),
            Err(errno) => Err(failed(
                "failed to open the directory of instances",
                &self.path,
            )(errno)),
        }
    }

    /// Makes a directory for a new instance.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` when the name is taken, also by one that is being removed; what has it is left alone.
    pub(crate) fn create(&self, id: &InstanceId) -> Result<InstanceDirectory, Error> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)
            .map_err(|e| {
                Error::io("failed to make the directory of instances", e)
                    .with("path", self.path.display())
            })?;
        let root = rustix::fs::openat(CWD, &self.path, OPEN_DIRECTORY, Mode::empty()).map_err(
            failed("failed to open the directory of instances", &self.path),
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
                return Err(failed("failed to make the instance's directory", &path)(
                    errno,
                ));
            }
        }
        match open(root, id.as_str(), path, false)? {
            Found::Directory(directory) => Ok(directory),
            Found::Nothing | Found::Foreign(_) => Err(Error::new(
                ErrorKind::Conflict,
                "the instance's directory was replaced by somebody else",
            )
            .with("instance", id)),
        }
    }

    /// Finds an instance, or what is left of it.
    pub(crate) fn find(&self, id: &InstanceId) -> Result<Found, Error> {
        for (name, trashed) in [(id.as_str().to_owned(), false), (trash_name(id), true)] {
            let Some(root) = self.open()? else {
                return Ok(Found::Nothing);
            };
            let path = self.path.join(&name);
            match open(root, &name, path, trashed)? {
                Found::Nothing => {}
                found => return Ok(found),
            }
        }
        Ok(Found::Nothing)
    }

    /// Lists the instances of an installation, with those that are only partly there.
    pub(crate) fn list(&self, install: &InstallId) -> Result<Vec<InstanceId>, Error> {
        let Some(root) = self.open()? else {
            return Ok(Vec::new());
        };
        let list = failed("failed to list the instances", &self.path);
        let mut ids = Vec::new();
        for name in names(root.as_fd()).map_err(list)? {
            let Some(name) = name.to_str() else { continue };
            let Ok(id) = InstanceId::new(name.strip_prefix(TRASH).unwrap_or(name)) else {
                continue;
            };
            let ours = match self.find(&id) {
                Ok(Found::Directory(directory)) => {
                    directory.check_owner(&id, install, None)?.is_ok()
                }
                Ok(Found::Nothing | Found::Foreign(_)) => false,
                // It may be ours, and whoever asks for it by name learns what is wrong with it.
                Err(error) if error.kind() == ErrorKind::Corrupt => true,
                Err(error) => return Err(error),
            };
            if ours {
                ids.push(id);
            }
        }
        ids.sort();
        ids.dedup();
        Ok(ids)
    }
}

fn names(directory: BorrowedFd<'_>) -> Result<Vec<OsString>, Errno> {
    Dir::read_from(directory)?
        .map(|entry| Ok(OsString::from_vec(entry?.file_name().to_bytes().to_vec())))
        .filter(|name| !matches!(name, Ok(name) if name == "." || name == ".."))
        .collect()
}

fn open(root: OwnedFd, name: &str, path: PathBuf, trashed: bool) -> Result<Found, Error> {
    let directory = match rustix::fs::openat(&root, name, OPEN_DIRECTORY, Mode::empty()) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(Found::Nothing),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            let stat = rustix::fs::statat(&root, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(failed("failed to look at an instance", &path))?;
            return Ok(Found::Foreign(Identity(format!(
                "{}@none",
                device_and_inode(&stat)
            ))));
        }
        Err(errno) => {
            return Err(failed("failed to open the instance's directory", &path)(
                errno,
            ));
        }
    };
    let found = rustix::fs::fstat(&directory)
        .map_err(failed("failed to look at the instance's directory", &path))?;
    let start = StartFile::read(&directory).map_err(|e| e.with("directory", path.display()))?;
    Ok(Found::Directory(InstanceDirectory {
        root,
        directory,
        path,
        trashed,
        device_and_inode: device_and_inode(&found),
        start: start.map(Box::new),
    }))
}

impl InstanceDirectory {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Whether its removal has begun.
    pub(crate) fn is_trashed(&self) -> bool {
        self.trashed
    }

    /// Tells which one it is.
    pub(crate) fn identity(&self) -> Identity {
        let boot = self.start.as_ref().map_or("none", |start| &start.boot);
        Identity(format!("{}@{boot}", self.device_and_inode))
    }

    /// Tells whether it may be touched; else why not.
    pub(crate) fn check_owner(
        &self,
        id: &InstanceId,
        install: &InstallId,
        identity: Option<&Identity>,
    ) -> Result<Result<(), String>, Error> {
        if let Some(start) = &self.start {
            if start.install != *install || start.instance != *id {
                return Ok(Err(format!(
                    "it is instance {} of installation {}",
                    start.instance, start.install
                )));
            }
            if let Some(wanted) = identity
                && *wanted != self.identity()
            {
                return Ok(Err(format!("it is {}, not {wanted}", self.identity())));
            }
            return Ok(Ok(()));
        }
        // A removal that was cut short may have taken the start file, which names the boot; device and inode must do.
        if let Some(wanted) = identity
            && wanted.0.split('@').next() != Some(self.device_and_inode.as_str())
        {
            return Ok(Err(format!("it is {}, not {wanted}", self.identity())));
        }
        let names = names(self.fd()).map_err(failed(
            "failed to list the instance's directory",
            &self.path,
        ))?;
        match names.iter().find(|name| !is_known(name)) {
            Some(name) => Ok(Err(format!(
                "it has no start file, and holds {}",
                name.display()
            ))),
            None => Ok(Ok(())),
        }
    }

    /// Makes the file that gets what its supervisor says of its own troubles.
    pub(crate) fn create_log(&self) -> Result<File, Error> {
        rustix::fs::openat(
            &self.directory,
            SUPERVISOR_LOG,
            OFlags::CREATE
                | OFlags::EXCL
                | OFlags::WRONLY
                | OFlags::APPEND
                | OFlags::NOFOLLOW
                | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        )
        .map(File::from)
        .map_err(failed("failed to make the supervisor's log", &self.path))
    }

    /// Reads the last of what its supervisor said, at most `limit` bytes; nothing if that cannot be read.
    pub(crate) fn log_tail(&self, limit: u64) -> String {
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::from(self.open_file(SUPERVISOR_LOG)?);
            let size = file.metadata()?.len();
            file.seek(SeekFrom::Start(size.saturating_sub(limit)))?;
            let mut tail = Vec::new();
            file.take(limit).read_to_end(&mut tail)?;
            Ok(tail)
        };
        String::from_utf8_lossy(&read().unwrap_or_default())
            .trim()
            .to_owned()
    }

    fn open_file(&self, name: &str) -> Result<OwnedFd, Errno> {
        rustix::fs::openat(
            &self.directory,
            name,
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
    }

    /// Reads which cgroup its processes are in, if its supervisor found one.
    pub(crate) fn cgroup(&self) -> Result<Option<PathBuf>, Error> {
        let read = |file: OwnedFd| {
            let mut bytes = Vec::new();
            File::from(file).read_to_end(&mut bytes)?;
            Ok(OsStr::from_bytes(&bytes).into())
        };
        match self.open_file(CGROUP_FILE) {
            Ok(file) => read(file).map(Some).map_err(|e: io::Error| {
                Error::io("failed to read the instance's cgroup", e)
                    .with("path", self.path.display())
            }),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("failed to read the instance's cgroup", &self.path)(
                errno,
            )),
        }
    }

    /// Removes it with the files that it is made of; what else is in it is an error.
    ///
    /// It gets another name first, so that nobody finds half an instance under its own.
    pub(crate) fn remove(&self, id: &InstanceId) -> Result<(), Error> {
        let trash = trash_name(id);
        if !self.trashed {
            // The name could have been given to another directory since it was opened.
            let named = rustix::fs::statat(&self.root, id.as_str(), AtFlags::SYMLINK_NOFOLLOW);
            match named {
                Ok(stat) if device_and_inode(&stat) == self.device_and_inode => {}
                Ok(_) | Err(Errno::NOENT) => {
                    return Err(Error::new(
                        ErrorKind::Conflict,
                        "the instance's directory was moved by somebody else",
                    )
                    .with("path", self.path.display()));
                }
                Err(errno) => {
                    return Err(failed("failed to look at an instance", &self.path)(errno));
                }
            }
            rustix::fs::renameat_with(
                &self.root,
                id.as_str(),
                &self.root,
                &trash,
                RenameFlags::NOREPLACE,
            )
            .map_err(failed(
                "failed to set the instance's directory aside",
                &self.path,
            ))?;
        }
        remove_tree(self.fd(), PRIVATE).map_err(|e| {
            Error::io("failed to remove the private files of the instance", e)
                .with("path", self.path.display())
        })?;
        for name in FILES {
            match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => {
                    return Err(
                        failed("failed to remove a file of the instance", &self.path)(errno)
                            .with("file", name),
                    );
                }
            }
        }
        match rustix::fs::unlinkat(&self.root, &trash, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => {
                let left = names(self.fd()).unwrap_or_default();
                let left: Vec<_> = left.iter().map(|name| name.to_string_lossy()).collect();
                Err(
                    failed("failed to remove the instance's directory", &self.path)(errno)
                        .with("holds", left.join(", ")),
                )
            }
        }
    }
}

fn is_known(name: &OsStr) -> bool {
    name == PRIVATE || FILES.iter().any(|known| name == *known)
}

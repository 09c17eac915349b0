//! The start file: what a supervisor is told, and the lock on it that is its sign of life.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    executor::Limits,
    id::{InstallId, InstanceId, RunId, SessionId},
    process::Lease,
    wire,
};
use rustix::{
    fs::{AtFlags, CWD, FlockOperation, Mode, OFlags},
    io::Errno,
};
use serde::{Deserialize, Serialize};

/// The name of the start file in an instance's directory.
pub const START_FILE: &str = "start.json";

/// The name under which the start file is written before it gets its own.
pub const START_FILE_DRAFT: &str = "start.json.new";

/// The name of the control socket in an instance's directory.
pub const SOCKET: &str = "control.sock";

/// The name of the file in an instance's directory that gets what a supervisor says of its own troubles.
pub const SUPERVISOR_LOG: &str = "supervisor.log";

/// The name of the file in an instance's directory that names the cgroup of its processes, if they have one.
pub const CGROUP_FILE: &str = "cgroup";

const VERSION: u32 = 1;

/// The largest start file that is read.
const MAX_SIZE: u64 = 64 << 10;

/// What a supervisor is told; never a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartFile {
    version: u32,
    /// The installation that owns the instance.
    pub install: InstallId,
    /// The instance.
    pub instance: InstanceId,
    /// The run it is for.
    pub run: RunId,
    /// The session it is for.
    pub session: SessionId,
    /// Where the control socket is made; absolute.
    #[serde(with = "wire::path")]
    pub socket: PathBuf,
    /// Where the logs of its processes are kept; absolute.
    #[serde(with = "wire::path")]
    pub logs: PathBuf,
    /// How long it lives without a controller until told otherwise.
    pub lease: Lease,
    /// How much of the machine it may use.
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// The only user who may control it.
    pub uid: u32,
    /// The boot in which it was written.
    pub boot: String,
    /// Whether the variables that the supervisor itself was started with are the weakest ones of its processes: those of an
    /// image, where an engine starts it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inherits: bool,
}

fn failed(message: &'static str) -> impl FnOnce(Errno) -> Error {
    move |errno| Error::io(message, errno.into()).with("file", START_FILE)
}

impl StartFile {
    /// Describes an instance that lives in `directory`, of this boot and for this user.
    ///
    /// # Errors
    ///
    /// When it cannot be read which boot this is.
    pub fn new(
        install: InstallId,
        instance: InstanceId,
        run: RunId,
        session: SessionId,
        directory: &Path,
        logs: PathBuf,
        lease: Lease,
    ) -> Result<Self, Error> {
        Ok(Self {
            version: VERSION,
            install,
            instance,
            run,
            session,
            socket: directory.join(SOCKET),
            logs,
            lease,
            limits: Limits::default(),
            uid: rustix::process::geteuid().as_raw(),
            boot: crate::boot::boot_id()?,
            inherits: false,
        })
    }

    /// Writes it into a directory, whole or not at all.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` when another attempt is at it, else those of the file system.
    pub fn write(&self, directory: impl AsFd) -> Result<(), Error> {
        let text = serde_json::to_vec_pretty(self).map_err(|e| {
            Error::new(ErrorKind::Unexpected, "failed to write the start file").with_source(e)
        })?;
        let draft = rustix::fs::openat(
            &directory,
            START_FILE_DRAFT,
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        )
        .map_err(failed("failed to create the start file"))?;
        File::from(draft)
            .write_all(&text)
            .map_err(|e| Error::io("failed to write the start file", e))?;
        rustix::fs::renameat_with(
            &directory,
            START_FILE_DRAFT,
            &directory,
            START_FILE,
            rustix::fs::RenameFlags::NOREPLACE,
        )
        .map_err(failed("failed to put the start file in its place"))
    }

    /// Reads the one in a directory; none if there is none, or one without a byte.
    ///
    /// # Errors
    ///
    /// `Corrupt` when it is damaged or of an unknown version, else those of the file system.
    pub fn read(directory: impl AsFd) -> Result<Option<Self>, Error> {
        match open(directory, Path::new(START_FILE)) {
            // Its name outlived a crash of the machine and its bytes did not: nobody ever started on it since.
            Ok(file) if rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_size == 0) => Ok(None),
            Ok(file) => Self::read_open(File::from(file)).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("failed to open the start file")(errno)),
        }
    }

    fn read_open(file: File) -> Result<Self, Error> {
        let corrupt = || Error::new(ErrorKind::Corrupt, "the start file cannot be understood");
        let mut text = Vec::new();
        file.take(MAX_SIZE)
            .read_to_end(&mut text)
            .map_err(|e| Error::io("failed to read the start file", e))?;
        // The version comes first: a file of a later one need not have our fields.
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(|e| corrupt().with_source(e))?;
        let version = value.get("version").and_then(serde_json::Value::as_u64);
        if version != Some(u64::from(VERSION)) {
            return Err(Error::new(
                ErrorKind::Corrupt,
                "the start file is of a version that this program does not know",
            )
            .with(
                "version",
                version.map_or_else(|| "none".to_owned(), |v| v.to_string()),
            )
            .with("known", VERSION));
        }
        serde_json::from_value(value).map_err(|e| corrupt().with_source(e))
    }
}

fn open(directory: impl AsFd, name: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(
        directory,
        name,
        OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::empty(),
    )
}

/// A held start file; whoever holds it is the only one, until it is dropped.
#[derive(Debug)]
pub struct StartLock {
    file: OwnedFd,
}

impl StartLock {
    /// Takes the start file in a directory if nobody has it; none if somebody has.
    ///
    /// # Errors
    ///
    /// `NotFound` when there is none, else those of the file system.
    pub fn try_take(directory: impl AsFd) -> Result<Option<Self>, Error> {
        let file = open(directory, Path::new(START_FILE))
            .map_err(failed("failed to open the start file"))?;
        Self::lock(file)
    }

    fn lock(file: OwnedFd) -> Result<Option<Self>, Error> {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(failed("failed to lock the start file")(errno)),
        }
    }

    /// Takes the start file at a path for the life of a supervisor, and reads it.
    ///
    /// Others take it for moments, to find out whether somebody has it, so it is tried for a while.
    ///
    /// # Errors
    ///
    /// `NotFound` when it was removed meanwhile, `AlreadyExists` when another supervisor has it, else as [`StartFile::read`].
    pub(crate) async fn take(path: &Path) -> Result<(Self, StartFile), Error> {
        let removed = || {
            Error::new(
                ErrorKind::NotFound,
                "the start file was removed, so the instance is not wanted any more",
            )
            .with("path", path.display())
        };
        for _ in 0..250 {
            let file = match open(CWD, path) {
                Ok(file) => file,
                Err(Errno::NOENT) => return Err(removed()),
                Err(errno) => return Err(failed("failed to open the start file")(errno)),
            };
            let Some(lock) = Self::lock(file)? else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            // Removed between opening and locking: nobody would ever find this supervisor.
            let held = rustix::fs::fstat(&lock.file)
                .map_err(failed("failed to look at the start file"))?;
            match rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(named) if (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino) => {}
                Ok(_) | Err(Errno::NOENT) => return Err(removed()),
                Err(errno) => return Err(failed("failed to look at the start file")(errno)),
            }
            let copy = rustix::io::fcntl_dupfd_cloexec(&lock.file, 3)
                .map_err(failed("failed to read the start file"))?;
            return Ok((lock, StartFile::read_open(File::from(copy))?));
        }
        Err(Error::new(
            ErrorKind::AlreadyExists,
            "another supervisor has this start file",
        )
        .with("path", path.display()))
    }
}

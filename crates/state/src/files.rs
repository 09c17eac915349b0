//! Files and directories that only their owner may see, made so that a crash leaves all of them or nothing.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io::{self, ErrorKind as Io, Write as _},
    os::unix::fs::{
        DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
    },
    path::Path,
    time::{Duration, Instant},
};

use groundcrew_core::error::{Error, ErrorKind};

/// What to do about a state directory that cannot be used.
pub(crate) const ELSEWHERE: &str = "set GROUNDCREW_HOME to a directory that you can write to";

/// Makes an error that names a path and what to do about it.
pub(crate) fn failed(message: &'static str, path: &Path, source: io::Error) -> Error {
    Error::io(message, source)
        .with("path", path.display())
        .with("hint", ELSEWHERE)
}

/// Makes a directory for its owner only, unless it is there.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == Io::AlreadyExists && path.is_dir() => Ok(()),
        other => other,
    }
}

/// Takes what group and others may do away from a directory.
pub(crate) fn tighten(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
}

/// Makes names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes an empty file for its owner only.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Writes a file that was not there; it appears whole, and is on disk.
pub(crate) fn publish(directory: &Path, name: &str, text: &str) -> io::Result<()> {
    let draft = directory.join(format!("{name}.new"));
    remove_if_there(&draft)?;
    let mut file = create_private(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    // A link, unlike a rename, never replaces.
    fs::hard_link(&draft, directory.join(name))?;
    fs::remove_file(&draft)?;
    sync_directory(directory)
}

/// Removes a file that may be gone already.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == Io::NotFound => Ok(()),
        other => other,
    }
}

/// Returns the size of a file without opening it; `None` if it is not there.
///
/// Closing a second descriptor of a database would drop the locks that `SQLite` holds in this process.
pub(crate) fn size_of(path: &Path) -> io::Result<Option<u64>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found.len())),
        Err(error) if error.kind() == Io::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether an open file still is the one with that name.
pub(crate) fn is_still(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((ours.dev(), ours.ino()) == (named.dev(), named.ino())),
        Err(error) if error.kind() == Io::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens the file of a lock; made unless it is there.
pub(crate) fn open_lock(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

/// Waits for a lock that is never unlinked, for a bounded time.
pub(crate) fn lock_within(path: &Path, patience: Duration) -> Result<File, Error> {
    let wrong = |error| failed("cannot lock the state directory", path, error);
    let file = open_lock(path).map_err(wrong)?;
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if start.elapsed() < patience => pause(),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    "another process keeps the state directory locked",
                )
                .with("path", path.display())
                .with("hint", "try again when it is done"));
            }
            Err(TryLockError::Error(error)) => return Err(wrong(error)),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "flock has no bounded wait, and this is called on blocking threads only"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(3));
}

//! The state directory: where everything that outlives a process is kept.
//!
//! * Never a directory that holds anything else, and never one that others can look into.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder},
    io::ErrorKind as Io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::InstallId,
};

use crate::{
    birth, database,
    files::{self, ELSEWHERE},
    lock::FlockDirectory,
    mark,
    store::SqliteStore,
};

/// How long a process waits for others before it gives up: 20 s, so that 64 that begin at once all get their turn.
const PATIENCE: Duration = Duration::from_secs(20);

const PARTS: [&str; 11] = [
    "instances",
    "locks",
    "locks/session",
    "locks/attempt",
    "locks/share",
    "worktrees",
    "tasks",
    "quick-chat",
    "trash",
    "secrets",
    "logs",
];

/// An open state directory.
#[derive(Debug)]
pub struct StateDirectory {
    home: PathBuf,
    install: InstallId,
    store: Arc<SqliteStore>,
    locks: Arc<FlockDirectory>,
}

impl StateDirectory {
    /// Opens a state directory; makes it first if it is new. Blocks.
    ///
    /// * It and everything in it is for its owner only; a directory of ours that is open to others is closed to them,
    ///   unless it holds things that are not ours.
    /// * Any number of processes may do this at once on a fresh path: all succeed, with one install id.
    /// * On a full or read-only disk an existing one opens for reading.
    ///
    /// # Errors
    ///
    /// * `InvalidInput`: the path is not absolute, is `/`, or names a file.
    /// * `PermissionDenied`: it is another user's, or nothing can be made there.
    /// * `Corrupt`: what is stored is damaged, partly gone, or of a newer version; nothing was changed.
    /// * `Unavailable`: another process kept it locked for 20 s.
    /// * `ResourceExhausted`: the disk is full and there is nothing to open yet.
    pub fn open(home: &Path) -> Result<Self, Error> {
        Self::open_within(home, PATIENCE)
    }

    /// Opens a state directory, with another bound on the waits for other processes, now and later.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_within(home: &Path, patience: Duration) -> Result<Self, Error> {
        check_home(home, None)?;
        make_home(home)?;
        make_parts(home)?;
        let (install, database) = birth::open(home, patience)?;
        Ok(Self {
            home: home.to_owned(),
            install,
            store: Arc::new(SqliteStore::new(database)),
            locks: Arc::new(FlockDirectory::new(&home.join("locks"))),
        })
    }

    /// Returns the directory itself.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Returns the name of this installation.
    pub fn install(&self) -> &InstallId {
        &self.install
    }

    /// Returns the journal and the records.
    pub fn store(&self) -> Arc<SqliteStore> {
        Arc::clone(&self.store)
    }

    /// Returns the locks between processes.
    pub fn locks(&self) -> Arc<FlockDirectory> {
        Arc::clone(&self.locks)
    }

    /// Returns where the database is.
    pub fn database_path(&self) -> PathBuf {
        self.home.join(database::NAME)
    }

    /// Returns where the lock files are.
    pub fn locks_path(&self) -> PathBuf {
        self.home.join("locks")
    }

    /// Returns where instances have their directories.
    pub fn instances(&self) -> PathBuf {
        self.home.join("instances")
    }

    /// Returns where logs outlive their instances.
    pub fn logs(&self) -> PathBuf {
        self.home.join("logs")
    }

    /// Returns where worktrees are made.
    pub fn worktrees(&self) -> PathBuf {
        self.home.join("worktrees")
    }

    /// Returns where tasks have their scratch directories.
    pub fn tasks(&self) -> PathBuf {
        self.home.join("tasks")
    }

    /// Returns where ephemeral workspaces are made.
    pub fn quick_chat(&self) -> PathBuf {
        self.home.join("quick-chat")
    }

    /// Returns where removed trees wait for their end.
    pub fn trash(&self) -> PathBuf {
        self.home.join("trash")
    }

    /// Returns where secrets are kept.
    pub fn secrets(&self) -> PathBuf {
        Self::secrets_in(&self.home)
    }

    /// Returns where secrets are kept in a state directory that need not be open, nor exist.
    pub fn secrets_in(home: &Path) -> PathBuf {
        home.join("secrets")
    }
}

/// Checks that a path may be a state directory, without touching it.
///
/// # Errors
///
/// `InvalidInput` when it is not absolute, is `/`, or is the user's home directory or holds it; links are followed.
pub fn check_home(home: &Path, user_home: Option<&Path>) -> Result<(), Error> {
    let refuse = |message: &'static str| {
        Err(Error::new(ErrorKind::InvalidInput, message)
            .with("path", home.display())
            .with("hint", "set GROUNDCREW_HOME to a directory of its own"))
    };
    if !home.is_absolute() {
        return refuse("the state directory must be an absolute path");
    }
    let real = resolve(home);
    if real.parent().is_none() {
        return refuse("the state directory cannot be the root of the file system");
    }
    if let Some(user_home) = user_home.map(resolve) {
        if real == user_home {
            return refuse("the state directory cannot be the home directory");
        }
        if user_home.starts_with(&real) {
            return refuse("the state directory cannot hold the home directory");
        }
    }
    Ok(())
}

/// Follows links as far as the path exists, and takes the rest by its words.
fn resolve(path: &Path) -> PathBuf {
    for prefix in path.ancestors() {
        if let Ok(real) = prefix.canonicalize() {
            let rest = path.strip_prefix(prefix).unwrap_or(Path::new(""));
            return rest.components().fold(real, |mut real, part| {
                match part {
                    Component::ParentDir => {
                        real.pop();
                    }
                    Component::Normal(name) => real.push(name),
                    _ => {}
                }
                real
            });
        }
    }
    path.to_owned()
}

fn make_home(home: &Path) -> Result<(), Error> {
    let found = match fs::metadata(home) {
        Err(error) if error.kind() == Io::NotFound => {
            DirBuilder::new()
                .mode(0o700)
                .recursive(true)
                .create(home)
                .map_err(|e| refused(home, e))?;
            fs::metadata(home)
        }
        found => found,
    }
    .map_err(|e| refused(home, e))?;
    if !found.is_dir() {
        return Err(not_a_directory(home));
    }
    // In a directory that everybody writes in, another user may have made a link where nothing was: looked at last, it stays what it is.
    let itself = fs::symlink_metadata(home).map_err(|e| refused(home, e))?;
    let user = rustix::process::geteuid().as_raw();
    if itself.is_symlink() && itself.uid() != user && itself.uid() != 0 {
        return Err(Error::new(
            ErrorKind::PermissionDenied,
            "the state directory is a link that another user made",
        )
        .with("path", home.display())
        .with("owner", itself.uid())
        .with("hint", ELSEWHERE));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(Error::new(
            ErrorKind::PermissionDenied,
            "the state directory belongs to another user",
        )
        .with("path", home.display())
        .with("owner", found.uid())
        .with("hint", ELSEWHERE));
    }
    let others = found.mode() & 0o077;
    if others == 0 {
        return Ok(());
    }
    // Somebody may have named a directory that others need, such as /tmp.
    if let Some(foreign) = first_foreign(home).map_err(|e| refused(home, e))? {
        return Err(Error::new(
            ErrorKind::PermissionDenied,
            "the state directory is open to other users and holds files that are not groundcrew's",
        )
        .with("path", home.display())
        .with("file", foreign.display())
        .with("hint", "set GROUNDCREW_HOME to a directory of its own"));
    }
    files::tighten(home).map_err(|e| refused(home, e))
}

fn not_a_directory(path: &Path) -> Error {
    Error::new(
        ErrorKind::InvalidInput,
        "the state directory cannot be made: a file is in the way",
    )
    .with("path", path.display())
    .with("hint", ELSEWHERE)
}

fn refused(path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        // A file stands where a directory above it should be.
        Io::NotADirectory | Io::AlreadyExists => not_a_directory(path).with_source(error),
        _ => files::failed("cannot make the state directory", path, error),
    }
}

fn first_foreign(home: &Path) -> std::io::Result<Option<PathBuf>> {
    for entry in fs::read_dir(home)? {
        let name = entry?.file_name();
        if !is_ours(&name) {
            return Ok(Some(PathBuf::from(name)));
        }
    }
    Ok(None)
}

fn is_ours(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| {
        PARTS.contains(&name)
            || name.starts_with(database::NAME)
            || name.starts_with(birth::INSTALL)
            || name == mark::NAME
    })
}

fn make_parts(home: &Path) -> Result<(), Error> {
    for part in PARTS {
        let path = home.join(part);
        if let Err(error) = files::make_directory(&path) {
            // What cannot be made now may not be needed: reading goes on where nothing can be written.
            let unwritable = matches!(
                error.kind(),
                Io::ReadOnlyFilesystem | Io::PermissionDenied | Io::StorageFull | Io::QuotaExceeded
            );
            if !(unwritable && home.join(birth::INSTALL).exists()) {
                return Err(refused(&path, error));
            }
        }
    }
    Ok(())
}

//! The master key: 32 bytes in a file that only its owner can read; anything else about it is an error, and nothing is changed.

use std::{
    fs::File,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use groundcrew_core::error::{Error, ErrorKind};

use super::{
    crypto::{KEY_BYTES, Key},
    place::{self, Place},
};

/// The name of the store's own key.
pub(super) const NAME: &str = "master.key";
/// The name of a key that is being made.
pub(super) const DRAFT: &str = "master.key.new";

/// Where the master key is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MasterKey {
    /// In `master.key` in the store's own directory; made by the first write.
    Own,
    /// In a file that somebody else provides, such as a credential of the service manager: 32 bytes as they are, of the user
    /// or of root, with no rights for group and others. Never written.
    File(PathBuf),
}

impl MasterKey {
    /// Checks a key that somebody named, which must be right even if there is nothing to open yet.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self {
            Self::Own => Ok(()),
            Self::File(path) => named(path).map(drop),
        }
    }

    /// Loads the key; `None` when the store's own has not been made yet.
    pub(super) fn load(&self, place: &Place<'_>) -> Result<Option<Key>, Error> {
        match self {
            Self::Own => {
                let path = place.path_of(NAME);
                let file = place.open_file(NAME).map_err(|e| unopenable(&path, e))?;
                file.map(|file| read(file, &path, false)).transpose()
            }
            Self::File(path) => named(path).map(Some),
        }
    }
}

/// Loads a key from a file that somebody named.
pub(super) fn named(path: &Path) -> Result<Key, Error> {
    let root = File::open("/").map_err(|e| unopenable(path, e))?;
    match place::open_no_follow(&root, path).map_err(|e| unopenable(path, e))? {
        Some(file) => read(file, path, true),
        None => Err(Error::new(
            ErrorKind::SecretUnavailable,
            "the file of the master key does not exist",
        )
        .with("path", path.display())
        .with(
            "hint",
            "name the file that holds it; a new one is 32 random bytes: head -c 32 /dev/urandom",
        )),
    }
}

/// Makes the store's own key; it is on disk before anything is sealed with it.
pub(super) fn make(place: &Place<'_>) -> Result<Key, Error> {
    let key = Key::generate()?;
    place.draft(DRAFT, key.bytes(), None)?;
    place.pass("key.written")?;
    place.link(DRAFT, NAME)?;
    place.pass("key.linked")?;
    place.sweep(&[DRAFT])?;
    place.sync()?;
    Ok(key)
}

/// Makes the key that will take the own one's place.
pub(super) fn make_next(place: &Place<'_>) -> Result<Key, Error> {
    let key = Key::generate()?;
    place.draft(DRAFT, key.bytes(), None)?;
    place.sync()?;
    place.pass("next.written")?;
    Ok(key)
}

/// Puts the next key in the own one's place.
pub(super) fn place_next(place: &Place<'_>) -> Result<(), Error> {
    place.rename(DRAFT, NAME)?;
    place.sync()?;
    place.pass("next.placed")
}

fn unopenable(path: &Path, error: std::io::Error) -> Error {
    // ELOOP: what has the name is a link.
    if error.raw_os_error() == Some(40) {
        return Error::new(
            ErrorKind::PermissionDenied,
            "the file of the master key is a symbolic link; name the file itself",
        )
        .with("path", path.display());
    }
    let kind = match error.kind() {
        std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        _ => ErrorKind::SecretUnavailable,
    };
    Error::new(kind, "the file of the master key cannot be read")
        .with_source(error)
        .with("path", path.display())
}

/// Reads a key from an open file: what was checked is what is read.
fn read(mut file: File, path: &Path, may_be_roots: bool) -> Result<Key, Error> {
    let found = file.metadata().map_err(|e| unopenable(path, e))?;
    let refuse = |kind, why: &'static str| Err(Error::new(kind, why).with("path", path.display()));
    if !found.is_file() {
        return refuse(
            ErrorKind::Corrupt,
            "what has the name of the master key is no file",
        );
    }
    let owner = found.uid();
    if owner != rustix::process::geteuid().as_raw() && !(may_be_roots && owner == 0) {
        return refuse(
            ErrorKind::PermissionDenied,
            "the file of the master key belongs to another user",
        )
        .map_err(|error| error.with("owner", owner));
    }
    if found.mode() & 0o077 != 0 {
        return refuse(
            ErrorKind::PermissionDenied,
            "the file of the master key is open to other users; the key may be known to them",
        )
        .map_err(|error| error.with("hint", format!("chmod 600 {}", path.display())));
    }
    let bytes = place::read_wiped(&mut file, KEY_BYTES).map_err(|e| unopenable(path, e))?;
    match Key::from_bytes(&bytes) {
        Some(key) => Ok(key),
        None => refuse(
            ErrorKind::Corrupt,
            "the file of the master key does not hold a key of 32 bytes; restore it from a backup",
        )
        .map_err(|error| error.with("bytes", found.len())),
    }
}

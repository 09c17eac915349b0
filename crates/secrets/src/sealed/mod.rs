//! Secrets in one encrypted file, replaced whole with every change.
//!
//! * What is damaged, or locked by a key that is not there, is an error; nothing is made anew in its place.
//! * No value ever reaches the disk in the open.

mod crypto;
mod format;
mod key;
mod place;
mod points;
mod stores;
mod writing;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    secret::{SecretId, SecretScope, SecretValue},
    undo::Undone,
};

use self::{
    format::{Contents, Fault},
    place::{Access, Place},
};
use crate::{runtime, value};

pub use self::{crypto::KEY_BYTES, key::MasterKey, points::WritePoints};

/// The name of the file.
const NAME: &str = "sealed";
/// The name of a file that is being written.
const DRAFT: &str = "sealed.new";
/// How long a process waits for others before it gives up.
const PATIENCE: Duration = Duration::from_secs(20);

/// The largest store, in bytes, unless the program says otherwise: 64 MiB.
pub const STORE_MAX: u64 = 64 * 1024 * 1024;

/// Where secrets are kept, and how.
#[derive(Clone, Debug)]
pub struct SealedConfig {
    /// The directory, by an absolute path; nothing but the store is in it. Made, for its owner only, by the first write.
    pub directory: PathBuf,
    /// The master key.
    pub key: MasterKey,
    /// How long to wait for other processes.
    pub patience: Duration,
    /// The largest that the file may become, in bytes.
    pub most: u64,
    /// Where tests make a write fail or die; `()` otherwise.
    pub points: Arc<dyn WritePoints>,
}

impl SealedConfig {
    /// A store in a directory, with its own key.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            key: MasterKey::Own,
            patience: PATIENCE,
            most: STORE_MAX,
            points: Arc::new(()),
        }
    }
}

/// A stored secret, without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SecretEntry {
    /// Its name, and whose it is.
    pub id: SecretId,
    /// When it was first set, in milliseconds since 1970.
    pub created_ms: u64,
    /// When it was last set.
    pub changed_ms: u64,
}

/// What setting a value came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// There was none of that name.
    Created,
    /// There was one, and it is gone.
    Replaced,
}

/// Keeps secrets in one encrypted file.
///
/// * Any number of processes may use it at once; a change is seen by all from then on, whole or not at all, and a process
///   that is killed leaves the old or the new.
/// * Each value is bound to its name and owner and to the write that stored it: one that was moved, exchanged, damaged or taken from
///   an older file is `Corrupt`. What cannot be told is that the whole file was exchanged for an older one.
/// * Names that begin with `runtime/` are those of runtime secrets, which no user's verb lists, sets, moves or removes, and
///   which [`SecretStore`](groundcrew_core::secret::SecretStore) does not know.
///
/// # Cancel safety
///
/// A change that was begun is finished, or fails whole, also when its future is dropped.
#[derive(Clone, Debug)]
pub struct SealedSecrets(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: SealedConfig,
    key: Mutex<MasterKey>,
}

impl SealedSecrets {
    /// Takes a directory as a store, without touching it: a store that is broken fails those who ask it, and nobody else.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when the directory or the file of the key is not an absolute path.
    pub fn open(config: SealedConfig) -> Result<Self, Error> {
        let absolute = |path: &Path, what: &'static str| {
            if path.is_absolute() {
                return Ok(());
            }
            Err(Error::new(ErrorKind::InvalidInput, what).with("path", path.display()))
        };
        absolute(
            &config.directory,
            "the directory of secrets must be an absolute path",
        )?;
        if let MasterKey::File(path) = &config.key {
            absolute(path, "the file of the master key must be an absolute path")?;
        }
        let key = Mutex::new(config.key.clone());
        Ok(Self(Arc::new(Inner { config, key })))
    }

    /// Stores a value of 1 byte to [`VALUE_MAX`](crate::VALUE_MAX), in place of an earlier one.
    ///
    /// # Errors
    ///
    /// * `InvalidInput`: the name is one of runtime secrets, or the value is empty. `TooLarge`: it is too long.
    /// * Those of every change: `Corrupt` for a damaged store or key, `SecretUnavailable` for a key that is missing or another
    ///   one, `PermissionDenied` for what others can look into, `Unavailable` when others kept it locked too long.
    pub async fn set(&self, id: &SecretId, value: SecretValue) -> Result<Stored, Error> {
        runtime::refuse(&id.name)?;
        value::check(&value).map_err(|error| error.with("secret", id))?;
        let id = id.clone();
        self.off_thread(move |inner| inner.set(&id, &value)).await
    }

    /// Removes a secret; none there is `AlreadyGone`. One whose value is damaged can be removed.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    pub async fn remove(&self, id: &SecretId) -> Result<Undone, Error> {
        runtime::refuse(&id.name)?;
        let id = id.clone();
        self.off_thread(move |inner| inner.remove(&id)).await
    }

    /// Gives a secret another name or owner, in one step; it keeps the time when it was first set.
    ///
    /// # Errors
    ///
    /// `NotFound`, `AlreadyExists`, and as [`set`](Self::set).
    pub async fn rename(&self, from: &SecretId, to: &SecretId) -> Result<(), Error> {
        self.transfer(from, to, false).await
    }

    /// Stores a secret under another name or owner as well, in one step.
    ///
    /// # Errors
    ///
    /// As [`rename`](Self::rename).
    pub async fn copy(&self, from: &SecretId, to: &SecretId) -> Result<(), Error> {
        self.transfer(from, to, true).await
    }

    async fn transfer(&self, from: &SecretId, to: &SecretId, keep: bool) -> Result<(), Error> {
        runtime::refuse(&from.name)?;
        runtime::refuse(&to.name)?;
        let (from, to) = (from.clone(), to.clone());
        self.off_thread(move |inner| inner.transfer(&from, &to, keep))
            .await
    }

    /// Lists the secrets of a scope, or of all scopes, by owner and name; no value is opened, and no runtime secret is listed.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    pub async fn list(&self, scope: Option<&SecretScope>) -> Result<Vec<SecretEntry>, Error> {
        let scope = scope.cloned();
        self.off_thread(move |inner| {
            let Some(contents) = inner.read()? else {
                return Ok(Vec::new());
            };
            let mut entries: Vec<_> = contents
                .records
                .into_iter()
                .filter(|(id, _)| !id.name.is_runtime())
                .filter(|(id, _)| scope.as_ref().is_none_or(|scope| *scope == id.scope))
                .map(|(id, record)| SecretEntry {
                    id,
                    created_ms: record.created_ms,
                    changed_ms: record.changed_ms,
                })
                .collect();
            entries.sort_by(|a, b| (&a.id.scope, &a.id.name).cmp(&(&b.id.scope, &b.id.name)));
            Ok(entries)
        })
        .await
    }

    /// Opens every value, runtime secrets included, and returns how many there are.
    ///
    /// # Errors
    ///
    /// `Corrupt` with the name of the first that is damaged, and as [`set`](Self::set).
    pub async fn check(&self) -> Result<usize, Error> {
        self.off_thread(|inner| {
            let Some(contents) = inner.read()? else {
                return Ok(0);
            };
            for (id, record) in &contents.records {
                inner.open_record(&contents, id, record)?;
            }
            if !contents.whole {
                return Err(inner.damaged("length"));
            }
            Ok(contents.records.len())
        })
        .await
    }

    /// Replaces the master key and the data key, and seals every value anew; `to` is where the new master key is from then on.
    ///
    /// * The store's own key is made; the old one opens the store until the new one is on disk in its place.
    /// * A key in a file must be there. The store is opened with it from then on, so programs must be told its name.
    /// * Broken off anywhere, the store opens with the one or the other key, and rotating again is safe.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when the new key is the old one; `Corrupt` when a value is damaged, and nothing was changed; and as
    /// [`set`](Self::set).
    pub async fn rotate(&self, to: &MasterKey) -> Result<(), Error> {
        let to = to.clone();
        self.off_thread(move |inner| inner.rotate(to)).await
    }

    async fn off_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let inner = Arc::clone(&self.0);
        match tokio::task::spawn_blocking(move || work(&inner)).await {
            Ok(done) => done,
            // Not its words: nothing that a panic says is known to be free of secrets.
            Err(error) if error.is_panic() => Err(Error::new(
                ErrorKind::Panicked,
                "work on the stored secrets broke off",
            )),
            Err(_) => Err(Error::new(
                ErrorKind::Cancelled,
                "the program ended while it worked on the stored secrets",
            )),
        }
    }
}

impl Inner {
    fn key(&self) -> MutexGuard<'_, MasterKey> {
        self.key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, access: Access) -> Result<Option<Place<'_>>, Error> {
        let config = &self.config;
        Place::open(&config.directory, access, config.patience, &*config.points)
    }

    /// Reads everything; `None` when nothing was ever stored.
    fn read(&self) -> Result<Option<Contents>, Error> {
        let Some(place) = self.place(Access::Read)? else {
            self.key().check()?;
            return Ok(None);
        };
        let (_, contents) = self.load(&place)?;
        Ok(contents)
    }

    /// Loads the key and what it opens.
    fn load(&self, place: &Place<'_>) -> Result<(Option<crypto::Key>, Option<Contents>), Error> {
        let master = self.key().load(place)?;
        let file = place.read(NAME, self.config.most)?;
        match (master, file) {
            (master, None) => Ok((master, None)),
            (None, Some(_)) => Err(Error::new(
                ErrorKind::SecretUnavailable,
                "the master key is missing, and secrets are stored; restore it from a backup",
            )
            .with("path", place.path_of(key::NAME).display())),
            (Some(master), Some(file)) => match Contents::read(&file, &master)? {
                Ok(contents) => Ok((Some(master), Some(contents))),
                Err(fault) => Err(self.unreadable(fault)),
            },
        }
    }

    fn unreadable(&self, fault: Fault) -> Error {
        let error = match fault {
            Fault::Damaged(part) => return self.damaged(part),
            Fault::OtherKey => Error::new(
                ErrorKind::SecretUnavailable,
                "the stored secrets are sealed with another master key",
            ),
            Fault::Newer => Error::new(
                ErrorKind::Corrupt,
                "the stored secrets are of a version that this program does not know",
            ),
        };
        error.with("path", self.config.directory.join(NAME).display())
    }

    fn damaged(&self, part: &'static str) -> Error {
        Error::new(
            ErrorKind::Corrupt,
            "the stored secrets are damaged; restore the file from a backup, or move it away and set the secrets again",
        )
        .with("path", self.config.directory.join(NAME).display())
        .with("part", part)
    }

    fn open_record(
        &self,
        contents: &Contents,
        id: &SecretId,
        record: &format::Record,
    ) -> Result<SecretValue, Error> {
        contents
            .open(id, record)
            .ok_or_else(|| self.damaged_value(id))
    }

    fn damaged_value(&self, id: &SecretId) -> Error {
        Error::new(
            ErrorKind::Corrupt,
            "a stored secret is damaged; set it again, or restore the file from a backup",
        )
        .with("secret", id)
        .with("path", self.config.directory.join(NAME).display())
    }

    /// Reveals one.
    fn reveal(&self, id: &SecretId) -> Result<Option<SecretValue>, Error> {
        let Some(contents) = self.read()? else {
            return Ok(None);
        };
        contents
            .records
            .get(id)
            .map(|record| self.open_record(&contents, id, record))
            .transpose()
    }
}

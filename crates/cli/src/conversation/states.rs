//! States of conversations as files of the state directory: what the next controller goes on with.
//!
//! Nothing in them is secret. They are written whole, beside the old one and then in its place; who writes holds the desk of
//! the conversation, so that no two do.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use groundcrew_core::{
    async_trait,
    error::{Error, ErrorKind},
    id::SessionId,
};
use groundcrew_session::state::{SessionState, StateStore, superseded};
use groundcrew_state::try_lock_file;

/// The directory of conversations, below the state directory.
const DIRECTORY: &str = "conversations";

/// What belongs to a conversation: its state, one that was being written, and the socket and the lock of its desk. The lock
/// goes last: whoever removes the others may hold it.
const ENDINGS: [&str; 4] = ["json", "part", "sock", "lock"];

/// States in files.
#[derive(Debug)]
pub(crate) struct FileStates(PathBuf);

/// Returns the directory that holds what belongs to conversations, and makes it, for the user alone.
///
/// # Errors
///
/// Those of the file system.
pub(crate) fn directory(home: &Path) -> Result<PathBuf, Error> {
    let directory = home.join(DIRECTORY);
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700).recursive(true);
    builder.create(&directory).map_err(|e| {
        Error::io("failed to make the directory of conversations", e)
            .with("path", directory.display())
    })?;
    Ok(directory)
}

/// Forgets what belongs to a conversation, if anything does.
///
/// # Errors
///
/// Those of the file system.
pub(crate) fn forget(home: &Path, session: &SessionId) -> Result<(), Error> {
    let directory = home.join(DIRECTORY);
    for ending in ENDINGS {
        let path = directory.join(format!("{session}.{ending}"));
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(
                    Error::io("failed to forget a conversation", e).with("path", path.display())
                );
            }
            _ => {}
        }
    }
    Ok(())
}

/// Lists the sessions of which something is kept; files of other kinds are not ours.
///
/// # Errors
///
/// When the directory is there and cannot be read.
pub(crate) fn sessions(home: &Path) -> Result<BTreeSet<SessionId>, Error> {
    let directory = home.join(DIRECTORY);
    let failed =
        |e| Error::io("failed to list the conversations", e).with("path", directory.display());
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(e) => return Err(failed(e)),
    };
    let mut sessions = BTreeSet::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        let parts = name.to_str().and_then(|name| name.rsplit_once('.'));
        let ours = parts.filter(|(_, ending)| ENDINGS.contains(ending));
        sessions.extend(ours.and_then(|(session, _)| SessionId::new(session).ok()));
    }
    Ok(sessions)
}

/// Takes away what belongs to a conversation, unless somebody sits at its desk or `stays` says so; tells whether it went.
///
/// * `stays` is asked with the desk held: whoever begins a conversation sits there before anything of its run is written.
///
/// # Errors
///
/// Those of the file system, and of `stays`.
pub(crate) async fn forget_unless(
    home: &Path,
    session: &SessionId,
    stays: impl Future<Output = Result<bool, Error>>,
) -> Result<bool, Error> {
    let lock = home.join(DIRECTORY).join(format!("{session}.lock"));
    let Some(desk) = try_lock_file(&lock)? else {
        return Ok(false);
    };
    if stays.await? {
        return Ok(false);
    }
    forget(home, session)?;
    drop(desk);
    Ok(true)
}

impl FileStates {
    /// Keeps states in that directory.
    pub(crate) const fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    fn path(&self, session: &SessionId) -> PathBuf {
        self.0.join(format!("{session}.json"))
    }

    fn read(&self, session: &SessionId) -> Result<Option<SessionState>, Error> {
        let path = self.path(session);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => {
                return Err(Error::io("failed to read the state of a conversation", e)
                    .with("path", path.display()));
            }
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|why| {
            Error::new(
                ErrorKind::Corrupt,
                "the state of a conversation is damaged; without its file the conversation can be resumed by its token",
            )
            .with("path", path.display())
            .with("why", why)
        })
    }

    /// Notes that no process of the session is there any more; what else is known of it stays.
    ///
    /// # Errors
    ///
    /// Those of the file system; `Corrupt`.
    pub(crate) async fn end(&self, session: &SessionId) -> Result<(), Error> {
        match self.claim(session).await? {
            Some(mut state) if state.live.is_some() => {
                state.live = None;
                self.write(&state)
            }
            _ => Ok(()),
        }
    }

    fn write(&self, state: &SessionState) -> Result<(), Error> {
        let path = self.path(&state.session);
        let part = path.with_extension("part");
        let write = || {
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&part)?;
            file.write_all(&serde_json::to_vec(state)?)?;
            // A machine that goes down takes the agent with it; the token stands in the record of the run.
            fs::rename(&part, &path)
        };
        write().map_err(|e| {
            Error::io("failed to write the state of a conversation", e).with("path", path.display())
        })
    }
}

#[async_trait]
impl StateStore for FileStates {
    async fn load(&self, session: &SessionId) -> Result<Option<SessionState>, Error> {
        self.read(session)
    }

    async fn save(&self, state: &SessionState) -> Result<(), Error> {
        match self.read(&state.session)? {
            Some(stored) if stored.epoch > state.epoch => Err(superseded(&state.session)),
            _ => self.write(state),
        }
    }

    async fn claim(&self, session: &SessionId) -> Result<Option<SessionState>, Error> {
        let Some(mut state) = self.read(session)? else {
            return Ok(None);
        };
        state.epoch += 1;
        self.write(&state)?;
        Ok(Some(state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_state_is_found_again_and_an_earlier_controller_can_write_no_more() {
        let home = tempfile::tempdir().unwrap();
        let states = FileStates::new(directory(home.path()).unwrap());
        let session = SessionId::new("s-1").unwrap();
        assert_eq!(states.load(&session).await.unwrap(), None);
        assert_eq!(states.claim(&session).await.unwrap(), None);
        let first = SessionState::new(session.clone());
        states.save(&first).await.unwrap();
        let second = states.claim(&session).await.unwrap().unwrap();
        assert_eq!(second.epoch, first.epoch + 1);
        let error = states.save(&first).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        states.save(&second).await.unwrap();
        assert_eq!(states.load(&session).await.unwrap(), Some(second));
        forget(home.path(), &session).unwrap();
        assert_eq!(states.load(&session).await.unwrap(), None);
        forget(home.path(), &session).unwrap();
    }

    #[tokio::test]
    async fn what_is_left_goes_unless_somebody_sits_there_or_it_is_wanted() {
        let home = tempfile::tempdir().unwrap();
        assert!(sessions(home.path()).unwrap().is_empty());
        let at = directory(home.path()).unwrap();
        let session = SessionId::new("s-1.x").unwrap();
        for name in ["s-1.x.json", "s-1.x.part", "s-1.x.sock", "notes.txt"] {
            fs::write(at.join(name), "").unwrap();
        }
        let one = BTreeSet::from([session.clone()]);
        assert_eq!(sessions(home.path()).unwrap(), one);
        let forget = |stays| forget_unless(home.path(), &session, async move { stays });
        let desk = try_lock_file(&at.join("s-1.x.lock")).unwrap();
        assert!(!forget(Ok(false)).await.unwrap());
        drop(desk);
        assert!(!forget(Ok(true)).await.unwrap());
        let error = Error::new(ErrorKind::Unavailable, "it cannot be told");
        forget(Err(error)).await.unwrap_err();
        assert_eq!(sessions(home.path()).unwrap(), one);
        assert!(forget(Ok(false)).await.unwrap());
        let left: Vec<_> = fs::read_dir(&at).unwrap().flatten().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].file_name(), "notes.txt");
    }

    #[tokio::test]
    async fn a_damaged_state_is_told_and_not_begun_anew() {
        let home = tempfile::tempdir().unwrap();
        let at = directory(home.path()).unwrap();
        let states = FileStates::new(at.clone());
        let session = SessionId::new("s-1").unwrap();
        fs::write(at.join("s-1.json"), "{").unwrap();
        for failed in [
            states.load(&session).await.map(drop),
            states.claim(&session).await.map(drop),
            states.save(&SessionState::new(session.clone())).await,
        ] {
            assert_eq!(failed.unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }
}

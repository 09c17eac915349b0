//! Brings what lay in volumes of the engine back to this host, once its container has ended: the workspace, and the logs.
//!
//! A volume goes only when all that was in it is here and on the disk. Nothing that came back is executed or believed.

use std::{
    io::{self, Read},
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use groundcrew_core::{
    error::{Error, ErrorKind},
    id::{InstallId, InstanceId},
    instance::ByteStream,
};
use groundcrew_supervisor::Remains;
use rustix::fs::{CWD, Mode, OFlags};
use tokio_util::io::{StreamReader, SyncIoBridge};

use crate::{
    away::{Away, HOME, LEFT, OWN, WORK},
    engine::Engine,
    inside, life,
    place::{self, Place, Root},
    tree::{self, Later},
    volumes::{self, Volume},
};

/// Written down when the workspace of this host is about to be replaced: from then on it is no longer what it was.
const SWAPPING: &str = "swapping";
/// Written down when the logs are back.
const LOGGED: &str = "logged";

/// The most that is brought back of logs, in bytes: whoever was inside could write them.
const MOST_LOGS: u64 = 8 << 30;

fn failed<'a, E: Into<io::Error>>(
    what: &'static str,
    path: &'a Path,
) -> impl FnOnce(E) -> Error + use<'a, E> {
    move |e| Error::io(what, e.into()).with("path", path.display())
}

/// Does what reads an archive and writes files where it holds nobody up.
async fn with_archive<T: Send + 'static>(
    archive: ByteStream,
    work: impl FnOnce(&mut dyn Read) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let reader = StreamReader::new(archive.map_err(io::Error::other));
    let mut reader = SyncIoBridge::new(Box::pin(reader));
    tokio::task::spawn_blocking(move || work(&mut reader))
        .await
        .map_err(|e| {
            Error::new(
                ErrorKind::Panicked,
                "bringing files from the container was given up",
            )
            .with_source(e)
        })?
}

/// Brings back everything that the volumes have and this host does not; its container does not run any more.
///
/// # Errors
///
/// Then the volumes stay, and it is to be tried again. `Conflict` when the workspace of this host was changed meanwhile.
pub(crate) async fn bring(
    engine: &Arc<Engine>,
    id: &InstanceId,
    place: &Place,
    away: &Away,
    there: &[Volume],
    logs: &Path,
) -> Result<(), Error> {
    // Until then nothing ever ran on what is in them, and they may be half filled.
    if !place.has(LEFT)? {
        return Ok(());
    }
    let has = |name: &str| there.iter().any(|volume| volume.name == name);
    let workspace = match &away.workspace {
        Some(path) if has(&volumes::work(id)) && !place.has(HOME)? => Some(path.clone()),
        _ => None,
    };
    let logged = away.ours && has(&volumes::own(id)) && !place.has(LOGGED)?;
    if workspace.is_none() && !logged {
        return Ok(());
    }
    let carrier = away.carrier(engine, id).await?;
    if let Some(path) = workspace {
        let archive = engine.download(&carrier, WORK).await?;
        bring_workspace(id, place, away, path, archive).await?;
    }
    if logged {
        let archive = engine.download(&carrier, &format!("{OWN}/logs")).await?;
        bring_logs(place, logs, archive).await?;
    }
    engine.remove(&carrier).await
}

async fn bring_workspace(
    id: &InstanceId,
    place: &Place,
    away: &Away,
    path: PathBuf,
    archive: ByteStream,
) -> Result<(), Error> {
    if !place.has(SWAPPING)? {
        let (path, print) = (path.clone(), away.print);
        tokio::task::spawn_blocking(move || check_unchanged(&path, print))
            .await
            .map_err(|e| {
                Error::new(ErrorKind::Panicked, "looking at the workspace was given up")
                    .with_source(e)
            })??;
    }
    let (name, owner) = (format!(".groundcrew-incoming-{id}"), owner_of(&path)?);
    let parent = path.parent().unwrap_or(&path).to_owned();
    let beside = rustix::fs::openat(
        CWD,
        &parent,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(failed("failed to open the workspace's directory", &parent))?;
    let came = {
        let (beside, name) = (clone(&beside)?, name.clone());
        with_archive(archive, move |archive| {
            let fail = || failed("failed to make room for the workspace", &parent);
            let incoming = place::fresh(&beside, &name).map_err(fail())?;
            let came = tree::unpack(&incoming, archive, owner);
            match came {
                Ok(later) => Ok((incoming, later)),
                Err(error) => {
                    // Room for others; what is in the volume is whole.
                    let _again = groundcrew_supervisor::clear_tree(incoming.as_fd());
                    Err(error)
                }
            }
        })
        .await?
    };
    place.note(SWAPPING, b"")?;
    let swap = move || {
        let what = "failed to replace the files of the workspace";
        let (incoming, later) = came;
        put(&path, &incoming, later, what)?;
        rustix::fs::unlinkat(&beside, &name, rustix::fs::AtFlags::REMOVEDIR)
            .map_err(failed(what, &path))
    };
    tokio::task::spawn_blocking(swap).await.map_err(|e| {
        Error::new(
            ErrorKind::Panicked,
            "replacing the files of the workspace was given up",
        )
        .with_source(e)
    })??;
    place.note(HOME, b"")
}

/// Puts what came in the place of all that is in a directory, which is made if it is gone.
fn put(
    path: &Path,
    incoming: &OwnedFd,
    later: Vec<Later>,
    what: &'static str,
) -> Result<(), Error> {
    match rustix::fs::mkdirat(CWD, path, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(errno) => return Err(failed(what, path)(errno)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(failed(what, path))?;
    tree::replace(&top, incoming).map_err(failed(what, path))?;
    tree::settle(&top, later)
}

fn clone(descriptor: &OwnedFd) -> Result<OwnedFd, Error> {
    descriptor
        .try_clone()
        .map_err(|e| Error::io("failed to keep a directory open", e))
}

/// Returns to whom a workspace of this host belongs, if that is not this user; one that is gone is made anew as this user's.
fn owner_of(workspace: &Path) -> Result<Option<(u32, u32)>, Error> {
    let owner = match rustix::fs::lstat(workspace) {
        Ok(found) => (found.st_uid, found.st_gid),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(failed("failed to look at the workspace", workspace)(errno)),
    };
    let own = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    Ok((owner != own).then_some(owner))
}

/// Makes sure that nobody worked in the workspace of this host while it was in the volume.
///
/// # Errors
///
/// `Conflict`, saying what to do.
fn check_unchanged(path: &Path, print: Option<u64>) -> Result<(), Error> {
    let now = match tree::print(path) {
        Ok(now) => now,
        // Somebody took it away; it comes back.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if print.is_none_or(|print| print == now) || tree::is_empty(path)? {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Conflict,
        "the files of the workspace on this host were changed while the run worked in its volume, and would be replaced; move what is there elsewhere, so that the directory is empty, and try again",
    )
    .with("path", path.display()))
}

async fn bring_logs(place: &Place, logs: &Path, archive: ByteStream) -> Result<(), Error> {
    let incoming = place.fresh_directory("logs.incoming")?;
    let path = logs.to_owned();
    with_archive(archive, move |archive| {
        let mut bounded = archive.take(MOST_LOGS);
        let later = match tree::unpack(&incoming, &mut bounded, None) {
            // Too much to be logs: what came is what is kept of them.
            Err(_) if bounded.limit() == 0 => Vec::new(),
            came => came?,
        };
        put(&path, &incoming, later, "failed to bring the logs back")
    })
    .await?;
    place.note(LOGGED, b"")
}

/// What is left of an instance that is reached through the engine: whether its container runs, and its logs.
#[derive(Debug)]
pub(crate) struct Behind {
    pub(crate) engine: Arc<Engine>,
    pub(crate) root: Root,
    pub(crate) logs: PathBuf,
    pub(crate) install: InstallId,
    pub(crate) id: InstanceId,
}

#[async_trait]
impl Remains for Behind {
    async fn is_held(&self) -> Result<bool, Error> {
        let found = life::find(&self.engine, &self.install, &self.id).await?;
        Ok(found.iter().any(|container| container.running))
    }

    async fn bring(&self) -> Result<(), Error> {
        let Some(place) = self.root.find(&self.id)? else {
            return Ok(());
        };
        let ours = Away::read(&place)?.is_some_and(|away| away.ours);
        if !ours || !place.has(LEFT)? || place.has(LOGGED)? {
            return Ok(());
        }
        let found = life::find(&self.engine, &self.install, &self.id).await?;
        let Some(container) = found.first() else {
            return Ok(());
        };
        let archive = self.engine.download(&container.id, inside::LOGS).await?;
        bring_logs(&place, &self.logs, archive).await
    }
}

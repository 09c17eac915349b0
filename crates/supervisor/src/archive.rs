//! Moves files in and out of an instance as tar archives; what is unpacked never leaves its directory, whatever the archive says.
//!
//! * Regular files, directories and symbolic links travel; sockets, pipes and devices are left out when packing and refused
//!   when unpacking. Owners and times do not travel.
//! * What is unpacked belongs to us: directories 0700, files 0600, or 0700 where the archive has the owner's execute bit.
//! * The work is done on a thread of the blocking pool: archives are rare, and the loop goes on.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::{Component, Path, PathBuf},
};

use bytes::{Buf as _, Bytes};
use futures_util::{StreamExt as _, stream};
use groundcrew_core::{
    error::{Error, ErrorKind},
    instance::ByteStream,
};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, mkdirat, openat, readlinkat, renameat, symlinkat,
    unlinkat,
};
use tar::{Builder, EntryType, Header};
use tokio::{sync::mpsc, task::spawn_blocking};

/// How much is packed ahead of the reader, in pieces.
const AHEAD: usize = 4;

/// The size of a piece.
const PIECE: usize = 64 * 1024;

/// The deepest tree that is packed.
const MAX_DEPTH: usize = 200;

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

fn absolute(at: &Path) -> Result<(), Error> {
    if at.is_absolute() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidInput,
        "the path of an archive must be absolute",
    )
    .with("path", at.display()))
}

/// Packs a file, under its name, or what is in a directory, under names relative to it.
///
/// * Symbolic links are packed as links, never followed; a file that changes meanwhile is packed with the size it had.
///
/// # Errors
///
/// `InvalidInput` for a relative path; `NotFound`. What fails later is the last item of the stream.
pub fn pack(at: &Path) -> Result<ByteStream, Error> {
    pack_as(at, None)
}

/// As [`pack`]; everything belongs to this user and group, whoever unpacks it.
///
/// # Errors
///
/// As [`pack`].
pub fn pack_for(at: &Path, owner: (u32, u32)) -> Result<ByteStream, Error> {
    pack_as(at, Some(owner))
}

fn pack_as(at: &Path, owner: Option<(u32, u32)>) -> Result<ByteStream, Error> {
    absolute(at)?;
    let failed = |e: io::Error| Error::io("failed to pack", e).with("path", at.display());
    std::fs::symlink_metadata(at).map_err(failed)?;
    let (sender, receiver) = mpsc::channel(AHEAD);
    let at = at.to_owned();
    let _detached = spawn_blocking(move || {
        let outgoing = Outgoing {
            sender: sender.clone(),
            piece: Vec::new(),
        };
        if let Err(e) = pack_now(&at, owner, outgoing) {
            let error = Error::io("failed to pack", e).with("path", at.display());
            // Nobody reads any more: then nobody wants to know.
            let _unread = sender.blocking_send(Err(error));
        }
    });
    let next = async |mut receiver: mpsc::Receiver<Result<Bytes, Error>>| {
        Some((receiver.recv().await?, receiver))
    };
    Ok(stream::unfold(receiver, next).boxed())
}

/// Where a packer writes to; a reader that is gone is a broken pipe.
struct Outgoing {
    sender: mpsc::Sender<Result<Bytes, Error>>,
    piece: Vec<u8>,
}

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.piece);
        self.sender
            .blocking_send(Ok(piece.into()))
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

fn pack_now(at: &Path, owner: Option<(u32, u32)>, outgoing: Outgoing) -> io::Result<()> {
    let mut packer = Packer {
        builder: Builder::new(outgoing),
        owner,
    };
    let meta = std::fs::symlink_metadata(at)?;
    if meta.is_dir() {
        let top = openat(CWD, at, DIRECTORY, Mode::empty())?;
        packer.pack_directory(&top, Path::new(""))?;
    } else {
        let (parent, name) = (
            at.parent().unwrap_or(at),
            at.file_name().unwrap_or_default(),
        );
        let parent = openat(
            CWD,
            parent,
            DIRECTORY.difference(OFlags::NOFOLLOW),
            Mode::empty(),
        )?;
        packer.pack_one(parent.as_fd(), name, Path::new(name))?;
    }
    packer.builder.into_inner()?.flush()
}

/// What packs: where it writes to, and to whom everything belongs if not to whom it did.
struct Packer {
    builder: Builder<Outgoing>,
    owner: Option<(u32, u32)>,
}

impl Packer {
    /// Packs what is in a directory, to a depth that neither stack nor descriptors can run out at.
    fn pack_directory(&mut self, directory: &OwnedFd, below: &Path) -> io::Result<()> {
        if below.components().count() > MAX_DEPTH {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the tree is deeper than 200 directories",
            ));
        }
        let mut names = Vec::new();
        for entry in Dir::read_from(directory)? {
            let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        for name in names {
            let path = below.join(&name);
            if let Some(inner) = self.pack_one(directory.as_fd(), &name, &path)? {
                self.pack_directory(&inner, &path)?;
            }
        }
        Ok(())
    }

    /// Packs one entry; returns the directory to go on in, if it is one. What vanished meanwhile is left out.
    fn pack_one(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &OsStr,
        path: &Path,
    ) -> io::Result<Option<OwnedFd>> {
        let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let mut header = Header::new_gnu();
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let inner = openat(directory, name, DIRECTORY, Mode::empty())?;
                header.set_metadata(&File::from(inner.try_clone()?).metadata()?);
                header.set_size(0);
                self.own(&mut header);
                self.builder.append_data(&mut header, path, io::empty())?;
                return Ok(Some(inner));
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
                let file = File::from(openat(directory, name, flags, Mode::empty())?);
                let meta = file.metadata()?;
                if meta.is_file() {
                    header.set_metadata(&meta);
                    self.own(&mut header);
                    let size = meta.len();
                    let whole = file.chain(io::repeat(0)).take(size);
                    self.builder.append_data(&mut header, path, whole)?;
                }
            }
            FileType::Symlink => {
                let target = readlinkat(directory, name, Vec::new())?;
                header.set_entry_type(EntryType::Symlink);
                header.set_mode(0o777);
                header.set_size(0);
                self.own(&mut header);
                let target = OsStr::from_bytes(target.to_bytes());
                self.builder.append_link(&mut header, path, target)?;
            }
            _ => {}
        }
        Ok(None)
    }

    fn own(&self, header: &mut Header) {
        if let Some((user, group)) = self.owner {
            header.set_uid(user.into());
            header.set_gid(group.into());
        }
    }
}

/// Unpacks an archive below a directory, which is made if it does not exist.
///
/// * Files that exist are replaced, each at once; directories that exist are kept.
/// * Nothing is ever written through a symbolic link, whether it was there before or came with the archive.
///
/// # Errors
///
/// * `InvalidInput`, naming the entry, for one that is absolute, goes up, leads through a link, or is no file, directory or
///   symbolic link; what came before it stays.
/// * `Protocol` for what is no archive; the error of the stream.
///
/// # Cancel safety
///
/// What was unpacked before stays; no file is half written.
pub async fn unpack(at: &Path, mut archive: ByteStream) -> Result<(), Error> {
    absolute(at)?;
    let (sender, receiver) = mpsc::channel(AHEAD);
    let at = at.to_owned();
    let work = spawn_blocking(move || {
        unpack_now(
            &at,
            Incoming {
                receiver,
                piece: Bytes::new(),
                ended: false,
            },
        )
    });
    let mut broken = None;
    while let Some(piece) = archive.next().await {
        match piece {
            Ok(piece) if piece.is_empty() => {}
            Ok(piece) => {
                if sender.send(piece).await.is_err() {
                    break;
                }
            }
            Err(e) => {
                broken = Some(e);
                break;
            }
        }
    }
    if broken.is_none() {
        // An empty piece is the end, as against a caller that went away. A worker that is done needs none.
        let _done = sender.send(Bytes::new()).await;
    }
    drop(sender);
    let unpacked = work
        .await
        .map_err(|e| Error::new(ErrorKind::Panicked, "unpacking broke off").with_source(e))?;
    broken.map_or(unpacked, Err)
}

/// Where an archive comes from.
struct Incoming {
    receiver: mpsc::Receiver<Bytes>,
    piece: Bytes,
    ended: bool,
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() && !self.ended {
            self.piece = self
                .receiver
                .blocking_recv()
                .ok_or(io::ErrorKind::ConnectionAborted)?;
            self.ended = self.piece.is_empty();
        }
        let count = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

fn refused(message: &'static str, entry: &Path) -> Error {
    Error::new(ErrorKind::InvalidInput, message).with("entry", entry.display())
}

fn unpack_now(at: &Path, incoming: Incoming) -> Result<(), Error> {
    let failed = |e: io::Error| Error::io("failed to unpack", e).with("path", at.display());
    {
        use std::os::unix::fs::DirBuilderExt as _;
        let mut builder = std::fs::DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(at)
            .map_err(failed)?;
    }
    let top = openat(
        CWD,
        at,
        DIRECTORY.difference(OFlags::NOFOLLOW),
        Mode::empty(),
    )
    .map_err(|e| failed(e.into()))?;
    let damaged = |e: io::Error| match e.kind() {
        io::ErrorKind::ConnectionAborted => {
            Error::new(ErrorKind::Cancelled, "the archive broke off")
        }
        _ => Error::new(
            ErrorKind::Protocol,
            "what came is no tar archive, or a damaged one",
        )
        .with_source(e),
    };
    let mut archive = tar::Archive::new(incoming);
    for entry in archive.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            continue;
        }
        let path = PathBuf::from(OsString::from_vec(entry.path_bytes().into_owned()));
        let mut parts = plain(&path)?;
        let name = parts.pop();
        let unwritten =
            |e: io::Error| Error::io("failed to unpack", e).with("entry", path.display());
        let parent = enter(&top, &parts, &path)?;
        match (kind, name) {
            (EntryType::Directory, None) => {}
            (EntryType::Directory, Some(name)) => drop(enter(&parent, &[name], &path)?),
            (EntryType::Symlink, Some(name)) => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                let part = part_of(&name);
                unlink(&parent, &part).map_err(unwritten)?;
                symlinkat(OsStr::from_bytes(&target), &parent, &part)
                    .map_err(|e| unwritten(e.into()))?;
                put(&parent, &part, &name).map_err(unwritten)?;
            }
            (EntryType::Regular | EntryType::Continuous, Some(name)) => {
                let executable = entry.header().mode().map_err(damaged)? & 0o100 != 0;
                let part = part_of(&name);
                unlink(&parent, &part).map_err(unwritten)?;
                write(&parent, &part, executable, entry.size(), &mut entry)
                    .map_err(|e| match e {
                        Half::Read(e) => damaged(e),
                        Half::Write(e) => unwritten(e),
                    })
                    .inspect_err(|_| {
                        let _left = unlink(&parent, &part);
                    })?;
                put(&parent, &part, &name).map_err(unwritten)?;
            }
            _ => {
                return Err(refused(
                    "an entry of the archive is no file, directory or symbolic link",
                    &path,
                ));
            }
        }
    }
    Ok(())
}

/// Returns the names on the way to an entry; none for the directory itself.
fn plain(path: &Path) -> Result<Vec<OsString>, Error> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_owned()),
            Component::CurDir => {}
            _ => {
                return Err(refused(
                    "an entry of the archive leaves its directory",
                    path,
                ));
            }
        }
    }
    Ok(parts)
}

/// Goes down from a directory, making what is missing, and never through a link.
fn enter(from: &OwnedFd, parts: &[OsString], entry: &Path) -> Result<OwnedFd, Error> {
    let failed = |e: io::Error| Error::io("failed to unpack", e).with("entry", entry.display());
    let mut here = from.try_clone().map_err(failed)?;
    for part in parts {
        match mkdirat(&here, part, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(failed(e.into())),
        }
        here = match openat(&here, part, DIRECTORY, Mode::empty()) {
            Ok(next) => next,
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => {
                return Err(refused(
                    "an entry of the archive leads through a link or a file",
                    entry,
                ));
            }
            Err(e) => return Err(failed(e.into())),
        };
    }
    Ok(here)
}

/// The name under which a file is written until it is whole; cut so that it is never longer than names may be.
fn part_of(name: &OsStr) -> OsString {
    let bytes = name.as_bytes();
    OsString::from_vec([b".", &bytes[..bytes.len().min(200)], b".groundcrew-part"].concat())
}

fn unlink(directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn put(directory: &OwnedFd, part: &OsStr, name: &OsStr) -> io::Result<()> {
    renameat(directory, part, directory, name).map_err(|e| {
        let _left = unlink(directory, part);
        e.into()
    })
}

enum Half {
    Read(io::Error),
    Write(io::Error),
}

fn write(
    directory: &OwnedFd,
    name: &OsStr,
    executable: bool,
    size: u64,
    from: &mut impl Read,
) -> Result<(), Half> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = if executable {
        Mode::RWXU
    } else {
        Mode::RUSR | Mode::WUSR
    };
    let mut file =
        File::from(openat(directory, name, flags, mode).map_err(|e| Half::Write(e.into()))?);
    let mut piece = vec![0; PIECE];
    let mut left = size;
    loop {
        match from.read(&mut piece) {
            Ok(0) if left == 0 => return Ok(()),
            Ok(0) => return Err(Half::Read(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                file.write_all(&piece[..count]).map_err(Half::Write)?;
                left = left.saturating_sub(count as u64);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Half::Read(e)),
        }
    }
}

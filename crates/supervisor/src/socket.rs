//! Unix sockets whose path may be longer than the 107 bytes that an address holds: those are reached through a descriptor of their directory.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags};

/// What a socket address holds, without the NUL byte behind it.
const MAX_PATH: usize = 107;

/// A path that fits into an address, and what keeps it valid.
struct Short {
    path: PathBuf,
    _directory: Option<OwnedFd>,
}

fn shorten(path: &Path) -> io::Result<Short> {
    if path.as_os_str().len() <= MAX_PATH {
        return Ok(Short {
            path: path.to_owned(),
            _directory: None,
        });
    }
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = rustix::fs::openat(
        CWD,
        directory,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let path = Path::new("/proc/self/fd")
        .join(directory.as_raw_fd().to_string())
        .join(name);
    Ok(Short {
        path,
        _directory: Some(directory),
    })
}

/// Makes a socket that only its owner may use; one that exists already is an error.
pub(crate) fn listen(path: &Path) -> io::Result<tokio::net::UnixListener> {
    let short = shorten(path)?;
    let listener = tokio::net::UnixListener::bind(&short.path)?;
    // The directory is closed to others, so nobody came in between.
    rustix::fs::chmodat(
        CWD,
        &short.path,
        Mode::RUSR | Mode::WUSR,
        rustix::fs::AtFlags::empty(),
    )?;
    Ok(listener)
}

/// Connects to a socket.
pub(crate) async fn connect(path: &Path) -> io::Result<tokio::net::UnixStream> {
    let short = shorten(path)?;
    tokio::net::UnixStream::connect(&short.path).await
}

/// Connects to a socket from outside of any runtime.
pub(crate) fn connect_blocking(path: &Path) -> io::Result<std::os::unix::net::UnixStream> {
    let short = shorten(path)?;
    std::os::unix::net::UnixStream::connect(&short.path)
}

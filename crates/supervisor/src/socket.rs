//! Unix sockets whose path may be longer than the 107 bytes that an address holds: those are reached through a descriptor of their directory.

use std::{
    io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, OFlags};

/// What a socket address holds, without the NUL byte behind it.
const MAX_PATH: usize = 107;

/// A path that fits into an address, and what keeps it valid.
struct Short {
    path: PathBuf,
    _held: Option<OwnedFd>,
}

fn shorten(path: &Path) -> io::Result<Short> {
    if path.as_os_str().len() <= MAX_PATH {
        return Ok(Short {
            path: path.to_owned(),
            _held: None,
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
        _held: Some(directory),
    })
}

/// Makes a socket that only its owner may use; one that exists already is an error. It does not block, as a runtime wants it.
///
/// # Errors
///
/// Those of the operating system.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let short = shorten(path)?;
    let listener = UnixListener::bind(&short.path)?;
    listener.set_nonblocking(true)?;
    // The directory is closed to others, so nobody came in between.
    rustix::fs::chmodat(
        CWD,
        &short.path,
        Mode::RUSR | Mode::WUSR,
        rustix::fs::AtFlags::empty(),
    )?;
    Ok(listener)
}

/// Finds a socket, and never through a link: whoever has its directory, such as a container, would choose whom we speak to.
fn find(path: &Path) -> io::Result<Short> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&socket)?.st_mode) != FileType::Socket {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(Short {
        path: Path::new("/proc/self/fd").join(socket.as_raw_fd().to_string()),
        _held: Some(socket),
    })
}

/// Connects to a socket; what comes back does not block, as a runtime wants it.
///
/// # Errors
///
/// Those of the operating system; `ConnectionRefused` for what is no socket, or none that anybody listens at.
///
/// # Cancel safety
///
/// May be dropped.
pub async fn connect(path: &Path) -> io::Result<UnixStream> {
    let short = find(path)?;
    let stream = tokio::net::UnixStream::connect(&short.path).await?;
    stream.into_std()
}

/// Connects to a socket from outside of any runtime.
pub(crate) fn connect_blocking(path: &Path) -> io::Result<UnixStream> {
    let short = find(path)?;
    UnixStream::connect(&short.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_place_of_a_socket_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let (own, link) = (root.path().join("own"), root.path().join("link"));
        let _listener = UnixListener::bind(&own).unwrap();
        std::os::unix::fs::symlink(&own, &link).unwrap();
        connect_blocking(&own).unwrap();
        let error = connect_blocking(&link).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
    }
}

//! Opens the files of a log. Whoever writes it may not be trusted: a container has the directory of its logs.
//!
//! * Must never follow a link, wait for the other end of a pipe, or read more than a file of that kind has.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::OwnedFd,
    path::Path,
};

use rustix::fs::{CWD, FileType, Mode, OFlags};

/// Opens the directory of one process's log; `NotADirectory` for anything else, a link included.
pub(super) fn open_directory(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, directory, flags, Mode::empty())?)
}

/// Opens a file in it; one that is no plain file is `InvalidData`.
pub(super) fn open(directory: &Path, name: &str) -> io::Result<File> {
    let directory = open_directory(directory)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let strange = || io::Error::new(io::ErrorKind::InvalidData, "it is no plain file");
    let file = match rustix::fs::openat(&directory, name, flags, Mode::empty()) {
        Ok(file) => file,
        // A link, and a socket.
        Err(rustix::io::Errno::LOOP | rustix::io::Errno::NXIO) => return Err(strange()),
        Err(errno) => return Err(errno.into()),
    };
    match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file.into()),
        _ => Err(strange()),
    }
}

/// Reads a small file in it; one that is larger is `InvalidData`.
pub(super) fn read(directory: &Path, name: &str, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = most as u64 + 1;
    open(directory, name)?.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is too large",
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_plain_files_in_the_directory_itself_are_read() {
        let root = tempfile::tempdir().unwrap();
        let log = root.path().join("agent");
        std::fs::create_dir(&log).unwrap();
        std::fs::write(root.path().join("elsewhere"), "of the host").unwrap();
        std::fs::write(log.join("plain"), "own").unwrap();
        symlink("../elsewhere", log.join("link")).unwrap();
        symlink("agent", root.path().join("linked")).unwrap();
        let fifo = FileType::Fifo;
        rustix::fs::mknodat(CWD, log.join("pipe"), fifo, Mode::RWXU, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(log.join("socket")).unwrap();
        std::fs::create_dir(log.join("directory")).unwrap();

        assert_eq!(read(&log, "plain", 3).unwrap(), b"own");
        for name in ["link", "pipe", "socket", "directory"] {
            let error = open(&log, name).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{name}: {error}");
        }
        let error = read(&log, "plain", 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        let error = read(&root.path().join("linked"), "plain", 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory, "{error}");
    }
}

//! The bridge: carries the control connection of a supervisor over standard input and output, for `docker exec` and ssh.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Write as _},
    net::Shutdown,
    os::fd::AsFd as _,
    os::unix::net::UnixStream,
    path::Path,
};

use crate::socket;

/// Copies both ways until the supervisor closes its side.
pub(crate) fn run(path: &OsStr) -> io::Result<()> {
    let mut from_socket = socket::connect_blocking(Path::new(path))?;
    let to_socket = from_socket.try_clone()?;
    // Bare descriptors: the buffers of the standard streams hold back what has no line end.
    let stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    std::thread::Builder::new()
        .name("bridge-input".to_owned())
        .spawn(move || carry_input(stdin, to_socket))?;
    io::copy(&mut from_socket, &mut stdout)?;
    stdout.flush()
}

fn carry_input(mut stdin: File, mut socket: UnixStream) {
    // Whatever ended the input, the supervisor learns it as the end of the stream and answers by closing its side.
    drop(io::copy(&mut stdin, &mut socket));
    drop(socket.shutdown(Shutdown::Write));
}

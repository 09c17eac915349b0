//! The bridge: carries the control connection of a supervisor over standard input and output, for `docker exec` and ssh.

use std::{
    ffi::OsStr, fs::File, io, net::Shutdown, os::fd::AsFd as _, os::unix::net::UnixStream,
    path::Path,
};

use crate::socket;

/// How much is carried at once.
const PIECE: usize = 256 << 10;

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
    match carry(&mut from_socket, &mut stdout) {
        // The controller hung up first.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        carried => carried,
    }
}

/// Copies until the end.
///
/// Never by `std::io::copy`: it splices, and while a splice waits for the socket, the kernel keeps the pipe locked, so that
/// whoever reads the other end waits too, even if it asked not to.
fn carry(from: &mut impl io::Read, to: &mut impl io::Write) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return to.flush(),
            Ok(length) => to.write_all(&buffer[..length])?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

fn carry_input(mut stdin: File, mut socket: UnixStream) {
    // Whatever ended the input, the supervisor learns it as the end of the stream and answers by closing its side.
    drop(carry(&mut stdin, &mut socket));
    drop(socket.shutdown(Shutdown::Write));
}

//! The streams of a process: pipes or a terminal, our ends and its own.

use std::{fs::File, io, os::fd::OwnedFd};

use groundcrew_core::process::{ProcessSpec, StdinPolicy, StdioKind, TerminalSize};
use rustix::{
    fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl},
    io::fcntl_dupfd_cloexec,
    pipe::{PipeFlags, pipe_with},
    pty::OpenptFlags,
    termios::{Winsize, tcsetwinsize},
};

/// Our ends of a process's streams.
#[derive(Debug)]
pub(super) enum Streams {
    /// Pipes.
    Pipes {
        stdin: Option<OwnedFd>,
        stdout: OwnedFd,
        stderr: OwnedFd,
    },
    /// A terminal; `input` is the same one, if the process gets input.
    Terminal {
        output: OwnedFd,
        input: Option<OwnedFd>,
        control: OwnedFd,
    },
}

/// What becomes a process's descriptors 0, 1 and 2; none of them has such a number here.
pub(super) type Theirs = [OwnedFd; 3];

fn winsize(size: TerminalSize) -> Winsize {
    Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// Sets the size of a terminal; its foreground processes are told.
pub(super) fn resize(terminal: impl std::os::fd::AsFd, size: TerminalSize) -> io::Result<()> {
    Ok(tcsetwinsize(terminal, winsize(size))?)
}

fn nonblocking(fd: &OwnedFd) -> io::Result<()> {
    Ok(fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?)
}

/// Moves a descriptor out of the way of 0, 1 and 2, where a program may have been started with some of them closed.
pub(super) fn above_standard(fd: OwnedFd) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd as _;
    if fd.as_raw_fd() > 2 {
        return Ok(fd);
    }
    Ok(fcntl_dupfd_cloexec(&fd, 3)?)
}

/// An input that is at its end.
fn nothing() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(
        "/dev/null",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Makes the streams: ours, and the process's.
pub(super) fn open(spec: &ProcessSpec) -> io::Result<(Streams, Theirs)> {
    let open = spec.stdin == StdinPolicy::Open;
    let (ours, [stdin, stdout, stderr]) = match spec.stdio {
        StdioKind::Pipes => pipes(open)?,
        StdioKind::Terminal(size) => terminal(size, open)?,
    };
    let theirs = [
        above_standard(stdin)?,
        above_standard(stdout)?,
        above_standard(stderr)?,
    ];
    Ok((ours, theirs))
}

fn pipes(open: bool) -> io::Result<(Streams, Theirs)> {
    let (their_stdin, stdin) = if open {
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        nonblocking(&ours)?;
        (theirs, Some(ours))
    } else {
        (nothing()?, None)
    };
    let (stdout, their_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    nonblocking(&stdout)?;
    let (stderr, their_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    nonblocking(&stderr)?;
    let ours = Streams::Pipes {
        stdin,
        stdout,
        stderr,
    };
    Ok((ours, [their_stdin, their_stdout, their_stderr]))
}

fn terminal(size: TerminalSize, open: bool) -> io::Result<(Streams, Theirs)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let output = rustix::pty::openpt(flags)?;
    rustix::pty::unlockpt(&output)?;
    tcsetwinsize(&output, winsize(size))?;
    nonblocking(&output)?;
    let theirs = rustix::pty::ioctl_tiocgptpeer(&output, flags)?;
    let (stdout, stderr) = (theirs.try_clone()?, theirs.try_clone()?);
    let (stdin, input) = if open {
        (theirs, Some(output.try_clone()?))
    } else {
        (nothing()?, None)
    };
    let control = output.try_clone()?;
    let ours = Streams::Terminal {
        output,
        input,
        control,
    };
    Ok((ours, [stdin, stdout, stderr]))
}

/// Makes the pipe in which a child tells why it could not become its program.
pub(super) fn report() -> io::Result<(File, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((File::from(reader), above_standard(writer)?))
}

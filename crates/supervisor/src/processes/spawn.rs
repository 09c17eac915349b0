//! Starts a program; the unsafe code of this module lives here, above all between fork and exec.
//!
//! What runs between fork and exec must not allocate, lock or unwind: only system calls on values that were made before.
//!
//! The child gets exactly the given arguments and variables, descriptors 0 to 2 and no other, a session of its own, no
//! blocked and no ignored signal, no core files, and dies with the thread that started it. The file mode mask and all
//! other limits are the caller's.
#![expect(
    unsafe_code,
    reason = "resetting signals and closing descriptors between fork and exec, and registering descriptors, have no safe form"
)]

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd},
        unix::{ffi::OsStrExt as _, process::CommandExt as _},
    },
    path::Path,
    process::{Command, Stdio},
};

use groundcrew_core::{
    env::Environment,
    error::{Error, ErrorKind},
    process::{ProcessSpec, StdinPolicy, StdioKind, TerminalSize},
};
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    pipe::{PipeFlags, pipe_with},
    process::{
        Pid, PidfdFlags, Resource, Rlimit, Signal, getpid, getppid, getrlimit, ioctl_tiocsctty,
        pidfd_open, set_parent_process_death_signal, setrlimit, setsid,
    },
    pty::OpenptFlags,
    termios::{Winsize, tcsetwinsize},
};
use tokio::io::{Interest, unix::AsyncFd};
use zeroize::Zeroize;

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

/// A process that runs its program.
#[derive(Debug)]
pub(super) struct Spawned {
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
    pub(super) streams: Streams,
}

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

/// Registers a descriptor with the runtime.
pub(super) fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` always gives the same descriptor, and keeps it open until it is dropped, with the registration.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(Into::into)
}

/// Makes the streams, and gives the process's ends to `command`; returns ours.
fn streams(command: &mut Command, spec: &ProcessSpec) -> io::Result<Streams> {
    let open = spec.stdin == StdinPolicy::Open;
    match spec.stdio {
        StdioKind::Pipes => {
            let stdin = if open {
                let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
                nonblocking(&ours)?;
                command.stdin(theirs);
                Some(ours)
            } else {
                command.stdin(Stdio::null());
                None
            };
            let (stdout, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
            nonblocking(&stdout)?;
            command.stdout(theirs);
            let (stderr, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
            nonblocking(&stderr)?;
            command.stderr(theirs);
            Ok(Streams::Pipes {
                stdin,
                stdout,
                stderr,
            })
        }
        StdioKind::Terminal(size) => {
            let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
            let output = rustix::pty::openpt(flags)?;
            rustix::pty::unlockpt(&output)?;
            tcsetwinsize(&output, winsize(size))?;
            nonblocking(&output)?;
            let theirs = rustix::pty::ioctl_tiocgptpeer(&output, flags)?;
            command
                .stdout(theirs.try_clone()?)
                .stderr(theirs.try_clone()?);
            if open {
                command.stdin(theirs);
            } else {
                command.stdin(Stdio::null());
            }
            let input = if open {
                Some(output.try_clone()?)
            } else {
                None
            };
            let control = output.try_clone()?;
            Ok(Streams::Terminal {
                output,
                input,
                control,
            })
        }
    }
}

/// Marks all descriptors from 3 on as closed on exec, in the child: the one that reports a failed exec must live until then.
fn close_descriptors(limit: RawFd) {
    const FIRST: libc::c_uint = 3;
    // SAFETY: a system call with plain numbers, on the descriptor table of this process, which is about to be replaced.
    let done = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if done == 0 {
        return;
    }
    // Before Linux 5.11, one by one.
    for fd in 3..limit {
        // SAFETY: sets a flag; a descriptor that is not open gives an error that does not matter.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// An action that is all zero: the default, no flags, no mask; as large as the largest layout of the kernel.
const DEFAULT_ACTION: [u64; 4] = [0; 4];

/// Lets every signal do what it does by default, and blocks none, in the child.
///
/// The system calls themselves are made: the C library keeps two signals to itself, and would leave them ignored.
fn reset_signals() -> io::Result<()> {
    const SET_SIZE: usize = size_of::<u64>();
    for signal in 1..=64 {
        // SAFETY: the kernel reads the action, which outlives the call; KILL and STOP give an error that does not matter.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                DEFAULT_ACTION.as_ptr(),
                std::ptr::null::<u64>(),
                SET_SIZE,
            );
        }
    }
    let none = 0_u64;
    // SAFETY: the kernel reads a set of 64 signals, which lives on this stack.
    let done = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const none,
            std::ptr::null::<u64>(),
            SET_SIZE,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A program with arguments and variables in the form that the kernel takes; wiped when dropped.
struct Image {
    path: CString,
    strings: Vec<Vec<u8>>,
    arguments: Vec<*const libc::c_char>,
    variables: Vec<*const libc::c_char>,
}

// SAFETY: the pointers lead into `strings`, which is owned, never changed while they live, and moved without moving its bytes.
unsafe impl Send for Image {}
// SAFETY: as above; it is only read.
unsafe impl Sync for Image {}

impl Image {
    fn new(program: &Path, spec: &ProcessSpec, environment: &Environment) -> io::Result<Self> {
        // Made in one piece: a string that grows leaves copies behind that nobody wipes.
        let arguments = spec
            .command
            .arguments()
            .iter()
            .map(|argument| [argument.as_bytes(), b"\0"].concat());
        let variables = environment
            .iter()
            .map(|(key, value)| [key.as_bytes(), b"=", value, b"\0"].concat());
        let strings: Vec<Vec<u8>> = arguments.chain(variables).collect();
        let pointers = |strings: &[Vec<u8>]| {
            let pointers = strings.iter().map(|string| string.as_ptr().cast());
            pointers.chain([std::ptr::null()]).collect()
        };
        let (first, rest) = strings.split_at(spec.command.arguments().len());
        Ok(Self {
            path: CString::new(program.as_os_str().as_bytes())?,
            arguments: pointers(first),
            variables: pointers(rest),
            strings,
        })
    }

    /// Becomes the program; returns only with an error. The C library's search is not used: it gives what it cannot execute to a shell.
    fn execute(&self) -> io::Error {
        // SAFETY: both arrays end in a null pointer, and every other one leads to a string that ends in NUL and is owned here.
        unsafe {
            libc::execve(
                self.path.as_ptr(),
                self.arguments.as_ptr(),
                self.variables.as_ptr(),
            );
        }
        io::Error::last_os_error()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        self.strings.iter_mut().for_each(Zeroize::zeroize);
    }
}

/// What the child does between fork and exec; `entry` is the `cgroup.procs` of its leaf.
fn become_child(
    parent: Pid,
    terminal: bool,
    no_new_privileges: bool,
    entry: Option<RawFd>,
    limit: RawFd,
) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Had the parent died before, nobody would tell us. A parent outside our pid namespace has no number.
    if getppid().is_some_and(|now| now != parent) {
        return Err(rustix::io::Errno::SRCH.into());
    }
    if let Some(entry) = entry {
        // SAFETY: the descriptor was open in the parent until after the fork; "0" means the writer itself.
        if unsafe { libc::write(entry, b"0".as_ptr().cast(), 1) } != 1 {
            return Err(io::Error::last_os_error());
        }
    }
    setsid()?;
    if terminal {
        // SAFETY: descriptor 1 is the terminal, put there before this runs, and stays open until exec.
        ioctl_tiocsctty(unsafe { std::os::fd::BorrowedFd::borrow_raw(1) })?;
    }
    reset_signals()?;
    let core = getrlimit(Resource::Core);
    setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(0),
            maximum: core.maximum,
        },
    )?;
    if no_new_privileges {
        rustix::thread::set_no_new_privs(true)?;
    }
    close_descriptors(limit);
    Ok(())
}

/// Starts `program` with the arguments of `spec`; returns when it runs, or the error of the kernel.
///
/// * `entry` is the open `cgroup.procs` of the leaf that it enters first.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the process module of the crate"
)]
pub(super) fn spawn(
    program: &Path,
    spec: &ProcessSpec,
    environment: &Environment,
    entry: Option<&std::fs::File>,
) -> io::Result<Spawned> {
    let image = Image::new(program, spec, environment)?;
    let mut command = Command::new(program);
    // The environment of the image counts; this only keeps ours from being copied.
    command.env_clear().current_dir(&spec.directory);
    let streams = streams(&mut command, spec)?;
    let parent = getpid();
    let terminal = matches!(spec.stdio, StdioKind::Terminal(_));
    let no_new_privileges = spec.no_new_privileges;
    let entry = entry.map(|file| file.as_fd().as_raw_fd());
    let limit = getrlimit(Resource::Nofile)
        .current
        .and_then(|limit| RawFd::try_from(limit).ok())
        .unwrap_or(65536);
    // SAFETY: both make system calls on values that were made before: they neither allocate nor lock nor unwind.
    unsafe {
        command.pre_exec(move || {
            become_child(parent, terminal, no_new_privileges, entry, limit)?;
            Err(image.execute())
        });
    }
    let child = command.spawn()?;
    let pid = Pid::from_child(&child);
    // Nobody but us reaps it, so the number is still its own.
    let pidfd = pidfd_open(pid, PidfdFlags::NONBLOCK).inspect_err(|_| {
        let mut child = child;
        let _killed = child.kill();
        let _reaped = child.wait();
    })?;
    Ok(Spawned {
        pid,
        pidfd,
        streams,
    })
}

/// Says what a failed start means.
pub(super) fn explain(
    e: io::Error,
    program: &Path,
    spec: &ProcessSpec,
    environment: &Environment,
) -> Error {
    use rustix::io::Errno;
    let code = Errno::from_io_error(&e);
    let (kind, message) = match code {
        Some(Errno::NOENT) => (
            ErrorKind::InterpreterNotFound,
            "the program or what it is run by does not exist",
        ),
        Some(Errno::NOEXEC) => (
            ErrorKind::NotExecutable,
            "the program is no program that this machine can execute",
        ),
        Some(Errno::ACCESS) => (
            ErrorKind::NotExecutable,
            "the program may not be executed; check permissions and mount options",
        ),
        Some(Errno::TXTBSY) => (ErrorKind::Unavailable, "the program is being written"),
        Some(Errno::TOOBIG) => (
            ErrorKind::TooLarge,
            "arguments and environment are larger than the kernel takes",
        ),
        Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::NOSPC) => (
            ErrorKind::ResourceExhausted,
            "the system has no room for another process",
        ),
        _ => return Error::io("failed to start the program", e).with("program", program.display()),
    };
    let mut error = Error::new(kind, message).with("program", program.display());
    if kind == ErrorKind::TooLarge {
        let variables: usize = environment
            .iter()
            .map(|(key, value)| key.as_bytes().len() + value.len() + 2 + size_of::<usize>())
            .sum();
        error = error
            .with("arguments_bytes", spec.command.kernel_size())
            .with("environment_bytes", variables);
    }
    error.with_source(e)
}

//! Starts a program; the unsafe code of this module lives here, above all between fork and exec.
//!
//! What runs between fork and exec must not allocate, lock or unwind: only system calls on values that were made before.
//!
//! The child gets exactly the given arguments and variables, descriptors 0 to 2 and no other, a session of its own, no
//! blocked and no ignored signal, no core files, and dies with the thread that started it. The file mode mask and all
//! limits of which nothing was said are the caller's.
//!
//! It is born in its cgroup. Moving in afterwards takes a write that waits for every processor of the machine, for two to
//! eleven milliseconds; that is done only where the kernel does not let anybody be born in one.
#![expect(
    unsafe_code,
    reason = "forking, resetting signals and closing descriptors between fork and exec, and registering descriptors, have no safe form"
)]

use std::{
    ffi::{CStr, CString},
    io::{self, Read as _},
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

use groundcrew_core::{
    env::Environment,
    executor::Limits,
    process::{ProcessSpec, StdioKind},
};
use rustix::{
    io::Errno,
    process::{
        Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getpid, getppid,
        getrlimit, ioctl_tiocsctty, pidfd_open, set_parent_process_death_signal, setrlimit, setsid,
        waitid,
    },
};
use tokio::io::{Interest, unix::AsyncFd};
use zeroize::Zeroize;

use super::streams::{self, Streams};
use crate::tree::{Seat, each_process};

/// A process that runs its program.
#[derive(Debug)]
pub(super) struct Spawned {
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
    pub(super) streams: Streams,
}

/// Registers a descriptor with the runtime.
pub(super) fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` always gives the same descriptor, and keeps it open until it is dropped, with the registration.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(Into::into)
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
fn reset_signals() -> Result<(), Errno> {
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
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

/// A program with arguments and variables in the form that the kernel takes; wiped when dropped.
struct Image {
    path: CString,
    strings: Vec<Vec<u8>>,
    arguments: Vec<*const libc::c_char>,
    variables: Vec<*const libc::c_char>,
}

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
    fn execute(&self) -> Errno {
        // SAFETY: both arrays end in a null pointer, and every other one leads to a string that ends in NUL and is owned here.
        unsafe {
            libc::execve(
                self.path.as_ptr(),
                self.arguments.as_ptr(),
                self.variables.as_ptr(),
            );
        }
        last_error()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        self.strings.iter_mut().for_each(Zeroize::zeroize);
    }
}

/// What the kernel reads of a request for a child, as of Linux 5.7.
#[repr(C)]
#[derive(Debug, Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Makes a child that is born in a cgroup: a fork in all else. Returns nothing in the child.
fn fork_into(cgroup: BorrowedFd<'_>) -> Result<Option<Pid>, Errno> {
    let arguments = CloneArguments {
        flags: CLONE_INTO_CGROUP,
        exit_signal: u64::from(libc::SIGCHLD.unsigned_abs()),
        cgroup: u64::from(cgroup.as_raw_fd().unsigned_abs()),
        ..CloneArguments::default()
    };
    // SAFETY: without shared memory this is a fork: the child goes on here on its own copy of everything. The kernel reads
    // the arguments, which outlive the call, and no more of them than is told.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw const arguments,
            size_of::<CloneArguments>(),
        )
    };
    match pid {
        0 => Ok(None),
        pid => i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .filter(|_| pid > 0)
            .map(Some)
            .ok_or_else(last_error),
    }
}

fn fork() -> Result<Option<Pid>, Errno> {
    // SAFETY: the child only makes system calls on values that were made before.
    match unsafe { libc::fork() } {
        0 => Ok(None),
        pid if pid > 0 => Ok(Pid::from_raw(pid)),
        _ => Err(last_error()),
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Returns whether it is the way into the cgroup that was refused, and not the process.
fn refuses_birth(errno: Errno) -> bool {
    // No such call, or none that this sandbox allows; no such flag; a group that takes nobody in this way.
    matches!(
        errno,
        Errno::NOSYS
            | Errno::PERM
            | Errno::INVAL
            | Errno::TOOBIG
            | Errno::OPNOTSUPP
            | Errno::BUSY
            | Errno::ACCESS
            | Errno::NODEV
            | Errno::NOENT
    )
}

/// All that a child needs to become its program, made before it is.
struct Child<'a> {
    streams: [RawFd; 3],
    directory: &'a CStr,
    parent: Pid,
    terminal: bool,
    no_new_privileges: bool,
    limits: [(Resource, Option<u64>); 3],
    /// The `cgroup.procs` that it enters first, unless it was born there.
    entry: Option<RawFd>,
    /// Descriptors below this may be open.
    limit: RawFd,
    image: &'a Image,
    report: RawFd,
}

impl Child<'_> {
    /// Becomes the program, or tells why not and ends.
    fn run(&self) -> ! {
        let errno = match self.prepare() {
            Ok(()) => self.image.execute(),
            Err(errno) => errno,
        };
        let word = errno.raw_os_error().to_ne_bytes();
        // SAFETY: the descriptor is our copy of the pipe, the bytes live on this stack; `_exit` runs nothing of this program.
        unsafe {
            libc::write(self.report, word.as_ptr().cast(), word.len());
            libc::_exit(127);
        }
    }

    fn prepare(&self) -> Result<(), Errno> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // Had the parent died before, nobody would tell us. A parent outside our pid namespace has no number.
        if getppid().is_some_and(|now| now != self.parent) {
            return Err(Errno::SRCH);
        }
        if let Some(entry) = self.entry {
            // SAFETY: the descriptor is open in the parent until after the fork; "0" means the writer itself.
            if unsafe { libc::write(entry, b"0".as_ptr().cast(), 1) } != 1 {
                return Err(last_error());
            }
        }
        for (number, stream) in (0..).zip(self.streams) {
            // SAFETY: all three are open, and none has a number that a standard stream gets.
            if unsafe { libc::dup2(stream, number) } < 0 {
                return Err(last_error());
            }
        }
        rustix::process::chdir(self.directory)?;
        setsid()?;
        if self.terminal {
            // SAFETY: descriptor 1 is the terminal, put there just now, and stays open until exec.
            ioctl_tiocsctty(unsafe { BorrowedFd::borrow_raw(1) })?;
        }
        reset_signals()?;
        for (resource, limit) in self.limits {
            let limit = match limit {
                Some(_) => Rlimit {
                    current: limit,
                    maximum: limit,
                },
                // None by default, and whoever wants one may still have it.
                None if resource == Resource::Core => Rlimit {
                    current: Some(0),
                    maximum: getrlimit(resource).maximum,
                },
                None => continue,
            };
            setrlimit(resource, limit)?;
        }
        if self.no_new_privileges {
            rustix::thread::set_no_new_privs(true)?;
        }
        close_descriptors(self.limit);
        Ok(())
    }
}

/// Starts `program` with the arguments of `spec` in a seat; returns when it runs, or the error of the kernel.
pub(super) fn spawn(
    program: &Path,
    spec: &ProcessSpec,
    environment: &Environment,
    limits: &Limits,
    seat: Option<&Seat>,
) -> io::Result<Spawned> {
    let image = Image::new(program, spec, environment)?;
    let directory = CString::new(spec.directory.as_os_str().as_bytes())?;
    let (streams, theirs) = streams::open(spec)?;
    let (mut reasons, report) = streams::report()?;
    let mut child = Child {
        streams: theirs.each_ref().map(OwnedFd::as_raw_fd),
        directory: &directory,
        parent: getpid(),
        terminal: matches!(spec.stdio, StdioKind::Terminal(_)),
        no_new_privileges: spec.no_new_privileges,
        limits: each_process(limits).map(|(_, resource, limit)| (resource, limit)),
        entry: None,
        limit: getrlimit(Resource::Nofile)
            .current
            .and_then(|limit| RawFd::try_from(limit).ok())
            .unwrap_or(65536),
        image: &image,
        report: report.as_raw_fd(),
    };
    let born = seat
        .filter(|seat| seat.takes_births())
        .map(|seat| fork_into(seat.directory.as_fd()));
    // Held here, because it must also be open in the child.
    let entry;
    let forked = match (born, seat) {
        (Some(Ok(forked)), _) => forked,
        (Some(Err(errno)), _) if !refuses_birth(errno) => return Err(errno.into()),
        (_, Some(seat)) => {
            entry = seat.entry()?;
            child.entry = Some(entry.as_raw_fd());
            fork()?
        }
        (_, None) => fork()?,
    };
    let Some(pid) = forked else {
        child.run();
    };
    drop((theirs, report));
    // Nobody but us reaps it, so the number is still its own.
    let started = told(&mut reasons).and_then(|()| Ok(pidfd_open(pid, PidfdFlags::NONBLOCK)?));
    match started {
        Ok(pidfd) => Ok(Spawned {
            pid,
            pidfd,
            streams,
        }),
        Err(e) => {
            // It is about to end, or of no use.
            let _gone = rustix::process::kill_process(pid, Signal::KILL);
            while matches!(
                waitid(WaitId::Pid(pid), WaitIdOptions::EXITED),
                Err(Errno::INTR)
            ) {}
            Err(e)
        }
    }
}

/// Waits until a child became its program, or told why it could not.
fn told(reasons: &mut std::fs::File) -> io::Result<()> {
    let mut word = [0; size_of::<i32>()];
    match reasons.read_exact(&mut word) {
        Ok(()) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(word))),
        // Its copy was closed by exec, or by its end, which is then told as that of any process.
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use groundcrew_core::{
        command::Command,
        id::{InstanceId, ProcessId},
        process::{DEFAULT_LOG_LIMIT, EnvironmentSource, ExitStatus, StdinPolicy, StopOrder},
    };

    use super::*;
    use crate::tree::{CgroupPolicy, Grove};

    fn spec(argv: &[&str]) -> ProcessSpec {
        ProcessSpec {
            command: Command::new(argv.iter().copied()).unwrap(),
            directory: "/".into(),
            environment: EnvironmentSource::Exact(Environment::new()),
            stdio: StdioKind::Pipes,
            stdin: StdinPolicy::Empty,
            time_limit: None,
            idle_limit: None,
            stop: StopOrder::default(),
            no_new_privileges: false,
            main: false,
            log_limit: DEFAULT_LOG_LIMIT,
        }
    }

    /// Starts a program that ends at once, and returns how long that took until it ran.
    fn start(grove: &Grove) -> Duration {
        let seat = grove.seat(&ProcessId::new("p").unwrap());
        let begun = Instant::now();
        let spawned = spawn(
            Path::new("/bin/true"),
            &spec(&["true"]),
            &Environment::new(),
            &Limits::default(),
            seat.as_ref(),
        )
        .unwrap();
        let took = begun.elapsed();
        let ended = waitid(WaitId::Pid(spawned.pid), WaitIdOptions::EXITED)
            .unwrap()
            .unwrap();
        assert_eq!(ended.exit_status(), ExitStatus::exited(0).code);
        took
    }

    /// Interleaved, so that whatever else the machine does hits all ways alike; the figures are printed.
    #[test]
    #[expect(clippy::print_stderr, reason = "the figures are the point")]
    fn a_process_in_a_cgroup_starts_about_as_fast_as_one_without() {
        let ways = [
            ("without", CgroupPolicy::Never),
            ("born", CgroupPolicy::Automatic),
            ("moved", CgroupPolicy::Entered),
        ];
        let groves = ways.map(|(name, policy)| {
            let id = format!("test-speed-{name}-{}", std::process::id());
            Grove::plant(&InstanceId::new(id).unwrap(), policy, &Limits::default()).unwrap()
        });
        let mut took = [const { Vec::new() }; 3];
        for round in 0..44 {
            for (grove, took) in groves.iter().zip(&mut took) {
                let time = start(grove);
                if round >= 4 {
                    took.push(time);
                }
            }
        }
        let [without, born, moved] = took.map(|mut took| {
            took.sort();
            took[took.len() / 2]
        });
        for grove in groves {
            grove.give_up_cgroup();
        }
        eprintln!("from fork to exec: without {without:?}, born {born:?}, moved {moved:?}");
        assert!(
            born * 2 < without * 3 + Duration::from_millis(1),
            "{born:?} and {without:?}"
        );
    }
}

//! The server side: the life of one supervisor, from its start file to its end.
//!
//! Everything happens on one thread, because the kernel ties a child's parent-death signal to the thread that made it.
#![expect(
    clippy::future_not_send,
    reason = "one thread: nothing of the server crosses to another"
)]

mod body;
mod connection;
mod control;
mod lease;
mod routes;
mod streams;

use std::{
    ffi::OsStr,
    fs::File,
    io::Write as _,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::OpenOptionsExt as _,
    },
    path::Path,
    process::ExitCode,
    rc::Rc,
    time::Duration,
};

use groundcrew_core::{
    env::{Environment, Key},
    error::{Chain, Error, ErrorKind, ErrorReport},
    process::EndCause,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::{connection::Connections, control::Control};
use crate::{
    note::note,
    processes, socket,
    spawn::FirstWord,
    start::{CGROUP_FILE, StartFile, StartLock},
    tree,
};

/// How long a reader may take no further piece before the supervisor ends without it; the log on disk has the rest.
const READER_PATIENCE: Duration = Duration::from_millis(500);

/// How long readers that do read get at the end, however much they have before them: whoever stops an instance waits for it.
const READER_LIMIT: Duration = Duration::from_secs(1);

/// The longest pause between two tries to end what would not end.
const RETRY_MAX: Duration = Duration::from_mins(1);

/// Runs a supervisor on a start file until it ends.
pub(crate) fn run(start_file: &OsStr) -> ExitCode {
    // Fails only for the leader of a group, which is at least out of reach of a terminal already.
    let _leader_already = rustix::process::setsid();
    close_inherited();
    // Whoever started it gave it a directory; one that is always there is only kinder to who unmounts.
    let _stays = rustix::process::chdir("/");
    // Executed as `/proc/self/exe`, it would else be called `exe` in lists of processes.
    let _cosmetic = rustix::thread::set_name(c"groundcrew-sup");
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(e) => return fail(&Error::io("failed to start the supervisor's runtime", e)),
    };
    let local = tokio::task::LocalSet::new();
    let code = runtime.block_on(local.run_until(serve(Path::new(start_file))));
    // Tasks hold descriptors of processes and logs: they go before the runtime does.
    drop(local);
    runtime.shutdown_background();
    code
}

/// Closes the descriptors that the caller left open: a pipe of its shell would else never end.
#[expect(
    unsafe_code,
    reason = "no safe interface closes descriptors that nobody owns"
)]
fn close_inherited() {
    // SAFETY: this runs first in `main`, on the only thread, before anything was opened; so nothing in this program owns one of
    // them. It fails only on kernels older than any that is supported, and then they stay open.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
}

fn say(word: &FirstWord) -> Result<(), Error> {
    let say = || {
        let mut text = serde_json::to_vec(word)?;
        text.push(b'\n');
        let mut stdout = std::io::stdout();
        // Whoever waited for it may be gone; then the lease decides.
        drop(stdout.write_all(&text).and_then(|()| stdout.flush()));
        // Its end tells the reader that the word is complete.
        let null = File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdout(null)?;
        Ok(())
    };
    say().map_err(|e| Error::io("failed to tell that the supervisor is up", e))
}

fn fail(error: &Error) -> ExitCode {
    note(format_args!("failed to come up: {}", Chain(error)));
    drop(say(&FirstWord::Failed(ErrorReport::from(error))));
    ExitCode::FAILURE
}

async fn serve(start_file: &Path) -> ExitCode {
    let (lock, mut signals, listener, control) = match come_up(start_file).await {
        Ok(parts) => parts,
        Err(error) => return fail(&error),
    };
    let control = Rc::new(control);
    let connections = Connections::accept(listener, Rc::clone(&control));
    if let Err(error) = say(&FirstWord::Ready {
        pid: std::process::id(),
    }) {
        return fail(&error);
    }
    live(&control, &mut signals).await;
    connections
        .finish(READER_PATIENCE, READER_LIMIT, &control)
        .await;
    control.wipe();
    drop(lock);
    ExitCode::SUCCESS
}

/// Signals that would end a supervisor: those that mean an end, and those that mean nothing to it.
struct Signals {
    term: Signal,
    int: Signal,
    _ignored: [Signal; 2],
}

impl Signals {
    fn catch() -> Result<Self, Error> {
        let catch = |kind| {
            signal(kind).map_err(|e| Error::io("failed to take over the supervisor's signals", e))
        };
        Ok(Self {
            term: catch(SignalKind::terminate())?,
            int: catch(SignalKind::interrupt())?,
            _ignored: [catch(SignalKind::hangup())?, catch(SignalKind::quit())?],
        })
    }
}

async fn come_up(
    start_file: &Path,
) -> Result<(StartLock, Signals, tokio::net::UnixListener, Control), Error> {
    let signals = Signals::catch()?;
    let (lock, start) = StartLock::take(start_file).await?;
    // What a process of this program keeps in memory is nobody's to read, the run's variables above all.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .map_err(|e| {
            Error::io(
                "failed to close the supervisor's memory to others",
                e.into(),
            )
        })?;
    // Before it is made: whoever comes after a supervisor that was killed must find it.
    remember_cgroup(start_file, tree::place(&start.instance).as_deref())?;
    let processes = processes::Processes::new(processes::Config {
        instance: start.instance.clone(),
        log_directory: start.logs.clone(),
        cgroup: processes::CgroupPolicy::Automatic,
        limits: start.limits,
    })?;
    let listener = listen(&start)?;
    let base = if start.inherits {
        own_environment()
    } else {
        Environment::new()
    };
    Ok((
        lock,
        signals,
        listener,
        Control::new(start, processes, base),
    ))
}

/// Reads the variables that this program was started with; one that no process could be given is left out.
#[expect(
    clippy::disallowed_methods,
    reason = "whoever wrote the start file asks for the variables that the engine gave us"
)]
fn own_environment() -> Environment {
    let mut environment = Environment::new();
    for (name, value) in std::env::vars_os() {
        if let Ok(key) = Key::new(name) {
            environment.set(key, value.into_vec());
        }
    }
    environment
}

/// Writes down where the processes will be, if there is a cgroup for them.
fn remember_cgroup(start_file: &Path, cgroup: Option<&Path>) -> Result<(), Error> {
    let Some(cgroup) = cgroup else {
        return Ok(());
    };
    let path = start_file.with_file_name(CGROUP_FILE);
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(cgroup.as_os_str().as_bytes()))
        .map_err(|e| {
            Error::io("failed to write down the cgroup of the instance", e)
                .with("path", path.display())
        })
}

fn listen(start: &StartFile) -> Result<tokio::net::UnixListener, Error> {
    let listening = socket::listen(&start.socket).and_then(tokio::net::UnixListener::from_std);
    listening.map_err(|e| {
        let error = if e.kind() == std::io::ErrorKind::AddrInUse {
            Error::new(
                ErrorKind::AlreadyExists,
                "the instance had a supervisor before; it is not started twice",
            )
        } else {
            Error::io("failed to make the control socket", e)
        };
        error.with("path", start.socket.display())
    })
}

/// Waits for whatever ends the instance, and ends all that is in it.
async fn live(control: &Control, signals: &mut Signals) {
    let mut pause = Duration::from_secs(1);
    loop {
        let cause = tokio::select! {
            () = control.ended.notified() => return,
            () = control.lease.lapsed() => EndCause::LeaseLapsed,
            _ = control.processes.main_ended() => EndCause::Stopped,
            _ = signals.term.recv() => EndCause::Stopped,
            _ = signals.int.recv() => EndCause::Stopped,
        };
        match control.processes.stop_all(None, cause).await {
            Ok(()) => return,
            Err(error) => note(format_args!(
                "failed to end everything, trying again: {}",
                Chain(&error)
            )),
        }
        tokio::select! {
            () = control.ended.notified() => return,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(RETRY_MAX),
        }
    }
}

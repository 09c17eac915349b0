//! Runs the git program: nothing of the repository or of our environment is executed or followed, and nobody is asked anything.
//!
//! In the local profile nothing of the user's is either; in the transport profile the user's own logins reach a remote.

use std::{
    ffi::{OsStr, OsString},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use groundcrew_core::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, Command},
};

use super::{
    counts::{self, Counts, Tell},
    identity,
};
use crate::{
    config::{GitProgram, Transport, UserGitConfig},
    text::lossy,
};

/// How much output of git is kept.
const KEPT_OUTPUT: usize = 64 * 1024;

/// Settings of every call; each closes one door.
const SETTINGS: [(&str, &str); 20] = [
    // No hook runs, whether it is in the repository or named by its configuration.
    ("core.hooksPath", "/dev/null"),
    // Queries for changed files start a program.
    ("core.fsmonitor", "false"),
    // A detached gc would outlive us and hold locks.
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("submodule.recurse", "false"),
    // Nothing may reach a network or a credential store.
    ("core.sshCommand", "false"),
    ("credential.helper", ""),
    ("protocol.ext.allow", "never"),
    ("core.pager", "cat"),
    ("core.editor", "false"),
    ("core.askPass", "false"),
    // The git directory is always named; one that only looks like a bare repository is never found by chance.
    ("safe.bareRepository", "explicit"),
    // No upstream is written: that takes the lock of the configuration, which fails when many do it at once.
    ("branch.autoSetupMerge", "false"),
    // One that cleans up locks each ref for a moment; the default is a tenth of a second.
    ("core.filesRefLockTimeout", "5000"),
    ("core.packedRefsTimeout", "5000"),
    // The user's attribute file could name filters.
    ("core.attributesFile", "/dev/null"),
    // A split index keeps half of itself in another file.
    ("core.splitIndex", "false"),
    ("core.untrackedCache", "false"),
    // Several workers write files at once; few files are not worth the workers.
    ("checkout.workers", "0"),
    ("checkout.thresholdForParallelism", "100"),
];

/// Settings that only the local profile has: a remote is reached with the user's own.
const LOCAL_ONLY: [&str; 2] = ["core.sshCommand", "credential.helper"];

/// How a remote is reached.
const TRANSPORT: [(&str, &str); 4] = [
    // What a repository names is forgotten; the user's own come after it.
    ("credential.helper", ""),
    // Without a terminal to ask on it would wait for ever.
    ("core.sshCommand", "ssh -oBatchMode=yes"),
    ("protocol.ext.allow", "never"),
    // A bundle that a server names would be another address to reach.
    ("transfer.bundleURI", "false"),
];

/// The git program and where its own programs are searched.
#[derive(Clone, Debug)]
pub(crate) struct Git {
    program: PathBuf,
    search: OsString,
    transport: Option<Profile>,
    /// Whether git-lfs may write files.
    lfs: bool,
}

/// What the user has for reaching remotes.
#[derive(Clone, Debug)]
struct Profile {
    variables: Vec<(OsString, OsString)>,
    configuration: Vec<PathBuf>,
}

/// One call.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// The git directory; never found by looking around.
    pub(crate) git_dir: &'a Path,
    /// The work tree, if the call needs one.
    pub(crate) work_tree: Option<&'a Path>,
    /// More settings, stronger than those of the repository.
    pub(crate) settings: &'a [(OsString, OsString)],
    /// The arguments.
    pub(crate) args: &'a [&'a OsStr],
    /// What git gets as its stdin: a locked directory, so that the lock lives as long as git, or nothing.
    pub(crate) holds: Option<&'a OwnedFd>,
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Output {
    /// Its exit status.
    pub(crate) status: ExitStatus,
    /// The beginning of what it wrote to stdout.
    pub(crate) stdout: Vec<u8>,
    /// The beginning of what it wrote to stderr.
    pub(crate) stderr: Vec<u8>,
}

impl Git {
    /// Finds the program.
    ///
    /// # Errors
    ///
    /// `ProgramNotFound` when there is none.
    pub(crate) fn find(program: &GitProgram) -> Result<Self, Error> {
        match program {
            GitProgram::Path(path) => Ok(Self {
                program: path.clone(),
                search: path.parent().unwrap_or(path).as_os_str().to_owned(),
                transport: None,
                lfs: false,
            }),
            GitProgram::Search(search) => std::env::split_paths(search)
                .filter(|directory| directory.is_absolute())
                .map(|directory| directory.join("git"))
                .find(|path| {
                    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file()
                })
                .map(|program| Self {
                    program,
                    search: search.clone(),
                    transport: None,
                    lfs: false,
                })
                .ok_or_else(|| {
                    Error::new(
                        ErrorKind::ProgramNotFound,
                        "there is no git program in the search path; install git",
                    )
                    .with("PATH", search.display())
                }),
        }
    }

    /// The one that tests find.
    #[cfg(test)]
    pub(crate) fn of_tests() -> Self {
        Self::find(&GitProgram::Search("/usr/local/bin:/usr/bin:/bin".into())).unwrap()
    }

    /// The directories where its own programs are searched, written like the value of `PATH`.
    pub(crate) fn search(&self) -> &OsStr {
        &self.search
    }

    /// Tells whether the user's own configuration is read.
    pub(crate) fn reads_users(&self) -> bool {
        self.transport.is_some()
    }

    /// Returns the program in a form that lets git-lfs write files, where settings name it.
    pub(crate) fn with_lfs(&self) -> Self {
        Self {
            lfs: true,
            ..self.clone()
        }
    }

    /// Returns the program in the profile that reaches remotes, with what the user has for that.
    pub(crate) fn transport(&self, transport: &Transport, user: &UserGitConfig) -> Self {
        let files = [&user.system, &user.xdg, &user.global];
        Self {
            transport: Some(Profile {
                // Those of git's own could name programs and directories.
                variables: transport
                    .variables
                    .iter()
                    .filter(|(name, _)| !name.as_encoded_bytes().starts_with(b"GIT_"))
                    .cloned()
                    .collect(),
                configuration: files
                    .into_iter()
                    .flatten()
                    .filter(|file| file.is_file())
                    .cloned()
                    .collect(),
            }),
            ..self.clone()
        }
    }

    /// Runs git and waits for its end; the whole process group ends with a cancellation, or when the future is dropped.
    ///
    /// # Errors
    ///
    /// `Cancelled`; else that of starting it. A status that is not zero is no error here.
    pub(crate) async fn run(&self, call: &Call<'_>, cancel: &CancelToken) -> Result<Output, Error> {
        self.run_counting(call, &|_, _| {}, cancel).await
    }

    /// Runs git as [`run`](Self::run) does, and tells how many files of how many are written, where git says so.
    pub(crate) async fn run_counting(
        &self,
        call: &Call<'_>,
        tell: Tell<'_>,
        cancel: &CancelToken,
    ) -> Result<Output, Error> {
        let mut child = self.command(call)?.spawn().map_err(|error| {
            Error::io("failed to start git", error).with("program", self.program.display())
        })?;
        let mut group = Group(
            child
                .id()
                .and_then(|id| i32::try_from(id).ok())
                .and_then(Pid::from_raw),
        );
        let output = tokio::select! {
            output = collect(&mut child, tell) => output,
            () = cancel.cancelled() => {
                group.kill();
                let ended = child.wait().await;
                group.forget();
                return match ended {
                    Ok(_) => Err(Error::new(ErrorKind::Cancelled, "cancelled while git was at work")),
                    Err(error) => Err(Error::io("failed to wait for git", error)),
                };
            }
        };
        if output.is_ok() {
            group.forget();
        }
        output.map_err(|error| Error::io("failed to run git", error))
    }

    /// Runs git as [`run`](Self::run) does; a status that is not zero is an error with git's own words.
    pub(crate) async fn succeed(
        &self,
        call: &Call<'_>,
        doing: &'static str,
        cancel: &CancelToken,
    ) -> Result<Vec<u8>, Error> {
        let output = self.run(call, cancel).await?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(failure(doing, &output))
    }

    /// Runs git with that on its stdin and blocks the thread; for calls that end by themselves, where nothing is cancelled.
    ///
    /// # Errors
    ///
    /// That of starting it. A status that is not zero is no error here.
    pub(crate) fn run_blocking(&self, call: &Call<'_>, stdin: &[u8]) -> Result<Output, Error> {
        use std::io::Write as _;

        let failed = |error| Error::io("failed to run git", error);
        let mut command = self.command(call)?.into_std();
        let mut child = command.stdin(Stdio::piped()).spawn().map_err(|error| {
            Error::io("failed to start git", error).with("program", self.program.display())
        })?;
        if let Some(mut pipe) = child.stdin.take() {
            // One that ended early says why by its status.
            let _read_or_not = pipe.write_all(stdin);
        }
        let output = child.wait_with_output().map_err(failed)?;
        Ok(Output {
            status: output.status,
            stdout: output.stdout,
            stderr: output.stderr,
        })
    }

    /// Asks what the configuration says; nothing where nothing matches.
    pub(crate) async fn configuration(
        &self,
        git_dir: &Path,
        question: &[&str],
        doing: &'static str,
        cancel: &CancelToken,
    ) -> Result<Vec<u8>, Error> {
        let args: Vec<_> = std::iter::once("config")
            .chain(question.iter().copied())
            .map(OsStr::new)
            .collect();
        let call = Call {
            git_dir,
            work_tree: None,
            settings: &[],
            args: &args,
            holds: None,
        };
        let output = self.run(&call, cancel).await?;
        // 1 says that nothing matches.
        if output.status.success() || output.status.code() == Some(1) {
            return Ok(output.stdout);
        }
        Err(failure(doing, &output))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that starts a process: fixed directory, empty environment, own group"
    )]
    fn command(&self, call: &Call<'_>) -> Result<Command, Error> {
        let mut command = Command::new(&self.program);
        command
            .current_dir("/")
            .env_clear()
            .env("PATH", &self.search)
            .env("HOME", "/dev/null")
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_ALLOW_PROTOCOL", "none")
            .env("GIT_PROGRESS_DELAY", "0")
            .env("GIT_LFS_SKIP_SMUDGE", if self.lfs { "0" } else { "1" })
            .env("GIT_COMMITTER_NAME", identity::NAME)
            .env("GIT_COMMITTER_EMAIL", identity::EMAIL);
        let mut settings: Vec<(&OsStr, &OsStr)> = Vec::new();
        let fixed = |(key, value): &(&'static str, &'static str)| -> (&OsStr, &OsStr) {
            (OsStr::new(*key), OsStr::new(*value))
        };
        if let Some(profile) = &self.transport {
            for (name, value) in &profile.variables {
                command.env(name, value);
            }
            command
                .env("GIT_ALLOW_PROTOCOL", "https:http:ssh:git:file")
                .env("GCM_INTERACTIVE", "never");
            settings.extend(TRANSPORT.iter().map(fixed));
            // The user's own settings: stronger than ours for reaching a remote, weaker than those that close doors.
            let include = OsStr::new("include.path");
            settings.extend(
                profile
                    .configuration
                    .iter()
                    .map(|file| (include, file.as_os_str())),
            );
            let closed = SETTINGS.iter().filter(|(key, _)| !LOCAL_ONLY.contains(key));
            settings.extend(closed.map(fixed));
        } else {
            settings.extend(SETTINGS.iter().map(fixed));
        }
        let more = call
            .settings
            .iter()
            .map(|(key, value)| (key.as_os_str(), value.as_os_str()));
        // Settings travel as variables: a key may hold `=`, which an argument cannot express.
        let mut count = 0;
        for (key, value) in settings.into_iter().chain(more) {
            command
                .env(format!("GIT_CONFIG_KEY_{count}"), key)
                .env(format!("GIT_CONFIG_VALUE_{count}"), value);
            count += 1;
        }
        command.env("GIT_CONFIG_COUNT", count.to_string());
        let mut directory = OsString::from("--git-dir=");
        directory.push(call.git_dir);
        command.arg(directory);
        if let Some(tree) = call.work_tree {
            let mut argument = OsString::from("--work-tree=");
            argument.push(tree);
            command.arg(argument);
        }
        command
            .args(call.args)
            .stdin(match call.holds {
                Some(held) => held
                    .try_clone()
                    .map_err(|error| Error::io("failed to hand a lock to git", error))?
                    .into(),
                None => Stdio::null(),
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        Ok(command)
    }
}

/// Makes an error of a call that failed.
pub(crate) fn failure(doing: &'static str, output: &Output) -> Error {
    let words = lossy(output.stderr.trim_ascii());
    let kind = if words.contains("No space left") {
        ErrorKind::ResourceExhausted
    } else if words.contains("Permission denied") || words.contains("Read-only file system") {
        ErrorKind::PermissionDenied
    } else {
        ErrorKind::Unexpected
    };
    Error::new(kind, doing)
        .with("status", output.status)
        .with_source(words)
}

async fn collect(child: &mut Child, tell: Tell<'_>) -> std::io::Result<Output> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut counts = Counts::new(tell);
    let told = async {
        let text = keep(stderr, |bytes| counts.read(bytes)).await;
        text.map(|text| counts::without(&text))
    };
    let (stdout, stderr, status) = tokio::try_join!(keep(stdout, |_| {}), told, child.wait())?;
    Ok(Output {
        status,
        stdout,
        stderr,
    })
}

/// Reads to the end, shows all of it, and keeps the beginning.
async fn keep(
    stream: Option<impl AsyncRead + Unpin>,
    mut show: impl FnMut(&[u8]),
) -> std::io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let Some(mut stream) = stream else {
        return Ok(kept);
    };
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(kept);
        }
        show(&buffer[..count]);
        let room = KEPT_OUTPUT.saturating_sub(kept.len()).min(count);
        kept.extend_from_slice(&buffer[..room]);
    }
}

/// The process group of a call; ended when dropped.
#[derive(Debug)]
struct Group(Option<Pid>);

impl Group {
    fn kill(&self) {
        if let Some(pid) = self.0 {
            // It may be gone already, which is what is wanted.
            let _gone = kill_process_group(pid, Signal::KILL);
        }
    }

    fn forget(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

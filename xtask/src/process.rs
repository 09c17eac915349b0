//! The one place that starts other programs and reads this program's environment.
//!
//! Commands are argument vectors: never a shell, never a terminal, always an empty stdin unless a file is named.

#![expect(
    clippy::disallowed_methods,
    reason = "this is the crate's process module: everything that spawns or reads the environment goes through it"
)]

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::console;

/// Variables that `cargo run` sets for the program it runs, and that would mislead a cargo started from here.
const OF_OUR_CARGO: [&str; 2] = ["CARGO_PKG_", "CARGO_MANIFEST_"];

/// Returns one variable of the environment.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the path of this very program.
///
/// # Errors
///
/// Fails where the system does not know it.
pub(crate) fn own_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find the path of this program")
}

/// Tells whether `program` is found in `PATH`.
pub(crate) fn is_installed(program: &str) -> bool {
    variable("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
    })
}

/// Output that was thrown away.
#[derive(Debug)]
pub(crate) struct Drained {
    /// How much it was.
    pub(crate) bytes: u64,
    /// How long it took from its first byte on.
    pub(crate) taken: Duration,
}

/// A program with its arguments, working directory and changes to the environment.
#[derive(Debug, Clone)]
pub(crate) struct Cmd {
    program: OsString,
    args: Vec<OsString>,
    directory: Option<PathBuf>,
    variables: Vec<(OsString, OsString)>,
    stdin: Option<PathBuf>,
}

impl Cmd {
    /// Names the program; nothing runs yet.
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            directory: None,
            variables: Vec::new(),
            stdin: None,
        }
    }

    /// Names the cargo that runs us, in `directory`.
    pub(crate) fn cargo(directory: &Path) -> Self {
        Self::new(variable("CARGO").unwrap_or_else(|| "cargo".into())).directory(directory)
    }

    /// Adds one argument.
    #[must_use]
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub(crate) fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub(crate) fn directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Sets one variable.
    #[must_use]
    pub(crate) fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables
            .push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Reads stdin from a file.
    #[must_use]
    pub(crate) fn stdin(mut self, file: &Path) -> Self {
        self.stdin = Some(file.to_owned());
        self
    }

    /// Runs with our stdout and stderr; returns how it ended.
    ///
    /// # Errors
    ///
    /// Fails when the program cannot be started.
    pub(crate) fn status(&self) -> Result<ExitStatus> {
        let mut command = self.command()?;
        command.status().with_context(|| self.cannot_start())
    }

    /// Runs with our stdout and stderr; a failure of the program is an error.
    ///
    /// # Errors
    ///
    /// Fails when the program cannot be started or ends with a failure.
    pub(crate) fn check(&self) -> Result<()> {
        let status = self.status()?;
        if !status.success() {
            bail!("`{self}` failed: {status}");
        }
        Ok(())
    }

    /// Runs to the end and returns what it printed.
    ///
    /// # Errors
    ///
    /// Fails when the program cannot be started.
    pub(crate) fn output(&self) -> Result<Output> {
        let mut command = self.command()?;
        command.output().with_context(|| self.cannot_start())
    }

    /// Runs to the end and returns its stdout; a failure of the program is an error that shows its stderr.
    ///
    /// # Errors
    ///
    /// Fails when the program cannot be started or ends with a failure.
    pub(crate) fn read(&self) -> Result<Vec<u8>> {
        let output = self.output()?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!("`{self}` failed: {}\n{}", output.status, stderr.trim_end());
        }
        Ok(output.stdout)
    }

    /// Runs to the end, counts its stdout and throws it away, and measures from the first byte to the end.
    ///
    /// # Errors
    ///
    /// Fails when the program cannot be started, its output cannot be read, or it ends with a failure.
    pub(crate) fn drain(&self) -> Result<Drained> {
        let mut command = self.command()?;
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| self.cannot_start())?;
        let mut stdout = child.stdout.take().context("there is no pipe to read")?;
        let mut piece = vec![0; 1 << 20];
        let (mut bytes, mut begun) = (0, None);
        loop {
            let read = stdout.read(&mut piece).context("cannot read the output")?;
            let begun = begun.get_or_insert_with(Instant::now);
            if read == 0 {
                let taken = begun.elapsed();
                let status = child.wait().context("cannot wait for the program")?;
                if !status.success() {
                    bail!("`{self}` failed: {status}");
                }
                return Ok(Drained { bytes, taken });
            }
            bytes += read as u64;
        }
    }

    /// Runs with our stderr and returns its stdout and how it ended.
    ///
    /// # Errors
    ///
    /// Fails when the program cannot be started.
    pub(crate) fn read_beside_stderr(&self) -> Result<Output> {
        let mut command = self.command()?;
        command.stderr(Stdio::inherit());
        command.output().with_context(|| self.cannot_start())
    }

    /// Runs with stdout and stderr as one stream, shows each line, and hands it to `each`.
    ///
    /// One stream keeps the order in which cargo (stderr) and the tests (stdout) print.
    ///
    /// # Errors
    ///
    /// Fails when the program cannot be started or its output cannot be read.
    pub(crate) fn follow(&self, mut each: impl FnMut(&str)) -> Result<ExitStatus> {
        let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
        let mut command = self.command()?;
        command.stdout(writer.try_clone().context("cannot share a pipe")?);
        command.stderr(writer);
        let mut child = command.spawn().with_context(|| self.cannot_start())?;
        // The command holds our copies of the write end; without this the read would never end.
        drop(command);
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader
                .read_until(b'\n', &mut line)
                .context("cannot read the output")?;
            if read == 0 {
                break;
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\n', '\r']);
            console::say(text);
            each(text);
        }
        child.wait().context("cannot wait for the program")
    }

    /// Starts it beside us, out of the way of what is typed at our terminal, with a pipe to its stdin and a file for what it prints.
    ///
    /// The pipe closes when we end, however we end: a program that reads it knows then.
    ///
    /// # Errors
    ///
    /// Fails when the file cannot be made or the program cannot be started.
    pub(crate) fn start_with_lifeline(&self, log: &Path) -> Result<Child> {
        let file = File::create(log).with_context(|| format!("cannot make {}", log.display()))?;
        let mut command = self.command()?;
        command.stdin(Stdio::piped()).process_group(0);
        command.stdout(file.try_clone().context("cannot share a file")?);
        command.stderr(file);
        command.spawn().with_context(|| self.cannot_start())
    }

    /// Starts it beside us with pipes to its stdin and from its stdout; its stderr is thrown away.
    ///
    /// # Errors
    ///
    /// Fails when the program cannot be started.
    pub(crate) fn start_talking(&self) -> Result<Child> {
        let mut command = self.command()?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::null());
        command.spawn().with_context(|| self.cannot_start())
    }

    fn command(&self) -> Result<Command> {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        for (name, _) in std::env::vars_os() {
            let bytes = name.as_encoded_bytes();
            if OF_OUR_CARGO
                .iter()
                .any(|prefix| bytes.starts_with(prefix.as_bytes()))
            {
                command.env_remove(&name);
            }
        }
        for (name, value) in &self.variables {
            command.env(name, value);
        }
        command.stdin(match &self.stdin {
            Some(path) => Stdio::from(
                File::open(path).with_context(|| format!("cannot open {}", path.display()))?,
            ),
            None => Stdio::null(),
        });
        Ok(command)
    }

    fn cannot_start(&self) -> String {
        format!("cannot start `{self}`")
    }
}

impl std::fmt::Display for Cmd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let program = Path::new(&self.program)
            .file_name()
            .unwrap_or(&self.program);
        f.write_str(&program.to_string_lossy())?;
        for arg in &self.args {
            write!(f, " {}", arg.to_string_lossy())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follow_sees_both_streams_in_order_and_the_exit_status() {
        let mut lines = Vec::new();
        let status = Cmd::new("sh")
            .args(["-c", "echo one; echo two >&2; echo three; exit 3"])
            .follow(|line| lines.push(line.to_owned()))
            .unwrap();
        assert_eq!(lines, ["one", "two", "three"]);
        assert_eq!(status.code(), Some(3));
    }

    #[test]
    fn drained_output_is_counted_and_a_failure_is_none() {
        let drained = Cmd::new("sh")
            .args(["-c", "printf 12345; sleep 0.05"])
            .drain()
            .unwrap();
        assert_eq!(drained.bytes, 5);
        assert!(drained.taken >= Duration::from_millis(40), "{drained:?}");
        assert!(Cmd::new("false").drain().is_err());
    }

    #[test]
    fn read_reports_stderr_of_a_failure() {
        let error = Cmd::new("sh")
            .args(["-c", "echo broken >&2; exit 1"])
            .read()
            .unwrap_err();
        assert!(error.to_string().contains("broken"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Cmd::new("no-such-program-here").status().unwrap_err();
        assert!(error.to_string().contains("no-such-program-here"));
        assert!(!is_installed("no-such-program-here"));
        assert!(is_installed("sh"));
    }

    #[test]
    fn stdin_is_empty_unless_a_file_is_named() {
        let out = Cmd::new("cat").read().unwrap();
        assert!(out.is_empty());
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("in");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(Cmd::new("cat").stdin(&file).read().unwrap(), b"text");
    }
}

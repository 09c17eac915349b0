//! Where a bench works: a directory that is removed with everything in it, and the programs it runs there.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use tempfile::TempDir;

use crate::process::{self, Cmd};

use super::clock::now;

/// Memory-backed where there is such a place: first touches of a disk are no property of ours.
const MEMORY: &str = "/dev/shm";

/// The code of the command for "not found": a run that changed nothing is closed by itself.
const NOT_FOUND: i32 = 3;

/// A temporary directory with a state directory, and the built command.
#[derive(Debug)]
pub(super) struct Place {
    directory: TempDir,
    command: PathBuf,
    agent: PathBuf,
}

/// The one field we need of what `run` prints.
#[derive(Debug, Deserialize)]
struct Run {
    id: String,
}

/// The one field we need of what `ls` prints.
#[derive(Debug, Deserialize)]
struct Runs {
    runs: Vec<Run>,
}

impl Place {
    /// Makes the directory; `command` is the program under test.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be made.
    pub(super) fn new(command: PathBuf) -> Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("groundcrew-bench-");
        let directory = if Path::new(MEMORY).is_dir() {
            builder.tempdir_in(MEMORY)
        } else {
            builder.tempdir()
        };
        let directory = directory.context("cannot make a temporary directory")?;
        fs::create_dir(directory.path().join("outside"))
            .context("cannot make a temporary directory")?;
        Ok(Self {
            directory,
            command,
            agent: process::own_program()?,
        })
    }

    /// Returns a path in the directory.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Ends and removes whatever runs a failed measurement left, and then the directory.
    ///
    /// # Errors
    ///
    /// Fails when something stays; the directory goes all the same.
    pub(super) fn remove(self) -> Result<()> {
        let cleared = if self.path("home").exists() {
            self.clear_all()
        } else {
            Ok(())
        };
        self.directory
            .close()
            .context("cannot remove the temporary directory")?;
        cleared
    }

    /// Ends and removes every run there is.
    ///
    /// # Errors
    ///
    /// Fails when one stays.
    pub(super) fn clear_all(&self) -> Result<()> {
        let printed = self.command().args(["ls", "--format", "json"]).read()?;
        let listed: Runs =
            serde_json::from_slice(&printed).context("`ls` printed no document with runs")?;
        for run in listed.runs {
            // It may have ended by itself; `rm` decides.
            self.command().args(["stop", &run.id]).output()?;
            self.clear(&run.id, false)?;
        }
        Ok(())
    }

    /// Returns the program of the agent.
    pub(super) fn agent(&self) -> &Path {
        &self.agent
    }

    /// Returns the command that writes so many bytes.
    pub(super) fn flood(&self, bytes: u64) -> [PathBuf; 3] {
        let count = bytes.to_string();
        [self.agent.clone(), "bench-flood".into(), count.into()]
    }

    /// Returns the process numbers of all supervisors of this place.
    ///
    /// # Errors
    ///
    /// Fails when the processes of the machine cannot be listed.
    pub(super) fn supervisors(&self) -> Result<Vec<u32>> {
        let instances = self.path("home/instances");
        let ours = |pid: u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = words.split(|byte| *byte == 0);
            words.any(|word| word.starts_with(instances.as_os_str().as_encoded_bytes()))
        };
        let listed = fs::read_dir("/proc").context("cannot list the processes")?;
        let pids = listed
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Ok(pids.filter(|pid| ours(*pid)).collect())
    }

    /// Begins a call of the command under test in this place.
    pub(super) fn command(&self) -> Cmd {
        // A directory that is in no repository, so that `local` finds none.
        Cmd::new(&self.command)
            .variable("GROUNDCREW_HOME", self.path("home"))
            .directory(&self.path("outside"))
    }

    /// Starts the bench's own agent by any way and returns how long it took from the call until the agent ran.
    ///
    /// # Errors
    ///
    /// Fails when the agent did not write its time.
    pub(super) fn until_running(
        &self,
        launch: impl FnOnce(&[PathBuf]) -> Result<()>,
    ) -> Result<Duration> {
        self.until_stamped(&self.path("stamp"), launch)
    }

    /// As `until_running`, with the file that the agent writes.
    ///
    /// # Errors
    ///
    /// Fails when the agent did not write its time.
    pub(super) fn until_stamped(
        &self,
        stamp: &Path,
        launch: impl FnOnce(&[PathBuf]) -> Result<()>,
    ) -> Result<Duration> {
        let argv = [self.agent.clone(), "bench-agent".into(), stamp.to_owned()];
        let before = now();
        launch(&argv)?;
        let text = fs::read_to_string(stamp).context("the agent wrote no time")?;
        fs::remove_file(stamp).context("cannot remove the agent's time")?;
        let after: u64 = text.trim().parse().context("the agent wrote no time")?;
        let taken = after
            .checked_sub(before)
            .context("the agent ran before it was started")?;
        Ok(Duration::from_nanos(taken))
    }

    /// Starts a program bare.
    ///
    /// # Errors
    ///
    /// Fails when it does.
    pub(super) fn bare(&self, argv: &[PathBuf]) -> Result<()> {
        let [program, arguments @ ..] = argv else {
            bail!("nothing to run");
        };
        let command = Cmd::new(program)
            .args(arguments)
            .directory(&self.path("outside"));
        command.read().map(drop)
    }

    /// Runs a program through the command under test and returns the id of the run.
    ///
    /// # Errors
    ///
    /// Fails when the command does, or prints no id.
    pub(super) fn run(
        &self,
        options: &[&str],
        repository: Option<&Path>,
        argv: &[PathBuf],
    ) -> Result<String> {
        let mut command = self.command().arg("run").args(options);
        if let Some(repository) = repository {
            command = command.arg("--repo").arg(repository);
        }
        let printed = command.args(["--format", "json", "--"]).args(argv).read()?;
        id_of(&printed)
    }

    /// Runs a program in a worktree and returns the id of the run and the events that were printed.
    ///
    /// # Errors
    ///
    /// Fails when the command does, or prints no event with an id.
    pub(super) fn run_telling(
        &self,
        repository: &Path,
        argv: &[PathBuf],
    ) -> Result<(String, Vec<u8>)> {
        let printed = self
            .command()
            .args(["run", "--executor", "worktree", "--repo"])
            .arg(repository)
            .args(["--format", "jsonl", "--"])
            .args(argv)
            .read()?;
        let first = printed
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        Ok((id_of(first)?, printed))
    }

    /// Counts the fsyncs between the call and the agent's start, over all processes, with strace.
    ///
    /// # Errors
    ///
    /// Fails when strace or the command does.
    pub(super) fn syncs_until_running(&self) -> Result<usize> {
        let trace = self.path("trace");
        let stamp = self.path("stamp");
        let printed = Cmd::new("strace")
            .args([
                "-f",
                "-qq",
                "-s",
                "4096",
                "-e",
                "trace=fsync,fdatasync,execve",
                "-o",
            ])
            .arg(&trace)
            .arg(&self.command)
            .args(["run", "--executor", "local", "--format", "json", "--"])
            .arg(&self.agent)
            .arg("bench-agent")
            .arg(&stamp)
            .variable("GROUNDCREW_HOME", self.path("home"))
            .directory(&self.path("outside"))
            .read()?;
        self.clear(&id_of(&printed)?, false)?;
        let traced = fs::read(&trace).context("strace wrote nothing")?;
        fs::remove_file(&trace).context("cannot remove the trace")?;
        fs::remove_file(&stamp).context("the agent wrote no time")?;
        syncs_before_agent(&String::from_utf8_lossy(&traced))
            .context("the trace does not show the agent's start")
    }

    /// Ends a run, if it still runs, and removes it.
    ///
    /// # Errors
    ///
    /// Fails when the run stays.
    pub(super) fn clear(&self, id: &str, running: bool) -> Result<()> {
        if running {
            self.command().args(["stop", id]).read()?;
        }
        let removal = self.command().args(["rm", "--force", id]);
        let output = removal.output()?;
        ensure!(
            output.status.success() || output.status.code() == Some(NOT_FOUND),
            "`{removal}` failed: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
        Ok(())
    }

    /// Makes a repository with so many files, one commit, and its files checked out.
    ///
    /// # Errors
    ///
    /// Fails when git does.
    pub(super) fn repository(&self, files: usize) -> Result<PathBuf> {
        let repository = self.path(&format!("repository-{files}"));
        let stream = self.path("stream");
        fs::write(&stream, import_stream(files))
            .context("cannot write the files of a repository")?;
        let git = |arguments: &[&str]| Cmd::new("git").arg("-C").arg(&repository).args(arguments);
        Cmd::new("git")
            .args(["init", "--quiet", "--initial-branch", "main"])
            .arg(&repository)
            .read()?;
        git(&["fast-import", "--quiet"]).stdin(&stream).read()?;
        git(&["reset", "--quiet", "--hard", "main"]).read()?;
        fs::remove_file(&stream).context("cannot remove the files of a repository")?;
        Ok(repository)
    }
}

/// Reads the id of a run out of a document.
///
/// # Errors
///
/// Fails when it has none.
pub(super) fn id_of(printed: &[u8]) -> Result<String> {
    let run: Run =
        serde_json::from_slice(printed).context("`run` printed no document with an id")?;
    Ok(run.id)
}

/// Counts fsyncs in what strace wrote, up to the last start of the agent: earlier ones are other programs' arguments.
fn syncs_before_agent(trace: &str) -> Option<usize> {
    let lines: Vec<_> = trace.lines().collect();
    let start = lines
        .iter()
        .rposition(|line| line.contains("execve(") && line.contains("\"bench-agent\""))?;
    let syncs = lines[..start]
        .iter()
        .filter(|line| line.contains("fsync(") || line.contains("fdatasync("));
    Some(syncs.count())
}

/// Renders one commit as `git fast-import` reads it: fifty files a directory, each of about a kilobyte or two.
fn import_stream(files: usize) -> String {
    let mut stream = String::from(
        "commit refs/heads/main\ncommitter bench <bench@example.org> 1700000000 +0000\ndata 5\nfiles\n",
    );
    for file in 0..files {
        let content = format!("line of file {file}\n").repeat(60 + file % 60);
        // Writing to a string cannot fail.
        let _written = write!(
            stream,
            "M 100644 inline d{:03}/f{file:05}.txt\ndata {}\n{content}\n",
            file / 50,
            content.len()
        );
    }
    stream.push_str("done\n");
    stream
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_has_the_files_asked_for_and_goes_with_the_place() {
        let place = Place::new("nothing".into()).unwrap();
        let repository = place.repository(120).unwrap();
        let git = |arguments: &[&str]| {
            let printed = Cmd::new("git")
                .arg("-C")
                .arg(&repository)
                .args(arguments)
                .read();
            String::from_utf8(printed.unwrap()).unwrap()
        };
        assert_eq!(git(&["ls-files"]).lines().count(), 120);
        assert_eq!(git(&["status", "--porcelain"]), "");
        assert!(repository.join("d002/f00119.txt").is_file());
        place.remove().unwrap();
        assert!(!repository.exists());
    }

    #[test]
    fn fsyncs_are_counted_up_to_the_agent() {
        let trace = "\
10 execve(\"/b/groundcrew\", [\"groundcrew\", \"run\", \"--\", \"/b/xtask\", \"bench-agent\", \"/f\"], 0x1) = 0
10 fsync(5) = 0
11 fdatasync(6 <unfinished ...>
10 fsync(7) = 0
11 <... fdatasync resumed>) = 0
12 execve(\"/b/xtask\", [\"/b/xtask\", \"bench-agent\", \"/f\"], 0x2) = 0
10 fsync(8) = 0
";
        assert_eq!(syncs_before_agent(trace), Some(3));
        assert_eq!(syncs_before_agent("10 fsync(5) = 0\n"), None);
    }

    #[test]
    fn the_time_until_an_agent_runs_is_taken_from_its_own_clock() {
        let place = Place::new("nothing".into()).unwrap();
        let write = |text: String| move |argv: &[PathBuf]| Ok(fs::write(&argv[2], text)?);
        let now = now();
        assert!(place.until_running(|_| Ok(())).is_err());
        assert!(place.until_running(write((now - 1).to_string())).is_err());
        let taken = place
            .until_running(write((now + 50_000_000_000).to_string()))
            .unwrap();
        assert!(
            taken > Duration::from_secs(40) && taken <= Duration::from_secs(50),
            "{taken:?}"
        );
        place.remove().unwrap();
    }
}

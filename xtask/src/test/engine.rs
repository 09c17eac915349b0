//! The engine that the tests named `needs_docker` share: our own, with its own data, in namespaces of its own.
//!
//! It never touches an engine that the machine has: an engine without a bridge takes the bridge of any other one in the same
//! network namespace away. It holds on to us by a pipe, so that it ends however we end; what an engine leaves whose keeper was
//! killed as well is removed by the next one.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::console;
use crate::metadata::Metadata;
use crate::process::Cmd;
use crate::supervisor;

/// How long an engine may take to come up, and to go.
const PATIENCE: Duration = Duration::from_mins(1);

/// How the directory of each engine is called, so that what is left of one is found.
const PREFIX: &str = "gc-engine";

/// What names the supervisor of containers to the tests.
pub(crate) const SUPERVISOR: &str = "GROUNDCREW_TEST_SUPERVISOR";

/// The script that keeps an engine; tests that let one suffer start their own with it.
const KEEPER: &str = "xtask/src/test/engine.sh";

/// An engine that runs until it is dropped, or until this process is gone.
#[derive(Debug)]
pub(crate) struct Engine {
    directory: PathBuf,
    keeper: Child,
    script: PathBuf,
    supervisor: PathBuf,
}

impl Engine {
    /// Starts one without a network but `none`, and builds the supervisor that its containers get.
    ///
    /// # Errors
    ///
    /// Fails when the supervisor cannot be built or the engine does not come up; its last words are told.
    pub(crate) fn start(metadata: &Metadata) -> Result<Self> {
        let options = ["--bridge=none", "--iptables=false", "--ip-forward=false"];
        Self::with(metadata, &options)
    }

    /// Starts one with these options of its own.
    ///
    /// # Errors
    ///
    /// As those of [`Engine::start`].
    pub(crate) fn with(metadata: &Metadata, options: &[&str]) -> Result<Self> {
        let supervisor = supervisor::build(metadata)?;
        let parent = std::env::temp_dir();
        sweep(&parent);
        let script = metadata.workspace_root.join(KEEPER);
        let (directory, keeper) = keep(&script, &parent, options)?;
        let mut engine = Self {
            directory,
            keeper,
            script,
            supervisor,
        };
        engine.wait_until_up()?;
        Ok(engine)
    }

    /// Returns where it listens.
    pub(crate) fn endpoint(&self) -> String {
        format!("unix://{}", self.directory.join("docker.sock").display())
    }

    /// Returns the supervisor that its containers get.
    pub(crate) fn supervisor(&self) -> &Path {
        &self.supervisor
    }

    /// Begins a call of the engine's own client.
    pub(crate) fn docker(&self) -> Cmd {
        Cmd::new("docker").args(["--host", &self.endpoint()])
    }

    fn wait_until_up(&mut self) -> Result<()> {
        let asks = self.docker().arg("version");
        let end = Instant::now() + PATIENCE;
        while !asks.output()?.status.success() {
            let ended = self.keeper.try_wait().context("cannot watch the engine")?;
            if ended.is_some() || Instant::now() > end {
                let said = ["log", "keeper"]
                    .map(|name| fs::read_to_string(self.directory.join(name)).unwrap_or_default());
                let said = said.concat();
                let last: Vec<_> = said.lines().rev().take(5).collect();
                bail!("the engine does not come up: {}", last.join("\n"));
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Returns what the tests are told of it.
    pub(crate) fn variables(&self) -> [(&'static str, String); 3] {
        [
            ("GROUNDCREW_TEST_ENGINE", self.endpoint()),
            (SUPERVISOR, self.supervisor.display().to_string()),
            (
                "GROUNDCREW_TEST_ENGINE_KEEPER",
                self.script.display().to_string(),
            ),
        ]
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        match end(&mut self.keeper) {
            Ok(status) if status.success() && !self.directory.exists() => {}
            left => console::remark(format!(
                "the engine in {} did not go cleanly: {left:?}",
                self.directory.display()
            )),
        }
    }
}

/// Makes a directory for an engine, and has it started there.
fn keep(script: &Path, parent: &Path, options: &[&str]) -> Result<(PathBuf, Child)> {
    let directory = tempfile::Builder::new()
        .prefix(PREFIX)
        .tempdir_in(parent)
        .context("cannot make a directory for the engine")?;
    let mut keeper = Cmd::new("unshare")
        .args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["--", "sh"])
        .arg(script)
        .arg(directory.path())
        .args(options)
        .start_with_lifeline(&directory.path().join("keeper"))?;
    // From here on the keeper removes it.
    let directory = TempDir::keep(directory);
    let mut lifeline = keeper.stdin.as_ref().context("the keeper has no pipe")?;
    if let Err(error) = lifeline.write_all(b"start\n") {
        drop(keeper.stdin.take());
        let ended = end(&mut keeper)?;
        bail!("the keeper of the engine does not listen: {error}; {ended}");
    }
    Ok((directory, keeper))
}

/// Waits for the end of a keeper, which takes everything with it; one that is late is killed.
fn end(keeper: &mut Child) -> Result<ExitStatus> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = keeper.try_wait().context("cannot watch the engine")? {
            return Ok(status);
        }
        if Instant::now() > end {
            keeper.kill().context("cannot end the engine")?;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Removes what engines left whose keeper was killed; one that lives holds its lock.
fn sweep(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let path = entry.path();
        if ours && is_abandoned(&path) {
            remove_groups(&path);
            match fs::remove_dir_all(&path) {
                Ok(()) => console::remark(format!("removed what is left of {}", path.display())),
                Err(error) => console::remark(format!("{} stays: {error}", path.display())),
            }
        }
    }
}

/// Removes the empty control groups of an engine that is gone.
fn remove_groups(directory: &Path) {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let groups = Cmd::new("find")
        .args(["/sys/fs/cgroup", "-depth", "-type", "d", "-path"])
        .arg(format!("*/groundcrew-engine-{name}*"))
        .args(["-exec", "rmdir", "{}", "+"]);
    // One that is not there, or not empty, is no reason to start no engine.
    drop(groups.output());
}

fn is_abandoned(directory: &Path) -> bool {
    File::open(directory.join("lock"))
        .is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keeper as this package has it, in a place of the test.
    fn kept(parent: &Path) -> (PathBuf, Child) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/test/engine.sh");
        let options = ["--bridge=none", "--iptables=false", "--ip-forward=false"];
        let (directory, mut keeper) = keep(&script, parent, &options).unwrap();
        let answers = Cmd::new("docker")
            .arg("--host")
            .arg(format!("unix://{}/docker.sock", directory.display()))
            .arg("version");
        let end = Instant::now() + PATIENCE;
        while !answers.output().unwrap().status.success() {
            let ended = keeper.try_wait().unwrap();
            assert!(Instant::now() < end && ended.is_none(), "{ended:?}");
            std::thread::park_timeout(Duration::from_millis(50));
        }
        (directory, keeper)
    }

    /// Returns the words of every process that names a path.
    fn naming(path: &Path) -> Vec<String> {
        let path = path.display().to_string();
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries
            .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
            .map(|words| String::from_utf8_lossy(&words).replace('\0', " "))
            .filter(|words| words.contains(&path))
            .collect()
    }

    #[test]
    fn needs_docker_an_engine_ends_with_whoever_wanted_it() {
        let ground = tempfile::tempdir().unwrap();
        let (directory, mut keeper) = kept(ground.path());
        assert!(naming(&directory).len() >= 2, "{:?}", naming(&directory));
        assert!(!is_abandoned(&directory));
        sweep(ground.path());
        assert!(directory.exists(), "one that lives was removed");
        // All that the death of its owner does is to close the pipe.
        drop(keeper.stdin.take());
        assert!(end(&mut keeper).unwrap().success());
        assert_eq!(naming(&directory), [""; 0]);
        assert!(!directory.exists());
    }

    #[test]
    fn needs_docker_what_a_killed_engine_leaves_is_removed_by_the_next() {
        let ground = tempfile::tempdir().unwrap();
        let (directory, mut keeper) = kept(ground.path());
        keeper.kill().unwrap();
        keeper.wait().unwrap();
        let gone = Instant::now() + PATIENCE;
        while !naming(&directory).is_empty() {
            assert!(Instant::now() < gone, "{:?}", naming(&directory));
            std::thread::park_timeout(Duration::from_millis(20));
        }
        assert!(directory.join("docker.sock").exists(), "nothing is stale");
        sweep(ground.path());
        assert!(!directory.exists());
    }
}

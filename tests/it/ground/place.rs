//! A test's own place, and what it does there.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use super::{
    call::Call,
    outcome::text,
    processes::{self, Process},
    repository::Repository,
    waiting::{self, DEADLINE, until},
};

/// A test's own place.
#[derive(Debug)]
pub(crate) struct Ground {
    place: TempDir,
    root: PathBuf,
    state: PathBuf,
}

impl Ground {
    /// Makes a place with a short path.
    pub(crate) fn new() -> Self {
        Self::below("")
    }

    /// Makes a place whose state directory lies `inner` below its root.
    pub(crate) fn below(inner: &str) -> Self {
        let place = tempfile::Builder::new().prefix("gc").tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let state = root.join(inner).join("gc");
        fs::create_dir_all(state.parent().unwrap()).unwrap();
        for name in ["home", "tmp", "out"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        Self { place, root, state }
    }

    /// Returns the directory that holds everything of the test.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the state directory of the command.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    /// Returns a path below the root that nothing else uses.
    pub(crate) fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.root.join("out").join(name.as_ref())
    }

    /// Writes a file below the root and returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Writes an executable script below the root and returns its path.
    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Returns the whole environment that the command is started with.
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        #[expect(
            clippy::disallowed_methods,
            reason = "programs are found as the caller finds them; the one place that reads the environment"
        )]
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        let below = |name: &str| self.root.join(name).into_os_string();
        vec![
            ("PATH".into(), path),
            ("HOME".into(), below("home")),
            ("TMPDIR".into(), below("tmp")),
            (
                "GROUNDCREW_HOME".into(),
                self.state.clone().into_os_string(),
            ),
            // What a machine's administrator set for all users of git is not part of a test.
            ("GIT_CONFIG_NOSYSTEM".into(), "1".into()),
            ("LANG".into(), "C.UTF-8".into()),
            ("TERM".into(), "xterm".into()),
        ]
    }

    /// Returns what `cargo xtask test` tells tests that need an engine.
    pub(crate) fn told(name: &str) -> String {
        #[expect(
            clippy::disallowed_methods,
            reason = "what is told of the engine comes from outside"
        )]
        let told = std::env::var(name);
        told.unwrap_or_else(|_| panic!("{name} is not set; run `cargo xtask test`"))
    }

    /// Makes a repository with one commit that holds the file `f`.
    pub(crate) fn repository(&self, name: impl AsRef<OsStr>) -> Repository {
        let repository = self.empty_repository(name);
        repository.write("f", "base\n");
        repository.commit_all("base");
        repository
    }

    /// Names a directory that is, or will be, a repository.
    pub(crate) fn repository_at(&self, path: &Path) -> Repository {
        Repository::at(self.environment(), path)
    }

    /// Makes a repository without a commit.
    pub(crate) fn empty_repository(&self, name: impl AsRef<OsStr>) -> Repository {
        let repository = self.repository_at(&self.root.join(name.as_ref()));
        repository.init();
        repository
    }

    /// Begins a call of the command.
    pub(crate) fn call<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Call {
        Call::new(self.root.join("home"), self.environment(), words)
    }

    /// Begins a call of `run` in a repository, with options before and the command's words after `--`.
    pub(crate) fn run_in<S: AsRef<OsStr>>(
        &self,
        repository: &Repository,
        options: &[&str],
        argv: impl IntoIterator<Item = S>,
    ) -> Call {
        let words = ["run"].iter().chain(options).map(OsString::from);
        let argv = argv.into_iter().map(|word| word.as_ref().to_owned());
        self.call(words.chain(["--".into()]).chain(argv))
            .directory(repository.path())
    }

    /// Begins a call of `run` with a shell script as the command.
    pub(crate) fn run_shell(
        &self,
        repository: &Repository,
        options: &[&str],
        script: &str,
    ) -> Call {
        self.run_in(repository, options, ["sh", "-c", script])
    }

    /// Runs a shell script to its end, with `--format json`, and returns the document.
    pub(crate) fn ran(&self, repository: &Repository, options: &[&str], script: &str) -> Value {
        let mut all = vec!["--format", "json"];
        all.extend(options);
        self.run_shell(repository, &all, script).run().json()
    }

    /// Starts a detached run of a shell script and returns its document.
    pub(crate) fn detached(
        &self,
        repository: &Repository,
        options: &[&str],
        script: &str,
    ) -> Value {
        let mut all = vec!["--format", "json", "--detach"];
        all.extend(options);
        self.run_shell(repository, &all, script).run().ok().json()
    }

    /// Returns the document of `show`.
    pub(crate) fn show(&self, id: &str) -> Value {
        self.call(["--format", "json", "show", id])
            .run()
            .ok()
            .json()
    }

    /// Returns the state of a run.
    pub(crate) fn state_of(&self, id: &str) -> String {
        text(&self.show(id)["state"]).to_owned()
    }

    /// Returns the runs that `ls` lists, or `ls -a`.
    pub(crate) fn runs(&self, all: bool) -> Vec<Value> {
        let words: &[&str] = if all {
            &["--format", "json", "ls", "-a"]
        } else {
            &["--format", "json", "ls"]
        };
        let document = self.call(words).run().ok().json();
        document["runs"].as_array().unwrap().clone()
    }

    /// Waits until a run has that state.
    pub(crate) fn until_state(&self, id: &str, wanted: &str) {
        let mut last = String::new();
        until(&format!("{id} is {wanted}"), || {
            last = self.state_of(id);
            last == wanted
        });
    }

    /// Runs `recover` and returns its document.
    pub(crate) fn recover(&self) -> Value {
        self.call(["--format", "json", "recover"]).run().ok().json()
    }

    /// Uses the state directory once, so that it holds what every used one holds.
    pub(super) fn use_once(&self) {
        let name = "out/used";
        if !self.root.join(name).exists() {
            let repository = self.repository(name);
            self.ran(&repository, &[], "true");
            self.until_quiet();
        }
    }

    /// Returns the processes that belong to this ground.
    pub(crate) fn processes(&self) -> Vec<Process> {
        processes::below(&self.root)
    }

    /// Waits until no process belongs to this ground.
    pub(crate) fn until_quiet(&self) {
        let mut left = Vec::new();
        let quiet = waiting::until_within(DEADLINE, || {
            left = self.processes();
            left.is_empty()
        });
        assert!(quiet, "processes are left: {left:#?}");
    }

    fn end_what_runs(&self) {
        let listed = self
            .call(["--format", "json", "ls"])
            .within(Duration::from_secs(20))
            .try_run();
        let runs = listed.and_then(|outcome| serde_json::from_slice(&outcome.stdout).ok());
        let runs: Vec<Value> = runs
            .and_then(|document: Value| document["runs"].as_array().cloned())
            .unwrap_or_default();
        for run in runs.iter().filter(|run| run["state"] == "running") {
            let words = ["stop", "--grace", "0s", text(&run["id"])];
            drop(self.call(words).within(Duration::from_secs(20)).try_run());
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if !self.processes().is_empty() {
            self.end_what_runs();
        }
        let patience = Duration::from_secs(10);
        let quiet = waiting::until_within(patience, || self.processes().is_empty());
        let left = if quiet { Vec::new() } else { self.processes() };
        processes::kill(&left);
        unlock(self.place.path());
        assert!(
            left.is_empty() || std::thread::panicking(),
            "processes outlive everything that could end them: {left:#?}"
        );
    }
}

/// Makes directories removable again that a test made unwritable.
fn unlock(directory: &Path) {
    let Ok(metadata) = directory.symlink_metadata() else {
        return;
    };
    if !metadata.is_dir() {
        return;
    }
    if metadata.permissions().mode() & 0o700 != 0o700 {
        drop(fs::set_permissions(
            directory,
            fs::Permissions::from_mode(0o700),
        ));
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries {
        unlock(&entry.path());
    }
}

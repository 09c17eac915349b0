//! A repository, a state directory and a preparer in a temporary directory of their own.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Mutex,
    time::{Duration, Instant},
};

use groundcrew_core::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
    executor::Progress,
    id::{AttemptId, ExecutorName, InstallId, PreparerName, RunId, SessionId},
    identity::Identity,
    preparer::{ApplyContext, Contribution, Effects, PlanContext, Preparer},
    process::Lease,
    request::{LaunchRequest, Mode},
    undo::{Component, Occasion, UndoOptions, UndoRecord, Undone},
    workspace::{Finding, RepositorySpec, Workspace, WorkspaceRequest},
};
use groundcrew_preparer::{GitProgram, Transport, UserGitConfig, WorktreeConfig, WorktreePreparer};
use tempfile::TempDir;

pub(crate) const CLOSE: UndoOptions = options(Occasion::Close, false);
pub(crate) const REMOVE: UndoOptions = options(Occasion::Remove, false);
pub(crate) const FORCE: UndoOptions = options(Occasion::Remove, true);
pub(crate) const FAILURE: UndoOptions = options(Occasion::Failure, false);

const fn options(occasion: Occasion, force: bool) -> UndoOptions {
    UndoOptions { occasion, force }
}

/// Runs git as a user would, with a configuration of its own.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where these tests start a process"
)]
pub(crate) fn try_git<S: AsRef<OsStr>>(directory: &Path, args: &[S]) -> (bool, String) {
    let output = std::process::Command::new("git")
        .current_dir(directory)
        .args(args)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", "/dev/null")
        .env("LC_ALL", "C")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_COUNT", "3")
        .env("GIT_CONFIG_KEY_0", "protocol.file.allow")
        .env("GIT_CONFIG_VALUE_0", "always")
        .env("GIT_CONFIG_KEY_1", "init.defaultBranch")
        .env("GIT_CONFIG_VALUE_1", "main")
        // Maintenance in the background would be found as a process inside the tree.
        .env("GIT_CONFIG_KEY_2", "maintenance.auto")
        .env("GIT_CONFIG_VALUE_2", "false")
        .env("GIT_AUTHOR_NAME", "t")
        .env("GIT_AUTHOR_EMAIL", "t@example.org")
        .env("GIT_COMMITTER_NAME", "t")
        .env("GIT_COMMITTER_EMAIL", "t@example.org")
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.success(), text)
}

pub(crate) fn git<S: AsRef<OsStr>>(directory: &Path, args: &[S]) -> String {
    let (good, text) = try_git(directory, args);
    assert!(good, "git failed: {text}");
    text.trim_end().to_owned()
}

pub(crate) fn write(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// What is done at which checkpoint to which repository.
type AtCheckpoint = (&'static str, PathBuf, fn(&Path));

/// Fails, or cancels, at one checkpoint, and remembers what was identified.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) fail_at: Option<&'static str>,
    pub(crate) cancel_at: Option<(&'static str, CancelToken)>,
    /// What is done to that repository at that checkpoint.
    pub(crate) run_at: Option<AtCheckpoint>,
    pub(crate) identities: Mutex<BTreeMap<String, Identity>>,
    pub(crate) passed: Mutex<Vec<String>>,
    pub(crate) lines: Mutex<Vec<String>>,
}

#[groundcrew_core::async_trait]
impl Effects for Recorder {
    async fn identify(&self, key: &str, identity: Identity) -> Result<(), Error> {
        if self.fail_at == Some("identify") {
            return Err(Error::new(ErrorKind::Unexpected, "injected"));
        }
        self.identities
            .lock()
            .unwrap()
            .insert(key.to_owned(), identity);
        Ok(())
    }

    async fn checkpoint(&self, name: &str) -> Result<(), Error> {
        self.passed.lock().unwrap().push(name.to_owned());
        if let Some((at, token)) = &self.cancel_at
            && *at == name
        {
            token.cancel();
        }
        if let Some((at, repository, run)) = &self.run_at
            && *at == name
        {
            run(repository);
        }
        if self.fail_at == Some(name) {
            return Err(Error::new(ErrorKind::Unexpected, "injected"));
        }
        Ok(())
    }
}

impl Progress for Recorder {
    fn line(&self, line: &str) {
        self.lines.lock().unwrap().push(line.to_owned());
    }
}

/// What one launch planned and made.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) contribution: Contribution,
    pub(crate) attempt: AttemptId,
    pub(crate) run: RunId,
    pub(crate) identities: BTreeMap<String, Identity>,
    pub(crate) result: Result<(), Error>,
    pub(crate) passed: Vec<String>,
}

impl Launch {
    pub(crate) fn workspace(&self) -> &Workspace {
        self.contribution.workspace.as_ref().unwrap()
    }

    pub(crate) fn tree(&self) -> &Path {
        &self.workspace().path
    }

    pub(crate) fn branch(&self) -> &str {
        self.workspace().branch.as_deref().unwrap()
    }

    pub(crate) fn record(&self, key: &str) -> UndoRecord {
        let planned = self
            .contribution
            .resources
            .iter()
            .find(|resource| resource.key == key)
            .unwrap();
        UndoRecord {
            key: planned.key.clone(),
            attempt: self.attempt,
            component: Component::Preparer(PreparerName::new("worktree").unwrap()),
            resource: planned.resource.clone(),
            label: planned.label.clone(),
            due: planned.due,
            depends_on: planned.depends_on.clone(),
            identity: self.identities.get(key).cloned(),
        }
    }
}

pub(crate) struct Fixture {
    pub(crate) root: TempDir,
    pub(crate) repository: PathBuf,
    pub(crate) git: GitProgram,
    pub(crate) install: InstallId,
}

impl Fixture {
    /// Makes a repository with a few files and one commit.
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let repository = root.path().canonicalize().unwrap().join("app");
        fs::create_dir(&repository).unwrap();
        git(&repository, &["init", "-q"]);
        write(repository.join("f"), "one\n");
        write(repository.join("sub/dir/g"), "two\n");
        write(repository.join(".gitignore"), "*.log\n/target/\n");
        write(repository.join("run.sh"), "#!/bin/sh\n");
        git(&repository, &["add", "."]);
        git(&repository, &["update-index", "--chmod=+x", "run.sh"]);
        git(&repository, &["commit", "-qm", "first"]);
        git(&repository, &["checkout", "-q", "--", "."]);
        git(&repository, &["reset", "-q", "--hard"]);
        Self {
            root,
            repository,
            git: sound_git(),
            install: InstallId::new("testinstall").unwrap(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    /// A preparer as another process would make it.
    pub(crate) fn preparer(&self) -> WorktreePreparer {
        self.preparer_of(UserGitConfig::default())
    }

    pub(crate) fn preparer_of(&self, user: UserGitConfig) -> WorktreePreparer {
        WorktreePreparer::new(WorktreeConfig {
            separate: false,
            worktrees: self.home().join("worktrees"),
            trash: self.home().join("trash"),
            locks: self.home().join("locks"),
            install: self.install.clone(),
            git: self.git.clone(),
            user,
            template: None,
            transport: Transport::default(),
        })
        .unwrap()
    }

    pub(crate) fn spec(&self) -> RepositorySpec {
        RepositorySpec::new(&self.repository)
    }

    pub(crate) async fn plan(&self, request: &LaunchRequest) -> Result<Contribution, Error> {
        let (attempt, run) = (AttemptId::generate().unwrap(), RunId::generate().unwrap());
        self.preparer()
            .plan(PlanContext {
                request,
                install: &self.install,
                run: &run,
                attempt,
            })
            .await
            .map(Option::unwrap)
    }

    pub(crate) async fn plan_spec(&self, spec: RepositorySpec) -> Result<Contribution, Error> {
        self.plan(&request(WorkspaceRequest::Worktree(vec![spec])))
            .await
    }

    /// Plans and applies; panics if planning fails.
    pub(crate) async fn launch_with(&self, request: &LaunchRequest, recorder: Recorder) -> Launch {
        let cancel = recorder
            .cancel_at
            .as_ref()
            .map_or_else(CancelToken::new, |(_, token)| token.clone());
        launch(&self.preparer(), &self.install, request, &recorder, &cancel).await
    }

    pub(crate) async fn launch(&self) -> Launch {
        let request = request(WorkspaceRequest::Worktree(vec![self.spec()]));
        let launch = self.launch_with(&request, Recorder::default()).await;
        launch.result.as_ref().unwrap();
        launch
    }

    /// Undoes everything as the engine does, from a new preparer; the answers by key.
    pub(crate) async fn undo(
        &self,
        launch: &Launch,
        options: UndoOptions,
    ) -> BTreeMap<String, Undone> {
        self.try_undo(launch, options).await.unwrap()
    }

    pub(crate) async fn try_undo(
        &self,
        launch: &Launch,
        options: UndoOptions,
    ) -> Result<BTreeMap<String, Undone>, Error> {
        let mut answers = BTreeMap::new();
        for resource in launch.contribution.resources.iter().rev() {
            let record = launch.record(&resource.key);
            if record.due.on(options.occasion) {
                let undone = self.preparer().undo(&record, options).await?;
                answers.insert(record.key, undone);
            }
        }
        Ok(answers)
    }

    pub(crate) async fn losses(&self, launch: &Launch, options: UndoOptions) -> Vec<Finding> {
        self.preparer()
            .assess(&launch.record("worktree"), options)
            .await
            .unwrap()
            .losses
    }

    /// Everything of the repository that a failed launch must leave as it was.
    pub(crate) fn fingerprint(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut open = vec![self.repository.clone()];
        while let Some(directory) = open.pop() {
            files.insert(directory.clone(), b"directory".to_vec());
            for entry in fs::read_dir(&directory).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    // Objects that nothing names are no left-overs that anybody meets.
                    if !entry.path().ends_with(".git/objects") {
                        open.push(entry.path());
                    }
                } else {
                    files.insert(entry.path(), fs::read(entry.path()).unwrap_or_default());
                }
            }
        }
        files
    }

    /// Panics if the repository is not as it was, with the names of what differs.
    pub(crate) fn assert_same(&self, before: &BTreeMap<PathBuf, Vec<u8>>, what: &str) {
        let after = self.fingerprint();
        let differing: Vec<_> = before
            .keys()
            .chain(after.keys())
            .filter(|path| before.get(*path) != after.get(*path))
            .collect();
        assert!(differing.is_empty(), "{what}: {differing:?}");
    }

    /// Panics if anything of a launch is left in the state directory, lock files aside.
    pub(crate) fn assert_home_is_empty(&self) {
        for name in ["worktrees", "trash"] {
            let left: Vec<_> = fs::read_dir(self.home().join(name))
                .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
                .unwrap_or_default();
            assert!(left.is_empty(), "{left:?}");
        }
    }
}

/// Plans and applies.
pub(crate) async fn launch(
    preparer: &WorktreePreparer,
    install: &InstallId,
    request: &LaunchRequest,
    recorder: &Recorder,
    cancel: &CancelToken,
) -> Launch {
    let (attempt, run) = (AttemptId::generate().unwrap(), RunId::generate().unwrap());
    let plan = PlanContext {
        request,
        install,
        run: &run,
        attempt,
    };
    let contribution = preparer.plan(plan).await.unwrap().unwrap();
    let result = preparer
        .apply(ApplyContext {
            plan,
            contribution: &contribution,
            effects: recorder,
            progress: recorder,
            cancel,
        })
        .await;
    let identities = recorder.identities.lock().unwrap().clone();
    let passed = recorder.passed.lock().unwrap().clone();
    Launch {
        contribution,
        attempt,
        run,
        identities,
        result,
        passed,
    }
}

pub(crate) fn request(workspace: WorkspaceRequest) -> LaunchRequest {
    let executor = ExecutorName::new("worktree").unwrap();
    LaunchRequest {
        session: Some(SessionId::new("s").unwrap()),
        lease: Lease::Unlimited,
        ..LaunchRequest::new(executor, workspace, Mode::Workspace)
    }
}

/// Opens the workspace of an earlier run again.
pub(crate) async fn reopen(
    preparer: &dyn Preparer,
    workspace: &Workspace,
) -> Result<Contribution, Error> {
    let request = request(WorkspaceRequest::InPlace {
        path: workspace.path.clone(),
    });
    let install = InstallId::new("testinstall").unwrap();
    let (attempt, run) = (AttemptId::generate().unwrap(), RunId::generate().unwrap());
    let cx = PlanContext {
        request: &request,
        install: &install,
        run: &run,
        attempt,
    };
    preparer.reopen(workspace, cx).await
}

/// The names of what was found, in order.
pub(crate) fn kinds(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| &*finding.what).collect()
}

/// The findings of something that was kept.
pub(crate) fn kept(undone: &Undone) -> &[Finding] {
    match undone {
        Undone::Kept(findings) => findings,
        other => panic!("not kept: {other:?}"),
    }
}

/// Panics unless everything went, without a snapshot.
pub(crate) fn assert_gone(undone: &BTreeMap<String, Undone>, what: &str) {
    for (key, undone) in undone {
        let clean = matches!(
            undone,
            Undone::Removed { snapshot: None } | Undone::AlreadyGone
        );
        assert!(clean, "{what}: {key}: {undone:?}");
    }
}

/// Undoes a failed launch, and panics if anything of it is left.
pub(crate) async fn assert_undone(fixture: &Fixture, launch: &Launch, what: &str) {
    let undone = fixture.undo(launch, FAILURE).await;
    assert_gone(&undone, what);
    fixture.assert_home_is_empty();
}

/// The git program of the machine.
pub(crate) fn sound_git() -> GitProgram {
    GitProgram::Search("/usr/local/bin:/usr/bin:/bin".into())
}

/// Makes a git program that does something else for one subcommand.
pub(crate) fn wrapper(fixture: &mut Fixture, subcommand: &str, instead: &str) {
    let script = fixture.path().join("bin/git");
    write(
        &script,
        &format!(
            "#!/bin/sh\nPATH=/usr/local/bin:/usr/bin:/bin\nfor a in \"$@\"; do\n  if [ \"$a\" = {subcommand} ]; then\n{instead}\n  fi\ndone\nexec git \"$@\"\n"
        ),
    );
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fixture.git = GitProgram::Path(script);
}

/// Waits until a process is gone, or a zombie that nobody has waited for.
pub(crate) async fn assert_dead(pid: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") {
            return;
        }
        assert!(Instant::now() < deadline, "process {pid} lives: {stat}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

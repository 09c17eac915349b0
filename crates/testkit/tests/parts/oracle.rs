//! Negative controls: a planted leak of each kind is found, and an untouched system is not accused.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use groundcrew_core::error::ErrorKind;
use groundcrew_testkit::oracle::{Allowed, Difference, Kind, Oracle, Snapshot};

struct Fixture {
    _temporary: tempfile::TempDir,
    root: PathBuf,
    repository: PathBuf,
    oracle: Oracle,
}

fn command(program: &str) -> Command {
    #[expect(
        clippy::disallowed_methods,
        reason = "leaks are planted by real programs"
    )]
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

impl Fixture {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let base = temporary.path().canonicalize().unwrap();
        let (root, repository) = (base.join("home"), base.join("repository"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&repository).unwrap();
        let oracle = Oracle::new().root(&root).repository(&repository);
        let it = Self {
            _temporary: temporary,
            root,
            repository,
            oracle,
        };
        it.git(&["init", "-q", "-b", "main"]);
        fs::write(it.repository.join("file"), "content").unwrap();
        it.git(&["add", "file"]);
        it.git(&["commit", "-qm", "first"]);
        it
    }

    fn git(&self, arguments: &[&str]) {
        let status = command("git")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .args(["-c", "user.name=n", "-c", "user.email=e@localhost", "-C"])
            .arg(&self.repository)
            .args(arguments)
            .status()
            .unwrap();
        assert!(status.success(), "{arguments:?}");
    }

    fn look(&self) -> Snapshot {
        self.oracle.snapshot().unwrap()
    }

    fn since(&self, before: &Snapshot) -> Difference {
        before.difference(&self.look(), &Allowed::nothing())
    }

    /// Plants a leak and returns the names of that kind that are new or changed.
    fn planted(&self, kind: Kind, plant: impl FnOnce(&Self)) -> Vec<String> {
        let before = self.look();
        assert!(self.since(&before).is_empty(), "{}", self.since(&before));
        plant(self);
        let difference = self.since(&before);
        let found: Vec<_> = difference
            .0
            .into_iter()
            .filter(|c| c.kind == kind)
            .map(|c| c.name)
            .collect();
        assert!(!found.is_empty(), "no {kind} was found");
        found
    }
}

#[test]
fn a_directory_a_file_and_a_link_are_found() {
    let it = Fixture::new();
    let found = it.planted(Kind::Path, |it| {
        fs::create_dir_all(it.root.join("a/b")).unwrap();
        fs::write(it.root.join("a/f"), "").unwrap();
        std::os::unix::fs::symlink("/", it.root.join("l")).unwrap();
    });
    assert_eq!(found.len(), 4, "links are not followed: {found:?}");
}

#[test]
fn a_changed_checkout_is_found() {
    let it = Fixture::new();
    it.planted(Kind::Checkout, |it| {
        fs::write(it.repository.join("file"), "CONTENT").unwrap();
    });
    it.planted(Kind::Checkout, |it| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(it.repository.join("file"), mode).unwrap();
    });
    it.planted(Kind::Checkout, |it| {
        fs::write(it.repository.join("new"), "").unwrap();
    });
}

#[test]
fn a_worktree_and_its_entry_are_found() {
    let it = Fixture::new();
    let before = it.look();
    let place = it.root.join("tree");
    it.git(&[
        "worktree",
        "add",
        "-q",
        "--detach",
        "--lock",
        "--reason",
        "groundcrew:x/y",
        place.to_str().unwrap(),
    ]);
    let difference = it.since(&before).to_string();
    assert!(difference.contains("+ worktree "), "{difference}");
    assert!(
        difference.contains("locked: groundcrew:x/y"),
        "{difference}"
    );
    // Git forgets a worktree that is gone; the raw entry is what is left.
    fs::remove_dir_all(&place).unwrap();
    let found = it.planted(Kind::WorktreeEntry, |it| {
        fs::create_dir(it.repository.join(".git/worktrees/orphan")).unwrap();
    });
    assert!(found[0].ends_with(" orphan"), "{found:?}");
}

#[test]
fn refs_logs_and_head_are_found() {
    let it = Fixture::new();
    it.planted(Kind::Ref, |it| {
        it.git(&["update-ref", "refs/groundcrew/base/x", "HEAD"]);
    });
    it.planted(Kind::Reflog, |it| it.git(&["branch", "leak"]));
    it.planted(Kind::Ref, |it| {
        it.git(&["commit", "-qm", "second", "--allow-empty"]);
    });
    let head = it.planted(Kind::Ref, |it| {
        it.git(&["symbolic-ref", "HEAD", "refs/heads/leak"]);
    });
    assert!(head[0].ends_with(" HEAD"));
}

#[test]
fn locks_configuration_branch_settings_and_hooks_are_found() {
    let it = Fixture::new();
    it.planted(Kind::Lock, |it| {
        fs::write(it.repository.join(".git/refs/heads/x.lock"), "").unwrap();
    });
    it.planted(Kind::Config, |it| {
        it.git(&["config", "core.editor", "true"]);
    });
    let found = it.planted(Kind::BranchSetting, |it| {
        it.git(&["config", "branch.leak.remote", "origin"]);
    });
    assert!(found[0].ends_with(" branch.leak.remote"));
    it.planted(Kind::Hook, |it| {
        fs::create_dir_all(it.repository.join(".git/hooks")).unwrap();
        fs::write(
            it.repository.join(".git/hooks/post-checkout"),
            "#!/bin/sh\n",
        )
        .unwrap();
    });
    it.planted(Kind::Hook, |it| {
        fs::write(it.repository.join(".git/info/exclude"), "x\n").unwrap();
    });
}

struct Sleeper(Child);

impl Sleeper {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_process_is_found_by_whatever_ties_it() {
    let it = Fixture::new();
    let file = it.root.join("open");
    fs::write(&file, "").unwrap();
    let before = it.look();
    let sleep = || {
        let mut sleep = command("sleep");
        sleep.arg("600").current_dir("/");
        sleep
    };
    let copy = it.root.join("program");
    fs::copy(fs::canonicalize("/bin/sleep").unwrap(), &copy).unwrap();
    for (tie, command) in [
        ("its directory", sleep().current_dir(&it.root)),
        ("its environment", sleep().env("PLACE", &it.root)),
        (
            "an open file",
            sleep().stdin(fs::File::open(&file).unwrap()),
        ),
        (
            "its arguments",
            command("tail").arg("-f").arg(&file).current_dir("/"),
        ),
        (
            "its program",
            command(copy.to_str().unwrap()).arg("600").current_dir("/"),
        ),
    ] {
        let sleeper = Sleeper::start(command);
        let difference = it.since(&before).to_string();
        let line = difference
            .lines()
            .find(|l| l.contains(&format!("+ process {} ", sleeper.0.id())));
        assert!(
            line.is_some_and(|line| line.contains(tie)),
            "{tie}: {difference}"
        );
    }
    let processes = it.look();
    assert!(
        processes.names(Kind::Process).is_empty(),
        "they have ended: {processes:?}"
    );
}

#[test]
fn a_process_is_found_by_a_mark() {
    let mark = format!("install-{}", std::process::id());
    let oracle = Oracle::new().mark(mark.as_str());
    let before = oracle.snapshot().unwrap();
    let _sleeper = Sleeper::start(command("sleep").arg("600").env("GROUNDCREW_INSTALL", &mark));
    let left = before.difference(&oracle.snapshot().unwrap(), &Allowed::nothing());
    assert_eq!(left.0.len(), 1, "{left}");
}

#[test]
fn what_is_allowed_is_not_reported_and_its_neighbour_is() {
    let it = Fixture::new();
    let before = it.look();
    it.git(&["branch", "ours"]);
    it.git(&["branch", "ours-too"]);
    fs::write(it.root.join("state.db"), "").unwrap();
    fs::write(it.root.join("state.db-wal"), "").unwrap();
    fs::write(it.root.join("state.dbx"), "").unwrap();
    let allowed = Allowed::nothing()
        .branch(&it.repository, "ours")
        .path(it.root.join("state.db"));
    let left = before.difference(&it.look(), &allowed).to_string();
    assert_eq!(left.lines().count(), 3, "{left}");
    assert!(
        left.contains("state.dbx") && left.contains("refs/heads/ours-too"),
        "{left}"
    );
    let none = before.difference(
        &it.look(),
        &allowed.kind(Kind::Path).kind(Kind::Ref).kind(Kind::Reflog),
    );
    assert!(none.is_empty(), "{none}");
}

#[tokio::test]
async fn what_ends_a_moment_later_is_waited_for_within_bounds() {
    let it = Fixture::new();
    let before = it.look();
    let sleeper = Sleeper::start(command("sleep").arg("600").current_dir(&it.root));
    let nothing = Allowed::nothing();
    let brief = Duration::from_millis(20);
    let error = it
        .oracle
        .until_as_before(&before, &nothing, brief)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.get("difference").unwrap().contains("+ process "));
    drop(sleeper);
    it.oracle
        .until_as_before(&before, &nothing, Duration::from_secs(20))
        .await
        .unwrap();
}

#[test]
fn what_cannot_be_looked_at_is_an_error() {
    let it = Fixture::new();
    let oracle = Oracle::new().repository(it.root.join("missing"));
    assert!(
        oracle.snapshot().is_err(),
        "a snapshot with holes proves nothing"
    );
}

//! A repository on the ground of a case, and the preparer that makes workspaces of it.

use std::{path::Path, process::Command, sync::Arc};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::ExecutorName,
    request::{LaunchRequest, Mode},
    workspace::{RepositorySpec, WorkspaceRequest},
};
use groundcrew_preparer::{GitProgram, Transport, UserGitConfig, WorktreeConfig, WorktreePreparer};
use groundcrew_testkit::conformance::{Ground, PreparerFixture};

/// Returns a preparer on a ground, and a request for a workspace of its repository.
pub(crate) fn fixture(
    ground: &Ground,
    separate: bool,
    workspace: impl FnOnce(Vec<RepositorySpec>) -> WorkspaceRequest,
) -> Result<PreparerFixture, Error> {
    let directory = ground.directory();
    let source = directory.join("source");
    if !source.exists() {
        repository(&source)?;
        // The program that uses a preparer has made the directories: one that is not there may be unmounted.
        std::fs::create_dir(directory.join("worktrees"))
            .map_err(|e| Error::io("no worktrees can be kept", e))?;
    }
    let preparer = WorktreePreparer::new(WorktreeConfig {
        separate,
        worktrees: directory.join("worktrees"),
        trash: directory.join("trash"),
        locks: directory.join("locks"),
        install: ground.install().clone(),
        git: GitProgram::Search("/usr/local/bin:/usr/bin:/bin".into()),
        user: UserGitConfig::default(),
        template: None,
        transport: Transport::default(),
    })?;
    let workspace = workspace(vec![RepositorySpec::new(&source)]);
    let request = LaunchRequest::new(ExecutorName::new("any")?, workspace, Mode::Workspace);
    let fixture = PreparerFixture::new(Arc::new(preparer), request)
        .with_work(|workspace| {
            std::fs::write(workspace.directory.join("notes"), "work")
                .map_err(|e| Error::io("no work can be done", e))
        })
        .with_delivery(
            |workspace| {
                let words = ["commit", "--quiet", "--allow-empty", "--message", "work"];
                git(&workspace.directory, &words).map(drop)
            },
            move |workspace| {
                let there = git(&workspace.directory, &["rev-parse", "HEAD"])?;
                let branches = git(&source, &["for-each-ref", "--format=%(objectname)"])?;
                Ok(branches.lines().any(|at| at == there))
            },
        );
    Ok(fixture)
}

/// Runs git as a user does, and returns what it prints.
#[expect(
    clippy::disallowed_methods,
    reason = "work is done with git, as a user does it"
)]
fn git(at: &Path, words: &[&str]) -> Result<String, Error> {
    let done = Command::new("git")
        .arg("-C")
        .arg(at)
        .args(["-c", "user.name=a", "-c", "user.email=a@example.invalid"])
        .args(words)
        .output()
        .map_err(|e| Error::io("git cannot be run", e))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    Err(Error::new(ErrorKind::Unexpected, "git fails").with("said", said))
}

/// Makes a repository with one commit.
fn repository(at: &Path) -> Result<(), Error> {
    let failed = |e| Error::io("no repository can be made", e);
    std::fs::create_dir(at).map_err(failed)?;
    git(at, &["init", "--quiet"])?;
    std::fs::write(at.join("file"), "content").map_err(failed)?;
    git(at, &["add", "file"])?;
    git(at, &["commit", "--quiet", "--message", "first"])?;
    Ok(())
}

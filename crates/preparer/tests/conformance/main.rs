//! The suite for preparers against git worktrees.
#![expect(
    clippy::disallowed_methods,
    reason = "a repository is made with git, as a user makes one"
)]

use std::{
    path::Path,
    process::{Command, ExitCode},
    sync::Arc,
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::ExecutorName,
    request::{LaunchRequest, Mode},
    workspace::{RepositorySpec, WorkspaceRequest},
};
use groundcrew_preparer::{GitProgram, Transport, UserGitConfig, WorktreeConfig, WorktreePreparer};
use groundcrew_testkit::conformance::{self, PreparerFixture};

fn main() -> ExitCode {
    conformance::preparer_main(|ground| {
        let directory = ground.directory();
        let source = directory.join("source");
        if !source.exists() {
            repository(&source)?;
            // The program that uses a preparer has made the directories: one that is not there may be unmounted.
            std::fs::create_dir(directory.join("worktrees"))
                .map_err(|e| Error::io("no worktrees can be kept", e))?;
        }
        let preparer = WorktreePreparer::new(WorktreeConfig {
            separate: false,
            worktrees: directory.join("worktrees"),
            trash: directory.join("trash"),
            locks: directory.join("locks"),
            install: ground.install().clone(),
            git: GitProgram::Search("/usr/local/bin:/usr/bin:/bin".into()),
            user: UserGitConfig::default(),
            template: None,
            transport: Transport::default(),
        })?;
        let workspace = WorkspaceRequest::Worktree(vec![RepositorySpec::new(source)]);
        let request =
            LaunchRequest::new(ExecutorName::new("worktree")?, workspace, Mode::Workspace);
        Ok(
            PreparerFixture::new(Arc::new(preparer), request).with_work(|workspace| {
                std::fs::write(workspace.directory.join("notes"), "work")
                    .map_err(|e| Error::io("no work can be done", e))
            }),
        )
    })
}

/// Makes a repository with one commit.
fn repository(at: &Path) -> Result<(), Error> {
    let failed = |e| Error::io("git cannot be run", e);
    let git = |words: &[&str]| {
        let done = Command::new("git")
            .arg("-C")
            .arg(at)
            .args(["-c", "user.name=a", "-c", "user.email=a@example.invalid"])
            .args(words)
            .output()
            .map_err(failed)?;
        if done.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        Err(Error::new(ErrorKind::Unexpected, "git fails").with("said", said))
    };
    std::fs::create_dir(at).map_err(failed)?;
    git(&["init", "--quiet"])?;
    std::fs::write(at.join("file"), "content").map_err(failed)?;
    git(&["add", "file"])?;
    git(&["commit", "--quiet", "--message", "first"])
}

//! The suite for preparers against git worktrees.

use std::process::ExitCode;

use groundcrew_core::workspace::WorkspaceRequest;
use groundcrew_testkit::conformance;

mod ground;

fn main() -> ExitCode {
    conformance::preparer_main(|on| ground::fixture(on, false, WorkspaceRequest::Worktree))
}

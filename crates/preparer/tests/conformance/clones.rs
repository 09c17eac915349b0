//! The suite for preparers against private clones.

use std::process::ExitCode;

use groundcrew_core::workspace::{CloneObjects, WorkspaceRequest};
use groundcrew_testkit::conformance;

mod ground;

fn main() -> ExitCode {
    conformance::preparer_main(|on| {
        ground::fixture(on, true, |repositories| WorkspaceRequest::Clone {
            repositories,
            objects: CloneObjects::Copied,
        })
    })
}

//! The suite for executors against this one, whose supervisors are this very program.

use std::{process::ExitCode, sync::Arc};

use example_executor_bwrap::{BwrapConfig, BwrapExecutor};
use groundcrew_testkit::conformance::{self, ExecutorFixture};

fn main() -> ExitCode {
    if let Some(code) = groundcrew_supervisor::run_if_invoked() {
        return code;
    }
    conformance::main(|ground| {
        let config = BwrapConfig::new(ground.directory(), ground.install().clone())?;
        Ok(ExecutorFixture::new(Arc::new(BwrapExecutor::new(config))))
    })
}

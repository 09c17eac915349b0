//! The suite for executors against the one of host processes, whose supervisors are this very program.

use std::{process::ExitCode, sync::Arc};

use groundcrew_core::id::ExecutorName;
use groundcrew_executor_local::{LocalConfig, LocalExecutor};
use groundcrew_testkit::conformance::{self, ExecutorFixture};

fn main() -> ExitCode {
    if let Some(code) = groundcrew_supervisor::run_if_invoked() {
        return code;
    }
    conformance::main(|ground| {
        let name = ExecutorName::new("local")?;
        let config = LocalConfig::new(name, ground.directory(), ground.install().clone());
        let executor = LocalExecutor::new(config);
        Ok(ExecutorFixture::new(Arc::new(executor)))
    })
}

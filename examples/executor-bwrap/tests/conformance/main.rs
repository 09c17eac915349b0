//! The suite for executors against this one, whose supervisors are this very program.

use std::{process::ExitCode, sync::Arc};

use example_executor_bwrap::{BwrapConfig, BwrapExecutor};
use groundcrew_core::{error::Error, id::ExecutorName};
use groundcrew_testkit::conformance::{self, ExecutorFixture};

fn main() -> ExitCode {
    if let Some(code) = groundcrew_supervisor::run_if_invoked() {
        return code;
    }
    conformance::main(|ground| {
        let own = std::env::current_exe();
        let executor = BwrapExecutor::new(BwrapConfig {
            name: ExecutorName::new("bwrap")?,
            directory: ground.directory().to_owned(),
            install: ground.install().clone(),
            supervisor: own.map_err(|e| Error::io("this program cannot find itself", e))?,
            bwrap: "/usr/bin/bwrap".into(),
        });
        Ok(ExecutorFixture::new(Arc::new(executor)))
    })
}

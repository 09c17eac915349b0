//! The suite for executors against the example in Python, whose supervisors are this very program.
#![expect(
    clippy::disallowed_methods,
    reason = "a test program finds itself, and Python by `PATH`"
)]

use std::{path::Path, process::ExitCode, sync::Arc};

use groundcrew_core::{error::Error, id::ExecutorName};
use groundcrew_executor_exec::{ExecConfig, ExecExecutor};
use groundcrew_testkit::conformance::{self, ExecutorFixture};

fn main() -> ExitCode {
    if let Some(code) = groundcrew_supervisor::run_if_invoked() {
        return code;
    }
    let own = std::env::current_exe();
    let path = std::env::var_os("PATH").unwrap_or_default();
    conformance::main(move |ground| {
        let own = match &own {
            Ok(own) => own.clone(),
            Err(e) => {
                return Err(Error::io(
                    "this program cannot find itself",
                    e.kind().into(),
                ));
            }
        };
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/local.py");
        let command = vec![
            "python3".into(),
            "-S".into(),
            program.into(),
            ground.directory().into(),
        ];
        let name = ExecutorName::new("exec")?;
        let mut config = ExecConfig::new(name, command, ground.install().clone(), own);
        config.variables = vec![("PATH".into(), path.clone())];
        Ok(ExecutorFixture::new(Arc::new(ExecExecutor::open(config)?)))
    })
}

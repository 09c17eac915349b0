//! The command `groundcrew`.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = groundcrew_supervisor::run_if_invoked() {
        return code;
    }
    groundcrew::main(groundcrew::Program::default())
}

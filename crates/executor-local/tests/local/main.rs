//! The executor of host processes with real supervisors, which are this very program.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test program, which the compiler does not know for one because it has its own `main`"
)]

mod conformance;
mod endings;
mod killed;
mod life;
mod place;
mod runner;
mod soak;
mod streams;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = groundcrew_supervisor::run_if_invoked() {
        return code;
    }
    if let Some(code) = killed::run_if_controller() {
        return code;
    }
    let tests: Vec<runner::Test> = [
        life::TESTS,
        endings::TESTS,
        streams::TESTS,
        killed::TESTS,
        conformance::TESTS,
        soak::TESTS,
    ]
    .concat();
    runner::run(&tests)
}

//! The standalone supervisor, for places where the command itself is not at hand.

use std::process::ExitCode;

fn main() -> ExitCode {
    groundcrew_supervisor::run(std::env::args_os().skip(1))
}

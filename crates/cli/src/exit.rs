//! Exit codes: a contract with scripts.

use std::process::ExitCode;

use groundcrew_core::{
    error::ErrorKind,
    process::{EndCause, ExitStatus},
};

/// Done.
pub const DONE: u8 = 0;
/// Failed; nothing is left behind.
pub const FAILED: u8 = 1;
/// The command line is wrong, or what it asks for.
pub const USAGE: u8 = 2;
/// No run has that id, or more than one has; no process, secret or profile has that name.
pub const NOT_FOUND: u8 = 3;
/// Refused, because work would be lost.
pub const REFUSED: u8 = 4;
/// Failed; what is left behind is owned and tried again.
pub const LEFTOVERS: u8 = 5;
/// Something that is needed cannot be reached or used now.
pub const UNAVAILABLE: u8 = 6;
/// `run`, `resume` and `exec`: the time limit, or the idle limit, passed.
pub const TIMED_OUT: u8 = 124;
/// `run`, `resume` and `exec`: we failed, not the command.
pub const OURS: u8 = 125;
/// `run`, `resume` and `exec`: the command cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// `run`, `resume` and `exec`: the command does not exist.
pub const NO_COMMAND: u8 = 127;

/// Returns the code for a signal that ended something: 128 and its number.
pub fn signalled(number: i32) -> u8 {
    u8::try_from(128_i32.saturating_add(number)).unwrap_or(u8::MAX)
}

/// Returns the code that `run` ends with for a command that ended so.
pub fn of_command(status: ExitStatus) -> u8 {
    if matches!(status.cause, EndCause::TimedOut | EndCause::Idle) {
        return TIMED_OUT;
    }
    match (status.code, status.signal) {
        // A wait status holds eight bits; anything else is not the kernel's word.
        (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
        (None, Some(signal)) => signalled(signal.0),
        (None, None) => OURS,
    }
}

/// Returns the code of `run`, `resume` and `exec` for a failure of ours.
pub const fn of_launch_failure(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::ProgramNotFound => NO_COMMAND,
        ErrorKind::NotExecutable | ErrorKind::InterpreterNotFound => NOT_EXECUTABLE,
        _ => OURS,
    }
}

/// Returns the code of all other verbs for a failure.
pub const fn of_failure(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::InvalidInput => USAGE,
        ErrorKind::NotFound | ErrorKind::Ambiguous => NOT_FOUND,
        ErrorKind::WouldLoseWork => REFUSED,
        ErrorKind::Unavailable
        | ErrorKind::Backpressure
        | ErrorKind::SessionBusy
        | ErrorKind::Busy => UNAVAILABLE,
        _ => FAILED,
    }
}

/// Turns a number into what `main` returns.
pub fn code(number: u8) -> ExitCode {
    ExitCode::from(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use groundcrew_core::process::Signal;

    fn signalled_status(signal: Signal, cause: EndCause) -> ExitStatus {
        ExitStatus {
            code: None,
            signal: Some(signal),
            core_dumped: false,
            cause,
        }
    }

    #[test]
    fn f020_the_code_of_the_command_is_passed_through() {
        for n in [0, 1, 2, 7, 125, 255] {
            assert_eq!(i32::from(of_command(ExitStatus::exited(n))), n);
        }
        assert_eq!(
            of_command(signalled_status(Signal::KILL, EndCause::Itself)),
            137
        );
        assert_eq!(
            of_command(signalled_status(Signal::TERM, EndCause::Stopped)),
            143
        );
    }

    #[test]
    fn a_time_limit_has_its_own_code_however_the_command_ended() {
        assert_eq!(
            of_command(signalled_status(Signal::TERM, EndCause::TimedOut)),
            124
        );
        for cause in [EndCause::TimedOut, EndCause::Idle] {
            let status = ExitStatus {
                cause,
                ..ExitStatus::exited(0)
            };
            assert_eq!(of_command(status), 124);
        }
    }

    #[test]
    fn failures_of_ours_are_told_apart() {
        assert_eq!(of_launch_failure(ErrorKind::ProgramNotFound), 127);
        assert_eq!(of_launch_failure(ErrorKind::NotExecutable), 126);
        assert_eq!(of_launch_failure(ErrorKind::InterpreterNotFound), 126);
        assert_eq!(of_launch_failure(ErrorKind::DirectoryNotFound), 125);
        assert_eq!(of_launch_failure(ErrorKind::NotFound), 125);
        assert_eq!(of_failure(ErrorKind::InvalidInput), 2);
        assert_eq!(of_failure(ErrorKind::NotFound), 3);
        assert_eq!(of_failure(ErrorKind::Ambiguous), 3);
        assert_eq!(of_failure(ErrorKind::WouldLoseWork), 4);
        assert_eq!(of_failure(ErrorKind::Unavailable), 6);
        assert_eq!(of_failure(ErrorKind::Corrupt), 1);
    }
}

//! Waits for locks that git itself takes for moments: of refs, and of the file of packed refs while somebody cleans up.

use std::time::{Duration, Instant};

use git2::{ErrorClass, ErrorCode};
use groundcrew_core::error::{Error, ErrorKind};

use super::repository::git_error;

/// How long a lock of git's is waited for; a clean-up of many refs takes a fraction of it.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often it is looked at: a lock file tells nobody that it goes.
const PAUSE: Duration = Duration::from_millis(10);

#[expect(
    clippy::disallowed_methods,
    reason = "callers are on the pool for blocking work, where git is called"
)]
fn pause() {
    std::thread::sleep(PAUSE);
}

/// Makes an error of a ref that could not be written; one that the next try may not meet is [`ErrorKind::Unavailable`].
///
/// A clean-up takes empty directories of refs away, also one that libgit2 has just made for a lock.
pub(crate) fn ref_error(message: &'static str, error: git2::Error) -> Error {
    if error.code() == ErrorCode::NotFound && error.class() == ErrorClass::Os {
        return Error::new(ErrorKind::Unavailable, message).with_source(error);
    }
    git_error(message, error)
}

/// Does something again for as long as a lock is in its way; blocks the thread.
///
/// * It must be repeatable: each try begins with what is there then.
///
/// # Errors
///
/// That of the last try.
pub(crate) fn while_locked<T>(mut attempt: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::Unavailable && begun.elapsed() < PATIENCE => {
                pause();
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f080_a_lock_is_waited_for_and_nothing_else_is() {
        let mut tries = 0;
        let freed = while_locked(|| {
            tries += 1;
            match tries {
                3 => Ok(tries),
                _ => Err(Error::new(ErrorKind::Unavailable, "locked")),
            }
        });
        assert_eq!(freed.unwrap(), 3);
        let mut tries = 0;
        let refused = while_locked(|| -> Result<(), Error> {
            tries += 1;
            Err(Error::new(ErrorKind::Conflict, "moved"))
        });
        assert_eq!(
            (refused.unwrap_err().kind(), tries),
            (ErrorKind::Conflict, 1)
        );
    }
}

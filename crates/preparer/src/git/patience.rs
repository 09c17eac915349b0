//! Waits for locks that git itself takes for moments: of refs, and of the file of packed refs while somebody cleans up.

use std::time::{Duration, Instant};

use groundcrew_core::error::{Error, ErrorKind};

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

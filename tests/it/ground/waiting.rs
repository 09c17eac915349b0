//! Waits for what is seen only by looking, with a limit.

use std::time::{Duration, Instant};

/// How long anything may take that should happen at once; machines may be busy.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);

/// Looks again and again until something holds.
///
/// # Panics
///
/// When it does not within [`DEADLINE`].
#[track_caller]
pub(crate) fn until(what: &str, holds: impl FnMut() -> bool) {
    assert!(
        until_within(DEADLINE, holds),
        "waited {DEADLINE:?} in vain until {what}"
    );
}

/// Looks again and again until something holds, or a time passed; returns whether it holds.
pub(crate) fn until_within(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    let mut pause = Duration::from_millis(2);
    loop {
        if holds() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "files and processes tell nobody that they changed"
        )]
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

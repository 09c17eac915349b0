//! The clock of the machine: one for all processes, so that one process can time another.

use rustix::time::{ClockId, clock_gettime};

/// Returns the nanoseconds of the machine's monotonic clock, which all processes share.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or_default();
    seconds * 1_000_000_000 + nanoseconds
}

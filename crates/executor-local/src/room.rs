//! Whether this process has room for one more instance: descriptors run out for all at once, rollback included.
//!
//! The lowest free number does not tell: what lives long is often opened while something short-lived has the lower ones.

use groundcrew_core::error::{Error, ErrorKind};
use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};

/// What is left for taking things back, whatever is launched.
const RESERVE: u64 = 64;

/// What one more instance takes, at most.
const EACH: u64 = 5;

/// Finds out whether one more instance can be made.
///
/// # Errors
///
/// `ResourceExhausted` when it would touch what is left for taking things back.
pub(crate) fn check() -> Result<(), Error> {
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return Ok(());
    };
    let open = match std::fs::read_dir("/proc/self/fd") {
        // One of them is the list itself.
        Ok(all) => (all.count() as u64).saturating_sub(1),
        Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => limit,
        Err(error) => return Err(Error::io("failed to look for room", error)),
    };
    if fits(open, limit) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::ResourceExhausted,
        "too few descriptors are left for another instance; end some, or raise the limit (ulimit -n)",
    )
    .with("limit", limit)
    .with("kept", RESERVE))
}

fn fits(open: u64, limit: u64) -> bool {
    open.saturating_add(EACH + RESERVE) <= limit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_for_rollback_is_not_given_away() {
        assert!(fits(10, 1024) && fits(1024 - 69, 1024));
        assert!(!fits(1024 - 68, 1024) && !fits(1024, 1024) && !fits(0, 64));
        check().unwrap();
    }
}

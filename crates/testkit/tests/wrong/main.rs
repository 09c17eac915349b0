//! The suites are judged themselves: what is wrong on purpose fails its case and no other.
#![expect(
    clippy::unwrap_used,
    reason = "what is wrong on purpose stands beside the tests"
)]

mod executors;
mod preparers;
mod secrets;

//! What the state directory promises, shown from outside.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what tests share between them may fail as a test does"
)]

mod contract;
mod damage;
mod disk;
mod home;
mod locks;
mod processes;
mod support;

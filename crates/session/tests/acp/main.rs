//! The session engine against an agent that ACP's own crate plays: every step of a turn is the test's to take.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise, and spawns what it plays with"
)]

mod conversations;
mod opening;
mod peer;
mod transport;

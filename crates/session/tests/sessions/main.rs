//! The session engine against a scripted agent that speaks like Codex: every step of it is the test's to take.
#![expect(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise, and spawns what it plays with"
)]

mod closing;
mod desk;
mod dropping;
mod ground;
mod handover;
mod instances;
mod lifecycle;
mod model;
mod peer;
mod preparing;
mod process;
mod requests;
mod script;
mod takeover;
mod transport;
mod turns;
mod wire;
mod world;

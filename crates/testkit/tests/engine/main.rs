//! The engine on parts in memory: what it promises holds at every step, whatever goes wrong there.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise, and spawns what it plays with"
)]

mod activity;
mod adopting;
mod agents;
mod cancelling;
mod compound;
mod death;
mod dropping;
mod ensuring;
mod equipment;
mod events;
mod following;
mod gates;
mod handshakes;
mod keeping;
mod load;
mod matrix;
mod misbehaving;
mod model;
mod planning;
mod races;
mod recovery;
mod resuming;
mod scripts;
mod sessions;
mod sharing;
mod support;
mod unwinding;
mod verbs;

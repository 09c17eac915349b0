//! The executor of containers against a real engine.
//!
//! `cargo xtask test` starts the engine, builds the supervisor, and names both in variables.
#![expect(
    clippy::disallowed_methods,
    reason = "tests start the engine's own client, and read what `cargo xtask test` tells them"
)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what these tests share is part of the tests"
)]

mod control;
mod engine;
mod ground;
mod images;
mod life;
mod networks;
mod outage;
mod replies;
mod volumes;

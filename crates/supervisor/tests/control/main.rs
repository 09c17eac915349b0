//! The control server and its client, with real supervisors.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what these tests share is part of the tests"
)]

mod http;
mod life;
mod links;
mod place;
mod versions;

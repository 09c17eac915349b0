//! The parts of the kit keep their own promises: what is strict refuses, what goes wrong does, what is looked for is found.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise, and spawns what it plays with"
)]

mod conformance;
mod faults;
mod instance;
mod locks;
mod oracle;
mod store;
mod support;
mod world;

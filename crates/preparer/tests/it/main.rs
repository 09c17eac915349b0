//! Real git, real directories: what the preparers make, keep and take back.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "what a test cannot set up must fail it, and what it skips must be seen"
)]

mod clones;
mod delivering;
mod ephemeral;
mod failing;
mod faults;
mod fixture;
mod including;
mod keeping;
mod lfs;
mod making;
mod owning;
mod rebuilding;
mod restoring;
mod running;
mod several;
mod starting;
mod submodules;
mod tasks;

//! Real git, real directories: what the preparers make, keep and take back.

mod common;
mod making;

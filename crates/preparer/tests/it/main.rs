//! Real git, real directories: what the preparers make, keep and take back.

mod common;
mod failing;
mod keeping;
mod making;

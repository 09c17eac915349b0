#![doc = include_str!("../README.md")]

pub use groundcrew_core::lines::{self, Lines, MAX_LINE_LEN};

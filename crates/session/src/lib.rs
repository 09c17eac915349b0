#![doc = include_str!("../README.md")]

mod lines;

pub use lines::{Lines, MAX_LINE_LEN};

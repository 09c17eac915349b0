#![doc = include_str!("../README.md")]

pub mod archive;
pub mod log;
pub mod processes;
pub mod tree;

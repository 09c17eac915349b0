#![doc = include_str!("../README.md")]

pub mod conformance;
pub mod faulty;
pub mod memory;
pub mod oracle;
pub mod polls;
pub mod recorder;

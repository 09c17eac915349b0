#![doc = include_str!("../README.md")]

mod labels;

pub use labels::{ATTEMPT, INSTALL, Labels, RUN, SESSION};

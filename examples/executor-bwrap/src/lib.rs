#![doc = include_str!("../README.md")]

mod ending;
mod executor;
mod place;
mod sealing;

pub use executor::{BwrapConfig, BwrapExecutor};

#![doc = include_str!("../README.md")]

mod executor;
mod holder;
mod instance_directory;
mod life;
mod probe;

pub use executor::{LocalConfig, LocalExecutor};

#![doc = include_str!("../README.md")]

mod executor;
mod holder;
mod instance_directory;
mod life;
mod private_files;
mod probe;
mod service_manager;

pub use executor::{LocalConfig, LocalExecutor};

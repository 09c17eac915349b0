#![doc = include_str!("../README.md")]

mod executor;
mod holder;
mod instance_directory;
mod life;
mod old_logs;
mod probe;
mod room;
mod service_manager;

pub use executor::{LocalConfig, LocalExecutor};
pub use old_logs::OldLogs;

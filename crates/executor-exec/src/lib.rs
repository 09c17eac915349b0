#![doc = include_str!("../README.md")]

mod call;
mod connection;
mod executor;
mod protocol;

pub use executor::{ExecConfig, ExecExecutor};

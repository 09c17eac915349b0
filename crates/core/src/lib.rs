#![doc = include_str!("../README.md")]

pub mod cancel;
pub mod checkpoint;
pub mod command;
pub mod env;
pub mod error;
pub mod event;
pub mod executor;
pub mod id;
pub mod identity;
pub mod instance;
pub mod preparer;
pub mod process;
pub mod request;
pub mod secret;
pub mod store;
pub mod undo;
pub mod wire;
pub mod workspace;

pub use async_trait::async_trait;

#![doc = include_str!("../README.md")]

mod chain;
mod deadline;
mod environment;
mod helper_command;
mod memory;
mod runtime;
mod sealed;
mod value;
mod words;

pub use chain::SecretChain;
pub use deadline::SecretDeadline;
pub use environment::EnvironmentSecrets;
pub use helper_command::{HelperConfig, HelperSecrets, NOT_KNOWN};
pub use memory::MemorySecrets;
pub use sealed::{
    KEY_BYTES, MasterKey, STORE_MAX, SealedConfig, SealedSecrets, SecretEntry, Stored, WritePoints,
};
pub use value::{Ending, VALUE_MAX, ValueBuffer};

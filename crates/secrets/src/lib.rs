#![doc = include_str!("../README.md")]

mod chain;
mod memory;

pub use chain::SecretChain;
pub use memory::MemorySecrets;

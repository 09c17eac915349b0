#![doc = include_str!("../README.md")]

// Words: data that everybody speaks.
pub mod event;
pub mod failure;
pub mod launch;
pub mod request;
pub mod settings;
pub mod state;
pub mod tool_server;
pub mod variable;

// Contracts: what others implement.
pub mod protocol;
pub mod transport;

pub mod rpc;

// The engine.
mod book;
mod dialogue;
pub mod engine;

// Protocols.
pub mod acp;
pub mod codex;

pub use dialogue::TurnEnd;
pub use engine::Engine;

pub use groundcrew_core::lines::{self, Lines, MAX_LINE_LEN};

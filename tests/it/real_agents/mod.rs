//! Conversations with real agents, against a model on loopback.

mod codex;
mod others;
mod place;

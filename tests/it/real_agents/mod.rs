//! Conversations with real agents, against a model on loopback.

mod codex;
mod containers;
mod jobs;
mod others;
mod place;

//! The protocol of the Codex app-server.

#![doc = include_str!("../README.md")]

mod config;
mod ephemeral;
mod files;
mod git;
mod in_place;
mod naming;
mod scratch;
mod text;
mod worktree;

pub use config::{
    EphemeralConfig, GitProgram, ScratchConfig, Transport, UserGitConfig, WorktreeConfig,
};
pub use ephemeral::EphemeralPreparer;
pub use in_place::InPlacePreparer;
pub use scratch::ScratchPreparer;
pub use worktree::WorktreePreparer;

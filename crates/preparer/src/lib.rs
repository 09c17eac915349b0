#![doc = include_str!("../README.md")]

mod config;
mod files;
mod git;
mod in_place;
mod naming;
mod scratch;
mod text;
mod worktree;

pub use config::{GitProgram, ScratchConfig, UserGitConfig, WorktreeConfig};
pub use in_place::InPlacePreparer;
pub use scratch::ScratchPreparer;
pub use worktree::WorktreePreparer;

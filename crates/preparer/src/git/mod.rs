//! Git: libgit2 for every read, the git program for what makes worktrees and deletes refs.

pub(crate) mod admin;
pub(crate) mod anchor;
pub(crate) mod branch;
pub(crate) mod clone;
pub(crate) mod command;
mod counts;
mod deletion;
pub(crate) mod history;
pub(crate) mod identity;
pub(crate) mod ignore;
pub(crate) mod inspect;
mod leftover;
pub(crate) mod lfs;
pub(crate) mod module;
pub(crate) mod pack;
pub(crate) mod patience;
pub(crate) mod remote;
pub(crate) mod repository;
pub(crate) mod settings;
pub(crate) mod snapshot;
pub(crate) mod start;
pub(crate) mod tree;

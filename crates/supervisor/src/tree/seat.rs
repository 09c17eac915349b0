//! The place of a process in the cgroup hierarchy, until the process has it.

use std::{io, os::fd::OwnedFd};

use rustix::fs::{Mode, OFlags};

use super::cgroup::Leaf;

/// A place in the hierarchy that a process has before it runs.
#[derive(Debug)]
pub(crate) struct Seat {
    /// Until a process took it; a seat that nobody took is removed.
    leaf: Option<Leaf>,
    births: bool,
    /// The directory of the place.
    pub(crate) directory: OwnedFd,
}

impl Seat {
    pub(super) fn new(leaf: Leaf, directory: OwnedFd, births: bool) -> Self {
        Self {
            leaf: Some(leaf),
            births,
            directory,
        }
    }

    /// Hands the leaf over to the process that took the seat.
    pub(super) fn taken(mut self) -> Option<Leaf> {
        self.leaf.take()
    }

    /// Returns whether a process may be born in it.
    pub(crate) fn takes_births(&self) -> bool {
        self.births
    }

    /// Opens the file in which a process writes itself in.
    pub(crate) fn entry(&self) -> io::Result<OwnedFd> {
        Ok(rustix::fs::openat(
            &self.directory,
            "cgroup.procs",
            OFlags::WRONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(leaf) = self.leaf.take() {
            leaf.remove();
        }
    }
}

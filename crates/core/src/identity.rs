//! Proof that a thing is the one we mean, and whether it exists.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Proof of which thing carries a name: a container id, a device and inode, a pidfd's inode and a boot id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Identity(pub String);

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a thing exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It does; this one.
    Present(Identity),
    /// It certainly does not.
    Absent,
    /// It could not be told, for this reason; never to be treated as absent.
    Unknown(String),
}

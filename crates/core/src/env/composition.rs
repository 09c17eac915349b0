//! What the composer answers: a decided environment, or what cannot be decided; never a secret's value.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::env::definition::{Definition, Origin, Tier};

/// A variable that cannot be decided, with everybody who defines it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Conflict {
    /// The variable.
    pub key: String,
    /// Who defines it, weakest first.
    pub origins: Vec<Origin>,
    /// Why it cannot be decided.
    pub why: String,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origins: Vec<_> = self.origins.iter().map(|o| o.0.as_str()).collect();
        write!(f, "{}: {} ({})", self.key, self.why, origins.join(", "))
    }
}

/// A definition that lost against a stronger one; without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Overridden {
    /// Who lost.
    pub origin: Origin,
    /// How strong it was.
    pub tier: Tier,
}

/// A decided variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The definition that holds.
    pub definition: Definition,
    /// Who says the same, weakest first, without the one that holds.
    pub agreeing: Vec<Origin>,
    /// What lost, weakest first.
    pub overridden: Vec<Overridden>,
}

/// A decided environment, secrets still unrevealed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Composition {
    /// Each variable once, in the order of the names.
    pub variables: Vec<Variable>,
}

impl Composition {
    /// Returns the definitions that hold, in the order of the names.
    pub fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.variables.iter().map(|variable| &variable.definition)
    }

    /// Returns a variable by its name.
    pub fn get(&self, name: &str) -> Option<&Variable> {
        self.variables
            .iter()
            .find(|variable| variable.definition.key.as_bytes() == name.as_bytes())
    }
}

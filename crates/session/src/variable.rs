//! The variables of a launch as an ordered list, in which a later one wins: an order that can be looked at.

use groundcrew_core::{
    env::{Environment, Key},
    error::Error,
    wire::OsText,
};
use serde::{Deserialize, Serialize};

/// One variable.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    /// Its name.
    pub key: OsText,
    /// Its value.
    pub value: OsText,
}

impl Variable {
    /// Makes one.
    pub fn new(key: impl Into<OsText>, value: impl Into<OsText>) -> Self {
        Self {
            key: key.into(),
            value: value.into(),
        }
    }

    /// Returns whether its name is that one, compared without case.
    pub fn is_named(&self, name: &str) -> bool {
        self.key.as_bytes().eq_ignore_ascii_case(name.as_bytes())
    }
}

impl std::fmt::Debug for Variable {
    /// Shows the name only: a value may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}=…", String::from_utf8_lossy(self.key.as_bytes()))
    }
}

/// Lays variables over a list: earlier ones of the same names, in whatever case, go.
pub fn replace(list: &mut Vec<Variable>, over: Vec<Variable>) {
    list.retain(|old| {
        !over
            .iter()
            .any(|new| new.key.as_bytes().eq_ignore_ascii_case(old.key.as_bytes()))
    });
    list.extend(over);
}

/// Makes an environment of a list; a later variable wins.
///
/// # Errors
///
/// `InvalidInput` for a name that is none.
pub fn environment(list: &[Variable]) -> Result<Environment, Error> {
    let mut environment = Environment::new();
    for variable in list {
        environment.set(Key::new(variable.key.clone())?, variable.value.as_bytes());
    }
    Ok(environment)
}

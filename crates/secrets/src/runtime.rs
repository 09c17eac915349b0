//! The names of runtime secrets: `runtime/<attempt>/<name>`, which no user can give to a secret.

use std::collections::BTreeSet;

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::AttemptId,
    secret::{RUNTIME_PREFIX, SecretRef, SecretValue},
};

use crate::value;

/// Refuses a name that belongs to runtime secrets.
pub(crate) fn refuse(name: &SecretRef) -> Result<(), Error> {
    if !name.is_runtime() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidInput,
        "names that begin with `runtime/` are kept for the tokens of runs; choose another name",
    )
    .with("secret", name))
}

/// Names the secrets of an attempt, in the given order, and checks their values.
pub(crate) fn names(
    attempt: AttemptId,
    secrets: &[(String, SecretValue)],
) -> Result<Vec<SecretRef>, Error> {
    let names = secrets.iter().map(|(name, value)| {
        let full = SecretRef::new(format!("{RUNTIME_PREFIX}/{attempt}/{name}"))?;
        value::check(value).map_err(|error| error.with("secret", &full))?;
        Ok(full)
    });
    let names = names.collect::<Result<Vec<_>, Error>>()?;
    let mut seen = BTreeSet::new();
    match names.iter().find(|name| !seen.insert(*name)) {
        None => Ok(names),
        Some(twice) => Err(Error::new(
            ErrorKind::InvalidInput,
            "an executor returned two secrets of one name",
        )
        .with("secret", twice)),
    }
}

/// Returns the attempt that a runtime secret is of.
pub(crate) fn attempt_of(name: &SecretRef) -> Option<AttemptId> {
    let mut parts = name.as_str().split('/');
    (parts.next() == Some(RUNTIME_PREFIX)).then(|| parts.next()?.parse().ok())?
}

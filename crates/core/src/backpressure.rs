//! Refuses new launches of a kind whose leftovers pile up: what cannot be taken away must not be made faster than it goes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use crate::{
    error::{Error, ErrorKind},
    registry::Registration,
    store::AttemptRow,
    undo::Component,
};

/// Which kinds are refused at present; a kind is a component that takes things away.
#[derive(Debug, Default)]
pub(crate) struct Backpressure(Mutex<BTreeSet<String>>);

/// What could not be taken away of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    count: usize,
    oldest_ms: u64,
}

impl Backpressure {
    /// Returns an error for each kind of which a launch would make more, and of which too many wait to be taken away.
    ///
    /// * From `high_water` on a kind is refused, and again admitted when no more than four fifths of that are left.
    pub(crate) fn check(
        &self,
        registration: &Registration,
        attempts: &[AttemptRow],
        high_water: usize,
    ) -> Vec<Error> {
        let mut pending: BTreeMap<String, Pending> = BTreeMap::new();
        for row in attempts {
            let stuck = row.armed.iter().filter(|armed| armed.last_error.is_some());
            for armed in stuck {
                let kind = pending
                    .entry(armed.record.component.to_string())
                    .or_default();
                kind.count += 1;
                if kind.count == 1 || row.created_ms < kind.oldest_ms {
                    kind.oldest_ms = row.created_ms;
                }
            }
        }
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut errors = Vec::new();
        for kind in kinds(registration) {
            let found = pending.get(&kind).copied().unwrap_or_default();
            let limit = if refused.contains(&kind) {
                high_water * 4 / 5 + 1
            } else {
                high_water
            };
            if found.count < limit.max(1) {
                refused.remove(&kind);
                continue;
            }
            errors.push(
                Error::new(
                    ErrorKind::Backpressure,
                    "too much waits to be taken away; see `recover` and mend what is in its way",
                )
                .with("component", &kind)
                .with("pending", found.count)
                .with("limit", high_water)
                .with("oldest_ms", found.oldest_ms)
                .retryable(true),
            );
            refused.insert(kind);
        }
        errors
    }
}

/// Returns the kinds of which a launch makes something.
fn kinds(registration: &Registration) -> Vec<String> {
    let executor = Component::Executor(registration.name.clone());
    let preparers = registration.preparers.iter();
    let preparers = preparers.map(|preparer| Component::Preparer(preparer.name().clone()));
    [executor]
        .into_iter()
        .chain(preparers)
        .map(|component| component.to_string())
        .collect()
}

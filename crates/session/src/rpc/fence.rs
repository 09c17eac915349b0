//! A notification that may stand for an answer.

use std::fmt;

use serde_json::Value;

type StandsFor = dyn Fn(&str, &Value) -> Option<Value> + Send + Sync;

/// A notification that may stand for the answer to a call that waits.
pub struct Fence(Box<StandsFor>);

impl Fence {
    /// Makes one of a function from a notification to the result that it stands for.
    pub fn new(stands_for: impl Fn(&str, &Value) -> Option<Value> + Send + Sync + 'static) -> Self {
        Self(Box::new(stands_for))
    }

    pub(super) fn stands_for(&self, method: &str, params: &Value) -> Option<Value> {
        (self.0)(method, params)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fence")
    }
}

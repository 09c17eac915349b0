//! One case as it stands in a list: its name, the sentence of the contract that it stands for, and what it needs.

use futures_util::future::BoxFuture;

use super::{broken::Broken, fixture::Need};

/// A case that works with a bench of some kind.
pub(super) struct Case<B: 'static> {
    /// What it is about.
    pub(super) group: &'static str,
    pub(super) name: &'static str,
    pub(super) sentence: &'static str,
    pub(super) needs: &'static [Need],
    pub(super) run: for<'a> fn(&'a B) -> BoxFuture<'a, Result<(), Broken>>,
}

/// Writes a list of cases.
macro_rules! cases {
    ($($module:ident::$name:ident $([$($need:ident),*])?: $sentence:literal,)*) => {
        &[$($crate::conformance::case::Case {
            group: stringify!($module),
            name: stringify!($name),
            sentence: $sentence,
            needs: &[$($($crate::conformance::fixture::Need::$need),*)?],
            run: |bench| Box::pin($module::$name(bench)),
        }),*]
    };
}

pub(super) use cases;

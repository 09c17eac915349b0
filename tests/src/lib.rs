//! What the tests and the benchmarks share: a model server on loopback, for real agents that nobody logs in. And the guides: every
//! block of code in them is compiled as a test.

pub mod model;

#[cfg(doctest)]
#[doc = include_str!("../../docs/executor-authors.md")]
mod executor_authors {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/preparer-authors.md")]
mod preparer_authors {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/embedding.md")]
mod embedding {}

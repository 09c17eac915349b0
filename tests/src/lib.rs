//! What the tests and the benchmarks share: a model server on loopback, for real agents that nobody logs in.

pub mod model;

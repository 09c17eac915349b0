//! Variables: definitions with their origins, one composer, and the environment that comes of it.
//!
//! Nothing here reads the process's environment; what may be inherited is handed in.

mod compose;
mod composition;
mod definition;
mod environment;
mod git_config;

pub use compose::compose;
pub use composition::{Composition, Conflict, Overridden, Variable};
pub use definition::{Definition, Origin, Tier, Value};
pub use environment::{Environment, Key, MAX_ENVIRONMENT_SIZE};

//! Every part that an engine needs, in memory: strict where the contracts are, inspectable where tests look.

mod commands;
mod executor;
mod ground;
mod instance;
mod locks;
mod preparer;
mod process;
mod runtime_secrets;
mod saved;
mod store;
mod world;

pub use commands::commands;
pub use executor::MemoryExecutor;
pub use ground::Thing;
pub use instance::MemoryInstance;
pub use locks::MemoryLocks;
pub use preparer::{MemoryPreparer, MemoryResource};
pub use runtime_secrets::MemoryRuntimeSecrets;
pub use store::MemoryStore;
pub use world::MemoryWorld;

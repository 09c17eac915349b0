//! Faults on purpose: at the checkpoints of a launch, and at the verbs of any component.
//!
//! A fault is used up when it strikes, so a retry meets a healthy component unless the fault says `always`.

mod checkpoints;
mod executor;
mod instance;
mod plan;
mod preparer;
mod store;
mod verbs;

pub use checkpoints::Faulty;
pub use executor::FaultyExecutor;
pub use instance::FaultyInstance;
pub use plan::{Action, FaultPlan, PlannedFault};
pub use preparer::FaultyPreparer;
pub use store::FaultyStore;
pub use verbs::{Gate, VerbFault, VerbFaults};

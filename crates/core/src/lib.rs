#![doc = include_str!("../README.md")]

// Words: data that everybody speaks.
pub mod command;
pub mod env;
pub mod error;
pub mod event;
pub mod handshake;
pub mod id;
pub mod identity;
pub mod lines;
pub mod payload;
pub mod process;
pub mod profile;
pub mod redact;
pub mod request;
pub mod script;
pub mod secret;
pub mod wire;
pub mod workspace;

// Contracts: what others implement.
pub mod cancel;
pub mod checkpoint;
pub mod executor;
pub mod instance;
pub mod preparer;
pub mod session_directory;
pub mod store;
pub mod undo;

// The engine.
mod activity;
mod adopted;
mod adoption;
mod attempt;
mod backpressure;
mod bounded;
mod closing;
mod ending;
mod ensuring;
mod flights;
mod following;
mod greeting;
mod lane;
mod launch;
pub mod launcher;
mod maintenance;
mod narrator;
mod observe;
mod pacing;
pub mod plan;
mod planned_agent;
mod planned_environment;
mod planning;
mod recovery;
pub mod registry;
mod reservation;
mod restoring;
mod rollback;
mod script_output;
mod setup;
mod shared;
mod teardown;
mod ticket;
mod token;
mod unwind;

pub use activity::{ActivityKind, ActivityReport, TaskLease};
pub use async_trait::async_trait;
pub use closing::{CloseOptions, CloseOutcome, CloseReport, Kept};
pub use ending::Settled;
pub use flights::EnsureError;
pub use launcher::Launcher;
pub use maintenance::{MaintenanceLease, MaintenanceOptions};
pub use observe::RunView;
pub use plan::{Plan, PlanError};
pub use planned_agent::PlannedAgent;
pub use recovery::RecoveryReport;
pub use registry::{Registration, Registry};
pub use restoring::{Owned, Regained};
pub use shared::{Parts, Policy, agent_process};
pub use teardown::TornDown;
pub use ticket::{LaunchError, Launched, Ticket};
pub use unwind::{Outcome, UnwindPolicy, Unwound};

//! Profiles: data that says how one kind of agent is run, and pure functions that make commands and variables of it.
//!
//! Nothing here reads a file, an environment or a directory; what was found on a machine is handed in.

mod agent;
mod check;
mod command;
mod definitions;
mod directory;
mod identity;
mod package;
mod reserved;
mod spoken;
mod template;
mod tokens;
mod variable;
mod words;

pub use agent::{
    AgentProfile, ApprovalRule, CacheRule, Credential, Flag, ModelRule, PromptRule, ResumeRule,
    SessionRule, StopRule,
};
pub use command::{AgentCommand, AgentUse, BuiltCommand, CommandWishes, DroppedFlag, Host};
pub use definitions::DefinitionInputs;
pub use directory::{MemoryProfiles, ProfileDirectory};
pub use identity::{ProfileUse, Route};
pub use package::ManagedPackage;
pub use reserved::reserved;
pub use tokens::split;
pub use variable::Variable;
pub use words::Prefix;

//! The client side: an instance as controllers see it, through its supervisor or, once that has ended, through its logs.

mod connector;
mod input;
mod instance;
mod link;
mod logged;
mod output;

pub use connector::{Connector, ControlStream, UnixConnector};
pub use instance::SupervisorInstance;
pub use logged::{LoggedInstance, Remains};

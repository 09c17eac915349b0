//! JSON-RPC over lines: one peer, in bounded memory, that tolerates what it does not know.
//!
//! It knows no agent and no session: what comes in is handed to whoever listens.

mod call;
mod content;
mod fence;
mod incoming;
mod message;
mod peer;
mod reader;
mod stderr;
mod tail;
mod tolerance;
mod waiters;
mod writer;

pub use call::{CallError, Refusal};
pub use fence::Fence;
pub(crate) use incoming::Incoming;
pub(crate) use message::Reply;
pub use message::{Envelope, WireId};
pub use peer::Peer;
pub(crate) use peer::{Listener, PeerOptions};

//! What comes in from a peer, beside answers that somebody waits for, and who takes it.

use async_trait::async_trait;
use groundcrew_core::{error::ErrorReport, process::Offset};
use serde_json::Value;

use super::message::{Reply, WireId};

/// Something that came in.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// The peer asks.
    Request {
        id: WireId,
        method: String,
        params: Value,
    },
    /// The peer tells.
    Notification { method: String, params: Value },
    /// An answer that nobody waits for: to a posted call, to an earlier controller, or to nobody.
    Reply { id: u64, result: Reply },
    /// A line of standard error.
    Stderr(String),
    /// That many bytes of output are lost.
    Gap(u64),
    /// The connection ended; the last.
    Ended(ErrorReport),
}

/// Who takes what comes in; it is called by the reader, in order, and must not wait for a person or for the peer.
#[async_trait]
pub(crate) trait Listener: Send + Sync + 'static {
    /// Takes one thing, and the offset of the output behind it.
    async fn take(&self, incoming: Incoming, behind: Offset);
}

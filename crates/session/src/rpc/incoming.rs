//! What comes in from a peer, beside answers that somebody waits for.

use groundcrew_core::error::ErrorReport;
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
    /// The peer asks, where there is an id, or tells something that cannot be read.
    Unreadable {
        id: Option<WireId>,
        method: String,
        why: String,
    },
    /// An answer that nobody waits for: to a posted call, to an earlier controller, or to nobody.
    Reply { id: u64, result: Reply },
    /// A line of standard error.
    Stderr(String),
    /// That many bytes of output are lost.
    Gap(u64),
    /// The connection ended; the last.
    Ended(ErrorReport),
}

//! Asking for an early end.

use tokio_util::sync::CancellationToken;

/// Asks something under way to end; cheap to clone, once cancelled it stays so.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(CancellationToken);

impl CancelToken {
    /// Makes one that nobody has cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes one that is cancelled with this one, or alone.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(self.0.child_token())
    }

    /// Asks for the end.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Returns whether the end was asked for.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until the end is asked for.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn cancelled(&self) {
        self.0.cancelled().await;
    }
}

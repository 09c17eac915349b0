//! How long to wait between two looks at what has no event.

use std::time::Duration;

/// A wait that begins short and grows, with an end.
#[derive(Debug)]
pub(crate) struct Pause {
    /// None for ever.
    until: Option<tokio::time::Instant>,
    round: u32,
}

impl Pause {
    pub(crate) fn until(patience: Duration) -> Self {
        Self {
            until: tokio::time::Instant::now().checked_add(patience),
            round: 0,
        }
    }

    /// Waits a little; false when the time is over. The first rounds only let others run: a tree that forks must be outrun.
    pub(crate) async fn next(&mut self) -> bool {
        self.round += 1;
        if self.round <= 3 {
            tokio::task::yield_now().await;
        } else {
            let millis = 1 << (self.round - 4).min(5);
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
        self.until
            .is_none_or(|until| tokio::time::Instant::now() < until)
    }
}

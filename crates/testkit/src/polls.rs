//! Drops a future at one of the points where it waits: what a timeout, a `select!`, an abort or a lost connection does.

use std::pin::pin;

/// Polls a future so often, then drops it; returns its value if it was ready by then.
///
/// * Between two polls everything else gets its turn once.
/// * Called with 0, 1, 2, … until it returns a value, it drops the future at every point where it waits.
pub async fn drop_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..polls {
        if let std::task::Poll::Ready(value) = futures_util::poll!(&mut future) {
            return Some(value);
        }
        tokio::task::yield_now().await;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, rc::Rc};

    use super::*;

    #[tokio::test]
    async fn a_future_is_dropped_at_its_waits_one_after_the_other() {
        for polls in 0..6 {
            let done = Rc::new(Cell::new(0));
            let counted = Rc::clone(&done);
            let ended = drop_after(polls, async move {
                for _ in 0..4 {
                    tokio::task::yield_now().await;
                    counted.set(counted.get() + 1);
                }
                "ended"
            })
            .await;
            assert_eq!(ended, (polls == 5).then_some("ended"));
            assert_eq!(done.get(), polls.saturating_sub(1).min(4));
        }
    }
}

//! The lease: how long an instance lives on once its last control connection is lost.

use std::{cell::Cell, fmt, rc::Rc};

use groundcrew_core::process::Lease;
use tokio::{sync::Notify, time::Instant};

/// Counts control connections, and tells when there has been none for too long; by the monotonic clock.
pub(super) struct LeaseClock {
    lease: Cell<Lease>,
    connections: Cell<usize>,
    lost_at: Cell<Instant>,
    changed: Notify,
}

impl fmt::Debug for LeaseClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseClock")
            .field("lease", &self.lease.get())
            .field("connections", &self.connections.get())
            .finish_non_exhaustive()
    }
}

impl LeaseClock {
    /// Starts the clock, with no connection yet.
    pub(super) fn start(lease: Lease) -> Self {
        Self {
            lease: Cell::new(lease),
            connections: Cell::new(0),
            lost_at: Cell::new(Instant::now()),
            changed: Notify::new(),
        }
    }

    pub(super) fn lease(&self) -> Lease {
        self.lease.get()
    }

    pub(super) fn set(&self, lease: Lease) {
        self.lease.set(lease);
        self.changed.notify_one();
    }

    /// Counts a connection until what it returns is dropped.
    pub(super) fn connected(self: &Rc<Self>) -> Connected {
        self.connections.set(self.connections.get() + 1);
        self.changed.notify_one();
        Connected(Rc::clone(self))
    }

    fn deadline(&self) -> Option<Instant> {
        match self.lease.get() {
            Lease::After(time) if self.connections.get() == 0 => {
                self.lost_at.get().checked_add(time)
            }
            _ => None,
        }
    }

    /// Waits until the lease has lapsed; for one caller.
    pub(super) async fn lapsed(&self) {
        loop {
            let changed = self.changed.notified();
            match self.deadline() {
                None => changed.await,
                Some(deadline) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = tokio::time::sleep_until(deadline) => return,
                },
            }
        }
    }
}

/// A control connection that counts.
#[derive(Debug)]
pub(super) struct Connected(Rc<LeaseClock>);

impl Drop for Connected {
    fn drop(&mut self) {
        let left = self.0.connections.get().saturating_sub(1);
        self.0.connections.set(left);
        if left == 0 {
            self.0.lost_at.set(Instant::now());
        }
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(test);
    }

    async fn lapses(clock: &LeaseClock, within: u64) -> bool {
        tokio::time::timeout(Duration::from_millis(within), clock.lapsed())
            .await
            .is_ok()
    }

    #[test]
    fn the_lease_starts_when_the_last_connection_is_lost() {
        run(async {
            let clock = Rc::new(LeaseClock::start(Lease::After(Duration::from_millis(50))));
            let (first, second) = (clock.connected(), clock.connected());
            drop(first);
            assert!(!lapses(&clock, 200).await, "one is still connected");
            let lost = Instant::now();
            drop(second);
            assert!(lapses(&clock, 20_000).await);
            assert!(lost.elapsed() >= Duration::from_millis(50));
        });
    }

    #[test]
    fn a_new_lease_and_a_new_connection_count_at_once() {
        run(async {
            let clock = Rc::new(LeaseClock::start(Lease::Unlimited));
            assert!(!lapses(&clock, 50).await);
            clock.set(Lease::After(Duration::ZERO));
            let connected = clock.connected();
            assert!(!lapses(&clock, 50).await, "a controller is there");
            drop(connected);
            assert!(lapses(&clock, 20_000).await);
        });
    }
}

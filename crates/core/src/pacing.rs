//! When what could not be taken away is tried again: sooner at first, later and later, at random, and without a last time.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::id::RunId;

/// The longest first pause.
const FIRST: Duration = Duration::from_millis(100);

/// The longest pause.
const LONGEST: Duration = Duration::from_mins(1);

/// When each run is tried again; a process that begins tries all at once.
#[derive(Debug, Default)]
pub(crate) struct Pacing(Mutex<HashMap<RunId, Pause>>);

#[derive(Clone, Copy, Debug)]
struct Pause {
    longest: Duration,
    until: Instant,
}

impl Pacing {
    /// Returns whether a run is to be left alone for a while.
    pub(crate) fn rests(&self, run: &RunId) -> bool {
        let pauses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pauses
            .get(run)
            .is_some_and(|pause| Instant::now() < pause.until)
    }

    /// Notes that a run was tried, and whether something of it is still stuck.
    pub(crate) fn tried(&self, run: &RunId, stuck: bool) {
        let mut pauses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !stuck {
            pauses.remove(run);
            return;
        }
        let longest = pauses
            .get(run)
            .map_or(FIRST, |pause| (pause.longest * 2).min(LONGEST));
        let until = Instant::now() + jitter(longest);
        pauses.insert(run.clone(), Pause { longest, until });
    }
}

/// Returns a random part of `pause`, so that many who failed together do not try together.
pub(crate) fn jitter(pause: Duration) -> Duration {
    let mut byte = [0];
    match getrandom::fill(&mut byte) {
        Ok(()) => pause * u32::from(byte[0]) / 255,
        Err(_) => pause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_to_a_minute_are_random_and_end_with_success() {
        let (pacing, run) = (Pacing::default(), RunId::new("run").unwrap());
        assert!(!pacing.rests(&run));
        let mut longest = FIRST;
        let mut pauses = Vec::new();
        for _ in 0..40 {
            pacing.tried(&run, true);
            let pause = pacing.0.lock().unwrap()[&run];
            assert_eq!(pause.longest, longest);
            pauses.push(pause.until - Instant::now());
            assert!(pauses.last().unwrap() <= &longest);
            longest = (longest * 2).min(LONGEST);
        }
        pauses.sort();
        pauses.dedup();
        assert!(pauses.len() > 10, "{pauses:?}");
        tokio::time::advance(LONGEST).await;
        assert!(!pacing.rests(&run), "there is no last try");
        pacing.tried(&run, true);
        pacing.tried(&run, false);
        assert!(!pacing.rests(&run));
        pacing.tried(&run, true);
        assert_eq!(pacing.0.lock().unwrap()[&run].longest, FIRST);
    }
}

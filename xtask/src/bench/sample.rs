//! Measurements of two ways to do one thing, taken in turn, and the ratio of their medians.

use std::fmt;
use std::time::Duration;

use anyhow::Result;

/// How often both ways are run before anything is counted.
const WARM_UP: usize = 3;

/// What a row is held to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// At most so much more than the other way.
    OnTop(Duration),
    /// At most so many times the other way.
    Times(f64),
}

/// A pair of medians, and how many measurements of each there were.
#[derive(Debug)]
pub(super) struct Row {
    what: String,
    against: String,
    ours: Duration,
    theirs: Duration,
    iterations: usize,
    target: Target,
}

impl Row {
    /// Measures both ways in turn, so that whatever the machine does besides meets both alike.
    ///
    /// # Errors
    ///
    /// Fails when a measurement does.
    pub(super) fn measure(
        what: impl Into<String>,
        against: impl Into<String>,
        target: Target,
        iterations: usize,
        mut ours: impl FnMut() -> Result<Duration>,
        mut theirs: impl FnMut() -> Result<Duration>,
    ) -> Result<Self> {
        let (mut mine, mut other) = (Vec::new(), Vec::new());
        for iteration in 0..WARM_UP + iterations {
            // Who comes second finds warmer caches: take turns in that, too.
            let (a, b) = if iteration % 2 == 0 {
                let a = ours()?;
                (a, theirs()?)
            } else {
                let b = theirs()?;
                (ours()?, b)
            };
            if iteration >= WARM_UP {
                mine.push(a);
                other.push(b);
            }
        }
        Ok(Self {
            what: what.into(),
            against: against.into(),
            ours: median(&mut mine),
            theirs: median(&mut other),
            iterations,
            target,
        })
    }

    fn met(&self) -> bool {
        match self.target {
            Target::OnTop(most) => self.ours.saturating_sub(self.theirs) <= most,
            Target::Times(most) => self.ratio() <= most,
        }
    }

    fn ratio(&self) -> f64 {
        self.ours.as_secs_f64() / self.theirs.as_secs_f64()
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
        let (ours, theirs) = (milliseconds(self.ours), milliseconds(self.theirs));
        let target = match self.target {
            Target::OnTop(most) => format!("≤ {} ms on top", most.as_millis()),
            Target::Times(most) => format!("≤ {most:.1}×"),
        };
        write!(
            f,
            "{}\n    against {}\n    ratio {:.2}×, {:+.2} ms (medians {ours:.2} ms and {theirs:.2} ms of {} each); target {target}: {}",
            self.what,
            self.against,
            self.ratio(),
            ours - theirs,
            self.iterations,
            if self.met() { "met" } else { "MISSED" },
        )
    }
}

/// Returns the middle of the values, which must not be none.
pub(super) fn median(values: &mut [Duration]) -> Duration {
    values.sort_unstable();
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: u64, theirs: u64, target: Target) -> Row {
        let ms = Duration::from_millis;
        Row::measure("a", "b", target, 4, || Ok(ms(ours)), || Ok(ms(theirs))).unwrap()
    }

    #[test]
    fn the_median_is_the_middle() {
        let mut odd = [5, 1, 9].map(Duration::from_secs);
        assert_eq!(median(&mut odd), Duration::from_secs(5));
        let mut even = [5, 1, 9, 7].map(Duration::from_secs);
        assert_eq!(median(&mut even), Duration::from_secs(6));
    }

    #[test]
    fn both_ways_take_turns_and_the_warm_up_does_not_count() {
        let order = std::cell::RefCell::new(String::new());
        let ours = || {
            order.borrow_mut().push('a');
            let warm = order.borrow().len() <= 2 * WARM_UP;
            Ok(Duration::from_secs(if warm { 100 } else { 2 }))
        };
        let theirs = || {
            order.borrow_mut().push('b');
            Ok(Duration::from_secs(1))
        };
        let row = Row::measure("x", "y", Target::Times(2.0), 2, ours, theirs).unwrap();
        assert_eq!(*order.borrow(), "abbaabbaab");
        assert!((row.ratio() - 2.0).abs() < f64::EPSILON);
    }

    #[test]
    fn targets_are_met_or_missed() {
        assert!(row(12, 2, Target::OnTop(Duration::from_millis(10))).met());
        assert!(!row(13, 2, Target::OnTop(Duration::from_millis(10))).met());
        assert!(row(4, 2, Target::Times(2.0)).met());
        assert!(!row(5, 2, Target::Times(2.0)).met());
        assert!(
            row(5, 2, Target::Times(2.0))
                .to_string()
                .ends_with("target ≤ 2.0×: MISSED")
        );
    }
}

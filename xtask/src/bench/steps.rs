//! Where the time of a launch goes: how long each step took, as the command itself tells it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// One of the events that `run --format jsonl` prints.
#[derive(Debug, Deserialize)]
struct Event {
    #[serde(rename = "event")]
    kind: String,
    #[serde(default)]
    step: String,
    #[serde(default)]
    seconds: f64,
}

/// How long each step took, in several launches.
#[derive(Debug, Default)]
pub(super) struct Steps {
    order: Vec<String>,
    taken: BTreeMap<String, Vec<Duration>>,
}

impl Steps {
    /// Reads what one launch printed.
    ///
    /// # Errors
    ///
    /// Fails when a line is no event.
    pub(super) fn read(&mut self, printed: &[u8]) -> Result<()> {
        for line in printed
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let event: Event =
                serde_json::from_slice(line).context("`run --format jsonl` printed no event")?;
            if event.kind != "step_finished" {
                continue;
            }
            if !self.order.contains(&event.step) {
                self.order.push(event.step.clone());
            }
            let taken = Duration::try_from_secs_f64(event.seconds)
                .context("a step took no time that can be understood")?;
            self.taken.entry(event.step).or_default().push(taken);
        }
        Ok(())
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let medians: Vec<(&str, f64)> = self
            .order
            .iter()
            .filter_map(|step| {
                let mut taken = self.taken.get(step)?.clone();
                let median = super::sample::median(&mut taken);
                Some((&**step, median.as_secs_f64() * 1000.0))
            })
            .collect();
        write!(f, "    of which, by step:")?;
        for (step, median) in medians {
            if median >= 0.1 {
                write!(f, " {step} {median:.1} ms;")?;
            }
        }
        write!(f, " the rest is starting the command and the agent")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_each_step_is_shown_in_their_order() {
        let mut steps = Steps::default();
        for seconds in ["0.002", "0.001", "0.004"] {
            let text = format!(
                "{{\"event\":\"step_started\",\"step\":\"reserve\"}}\n{{\"event\":\"step_finished\",\"step\":\"reserve\",\"seconds\":{seconds}}}\n\
                 {{\"event\":\"step_finished\",\"step\":\"admit\",\"seconds\":0.00001}}\n"
            );
            steps.read(text.as_bytes()).unwrap();
        }
        let shown = steps.to_string();
        assert!(shown.contains("reserve 2.0 ms"), "{shown}");
        assert!(!shown.contains("admit"), "{shown}");
        assert!(Steps::default().read(b"no event\n").is_err());
    }
}

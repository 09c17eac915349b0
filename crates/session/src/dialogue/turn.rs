//! The turn that runs, as far as it can be known: names that are only promised, ends that come early, late or twice.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{event::TurnOutcome, settings::TurnId, state::TurnState};

/// How many ends are remembered, so that a late word of an earlier turn is not taken for one of the next.
const REMEMBERED: usize = 64;

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TurnEnd {
    /// How.
    pub outcome: TurnOutcome,
    /// What went wrong, where something did.
    pub error: Option<String>,
    /// Why it stopped, in the agent's words, where it says.
    pub reason: Option<String>,
}

impl TurnEnd {
    pub(crate) fn new(outcome: TurnOutcome) -> Self {
        Self {
            outcome,
            error: None,
            reason: None,
        }
    }

    pub(crate) fn failed(error: impl Into<String>) -> Self {
        Self {
            error: Some(error.into()),
            ..Self::new(TurnOutcome::Failed)
        }
    }
}

/// How far a turn is, for those who wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Whether the agent answered the call that began it, or told that it runs.
    pub(crate) acknowledged: bool,
    /// The agent's name of it.
    pub(crate) id: Option<TurnId>,
    /// Whether the agent told that it runs.
    pub(crate) confirmed: bool,
    /// How it ended.
    pub(crate) end: Option<TurnEnd>,
}

/// A turn that runs.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) number: u64,
    pub(crate) call: u64,
    pub(crate) interrupting: bool,
    /// Whether its process is being closed because it did not end when it was asked to.
    pub(crate) forced: bool,
    pub(crate) progress: watch::Sender<Progress>,
}

impl Turn {
    pub(crate) fn new(number: u64, call: u64) -> Self {
        Self {
            number,
            call,
            interrupting: false,
            forced: false,
            progress: watch::Sender::new(Progress::default()),
        }
    }

    pub(crate) fn id(&self) -> Option<TurnId> {
        self.progress.borrow().id.clone()
    }

    pub(crate) fn state(&self) -> TurnState {
        let progress = self.progress.borrow();
        TurnState {
            number: self.number,
            id: progress.id.clone(),
            confirmed: progress.confirmed,
            call: self.call,
            interrupting: self.interrupting,
        }
    }

    pub(crate) fn restored(state: &TurnState) -> Self {
        let turn = Self {
            interrupting: state.interrupting,
            ..Self::new(state.number, state.call)
        };
        turn.progress.send_modify(|progress| {
            progress.acknowledged = state.id.is_some();
            progress.id.clone_from(&state.id);
            progress.confirmed = state.confirmed;
        });
        turn
    }
}

/// The turn that runs, if one does, and the names of those that ended.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    pub(crate) active: Option<Turn>,
    ended: VecDeque<TurnId>,
}

impl Turns {
    /// The call that began the turn was answered, or told to be as good as that.
    pub(crate) fn acknowledged(&mut self) {
        if let Some(turn) = &self.active {
            turn.progress
                .send_modify(|progress| progress.acknowledged = true);
        }
    }

    /// A name was promised; it may never run.
    pub(crate) fn named(&mut self, id: TurnId) {
        if let Some(turn) = &self.active
            && !self.ended.contains(&id)
        {
            turn.progress.send_modify(|progress| {
                progress.acknowledged = true;
                if !progress.confirmed {
                    progress.id = Some(id);
                }
            });
        }
    }

    /// A turn really runs; returns whether it is ours.
    pub(crate) fn runs(&mut self, id: &TurnId) -> bool {
        let Some(turn) = &self.active else {
            return false;
        };
        if self.ended.contains(id) {
            return false;
        }
        turn.progress.send_if_modified(|progress| {
            if progress.confirmed {
                return false;
            }
            progress.acknowledged = true;
            progress.confirmed = true;
            progress.id = Some(id.clone());
            true
        });
        turn.id().as_ref() == Some(id)
    }

    /// Returns whether the end of that turn is the end of the one that runs.
    pub(crate) fn ends(&self, id: Option<&TurnId>) -> bool {
        let Some(turn) = &self.active else {
            return false;
        };
        let Some(id) = id else { return true };
        let progress = turn.progress.borrow();
        if self.ended.contains(id) {
            return false;
        }
        // A name that was only promised does not keep the turn that runs from ending.
        !progress.confirmed || progress.id.as_ref() == Some(id)
    }

    /// Returns whether something of that turn is still heard.
    pub(crate) fn hears(&self, id: &TurnId) -> bool {
        self.active.is_some() && !self.ended.contains(id)
    }

    /// Ends the turn that runs; the agent's other name of it is remembered as well.
    pub(crate) fn end(&mut self, id: Option<TurnId>) -> Option<Turn> {
        let turn = self.active.take()?;
        for id in [id, turn.id()].into_iter().flatten() {
            if !self.ended.contains(&id) {
                self.ended.push_back(id);
            }
        }
        while self.ended.len() > REMEMBERED {
            self.ended.pop_front();
        }
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> TurnId {
        TurnId(name.to_owned())
    }

    fn begun() -> Turns {
        Turns {
            active: Some(Turn::new(1, 7)),
            ..Turns::default()
        }
    }

    #[test]
    fn a_promised_name_does_not_keep_the_running_turn_from_ending() {
        let mut turns = begun();
        turns.named(id("stub"));
        assert!(turns.ends(Some(&id("real"))), "the stub never runs");
        assert!(turns.runs(&id("real")));
        assert!(turns.ends(Some(&id("real"))));
        assert!(!turns.ends(Some(&id("stub"))), "now the name is known");
        turns.named(id("late"));
        assert_eq!(turns.active.as_ref().unwrap().id(), Some(id("real")));
    }

    #[test]
    fn an_end_that_comes_before_any_name_is_one() {
        let turns = begun();
        assert!(turns.ends(Some(&id("x"))));
        assert!(turns.ends(None));
        assert!(!Turns::default().ends(None));
    }

    #[test]
    fn a_late_word_of_an_earlier_turn_means_nothing_to_the_next() {
        let mut turns = begun();
        turns.named(id("one"));
        turns.end(Some(id("other"))).unwrap();
        assert!(turns.end(None).is_none());
        turns.active = Some(Turn::new(2, 8));
        for old in ["one", "other"] {
            assert!(!turns.ends(Some(&id(old))));
            assert!(!turns.runs(&id(old)));
            assert!(!turns.hears(&id(old)));
            turns.named(id(old));
        }
        assert_eq!(turns.active.as_ref().unwrap().id(), None);
        assert!(turns.runs(&id("two")) && turns.hears(&id("two")));
        assert!(!turns.runs(&id("three")), "a turn of the agent's own");
    }

    #[test]
    fn a_turn_is_restored_as_it_was_stored() {
        let mut turns = begun();
        turns.runs(&id("one"));
        let state = turns.active.as_ref().unwrap().state();
        assert_eq!(Turn::restored(&state).state(), state);
    }
}

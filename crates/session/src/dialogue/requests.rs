//! What the agent asked and nobody has settled: each request ends once, the first end wins.

use std::collections::VecDeque;

use serde_json::Value;

use crate::{
    request::{Decision, OpenRequest, RequestId, RequestPhase},
    rpc::WireId,
};

/// How many ends are remembered, to tell an answer that comes late from one to nothing.
const REMEMBERED: usize = 1024;

/// How many of them the next controller remembers; they are stored with each state.
const LEFT: usize = 64;

/// A request that is not settled.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) open: OpenRequest,
    pub(crate) stage: Stage,
}

/// How far an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// There is none.
    Waiting,
    /// It is decided and not sent: the agent may still settle the request by itself.
    Decided,
    /// It is being sent: what the agent says of the request now is the answer's doing.
    Sending,
}

/// Why a request takes no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// It has one.
    AlreadyAnswered,
    /// There is none, or not any more.
    Gone,
}

/// All requests of a process.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    open: Vec<Asked>,
    settled: VecDeque<(RequestId, RequestPhase)>,
}

impl Requests {
    pub(crate) fn restored(open: Vec<OpenRequest>, ended: Vec<(RequestId, RequestPhase)>) -> Self {
        let stage = |open: &OpenRequest| match open.decided {
            Some(_) => Stage::Decided,
            None => Stage::Waiting,
        };
        Self {
            open: open
                .into_iter()
                .map(|open| Asked {
                    stage: stage(&open),
                    open,
                })
                .collect(),
            settled: ended.into(),
        }
    }

    /// Returns how the last requests ended, oldest first, for the next controller.
    pub(crate) fn last_ended(&self) -> Vec<(RequestId, RequestPhase)> {
        let skipped = self.settled.len().saturating_sub(LEFT);
        self.settled.iter().skip(skipped).cloned().collect()
    }

    pub(crate) fn open(&self) -> &[Asked] {
        &self.open
    }

    /// Returns the request that has that id of the agent's, as when it is read again after a takeover.
    pub(crate) fn by_wire(&self, wire: &WireId) -> Option<&Asked> {
        self.open.iter().find(|asked| asked.open.wire == *wire)
    }

    pub(crate) fn add(&mut self, open: OpenRequest) {
        self.open.push(Asked {
            open,
            stage: Stage::Waiting,
        });
    }

    /// Returns where a request is.
    pub(crate) fn phase(&self, id: &RequestId) -> Option<RequestPhase> {
        if let Some(asked) = self.find(id) {
            return Some(match asked.stage {
                Stage::Waiting => RequestPhase::Pending,
                Stage::Decided | Stage::Sending => RequestPhase::Resolving,
            });
        }
        self.settled
            .iter()
            .rev()
            .find(|(settled, _)| settled == id)
            .map(|(_, phase)| *phase)
    }

    fn find(&self, id: &RequestId) -> Option<&Asked> {
        self.open.iter().find(|asked| asked.open.request.id == *id)
    }

    fn find_mut(&mut self, id: &RequestId) -> Option<&mut Asked> {
        self.open
            .iter_mut()
            .find(|asked| asked.open.request.id == *id)
    }

    /// Notes an answer.
    pub(crate) fn decide(&mut self, id: &RequestId, decision: &Decision) -> Result<(), NoAnswer> {
        match self.phase(id) {
            Some(RequestPhase::Pending) => {}
            Some(RequestPhase::Resolving | RequestPhase::Answered) => {
                return Err(NoAnswer::AlreadyAnswered);
            }
            _ => return Err(NoAnswer::Gone),
        }
        if let Some(asked) = self.find_mut(id) {
            asked.open.decided = Some(decision.clone());
            asked.stage = Stage::Decided;
        }
        Ok(())
    }

    /// Takes an answer back that could not be noted; nothing was sent.
    pub(crate) fn undecide(&mut self, id: &RequestId) {
        if let Some(asked) = self.find_mut(id) {
            asked.open.decided = None;
            asked.stage = Stage::Waiting;
        }
    }

    /// Returns a decided request that is to be answered now; none if it was settled meanwhile.
    pub(crate) fn send(&mut self, id: &RequestId) -> Option<OpenRequest> {
        let asked = self.find_mut(id)?;
        if asked.stage != Stage::Decided {
            return None;
        }
        asked.stage = Stage::Sending;
        Some(asked.open.clone())
    }

    /// Ends a request; returns it unless it had ended.
    pub(crate) fn settle(&mut self, id: &RequestId, phase: RequestPhase) -> Option<OpenRequest> {
        let at = self
            .open
            .iter()
            .position(|asked| asked.open.request.id == *id)?;
        let asked = self.open.remove(at);
        self.settled.push_back((id.clone(), phase));
        while self.settled.len() > REMEMBERED {
            self.settled.pop_front();
        }
        Some(asked.open)
    }

    /// The agent settled a request by itself; returns it if nothing was sent to it.
    pub(crate) fn supersede(&mut self, wire: &Value) -> Option<OpenRequest> {
        let asked = self.open.iter().find(|asked| asked.open.wire.is(wire))?;
        if asked.stage == Stage::Sending {
            return None;
        }
        let id = asked.open.request.id.clone();
        self.settle(&id, RequestPhase::Superseded)
    }

    /// Ends all that no answer is being sent to; returns them.
    pub(crate) fn interrupt_all(&mut self) -> Vec<OpenRequest> {
        let ids: Vec<_> = self
            .open
            .iter()
            .filter(|asked| asked.stage != Stage::Sending)
            .map(|asked| asked.open.request.id.clone())
            .collect();
        ids.iter()
            .filter_map(|id| self.settle(id, RequestPhase::Interrupted))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request::{InteractiveRequest, Question};

    fn request(name: &str, wire: &str) -> OpenRequest {
        OpenRequest {
            request: InteractiveRequest {
                id: RequestId(name.to_owned()),
                turn: None,
                item: None,
                reason: None,
                question: Question::FileChange { paths: Vec::new() },
                choices: Vec::new(),
            },
            wire: serde_json::from_value(json!(wire)).unwrap(),
            method: "ask".to_owned(),
            params: Value::Null,
            decided: None,
        }
    }

    fn id(name: &str) -> RequestId {
        RequestId(name.to_owned())
    }

    #[test]
    fn the_first_end_wins() {
        let mut requests = Requests::default();
        requests.add(request("q1", "0"));
        assert_eq!(requests.phase(&id("q1")), Some(RequestPhase::Pending));
        requests.decide(&id("q1"), &Decision::Approve).unwrap();
        let again = requests.decide(&id("q1"), &Decision::Abort);
        assert_eq!(again, Err(NoAnswer::AlreadyAnswered));
        assert!(requests.supersede(&json!(0)).is_some(), "nothing was sent");
        assert!(requests.send(&id("q1")).is_none(), "nothing may be sent");
        assert_eq!(requests.phase(&id("q1")), Some(RequestPhase::Superseded));
        let late = requests.decide(&id("q1"), &Decision::Approve);
        assert_eq!(late, Err(NoAnswer::Gone));
        let unknown = requests.decide(&id("q9"), &Decision::Approve);
        assert_eq!(unknown, Err(NoAnswer::Gone));
    }

    #[test]
    fn what_the_agent_says_of_a_request_that_is_being_answered_is_the_answers_doing() {
        let mut requests = Requests::default();
        requests.add(request("q1", "\"a\""));
        requests.decide(&id("q1"), &Decision::Approve).unwrap();
        assert!(requests.send(&id("q1")).is_some());
        assert!(requests.send(&id("q1")).is_none(), "it is sent once");
        assert!(requests.supersede(&json!("a")).is_none());
        assert!(requests.interrupt_all().is_empty());
        requests.settle(&id("q1"), RequestPhase::Answered).unwrap();
        let again = requests.decide(&id("q1"), &Decision::Abort);
        assert_eq!(again, Err(NoAnswer::AlreadyAnswered));
        assert!(
            requests
                .settle(&id("q1"), RequestPhase::Interrupted)
                .is_none()
        );
    }

    #[test]
    fn an_answer_that_could_not_be_noted_leaves_the_request_as_it_was() {
        let mut requests = Requests::default();
        requests.add(request("q1", "1"));
        requests.decide(&id("q1"), &Decision::Approve).unwrap();
        requests.undecide(&id("q1"));
        assert_eq!(requests.phase(&id("q1")), Some(RequestPhase::Pending));
        assert!(requests.by_wire(&requests.open()[0].open.wire).is_some());
        assert_eq!(requests.interrupt_all().len(), 1);
    }

    #[test]
    fn the_last_ends_are_remembered_and_no_more() {
        let mut requests = Requests::default();
        for n in 0..1500 {
            let name = format!("q{n}");
            requests.add(request(&name, &n.to_string()));
            requests.settle(&id(&name), RequestPhase::Answered).unwrap();
        }
        assert_eq!(requests.phase(&id("q0")), None);
        assert_eq!(requests.phase(&id("q476")), Some(RequestPhase::Answered));
        assert_eq!(requests.settled.len(), REMEMBERED);
        let left = requests.last_ended();
        assert_eq!((left.len(), &left[LEFT - 1].0), (LEFT, &id("q1499")));
        let mut next = Requests::restored(Vec::new(), left);
        let again = next.decide(&id("q1499"), &Decision::Approve);
        assert_eq!(again, Err(NoAnswer::AlreadyAnswered));
    }
}

//! Who waits for which answer.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use groundcrew_core::error::ErrorReport;
use serde_json::Value;
use tokio::sync::oneshot;

use super::{
    call::{CallError, Refusal},
    fence::Fence,
};

/// What a waiter gets.
pub(super) type Answer = Result<Value, CallError>;

struct Waiter {
    method: String,
    fence: Option<Fence>,
    /// What a notification would stand for, unless the answer itself is already on its way.
    substitute: Option<Value>,
    answer: oneshot::Sender<Answer>,
}

/// All calls in flight.
#[derive(Default)]
pub(super) struct Waiters(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: HashMap<u64, Waiter>,
    /// Why nobody is answered any more.
    over: Option<ErrorReport>,
}

impl std::fmt::Debug for Waiters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut methods: Vec<_> = self
            .state()
            .waiting
            .iter()
            .map(|(id, waiter)| format!("{id} {}", waiter.method))
            .collect();
        methods.sort();
        f.debug_tuple("Waiters").field(&methods).finish()
    }
}

impl Waiters {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the answer to a call, from before it is sent.
    pub(super) fn wait(
        &self,
        id: u64,
        method: &str,
        fence: Option<Fence>,
    ) -> oneshot::Receiver<Answer> {
        let (answer, receiver) = oneshot::channel();
        let mut state = self.state();
        if let Some(why) = &state.over {
            // The receiver is right here.
            let _heard = answer.send(Err(CallError::Disconnected {
                method: method.to_owned(),
                why: why.clone(),
            }));
            return receiver;
        }
        state.waiting.insert(
            id,
            Waiter {
                method: method.to_owned(),
                fence,
                substitute: None,
                answer,
            },
        );
        receiver
    }

    /// Waits no more for an answer; one that comes nevertheless is nobody's.
    pub(super) fn forget(&self, id: u64) {
        self.state().waiting.remove(&id);
    }

    /// Hands an answer to who waits for it; nobody's is given back.
    pub(super) fn answer(
        &self,
        id: u64,
        result: Result<Value, Refusal>,
    ) -> Option<Result<Value, Refusal>> {
        let Some(waiter) = self.state().waiting.remove(&id) else {
            return Some(result);
        };
        let method = waiter.method;
        // Whoever gave up meanwhile hears nothing.
        let _heard = waiter
            .answer
            .send(result.map_err(|refusal| CallError::Refused { method, refusal }));
        None
    }

    /// Shows a notification to the calls that it could stand for.
    pub(super) fn notified(&self, method: &str, params: &Value) {
        for waiter in self.state().waiting.values_mut() {
            if waiter.substitute.is_none()
                && let Some(fence) = &waiter.fence
            {
                waiter.substitute = fence.stands_for(method, params);
            }
        }
    }

    /// Lets notifications stand for answers: there is nothing on its way any more.
    pub(super) fn settle(&self) {
        let mut state = self.state();
        let ready: Vec<u64> = state
            .waiting
            .iter()
            .filter(|(_, waiter)| waiter.substitute.is_some())
            .map(|(id, _)| *id)
            .collect();
        for id in ready {
            if let Some(waiter) = state.waiting.remove(&id)
                && let Some(value) = waiter.substitute
            {
                let _heard = waiter.answer.send(Ok(value));
            }
        }
    }

    /// Tells all that nobody answers any more.
    pub(super) fn end(&self, why: &ErrorReport) {
        let mut state = self.state();
        state.over = Some(why.clone());
        for (_, waiter) in state.waiting.drain() {
            let _heard = waiter.answer.send(Err(CallError::Disconnected {
                method: waiter.method,
                why: why.clone(),
            }));
        }
    }
}

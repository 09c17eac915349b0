//! What goes wrong at the verbs of a component: shared by all decorators.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use groundcrew_core::error::{Error, ErrorKind};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

/// Holds a verb back until it is opened.
#[derive(Clone, Debug)]
pub struct Gate(Arc<watch::Sender<GateState>>);

#[derive(Clone, Copy, Debug, Default)]
struct GateState {
    reached: bool,
    open: bool,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// Makes a closed one.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(GateState::default())))
    }

    /// Lets everything through from now on.
    pub fn open(&self) {
        self.0.send_modify(|state| state.open = true);
    }

    /// Waits until somebody stands before it.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn until_reached(&self) {
        drop(self.0.subscribe().wait_for(|state| state.reached).await);
    }

    async fn enter(&self) {
        self.0.send_modify(|state| state.reached = true);
        drop(self.0.subscribe().wait_for(|state| state.open).await);
    }
}

/// How a verb goes wrong.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum VerbFault {
    /// It fails with that kind and does nothing.
    Before(ErrorKind),
    /// It does its work and then fails, as when the answer is lost.
    After(ErrorKind),
    /// It panics and does nothing.
    Panic,
    /// It does its work and panics.
    PanicAfter,
    /// It does nothing and never returns.
    Hang,
    /// It does its work and never returns.
    HangAfter,
    /// It does its work that much later, even if nobody waits for it any more.
    Late(Duration),
    /// It says that it did its work, and did not; a verb that cannot say so fails like `Before`.
    Lie,
    /// It waits for the gate, then does its work.
    Hold(Gate),
}

#[derive(Clone, Debug)]
struct Rule {
    verb: String,
    /// How many calls go well before.
    skip: u32,
    /// How many calls go wrong; none is every one.
    times: Option<u32>,
    fault: VerbFault,
}

/// Faults by verb; clones share them.
///
/// * Verbs are named as in their trait: `create`, `undo`; those of an instance as `instance.start`.
/// * Healthy calls wait for a moment before and behind their work, as real ones do.
#[derive(Clone, Debug, Default)]
pub struct VerbFaults {
    state: Arc<Mutex<State>>,
    late: TaskTracker,
}

#[derive(Debug, Default)]
struct State {
    rules: Vec<Rule>,
    calls: BTreeMap<String, u32>,
    struck: u32,
}

impl VerbFaults {
    /// Makes one in which nothing goes wrong.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the next call of a verb go wrong.
    pub fn once(&self, verb: &str, fault: VerbFault) {
        self.times(verb, 1, fault);
    }

    /// Makes the next calls of a verb go wrong.
    pub fn times(&self, verb: &str, times: u32, fault: VerbFault) {
        self.add(verb, 0, Some(times), fault);
    }

    /// Makes one call of a verb go wrong, after so many that go well.
    pub fn after(&self, verb: &str, calls: u32, fault: VerbFault) {
        self.add(verb, calls, Some(1), fault);
    }

    /// Makes every call of a verb go wrong, until [`heal`](Self::heal).
    pub fn always(&self, verb: &str, fault: VerbFault) {
        self.add(verb, 0, None, fault);
    }

    /// Forgets every fault that has not struck.
    pub fn heal(&self) {
        self.state().rules.clear();
    }

    /// Returns how often each verb was called.
    pub fn all_calls(&self) -> BTreeMap<String, u32> {
        self.state().calls.clone()
    }

    /// Returns how many faults struck.
    pub fn struck(&self) -> u32 {
        self.state().struck
    }

    /// Returns how often a verb was called.
    pub fn calls(&self, verb: &str) -> u32 {
        self.state().calls.get(verb).copied().unwrap_or_default()
    }

    /// Waits until every late effect has landed.
    pub async fn settled(&self) {
        self.late.close();
        self.late.wait().await;
        self.late.reopen();
    }

    fn add(&self, verb: &str, skip: u32, times: Option<u32>, fault: VerbFault) {
        self.state().rules.push(Rule {
            verb: verb.to_owned(),
            skip,
            times,
            fault,
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call and returns what goes wrong with it.
    pub(super) fn strike(&self, verb: &str) -> Option<VerbFault> {
        let mut state = self.state();
        *state.calls.entry(verb.to_owned()).or_default() += 1;
        let rule = state.rules.iter_mut().find(|rule| rule.verb == verb)?;
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        let fault = rule.fault.clone();
        if let Some(times) = &mut rule.times {
            *times = times.saturating_sub(1);
        }
        state.rules.retain(|rule| rule.times != Some(0));
        state.struck += 1;
        Some(fault)
    }

    /// Does a verb's work, or what goes wrong instead, while the caller waits for it.
    pub(super) async fn around<T: Send>(
        &self,
        verb: &str,
        lie: Option<T>,
        work: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        // Where a real component waits, so that its caller can be dropped or overtaken there.
        tokio::task::yield_now().await;
        let result = match self.strike(verb) {
            None => work.await,
            Some(fault) => go_wrong(verb, fault, lie, work).await,
        };
        tokio::task::yield_now().await;
        result
    }

    /// Does a verb's work, or what goes wrong instead; a late effect lands even if the caller is gone.
    pub(super) async fn around_owned<T: Send + 'static>(
        &self,
        verb: &str,
        lie: Option<T>,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        tokio::task::yield_now().await;
        let result = match self.strike(verb) {
            None => work.await,
            Some(VerbFault::Late(time)) => self.late(time, work).await,
            Some(fault) => go_wrong(verb, fault, lie, work).await,
        };
        tokio::task::yield_now().await;
        result
    }

    /// Does the work later, in a task of its own.
    pub(super) async fn late<T: Send + 'static>(
        &self,
        time: Duration,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let task = self.late.spawn(async move {
            tokio::time::sleep(time).await;
            work.await
        });
        task.await.unwrap_or_else(|e| {
            Err(Error::new(ErrorKind::Panicked, "the late verb panicked").with_source(e))
        })
    }
}

fn injected(verb: &str, kind: ErrorKind) -> Error {
    Error::new(kind, "a fault was injected").with("verb", verb)
}

#[expect(clippy::panic, reason = "two of the faults are panics")]
pub(super) async fn go_wrong<T>(
    verb: &str,
    fault: VerbFault,
    lie: Option<T>,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match fault {
        VerbFault::Before(kind) => Err(injected(verb, kind)),
        VerbFault::After(kind) => {
            work.await?;
            Err(injected(verb, kind))
        }
        VerbFault::Panic => panic!("a panic was injected at {verb}"),
        VerbFault::PanicAfter => {
            work.await?;
            panic!("a panic was injected behind {verb}")
        }
        VerbFault::Hang => std::future::pending().await,
        VerbFault::HangAfter => {
            work.await?;
            std::future::pending().await
        }
        VerbFault::Lie => lie.ok_or_else(|| injected(verb, ErrorKind::Unexpected)),
        VerbFault::Hold(gate) => {
            gate.enter().await;
            work.await
        }
        VerbFault::Late(time) => {
            tokio::time::sleep(time).await;
            work.await
        }
    }
}

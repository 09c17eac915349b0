//! What a case for preparers works with: a preparer on a ground of its own, a plan, and the records of what it makes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use groundcrew_core::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
    executor::Progress,
    id::{AttemptId, RunId},
    identity::{Identity, Presence},
    preparer::{ApplyContext, Contribution, Effects, PlanContext, Preparer},
    undo::{Component, Occasion, UndoOptions, UndoRecord, Undone},
};

use super::fixture::PreparerFixture;
use crate::conformance::{
    broken::{Broken, broken, hold},
    case::Case,
    place::{Ground, Land},
};

/// How the preparer is made.
pub(super) type Opening = Arc<dyn Fn(&Ground) -> Result<PreparerFixture, Error> + Send + Sync>;

/// The failure of a launch: everything is due.
pub(super) const FAILURE: UndoOptions = UndoOptions {
    occasion: Occasion::Failure,
    force: false,
};

/// A preparer on a ground.
pub(super) struct Bench {
    land: Land,
    open: Opening,
    pub(super) fixture: PreparerFixture,
    pub(super) run: RunId,
    pub(super) attempt: AttemptId,
}

/// What a preparer makes known, and after how much of it everything fails.
#[derive(Default)]
pub(super) struct Told {
    identities: Mutex<BTreeMap<String, Identity>>,
    calls: Mutex<usize>,
    fails_at: Option<usize>,
}

impl Told {
    pub(super) fn failing_at(call: usize) -> Self {
        Self {
            fails_at: Some(call),
            ..Self::default()
        }
    }

    fn call(&self) -> Result<(), Error> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        *calls += 1;
        if Some(*calls) == self.fails_at {
            return Err(Error::new(ErrorKind::Protocol, "a fault was injected"));
        }
        Ok(())
    }

    pub(super) fn identity(&self, key: &str) -> Option<Identity> {
        let identities = self.identities.lock();
        let identities = identities.unwrap_or_else(PoisonError::into_inner);
        identities.get(key).cloned()
    }
}

#[async_trait]
impl Effects for Told {
    async fn identify(&self, key: &str, identity: Identity) -> Result<(), Error> {
        self.call()?;
        self.identities
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key.to_owned(), identity);
        Ok(())
    }

    async fn checkpoint(&self, _: &str) -> Result<(), Error> {
        self.call()
    }
}

struct Unheard;

impl Progress for Unheard {
    fn line(&self, _: &str) {}
}

impl Bench {
    /// Runs a case on a ground of its own, and looks for what is left.
    pub(super) async fn judge(open: Opening, case: &'static Case<Self>) -> Result<(), Broken> {
        let land = Land::new()?;
        let fixture = open(land.ground())?;
        let bench = Self {
            land,
            open,
            fixture,
            run: RunId::generate()?,
            attempt: AttemptId::generate()?,
        };
        (case.run)(&bench).await
    }

    pub(super) fn preparer(&self) -> &Arc<dyn Preparer> {
        &self.fixture.preparer
    }

    /// Makes the preparer once more, as after a restart.
    pub(super) fn reopened(&self) -> Result<Arc<dyn Preparer>, Broken> {
        Ok((self.open)(self.land.ground())?.preparer)
    }

    fn context(&self) -> PlanContext<'_> {
        PlanContext {
            request: &self.fixture.request,
            install: self.land.ground().install(),
            run: &self.run,
            attempt: self.attempt,
        }
    }

    pub(super) async fn plan(&self) -> Result<Contribution, Broken> {
        match self.preparer().plan(self.context()).await? {
            Some(contribution) => Ok(contribution),
            None => broken!("the request does not concern it"),
        }
    }

    pub(super) async fn apply(
        &self,
        contribution: &Contribution,
        told: &Told,
        cancel: &CancelToken,
    ) -> Result<(), Error> {
        let context = ApplyContext {
            plan: self.context(),
            contribution,
            effects: told,
            progress: &Unheard,
            cancel,
        };
        self.preparer().apply(context).await
    }

    /// Plans and makes; returns what was planned and what was told.
    pub(super) async fn made(&self) -> Result<(Contribution, Told), Broken> {
        let contribution = self.plan().await?;
        let told = Told::default();
        self.apply(&contribution, &told, &CancelToken::new())
            .await?;
        Ok((contribution, told))
    }

    /// Opens the workspace again.
    pub(super) async fn reopen(&self, contribution: &Contribution) -> Result<Contribution, Error> {
        match &contribution.workspace {
            Some(workspace) => self.preparer().reopen(workspace, self.context()).await,
            None => Ok(Contribution::default()),
        }
    }

    /// Returns the records of what was planned, in an order in which they may be undone.
    pub(super) fn records(
        &self,
        contribution: &Contribution,
        told: &Told,
    ) -> Result<Vec<UndoRecord>, Broken> {
        let mut waiting: Vec<UndoRecord> = contribution
            .resources
            .iter()
            .map(|planned| UndoRecord {
                key: planned.key.clone(),
                attempt: self.attempt,
                component: Component::Preparer(self.preparer().name().clone()),
                resource: planned.resource.clone(),
                label: planned.label.clone(),
                due: planned.due,
                depends_on: planned.depends_on.clone(),
                identity: told.identity(&planned.key),
            })
            .collect();
        let mut ordered: Vec<UndoRecord> = Vec::new();
        while !waiting.is_empty() {
            let free = waiting.iter().rposition(|record| {
                let gone = |key: &String| ordered.iter().any(|gone| gone.key == *key);
                record.depends_on.iter().all(gone)
            });
            let Some(free) = free else {
                broken!(
                    "its resources wait for each other, or for none that was planned: {waiting:?}"
                )
            };
            ordered.push(waiting.remove(free));
        }
        Ok(ordered)
    }

    /// Undoes everything and demands that nothing of it is there.
    pub(super) async fn undo_all(
        &self,
        preparer: &dyn Preparer,
        records: &[UndoRecord],
    ) -> Result<(), Broken> {
        for record in records {
            let undone = preparer.undo(record, FAILURE).await?;
            hold!(
                matches!(undone, Undone::Removed { .. } | Undone::AlreadyGone),
                "{} is {undone:?}",
                record.key
            );
        }
        self.nothing_is_there(records).await
    }

    /// Says of each record whether its thing is there; what cannot be told fails the case.
    pub(super) async fn states(&self, records: &[UndoRecord]) -> Result<Vec<Presence>, Broken> {
        let mut states = Vec::new();
        for record in records {
            let state = self.preparer().state(record).await?;
            hold!(
                matches!(state, Presence::Present(_) | Presence::Absent),
                "{} is {state:?}",
                record.key
            );
            states.push(state);
        }
        Ok(states)
    }

    pub(super) async fn nothing_is_there(&self, records: &[UndoRecord]) -> Result<(), Broken> {
        for record in records {
            let state = self.preparer().state(record).await?;
            hold!(state == Presence::Absent, "{} is {state:?}", record.key);
        }
        let listed = self.preparer().list().await?;
        let ours: Vec<_> = listed
            .iter()
            .filter(|found| found.attempt == Some(self.attempt))
            .collect();
        hold!(ours.is_empty(), "it still lists {ours:?}");
        if let Some(look) = &self.fixture.leftovers {
            let left = look()?;
            hold!(left.is_empty(), "there is still {}", left.join("; "));
        }
        Ok(())
    }
}

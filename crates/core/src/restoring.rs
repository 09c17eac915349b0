//! Takes a closed run up again whose work was brought back: its row is at rest, and it owns what it owned.
//!
//! What comes back is not armed before: the undo of a restoration could only remove work. One that died is finished by
//! asking again; until then its files lie in their place, or in the trash, and nobody removes them.

use crate::{
    error::{Error, ErrorKind},
    id::{AttemptId, PreparerName, RunId},
    identity::Identity,
    preparer::PlannedResource,
    shared::Shared,
    store::{Reservation, RunRecord, RunState},
};

/// Something that a run owns again.
#[derive(Clone, Debug)]
pub struct Owned {
    /// The preparer that can take it away.
    pub preparer: PreparerName,
    /// What it is.
    pub resource: PlannedResource,
    /// Which one it is, where that is known.
    pub identity: Option<Identity>,
}

/// What was brought back of a run.
#[derive(Clone, Debug)]
pub struct Regained {
    /// The attempt whose mark is on it.
    pub attempt: AttemptId,
    /// Everything, in the order of making.
    pub owned: Vec<Owned>,
}

/// Brings the work of a closed run back, then takes the run up again; one that is at rest is returned as it is.
pub(crate) async fn restore<F: Future<Output = Result<Regained, Error>> + Send>(
    shared: &Shared,
    run: &RunId,
    bring_back: impl FnOnce() -> F + Send,
) -> Result<RunRecord, Error> {
    let record = shared.record(run).await?;
    let _hold = shared.hold_run(&record).await?;
    let record = shared.record(run).await?;
    match record.state {
        RunState::Closed | RunState::Failed => {}
        RunState::Preparing | RunState::Running | RunState::Closing | RunState::Stuck => {
            return Err(Error::new(
                ErrorKind::Conflict,
                "only what was removed can be brought back; the run is not",
            )
            .with("run", run)
            .with("state", record.state));
        }
        _ => return Ok(record),
    }
    if let Some(other) = shared.parts.store.run_of_session(&record.session).await? {
        return Err(Error::new(
            ErrorKind::SessionBusy,
            "the session has another run now; close that, or bring the work back elsewhere with --to",
        )
        .with("session", &record.session)
        .with("run", &other.run));
    }
    let regained = bring_back().await?;
    let armed = regained.owned.iter().map(|owned| {
        let identity = owned.identity.clone();
        owned
            .resource
            .record(&owned.preparer, regained.attempt, identity)
    });
    let record = RunRecord {
        attempt: regained.attempt,
        state: RunState::Stopped,
        kept: Vec::new(),
        problem: None,
        before: None,
        ..record
    };
    let store = &shared.parts.store;
    let reserved = store
        .reserve(Reservation {
            record,
            resumes: true,
            armed: armed.collect(),
        })
        .await?;
    store.commit(&reserved).await
}

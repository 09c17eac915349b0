//! Closes and removes runs: ends what runs, and takes away what survives elsewhere; anything else is kept and named.

use std::sync::Arc;

use crate::{
    ending::end,
    error::{Error, ErrorKind, ErrorReport},
    id::RunId,
    rollback::roll_back,
    shared::Shared,
    store::{AttemptPhase, LockName, RunRecord, RunState},
    teardown::{TornDown, tear_down},
    undo::{Component, Occasion, UndoOptions},
    unwind::Unwound,
    workspace::Finding,
};

/// How a run is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloseOptions {
    /// Whether the branch goes as well.
    pub remove: bool,
    /// Whether work that would be lost is saved in a snapshot and then removed; only with `remove`.
    pub force: bool,
}

/// What closing came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseOutcome {
    /// Everything that was due is gone.
    Closed,
    /// Something was kept, because removing it would lose work; processes have ended.
    Kept,
    /// Nothing was done, because removing would lose work.
    Refused,
    /// Something could not be taken away; it is owned and tried again.
    Stuck,
}

impl CloseOutcome {
    /// Returns the name that documents use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Kept => "kept",
            Self::Refused => "refused",
            Self::Stuck => "stuck",
        }
    }
}

/// Something that was kept, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What, for people.
    pub what: String,
    /// Why.
    pub findings: Vec<Finding>,
}

/// What became of a run and of everything it owned.
#[derive(Clone, Debug)]
pub struct CloseReport {
    /// The run.
    pub run: RunId,
    /// In a word.
    pub outcome: CloseOutcome,
    /// What was kept, and why.
    pub kept: Vec<Kept>,
    /// What was there and is gone, for people.
    pub removed: Vec<String>,
    /// The ref that keeps what was removed by force.
    pub snapshot: Option<String>,
    /// What could not be taken away, and why.
    pub stuck: Vec<(String, ErrorReport)>,
    /// What became of each teardown script, in order; none if nothing was done.
    pub teardown: Vec<TornDown>,
}

impl CloseReport {
    fn new(run: &RunId, outcome: CloseOutcome) -> Self {
        Self {
            run: run.clone(),
            outcome,
            kept: Vec::new(),
            removed: Vec::new(),
            snapshot: None,
            stuck: Vec::new(),
            teardown: Vec::new(),
        }
    }

    pub(crate) fn from_unwound(run: &RunId, unwound: &Unwound) -> Self {
        let kept: Vec<_> = unwound
            .kept()
            .map(|(what, findings)| Kept {
                what: what.to_owned(),
                findings: findings.to_vec(),
            })
            .collect();
        let outcome = match (unwound.is_clean(), kept.is_empty()) {
            (false, _) => CloseOutcome::Stuck,
            (true, false) => CloseOutcome::Kept,
            (true, true) => CloseOutcome::Closed,
        };
        Self {
            kept,
            removed: unwound.removed().map(str::to_owned).collect(),
            snapshot: unwound.snapshot().map(str::to_owned),
            stuck: unwound
                .stuck()
                .map(|(what, error)| (what.to_owned(), ErrorReport::from(&**error)))
                .collect(),
            ..Self::new(run, outcome)
        }
    }
}

/// Closes a run.
pub(crate) async fn close(
    shared: &Shared,
    run: &RunId,
    options: CloseOptions,
) -> Result<CloseReport, Error> {
    let record = shared.record(run).await?;
    let _hold = shared.hold_run(&record).await?;
    let Some(mut record) = settle_dead_launch(shared, run).await? else {
        return Ok(CloseReport::new(run, CloseOutcome::Closed));
    };
    if record.state == RunState::Closed {
        return Ok(CloseReport::new(run, CloseOutcome::Closed));
    }
    let occasion = if options.remove {
        Occasion::Remove
    } else {
        Occasion::Close
    };
    let undo = UndoOptions {
        occasion,
        force: options.remove && options.force,
    };
    // What others go on with is handed over to them: nothing of it is lost, and nothing is torn down.
    let shared_with = shared.heir(&record, occasion).await?;
    if options.remove && !options.force && shared_with.is_none() {
        let kept = losses(shared, run, undo).await?;
        if !kept.is_empty() {
            return Ok(CloseReport {
                kept,
                ..CloseReport::new(run, CloseOutcome::Refused)
            });
        }
    }
    let teardown = match shared_with {
        None => tear_down(shared, &record).await,
        Some(_) => Vec::new(),
    };
    if record.state == RunState::Running {
        record = end(shared, record, shared.parts.policy.grace).await?;
    }
    let at_rest = record.state;
    record = shared
        .parts
        .store
        .put(&RunRecord {
            state: RunState::Closing,
            ..record
        })
        .await?;
    let unwound = shared.unwind_run(run, undo).await?;
    let report = finish(shared, record, at_rest, &unwound).await?;
    Ok(CloseReport { teardown, ..report })
}

/// Puts the record right after what was due was asked to go.
pub(crate) async fn finish(
    shared: &Shared,
    record: RunRecord,
    at_rest: RunState,
    unwound: &Unwound,
) -> Result<CloseReport, Error> {
    let report = CloseReport::from_unwound(&record.run, unwound);
    let kept = report
        .kept
        .iter()
        .flat_map(|kept| kept.findings.clone())
        .collect();
    let problem = report.stuck.first().map(|(_, error)| error.clone());
    let state = match report.outcome {
        CloseOutcome::Closed => {
            // What is left armed was never due: the branch is the user's from here on.
            shared.let_go(&record.run).await?;
            RunState::Closed
        }
        CloseOutcome::Kept | CloseOutcome::Refused => match at_rest {
            RunState::Closing | RunState::Stuck => RunState::Interrupted,
            state => state,
        },
        CloseOutcome::Stuck => RunState::Stuck,
    };
    shared
        .parts
        .store
        .put(&RunRecord {
            state,
            kept,
            problem,
            ..record
        })
        .await?;
    Ok(report)
}

/// Rolls back the launch of a run if it died; the session is held. Returns the record, if there is still one.
pub(crate) async fn settle_dead_launch(
    shared: &Shared,
    run: &RunId,
) -> Result<Option<RunRecord>, Error> {
    let Some(record) = shared.parts.store.run(run).await? else {
        return Ok(None);
    };
    let launching = shared
        .parts
        .store
        .attempts_of(run)
        .await?
        .into_iter()
        .find(|row| row.phase == AttemptPhase::Launching);
    let attempt = match (launching, record.state) {
        (Some(row), _) => row.attempt,
        (None, RunState::Preparing) => record.attempt,
        _ => return Ok(Some(record)),
    };
    let Some(_lock) = shared
        .parts
        .locks
        .try_lock(&LockName::Attempt(attempt))
        .await?
    else {
        return Err(
            Error::new(ErrorKind::SessionBusy, "the launch of the run is under way")
                .with("run", run),
        );
    };
    let unwound = roll_back(
        shared,
        run,
        attempt,
        &[],
        None,
        &std::collections::BTreeSet::new(),
        &|_, _| {},
    )
    .await;
    if let Some(error) = unwound.unsettled {
        return Err(Error::new(error.kind(), "failed to note the rollback")
            .with("run", run)
            .with_source(error.to_string()));
    }
    shared.parts.store.run(run).await
}

/// Finds what removing a run would lose; reads only. Processes of the run itself are no loss: they are ended first.
async fn losses(shared: &Shared, run: &RunId, options: UndoOptions) -> Result<Vec<Kept>, Error> {
    let mut kept = Vec::new();
    for record in shared.armed(run).await?.iter().map(|armed| &armed.record) {
        let Component::Preparer(name) = &record.component else {
            continue;
        };
        if !record.due.on(options.occasion) {
            continue;
        }
        let preparer = Arc::clone(shared.parts.registry.preparer(name)?);
        let mut findings = preparer.assess(record, options).await?.losses;
        findings.retain(|finding| finding.what != "process");
        if !findings.is_empty() {
            kept.push(Kept {
                what: record.label.clone(),
                findings,
            });
        }
    }
    Ok(kept)
}

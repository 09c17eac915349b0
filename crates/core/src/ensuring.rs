//! Makes sure that a session has its workspace up; whoever asks for the same at the same time gets the same answer.

use std::sync::Arc;

use crate::{
    activity::ActivityKind,
    error::{Error, ErrorKind},
    flights::EnsureError,
    id::SessionId,
    launch,
    plan::Plan,
    planning,
    redact::Redactor,
    request::{LaunchIntent, LaunchRequest, Mode},
    shared::Shared,
    store::{RunRecord, RunState},
    ticket::Launched,
};

/// How often what changed between plan and launch is planned again.
const ATTEMPTS: u32 = 8;

/// Waits until the session of a request has a run that is up; the work is done in a task of the launcher's own.
pub(crate) async fn ensure(
    shared: &Arc<Shared>,
    request: LaunchRequest,
) -> Result<Launched, EnsureError> {
    let Some(session) = request.session.clone() else {
        let why = "only the workspace of a session with a name can be ensured";
        return Err(look(Error::new(ErrorKind::InvalidInput, why)));
    };
    let (mut answer, sender) = shared.flights.join(&session, &request);
    if let Some(sender) = sender {
        let working = Arc::clone(shared);
        drop(shared.tasks.spawn(async move {
            let result = bring_up(&working, &session, &request).await;
            // The sender goes with the answer: whoever comes from here on looks for himself.
            drop(sender.send(Some(result)));
        }));
    }
    let ended = answer.wait_for(Option::is_some).await;
    ended
        .ok()
        .and_then(|answer| answer.clone())
        .unwrap_or_else(|| {
            let why = "the launch broke off; recovery takes back what it made";
            Err(look(Error::new(ErrorKind::Panicked, why)))
        })
}

async fn bring_up(
    shared: &Arc<Shared>,
    session: &SessionId,
    request: &LaunchRequest,
) -> Result<Launched, EnsureError> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let intent = match Box::pin(there(shared, session)).await.map_err(look)? {
            There::Up(launched) => return Ok(*launched),
            There::Kept(run) => LaunchIntent::Resume(run),
            There::Nothing => LaunchIntent::Fresh,
        };
        let request = LaunchRequest {
            mode: Mode::Workspace,
            intent,
            ..request.clone()
        };
        let result = match planning::plan(shared, request).await {
            Ok(plan) => fly(shared, plan).await,
            Err(error) => Err(EnsureError::Plan(Arc::new(error))),
        };
        match result {
            Err(error) if error.is_outdated() && !shared.stopping.is_cancelled() => {
                last = Some(error);
            }
            other => return other,
        }
    }
    Err(last.unwrap_or_else(|| look(Error::new(ErrorKind::Unexpected, "no try was made"))))
}

async fn fly(shared: &Arc<Shared>, plan: Plan) -> Result<Launched, EnsureError> {
    let cancel = shared.stopping.child();
    Box::pin(launch::launch(Arc::clone(shared), plan, cancel))
        .await
        .map_err(EnsureError::Launch)
}

/// What a session has.
enum There {
    Up(Box<Launched>),
    Kept(crate::id::RunId),
    Nothing,
}

/// Waits for what is under way in the session's lane, then looks at what it has; what ended unseen is settled.
async fn there(shared: &Shared, session: &SessionId) -> Result<There, Error> {
    let hold = shared.hold(session, ActivityKind::Starting).await?;
    let Some(record) = shared.parts.store.run_of_session(session).await? else {
        return Ok(There::Nothing);
    };
    if record.state != RunState::Running {
        return Ok(There::Kept(record.run));
    }
    drop(hold);
    let _hold = shared.hold_run(&record).await?;
    let record = shared.record(&record.run).await?;
    let record = if record.state == RunState::Running {
        crate::ending::settle_ended(shared, record).await?
    } else {
        record
    };
    if record.state == RunState::Running {
        let redactor = redactor(shared, &record).await?;
        return Ok(There::Up(Box::new(Launched {
            record,
            started: None,
            greeting: None,
            redactor,
        })));
    }
    Ok(There::Kept(record.run))
}

/// Returns what hides a run's secrets, as far as they can still be revealed.
pub(crate) async fn redactor(shared: &Shared, record: &RunRecord) -> Result<Redactor, Error> {
    let parts = &shared.parts;
    let mut values = Vec::new();
    for secret in &record.secrets {
        values.extend(parts.secrets.reveal(&secret.name, &secret.scope).await?);
    }
    for name in &record.runtime_secrets {
        values.extend(parts.runtime_secrets.reveal(name).await?);
    }
    Redactor::new(&values)
}

fn look(error: Error) -> EnsureError {
    EnsureError::Look(Arc::new(error))
}

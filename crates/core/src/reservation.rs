//! What a launch reserves with: the record of a new run, or that of the run which is gone on with.

use crate::{
    adoption::{is_workspace, still_there},
    ending,
    error::Error,
    id::{PreparerName, RunId},
    plan::Plan,
    planning::busy,
    script::Scripts,
    shared::{Shared, now_ms},
    store::{Before, RunRecord, RunState},
    undo::{Component, UndoRecord},
};

/// Returns the record to reserve with: a new one, or that of the run which is gone on with.
pub(crate) async fn fresh_or_resumed(
    shared: &Shared,
    plan: &Plan,
) -> Result<(RunRecord, bool), Error> {
    let Some(prior) = &plan.prior else {
        if let Some(other) = shared.parts.store.run_of_session(&plan.session).await? {
            return Err(busy(&other));
        }
        still_there(shared, plan).await?;
        return Ok((fresh(plan), false));
    };
    // What was planned with may have changed since; a run that ended unseen is settled first.
    let mut record = shared.record(&prior.run).await?;
    if record.state == RunState::Running {
        record = ending::settle_ended(shared, record).await?;
    }
    still_there(shared, plan).await?;
    let promoted = plan.promotes() && is_workspace(&record);
    match record.state {
        RunState::Running if promoted => {}
        RunState::Exited | RunState::Stopped | RunState::TimedOut | RunState::Interrupted => {}
        _ => return Err(busy(&record)),
    }
    Ok((resumed(plan, record, promoted), true))
}

/// Returns the record of a new run.
fn fresh(plan: &Plan) -> RunRecord {
    let request = &plan.request;
    let agent = plan.agent.as_ref();
    let command = agent.map(|agent| agent.command.arguments().to_vec());
    let used = agent.and_then(|agent| agent.used.clone());
    let owner = plan.adopted.as_ref().map(|adopted| &adopted.owner);
    RunRecord {
        run: plan.run.clone(),
        session: plan.session.clone(),
        task: plan.task.clone(),
        tenant: request.tenant.clone(),
        attempt: plan.attempt,
        revision: 0,
        executor: plan.registration.name.clone(),
        instance: plan.instance(),
        process: plan.process(),
        share_key: request.share_key.clone(),
        limits: request.limits,
        options: request.options.clone(),
        state: RunState::Preparing,
        title: request.title.clone(),
        command,
        workspace: Some(plan.workspace.clone()),
        lease: request.lease,
        created_ms: now_ms(),
        ended_ms: None,
        exit: None,
        agent: used,
        secrets: plan.secrets(),
        runtime_secrets: owner.map(|o| o.runtime_secrets.clone()).unwrap_or_default(),
        scripts: match owner {
            Some(owner) => owner.scripts.clone(),
            None => Scripts {
                setup: plan.setup.clone(),
                set_up: false,
                teardown: request.teardown.clone(),
            },
        },
        resume_token: None,
        keep: request.keep,
        kept: Vec::new(),
        problem: None,
        before: None,
    }
}

/// Returns the record of a run that is gone on with; what it was before is in it.
fn resumed(plan: &Plan, record: RunRecord, promoted: bool) -> RunRecord {
    let request = &plan.request;
    let agent = plan.agent.as_ref();
    let command = agent.map(|agent| agent.command.arguments().to_vec());
    let used = agent.and_then(|agent| agent.used.clone());
    let owner = plan.adopted.as_ref().map(|adopted| &adopted.owner);
    let mut scripts = record.scripts;
    let mut secrets = plan.secrets();
    if promoted {
        // Terminals that are open know them as well.
        secrets.extend(record.secrets.iter().cloned());
        secrets.sort();
        secrets.dedup();
    }
    if !plan.setup.is_empty() {
        scripts.setup.clone_from(&plan.setup);
        scripts.set_up = false;
    }
    if !request.teardown.is_empty() {
        scripts.teardown.clone_from(&request.teardown);
    }
    let before = Before {
        attempt: record.attempt,
        instance: record.instance,
        state: record.state,
        command: record.command,
        lease: record.lease,
        ended_ms: record.ended_ms,
        exit: record.exit,
        process: record.process,
        agent: record.agent,
    };
    RunRecord {
        attempt: plan.attempt,
        instance: plan.instance(),
        process: plan.process(),
        limits: request.limits,
        options: request.options.clone(),
        state: RunState::Preparing,
        command,
        lease: request.lease,
        ended_ms: None,
        exit: None,
        agent: used,
        secrets,
        runtime_secrets: owner.map(|o| o.runtime_secrets.clone()).unwrap_or_default(),
        scripts,
        before: Some(before),
        problem: None,
        kept: Vec::new(),
        ..record
    }
}

/// Returns the records of a run's workspace that a preparer made; all are of one attempt.
pub(crate) async fn owned(
    shared: &Shared,
    run: &RunId,
    preparer: &PreparerName,
) -> Result<Vec<UndoRecord>, Error> {
    let attempts = shared.parts.store.attempts_of(run).await?;
    Ok(attempts
        .into_iter()
        .map(|attempt| attempt.armed)
        .map(|armed| {
            armed
                .into_iter()
                .map(|armed| armed.record)
                .filter(|record| record.component == Component::Preparer(preparer.clone()))
                .collect::<Vec<_>>()
        })
        .find(|records| !records.is_empty())
        .unwrap_or_default())
}

//! What a launch reserves with: the record of a new run, or that of the run which is gone on with.

use crate::{
    ending,
    error::Error,
    plan::Plan,
    planning::busy,
    shared::{Shared, now_ms},
    store::{Before, RunRecord, RunState},
};

/// Returns the record to reserve with: a new one, or that of the run which is gone on with.
pub(crate) async fn fresh_or_resumed(
    shared: &Shared,
    plan: &Plan,
) -> Result<(RunRecord, bool), Error> {
    let request = &plan.request;
    let agent = plan.agent.as_ref();
    let command = agent.map(|agent| agent.command.arguments().to_vec());
    let used = agent.and_then(|agent| agent.used.clone());
    let Some(prior) = &plan.prior else {
        if let Some(other) = shared.parts.store.run_of_session(&plan.session).await? {
            return Err(busy(&other));
        }
        let record = RunRecord {
            run: plan.run.clone(),
            session: plan.session.clone(),
            task: plan.task.clone(),
            tenant: request.tenant.clone(),
            attempt: plan.attempt,
            revision: 0,
            executor: plan.registration.name.clone(),
            instance: plan.attempt.instance(),
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
            runtime_secrets: Vec::new(),
            options: request.options.clone(),
            resume_token: None,
            keep: request.keep,
            kept: Vec::new(),
            problem: None,
            before: None,
        };
        return Ok((record, false));
    };
    // What was planned with may have changed since; a run that ended unseen is settled first.
    let mut record = shared.record(&prior.run).await?;
    if record.state == RunState::Running {
        record = ending::settle_ended(shared, record).await?;
    }
    match record.state {
        RunState::Exited | RunState::Stopped | RunState::TimedOut | RunState::Interrupted => {}
        _ => return Err(busy(&record)),
    }
    let before = Before {
        attempt: record.attempt,
        instance: record.instance,
        state: record.state,
        command: record.command,
        lease: record.lease,
        ended_ms: record.ended_ms,
        exit: record.exit,
    };
    let resumed = RunRecord {
        attempt: plan.attempt,
        instance: plan.attempt.instance(),
        state: RunState::Preparing,
        command,
        lease: request.lease,
        ended_ms: None,
        exit: None,
        agent: used,
        secrets: plan.secrets(),
        runtime_secrets: Vec::new(),
        options: request.options.clone(),
        before: Some(before),
        problem: None,
        kept: Vec::new(),
        ..record
    };
    Ok((resumed, true))
}

//! Makes a plan of a request: finds everything that is wrong with it, at once, and touches nothing.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    error::{Error, ErrorKind},
    executor::InstanceSpec,
    id::{AttemptId, RunId, SessionId, TaskId},
    plan::{INSTANCE_KEY, Plan, PlanError, RUNTIME_SECRETS_KEY},
    planned_agent, planned_environment,
    preparer::{Contribution, PlanContext, Preparer},
    process::{Lease, StdioKind},
    registry::Registration,
    request::{LaunchIntent, LaunchRequest, Mode},
    shared::Shared,
    store::{RunRecord, RunState},
    workspace::Workspace,
};

type Contributions = Vec<(Arc<dyn Preparer>, Contribution)>;

/// Makes a plan.
pub(crate) async fn plan(shared: &Shared, request: LaunchRequest) -> Result<Plan, PlanError> {
    let registration = shared.parts.registry.get(&request.executor)?.clone();
    let prior = match &request.intent {
        LaunchIntent::Fresh => None,
        LaunchIntent::Resume(run) => Some(resumable(shared.record(run).await?)?),
    };
    let run = match &prior {
        Some(record) => record.run.clone(),
        None => RunId::generate()?,
    };
    let attempt = AttemptId::generate()?;
    let (session, task) = names(&request, &run, prior.as_ref())?;

    let mut problems = capability_problems(&registration, &request);
    if prior.is_none()
        && let Some(other) = shared.parts.store.run_of_session(&session).await?
    {
        problems.push(busy(&other));
    }
    let cx = PlanContext {
        request: &request,
        install: &shared.parts.install,
        run: &run,
        attempt,
    };
    let contributions = contributions(&registration, prior.as_ref(), cx)
        .await
        .unwrap_or_else(|found| {
            problems.extend(found);
            Vec::new()
        });
    let workspace = match &prior {
        Some(record) => record.workspace.clone(),
        None => contributions
            .iter()
            .find_map(|(_, contribution)| contribution.workspace.clone()),
    };
    if workspace.is_none() && problems.is_empty() {
        problems.push(no_preparer(&request));
    }
    // Everything else is looked at even so: all problems are told at once.
    let spec = specification(cx, &session, workspace.as_ref(), &contributions);
    problems.extend(registration.executor.check(&spec).err());
    problems.extend(duplicate_keys(&contributions).err());
    let identity = workspace
        .as_ref()
        .map(|workspace| planned_environment::identity(&run, &session, &task, workspace))
        .unwrap_or_default();
    let agent = planned_agent::decide(&*shared.parts.profiles, &registration, &request)
        .await
        .unwrap_or_else(|found| {
            problems.extend(found);
            planned_agent::Decided::default()
        });
    let (composition, conflicts) = planned_environment::decide(
        &registration,
        &request,
        contributions
            .iter()
            .flat_map(|(_, contribution)| contribution.environment.clone()),
        &attempt.instance(),
        identity,
        &agent,
        &mut problems,
    );
    let (Some(workspace), true) = (workspace, problems.is_empty()) else {
        return Err(PlanError {
            problems,
            conflicts,
        });
    };

    let warnings = contributions
        .iter()
        .flat_map(|(_, contribution)| contribution.warnings.clone())
        .chain(agent.warnings)
        .collect();
    Ok(Plan {
        request,
        run,
        attempt,
        session,
        task,
        registration,
        prior,
        contributions,
        workspace,
        composition,
        agent: agent.agent,
        caches: agent.caches,
        warnings,
    })
}

/// Returns what the executor would be asked to make, as far as that is known.
fn specification(
    cx: PlanContext<'_>,
    session: &SessionId,
    workspace: Option<&Workspace>,
    contributions: &Contributions,
) -> InstanceSpec {
    InstanceSpec {
        install: cx.install.clone(),
        run: cx.run.clone(),
        session: session.clone(),
        workspace: workspace.map(|workspace| workspace.path.clone()),
        shared: contributions
            .iter()
            .flat_map(|(_, contribution)| contribution.shared.clone())
            .collect(),
        lease: Lease::UNTIL_COMMIT,
        options: cx.request.options.clone(),
    }
}

/// Returns the error for a session that has a live run.
pub(crate) fn busy(other: &RunRecord) -> Error {
    Error::new(
        ErrorKind::SessionBusy,
        "the session has a run; resume or remove it, or use another session",
    )
    .with("session", &other.session)
    .with("run", &other.run)
    .with("state", other.state)
}

/// Checks that a run can be gone on with.
fn resumable(record: RunRecord) -> Result<RunRecord, Error> {
    match record.state {
        // A running one may have ended unseen; the launch settles it before anything else.
        RunState::Running
        | RunState::Exited
        | RunState::Stopped
        | RunState::TimedOut
        | RunState::Interrupted => Ok(record),
        state => Err(Error::new(
            ErrorKind::Unsupported,
            "the run cannot be resumed in this state; see `recover`",
        )
        .with("run", &record.run)
        .with("state", state)),
    }
}

fn names(
    request: &LaunchRequest,
    run: &RunId,
    prior: Option<&RunRecord>,
) -> Result<(SessionId, TaskId), Error> {
    if let Some(record) = prior {
        return Ok((record.session.clone(), record.task.clone()));
    }
    let session = match &request.session {
        Some(session) => session.clone(),
        None => SessionId::new(run.as_str())?,
    };
    let task = match &request.task {
        Some(task) => task.clone(),
        None => TaskId::new(session.as_str())?,
    };
    Ok((session, task))
}

fn capability_problems(registration: &Registration, request: &LaunchRequest) -> Vec<Error> {
    let capabilities = registration.executor.capabilities();
    let missing = |what: &'static str| {
        Error::new(ErrorKind::Unsupported, "the executor cannot do this")
            .with("executor", &registration.name)
            .with("missing", what)
    };
    let mut problems = Vec::new();
    if let Mode::Agent(agent) = &request.mode
        && matches!(agent.stdio, StdioKind::Terminal(_))
        && !capabilities.terminal
    {
        problems.push(missing("terminals"));
    }
    if !capabilities.host_paths {
        problems.push(missing("workspaces at their path on the host"));
    }
    problems
}

async fn contributions(
    registration: &Registration,
    prior: Option<&RunRecord>,
    cx: PlanContext<'_>,
) -> Result<Contributions, Vec<Error>> {
    let mut contributions = Vec::new();
    let mut problems = Vec::new();
    for preparer in &registration.preparers {
        let contribution = match prior {
            None => preparer.plan(cx).await,
            Some(RunRecord {
                workspace: Some(workspace),
                ..
            }) if workspace.preparer == *preparer.name() => {
                preparer.reopen(workspace, cx).await.map(Some)
            }
            Some(_) => Ok(None),
        };
        match contribution {
            Ok(Some(contribution)) => contributions.push((Arc::clone(preparer), contribution)),
            Ok(None) => {}
            Err(error) => problems.push(error),
        }
    }
    if problems.is_empty() {
        Ok(contributions)
    } else {
        Err(problems)
    }
}

fn no_preparer(request: &LaunchRequest) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "the executor has no preparer for such a workspace",
    )
    .with("executor", &request.executor)
}

fn duplicate_keys(contributions: &Contributions) -> Result<(), Error> {
    let mut keys = BTreeSet::from([INSTANCE_KEY, RUNTIME_SECRETS_KEY]);
    for (preparer, contribution) in contributions {
        for resource in &contribution.resources {
            if !keys.insert(&resource.key) {
                return Err(Error::new(
                    ErrorKind::Unexpected,
                    "two planned resources have one key",
                )
                .with("preparer", preparer.name())
                .with("key", &resource.key));
            }
        }
    }
    Ok(())
}

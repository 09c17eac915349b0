//! Makes a plan of a request: finds everything that is wrong with it, at once, and touches nothing.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use crate::{
    adopted::Adopted,
    adoption,
    error::{Chain, Error, ErrorKind},
    executor::InstanceSpec,
    id::{AttemptId, RunId, SessionId, TaskId},
    plan::{Plan, PlanError},
    planned_agent, planned_environment,
    preparer::{Contribution, PlanContext, Preparer},
    process::{Lease, StdioKind},
    registry::Registration,
    request::{LaunchIntent, LaunchRequest, Mode},
    script::Script,
    shared::Shared,
    store::{RunRecord, RunState},
    undo::{INSTANCE_KEY, RUNTIME_SECRETS_KEY},
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

    let mut problems = first_problems(&registration, &request);
    let adopted = adoption::adopted(shared, &request, prior.as_ref(), attempt)
        .await
        .unwrap_or_else(|found| {
            problems.extend(found);
            None
        });
    // What is there already decides where it is worked.
    let there = adopted
        .as_ref()
        .map(|adopted| &adopted.owner)
        .or(prior.as_ref());
    problems.extend(pressure(shared, &registration).await?);
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
    let owner = adopted.as_ref().map(|adopted| &adopted.owner);
    let contributions = contributed(&registration, there, owner, cx, &mut problems).await;
    let workspace = workspace(there, &contributions);
    if workspace.is_none() && problems.is_empty() {
        problems.push(no_preparer(&request));
    }
    // Everything else is looked at even so: all problems are told at once.
    let spec = instance_spec(shared, cx, &session, workspace.as_ref(), &contributions);
    problems.extend(registration.executor.check(&spec).err());
    problems.extend(duplicate_keys(&contributions).err());
    let directory = private_directory(&registration, adopted.as_ref(), attempt);
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
        &directory,
        identity,
        &agent,
        &mut problems,
    );
    // An executor finds some of the same that was found here.
    let mut told = BTreeSet::new();
    problems.retain(|problem| told.insert(Chain(problem).to_string()));
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
        setup: setup(&request, prior.as_ref(), adopted.is_some()),
        request,
        run,
        attempt,
        session,
        task,
        registration,
        prior,
        adopted,
        directory,
        contributions,
        workspace,
        composition,
        agent: agent.agent,
        caches: agent.caches,
        warnings,
    })
}

/// Returns the workspace that is there, or the one to be.
fn workspace(there: Option<&RunRecord>, contributions: &Contributions) -> Option<Workspace> {
    match there {
        Some(record) => record.workspace.clone(),
        None => contributions
            .iter()
            .find_map(|(_, contribution)| contribution.workspace.clone()),
    }
}

/// Returns what the executor would be asked to make.
fn instance_spec(
    shared: &Shared,
    cx: PlanContext<'_>,
    session: &SessionId,
    workspace: Option<&Workspace>,
    contributions: &Contributions,
) -> InstanceSpec {
    InstanceSpec {
        install: shared.parts.install.clone(),
        run: cx.run.clone(),
        session: session.clone(),
        workspace: workspace.map(|workspace| workspace.path.clone()),
        shared: contributions
            .iter()
            .flat_map(|(_, contribution)| contribution.shared.clone())
            .collect(),
        lease: Lease::UNTIL_COMMIT,
        limits: cx.request.limits,
        options: cx.request.options.clone(),
    }
}

/// Returns the directory for private files; sessions that share an instance share none of theirs.
fn private_directory(
    registration: &Registration,
    adopted: Option<&Adopted>,
    attempt: AttemptId,
) -> PathBuf {
    let executor = &registration.executor;
    match adopted {
        None => executor.private_directory(&attempt.instance()),
        Some(adopted) => executor
            .private_directory(&adopted.owner.instance)
            .join(adopted.process.as_str()),
    }
}

/// Asks the preparers; `owner` is the run whose instance is joined, if one is.
async fn contributed(
    registration: &Registration,
    there: Option<&RunRecord>,
    owner: Option<&RunRecord>,
    cx: PlanContext<'_>,
    problems: &mut Vec<Error>,
) -> Contributions {
    let contributions = contributions(registration, there, cx)
        .await
        .unwrap_or_else(|found| {
            problems.extend(found);
            Vec::new()
        });
    problems.extend(owner.and_then(|owner| gone_beneath(&contributions, owner)));
    contributions
}

/// Says so when the workspace of an instance that is up is gone: what is in use is not made again under its users.
fn gone_beneath(contributions: &Contributions, owner: &RunRecord) -> Option<Error> {
    let workspace = owner.workspace.as_ref()?;
    contributions
        .iter()
        .any(|(_, contribution)| !contribution.state.is_empty())
        .then(|| {
            Error::new(
                ErrorKind::NotFound,
                "the workspace is gone while its instance is up; stop the run, then resume it",
            )
            .with("path", workspace.path.display())
            .with("run", &owner.run)
        })
}

/// Returns the scripts to run: a workspace that is half-built is built before anything else happens in it.
fn setup(request: &LaunchRequest, prior: Option<&RunRecord>, joins: bool) -> Vec<Script> {
    match prior {
        // They ran when the instance was made.
        _ if joins => Vec::new(),
        Some(record)
            if request.setup.is_empty() && !request.skip_setup && !record.scripts.set_up =>
        {
            record.scripts.setup.clone()
        }
        _ => request.setup.clone(),
    }
}

/// Returns the error for a session that has a live run.
pub(crate) fn busy(other: &RunRecord) -> Error {
    let why = if other.state == RunState::Running && other.command.is_some() {
        "the session already has an agent running; stop it, or use another session"
    } else {
        "the session has a run; resume or remove it, or use another session"
    };
    Error::new(ErrorKind::SessionBusy, why)
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

/// Finds what a look at the request alone tells.
fn first_problems(registration: &Registration, request: &LaunchRequest) -> Vec<Error> {
    let capabilities = registration.executor.capabilities();
    let missing = |what: &'static str| {
        Error::new(ErrorKind::Unsupported, "the executor cannot do this")
            .with("executor", &registration.name)
            .with("missing", what)
    };
    let scripts = request.setup.iter().chain(&request.teardown);
    let mut problems: Vec<_> = scripts.filter_map(|script| script.check().err()).collect();
    if let Mode::Agent(agent) = &request.mode
        && matches!(agent.stdio, StdioKind::Terminal(_))
        && !capabilities.terminal
    {
        problems.push(missing("terminals"));
    }
    if !request.limits.is_empty() && !capabilities.limits {
        problems.push(missing("limits for instances"));
    }
    problems.extend(request.limits.check().err());
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

/// Finds what is refused because too much of it waits to be taken away.
async fn pressure(shared: &Shared, registration: &Registration) -> Result<Vec<Error>, Error> {
    let attempts = shared.parts.store.attempts().await?;
    let high_water = shared.parts.policy.high_water;
    Ok(shared
        .backpressure
        .check(registration, &attempts, high_water))
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

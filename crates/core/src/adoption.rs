//! Launches that make no instance of their own: an agent joins the workspace that is up, or a session joins a sibling's instance.
//!
//! * What was not made by an attempt is never armed by it: failing, it takes back its own process and nothing else.
//! * An instance goes with its last user; until then, whoever leaves hands over what it owned.

use crate::{
    adopted::{Adopted, ended},
    error::{Error, ErrorKind},
    id::{AttemptId, RunId, ShareKey},
    plan::Plan,
    request::{LaunchRequest, Mode},
    shared::Shared,
    store::{RunRecord, RunState, StateStore},
    undo::Occasion,
};

/// Finds the instance that a launch joins; none if it makes one.
///
/// # Errors
///
/// What the request asks for and an instance that is up cannot be given any more, all at once.
pub(crate) async fn adopted(
    shared: &Shared,
    request: &LaunchRequest,
    prior: Option<&RunRecord>,
    attempt: AttemptId,
) -> Result<Option<Adopted>, Vec<Error>> {
    let owner = match prior {
        Some(record) if is_workspace(record) => match request.mode {
            Mode::Agent(_) => Some(record.clone()),
            Mode::Workspace => return Err(vec![up_already(record)]),
        },
        // Whether it ended unseen is found out by the launch.
        Some(record) if record.state == RunState::Running => None,
        _ => {
            let key = match prior {
                Some(record) => record.share_key.as_ref(),
                None => request.share_key.as_ref(),
            };
            sibling(&*shared.parts.store, key, prior.map(|record| &record.run))
                .await
                .map_err(|error| vec![error])?
        }
    };
    let Some(owner) = owner else {
        return Ok(None);
    };
    let problems = differences(request, prior, &owner);
    if !problems.is_empty() {
        return Err(problems);
    }
    let adopted = Adopted::new(owner, attempt).map_err(|error| vec![error])?;
    Ok(Some(adopted))
}

/// Checks, with the session and the share key held, that what was planned with is still so, and that the instance answers.
///
/// # Errors
///
/// `Conflict`, retryable: what is there has changed, and a new plan will find it.
pub(crate) async fn still_there(shared: &Shared, plan: &Plan) -> Result<(), Error> {
    let changed = |why: &'static str| Error::new(ErrorKind::Conflict, why).retryable(true);
    let Some(adopted) = &plan.adopted else {
        let key = plan.share_key();
        return match sibling(&*shared.parts.store, key, Some(&plan.run)).await? {
            None => Ok(()),
            Some(owner) => Err(changed("the share key has an instance by now; plan again")
                .with("share_key", key.map_or("", ShareKey::as_str))
                .with("run", owner.run)),
        };
    };
    let owner = shared.parts.store.run(&adopted.owner.run).await?;
    let same = owner.is_some_and(|owner| {
        owner.state == RunState::Running && owner.instance == adopted.owner.instance
    });
    let gone = || {
        changed("the instance to join has ended meanwhile; plan again")
            .with("instance", &adopted.owner.instance)
            .with("run", &adopted.owner.run)
    };
    if !same || !answers(shared, &adopted.owner).await? {
        return Err(gone());
    }
    Ok(())
}

/// Finds out whether the instance of a run is up, by setting the lease that it has.
///
/// # Errors
///
/// Those of an instance that may be up and does not say so.
pub(crate) async fn answers(shared: &Shared, record: &RunRecord) -> Result<bool, Error> {
    let ask = async {
        let instance = match shared.instance(record).await {
            Ok(instance) => instance,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        match instance.set_lease(record.lease).await {
            Ok(()) => Ok(true),
            Err(error) if ended(&error) => Ok(false),
            Err(error) => Err(error),
        }
    };
    shared.answer(record, ask).await
}

/// Returns whether a run is up without an agent.
pub(crate) fn is_workspace(record: &RunRecord) -> bool {
    record.state == RunState::Running && record.command.is_none()
}

fn up_already(record: &RunRecord) -> Error {
    Error::new(
        ErrorKind::SessionBusy,
        "the workspace of the run is up already",
    )
    .with("session", &record.session)
    .with("run", &record.run)
    .with("state", record.state)
}

/// Finds a run other than `run` that is up under a share key.
async fn sibling(
    store: &dyn StateStore,
    key: Option<&ShareKey>,
    run: Option<&RunId>,
) -> Result<Option<RunRecord>, Error> {
    let Some(key) = key else {
        return Ok(None);
    };
    let runs = store.runs().await?;
    Ok(runs.into_iter().find(|other| {
        other.state == RunState::Running
            && other.share_key.as_ref() == Some(key)
            && Some(&other.run) != run
    }))
}

/// Names what an instance that is up cannot be given any more.
fn differences(
    request: &LaunchRequest,
    prior: Option<&RunRecord>,
    owner: &RunRecord,
) -> Vec<Error> {
    let differs = |what: &'static str| {
        Error::new(
            ErrorKind::InvalidInput,
            "the instance that is joined is up and has another one of this",
        )
        .with("what", what)
        .with("instance", &owner.instance)
        .with("run", &owner.run)
    };
    let mut problems = Vec::new();
    if request.executor != owner.executor {
        problems.push(differs("executor"));
    }
    if request.limits != owner.limits {
        problems.push(differs("limits"));
    }
    if request.options != owner.options {
        problems.push(differs("options"));
    }
    if !request.setup.is_empty() && request.setup != owner.scripts.setup {
        problems.push(differs("setup scripts"));
    }
    let another = prior.is_none_or(|prior| prior.run != owner.run);
    if another {
        let (task, tenant) = match prior {
            Some(prior) => (Some(&prior.task), &prior.tenant),
            None => (request.task.as_ref(), &request.tenant),
        };
        if task != Some(&owner.task) || *tenant != owner.tenant {
            problems.push(differs("task"));
        }
        if !request.teardown.is_empty() && request.teardown != owner.scripts.teardown {
            problems.push(differs("teardown scripts"));
        }
    }
    problems
}

impl Shared {
    /// Finds who goes on with what a run leaves on an occasion; the share key is held.
    ///
    /// * The instance goes on with a run that is up in it, and everything else with any run that lives on.
    pub(crate) async fn heir(
        &self,
        record: &RunRecord,
        occasion: Occasion,
    ) -> Result<Option<RunRecord>, Error> {
        if record.share_key.is_none() {
            return Ok(None);
        }
        let runs = self.parts.store.runs().await?;
        let mut others: Vec<_> = runs
            .into_iter()
            .filter(|other| {
                other.run != record.run
                    && other.share_key == record.share_key
                    && other.workspace.as_ref().map(|w| &w.path)
                        == record.workspace.as_ref().map(|w| &w.path)
            })
            .collect();
        let up = others.iter().position(|other| {
            other.state == RunState::Running && other.instance == record.instance
        });
        if let Some(up) = up {
            return Ok(Some(others.swap_remove(up)));
        }
        if occasion == Occasion::End {
            return Ok(None);
        }
        let rests = |other: &RunRecord| {
            other.state.is_live() && !matches!(other.state, RunState::Preparing | RunState::Closing)
        };
        Ok(others.into_iter().find(rests))
    }
}

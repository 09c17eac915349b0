//! A launch that is fully decided and has touched nothing.

use std::{collections::BTreeSet, error::Error as StdError, fmt, path::PathBuf, sync::Arc};

use crate::{
    adopted::Adopted,
    env::{Composition, Conflict, Value},
    error::{Chain, Error, ErrorKind},
    event::Step,
    executor::InstanceSpec,
    id::{
        AttemptId, ExecutorName, InstallId, InstanceId, ProcessId, RunId, SessionId, ShareKey,
        TaskId,
    },
    planned_agent::PlannedAgent,
    preparer::{Contribution, Preparer},
    process::Lease,
    registry::Registration,
    request::{LaunchRequest, ManagedCache},
    script::Script,
    secret::SecretId,
    store::RunRecord,
    undo::{Component, Due, INSTANCE_KEY, RUNTIME_SECRETS_KEY, UndoRecord},
    workspace::Workspace,
};

/// What a launch will do.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) request: LaunchRequest,
    pub(crate) run: RunId,
    pub(crate) attempt: AttemptId,
    pub(crate) session: SessionId,
    pub(crate) task: TaskId,
    pub(crate) registration: Registration,
    pub(crate) prior: Option<RunRecord>,
    /// The instance that is joined instead of making one.
    pub(crate) adopted: Option<Adopted>,
    /// The directory for private files, as seen in the instance.
    pub(crate) directory: PathBuf,
    pub(crate) contributions: Vec<(Arc<dyn Preparer>, Contribution)>,
    pub(crate) workspace: Workspace,
    pub(crate) composition: Composition,
    pub(crate) agent: Option<PlannedAgent>,
    /// Those of the agent's profile.
    pub(crate) caches: Vec<ManagedCache>,
    /// Those of the request, or those of the run that is gone on with, where they did not all run.
    pub(crate) setup: Vec<Script>,
    pub(crate) warnings: Vec<String>,
}

impl Plan {
    /// Returns the run to be.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns the attempt to be.
    pub fn attempt(&self) -> AttemptId {
        self.attempt
    }

    /// Returns the session.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Returns the executor's name.
    pub fn executor(&self) -> &ExecutorName {
        &self.registration.name
    }

    /// Returns whether an instance that is up is joined, and none is made.
    pub fn joins(&self) -> bool {
        self.adopted.is_some()
    }

    /// Returns the instance to be, or the one that is joined.
    pub(crate) fn instance(&self) -> InstanceId {
        match &self.adopted {
            Some(adopted) => adopted.owner.instance.clone(),
            None => self.attempt.instance(),
        }
    }

    /// Returns the name of the agent's process, where it is not the usual one.
    pub(crate) fn process(&self) -> Option<ProcessId> {
        let adopted = self.adopted.as_ref()?;
        self.agent.as_ref().map(|_| adopted.process.clone())
    }

    /// Returns whether the run's own workspace gets its agent.
    pub(crate) fn promotes(&self) -> bool {
        let adopted = self.adopted.as_ref();
        adopted.is_some_and(|adopted| adopted.owner.run == self.run)
    }

    /// Returns what the run shares under.
    pub(crate) fn share_key(&self) -> Option<&ShareKey> {
        match &self.prior {
            Some(prior) => prior.share_key.as_ref(),
            None => self.request.share_key.as_ref(),
        }
    }

    /// Returns the workspace to be.
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// Returns what was asked for.
    pub fn request(&self) -> &LaunchRequest {
        &self.request
    }

    /// Returns the decided variables; secrets by name only.
    pub fn composition(&self) -> &Composition {
        &self.composition
    }

    /// Returns the directories for caches that the run gets: none where it does not see the host's paths.
    pub fn caches(&self) -> impl Iterator<Item = &ManagedCache> {
        let here = self.registration.executor.capabilities().host_paths;
        let caches = self.caches.iter().chain(&self.request.caches);
        caches.filter(move |_| here)
    }

    /// Returns the scripts that will run before the agent starts, in order.
    pub fn setup(&self) -> &[Script] {
        &self.setup
    }

    /// Returns the agent that is started, if one is.
    pub fn agent(&self) -> Option<&PlannedAgent> {
        self.agent.as_ref()
    }

    /// Returns whether the executor says that it returns secrets: their removal is armed then.
    pub(crate) fn returns_secrets(&self) -> bool {
        self.registration.executor.capabilities().runtime_secrets
    }

    /// Returns the secrets that the environment is made with, by name, each once.
    pub fn secrets(&self) -> Vec<SecretId> {
        let names: BTreeSet<_> = self
            .composition
            .definitions()
            .filter_map(|definition| match &definition.value {
                Value::Secret(secret) => Some(secret.clone()),
                Value::Literal(_) => None,
            })
            .collect();
        names.into_iter().collect()
    }

    /// Returns what a person should know.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the steps in their order.
    pub fn steps(&self) -> Vec<Step> {
        let names: Vec<_> = self
            .contributions
            .iter()
            .map(|(preparer, _)| preparer.name().clone())
            .collect();
        let mut steps = vec![Step::Reserve, Step::Reveal];
        if self.joins() {
            steps.extend([
                Step::Connect,
                Step::Equip,
                Step::Admit,
                Step::Register,
                Step::AdmitAgain,
            ]);
            if self.agent.is_some() {
                steps.push(Step::Start);
            }
            steps.push(Step::Commit);
            return steps;
        }
        steps.extend(names.iter().cloned().map(Step::Prepare));
        steps.extend([Step::Create, Step::Connect]);
        steps.extend(names.into_iter().map(Step::Populate));
        steps.extend([
            Step::Equip,
            Step::Setup,
            Step::Admit,
            Step::Register,
            Step::AdmitAgain,
        ]);
        if self.agent.is_some() {
            steps.push(Step::Start);
        }
        steps.push(Step::Commit);
        steps
    }

    /// Returns what the executor will be asked to make.
    pub fn instance_spec(&self, install: &InstallId) -> InstanceSpec {
        InstanceSpec {
            install: install.clone(),
            run: self.run.clone(),
            session: self.session.clone(),
            workspace: Some(self.workspace.path.clone()),
            shared: self
                .contributions
                .iter()
                .flat_map(|(_, contribution)| contribution.shared.clone())
                .collect(),
            lease: Lease::UNTIL_COMMIT,
            limits: self.request.limits,
            options: self.request.options.clone(),
        }
    }

    /// Returns a record for everything that will be made, in the order of making.
    pub fn records(&self) -> Vec<UndoRecord> {
        if let Some(adopted) = &self.adopted {
            // What was there before is not ours to take away.
            let agent = self.agent.as_ref();
            return agent
                .map(|_| adopted.record(self.attempt))
                .into_iter()
                .collect();
        }
        let made = self
            .contributions
            .iter()
            .flat_map(|(preparer, contribution)| {
                let resources = contribution.resources.iter();
                resources.map(|resource| resource.record(preparer.name(), self.attempt, None))
            });
        let instance = self.attempt.instance();
        let instance = UndoRecord {
            key: INSTANCE_KEY.to_owned(),
            attempt: self.attempt,
            component: Component::Executor(self.registration.name.clone()),
            label: format!("instance {instance}"),
            resource: instance.to_string(),
            due: Due::End,
            depends_on: Vec::new(),
            identity: None,
        };
        // They may be what reaches the instance, so they go after it.
        let secrets = UndoRecord {
            key: RUNTIME_SECRETS_KEY.to_owned(),
            attempt: self.attempt,
            component: Component::RuntimeSecrets,
            label: format!("secrets of {}", self.attempt.instance()),
            resource: self.attempt.to_string(),
            due: Due::End,
            depends_on: vec![INSTANCE_KEY.to_owned()],
            identity: None,
        };
        made.chain(self.returns_secrets().then_some(secrets))
            .chain([instance])
            .collect()
    }
}

/// Everything that is wrong with a request.
#[derive(Debug)]
pub struct PlanError {
    /// Each problem; at least one.
    pub problems: Vec<Error>,
    /// Variables that could not be decided; each is among the problems as well.
    pub conflicts: Vec<Conflict>,
}

impl PlanError {
    /// Returns the kind of the first problem.
    pub fn kind(&self) -> ErrorKind {
        self.problems
            .first()
            .map_or(ErrorKind::InvalidInput, Error::kind)
    }
}

impl From<Error> for PlanError {
    fn from(error: Error) -> Self {
        Self {
            problems: vec![error],
            conflicts: Vec::new(),
        }
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{}", Chain(problem))?;
        }
        Ok(())
    }
}

impl StdError for PlanError {}

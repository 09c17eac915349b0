//! A preparer whose resources are things in a memory world.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use groundcrew_core::{
    env::Definition,
    error::{Error, ErrorKind},
    id::PreparerName,
    identity::Presence,
    instance::Instance,
    preparer::{ApplyContext, Contribution, Found, PlanContext, PlannedResource, Preparer},
    undo::{Assessment, Due, UndoOptions, UndoRecord, Undone},
    workspace::{Finding, Workspace, WorkspaceReport},
};

use super::{ground::Thing, world::MemoryWorld};

/// One resource that a memory preparer makes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryResource {
    /// Its key; the one called `tree` is the workspace.
    pub key: String,
    /// When it is taken away.
    pub due: Due,
    /// The keys of this preparer's resources that must be gone before.
    pub depends_on: Vec<String>,
}

impl MemoryResource {
    /// Describes a resource.
    pub fn new(key: &str, due: Due, depends_on: &[&str]) -> Self {
        Self {
            key: key.to_owned(),
            due,
            depends_on: depends_on.iter().map(|key| (*key).to_owned()).collect(),
        }
    }
}

/// A preparer in memory.
///
/// * It makes its resources one after the other and passes the checkpoint `KEY-made` behind each, before it tells its identity.
/// * Resources are made exclusively and carry the attempt's mark; a name is `PREPARER/RUN/KEY`.
/// * A tree that was written into is kept; what depends on it is not protected by this preparer, only by the engine's order.
#[derive(Clone, Debug)]
pub struct MemoryPreparer {
    world: MemoryWorld,
    name: PreparerName,
    resources: Vec<MemoryResource>,
    environment: Vec<Definition>,
    warnings: Vec<String>,
    problem: Option<(ErrorKind, String)>,
    concerned: bool,
    loses: bool,
}

impl MemoryPreparer {
    /// Makes one of a single resource without a workspace.
    pub fn new(world: &MemoryWorld, name: PreparerName) -> Self {
        Self {
            world: world.clone(),
            name,
            resources: vec![MemoryResource::new("thing", Due::Close, &[])],
            environment: Vec::new(),
            warnings: Vec::new(),
            problem: None,
            concerned: true,
            loses: false,
        }
    }

    /// Makes one of a workspace: a directory, in it a tree, and a branch that the tree stands on.
    pub fn workspace(world: &MemoryWorld, name: PreparerName) -> Self {
        Self::new(world, name).with_resources(vec![
            MemoryResource::new("directory", Due::Close, &["tree"]),
            MemoryResource::new("branch", Due::Remove, &["tree"]),
            MemoryResource::new("tree", Due::Close, &[]),
        ])
    }

    /// Sets the resources, in the order of making.
    #[must_use]
    pub fn with_resources(mut self, resources: Vec<MemoryResource>) -> Self {
        self.resources = resources;
        self
    }

    /// Sets the variables that it contributes.
    #[must_use]
    pub fn with_environment(mut self, environment: Vec<Definition>) -> Self {
        self.environment = environment;
        self
    }

    /// Sets what its plans warn of.
    #[must_use]
    pub fn with_warning(mut self, warning: &str) -> Self {
        self.warnings.push(warning.to_owned());
        self
    }

    /// Makes its plans fail.
    #[must_use]
    pub fn with_problem(mut self, kind: ErrorKind, message: &str) -> Self {
        self.problem = Some((kind, message.to_owned()));
        self
    }

    /// Makes no request concern it.
    #[must_use]
    pub fn unconcerned(mut self) -> Self {
        self.concerned = false;
        self
    }

    /// Makes every workspace that it opens again one of which something is gone, and can be made again.
    #[must_use]
    pub fn losing(mut self) -> Self {
        self.loses = true;
        self
    }

    fn root(&self, run: &str) -> PathBuf {
        Path::new("/memory").join(self.name.as_str()).join(run)
    }

    fn call(&self, verb: &str) {
        self.world.ground.call(format!("{}.{verb}", self.name));
    }

    fn tree(&self, workspace: &Path) -> Option<Thing> {
        self.world
            .things()
            .into_iter()
            .find(|(name, thing)| name.ends_with("/tree") && thing.workspace == workspace)
            .map(|(_, thing)| thing)
    }
}

/// Returns what would be lost with a thing.
fn losses(thing: &Thing) -> Vec<Finding> {
    if thing.written.is_empty() {
        return Vec::new();
    }
    vec![Finding {
        what: "untracked".to_owned(),
        items: thing.written.iter().take(20).cloned().collect(),
        count: thing.written.len(),
    }]
}

#[async_trait]
impl Preparer for MemoryPreparer {
    fn name(&self) -> &PreparerName {
        &self.name
    }

    async fn plan(&self, cx: PlanContext<'_>) -> Result<Option<Contribution>, Error> {
        if let Some((kind, message)) = &self.problem {
            return Err(Error::new(*kind, message.clone()).with("preparer", &self.name));
        }
        if !self.concerned {
            return Ok(None);
        }
        let root = self.root(cx.run.as_str());
        let resources: Vec<_> = self
            .resources
            .iter()
            .map(|resource| PlannedResource {
                key: resource.key.clone(),
                resource: format!("{}/{}/{}", self.name, cx.run, resource.key),
                label: format!("{} of {}", resource.key, self.name),
                due: resource.due,
                depends_on: resource.depends_on.clone(),
            })
            .collect();
        let workspace = resources
            .iter()
            .any(|resource| resource.key == "tree")
            .then(|| Workspace {
                kind: "memory".to_owned(),
                preparer: self.name.clone(),
                path: root.clone(),
                directory: root.clone(),
                repository: None,
                branch: None,
                base: None,
                owned: true,
                repositories: Vec::new(),
            });
        Ok(Some(Contribution {
            workspace,
            shared: Vec::new(),
            environment: self.environment.clone(),
            resources,
            warnings: self.warnings.clone(),
            state: root.display().to_string(),
        }))
    }

    async fn reopen(
        &self,
        workspace: &Workspace,
        _: PlanContext<'_>,
    ) -> Result<Contribution, Error> {
        self.call("reopen");
        self.world.ground.known()?;
        match self.tree(&workspace.path) {
            Some(tree) if tree.attempt.is_some() => Ok(Contribution {
                environment: self.environment.clone(),
                warnings: self.warnings.clone(),
                state: if self.loses { "gone" } else { "" }.to_owned(),
                ..Contribution::default()
            }),
            Some(_) => Err(Error::new(
                ErrorKind::InvalidInput,
                "the workspace is not the one that was made",
            )
            .with("path", workspace.path.display())),
            None => Err(Error::new(ErrorKind::NotFound, "the workspace is gone")
                .with("path", workspace.path.display())),
        }
    }

    async fn ensure(&self, owned: &[UndoRecord], cx: ApplyContext<'_>) -> Result<(), Error> {
        for record in owned {
            self.call(&format!("ensure {}", record.key));
            let Some(thing) = self.world.ground.thing(&record.resource) else {
                continue;
            };
            cx.effects.identify(&record.key, thing.identity).await?;
        }
        Ok(())
    }

    async fn apply(&self, cx: ApplyContext<'_>) -> Result<(), Error> {
        self.call("apply");
        for planned in &cx.contribution.resources {
            if cx.cancel.is_cancelled() {
                return Err(Error::new(
                    ErrorKind::Cancelled,
                    "the preparation was cancelled",
                ));
            }
            cx.progress.line(&format!("making {}", planned.label));
            let identity = self.world.ground.identity();
            self.world.ground.place(
                &planned.resource,
                Thing {
                    attempt: Some(cx.plan.attempt),
                    identity: identity.clone(),
                    workspace: PathBuf::from(&cx.contribution.state),
                    written: Vec::new(),
                },
            )?;
            cx.effects
                .checkpoint(&format!("{}-made", planned.key))
                .await?;
            cx.effects.identify(&planned.key, identity).await?;
        }
        Ok(())
    }

    async fn populate(&self, _: ApplyContext<'_>, _: &dyn Instance) -> Result<(), Error> {
        self.call("populate");
        Ok(())
    }

    async fn deliver(&self, record: &UndoRecord) -> Result<Vec<Finding>, Error> {
        self.call(&format!("deliver {}", record.key));
        Ok(Vec::new())
    }

    async fn assess(&self, record: &UndoRecord, _: UndoOptions) -> Result<Assessment, Error> {
        self.call("assess");
        self.world.ground.known()?;
        let losses = self
            .world
            .ground
            .thing(&record.resource)
            .map(|thing| losses(&thing))
            .unwrap_or_default();
        Ok(Assessment {
            changed: !losses.is_empty(),
            losses,
        })
    }

    async fn undo(&self, record: &UndoRecord, options: UndoOptions) -> Result<Undone, Error> {
        self.call(&format!("undo {}", record.resource));
        self.world.ground.known()?;
        let Some(thing) = self.world.ground.thing(&record.resource) else {
            return Ok(Undone::AlreadyGone);
        };
        if thing.attempt != Some(record.attempt) {
            return Ok(Undone::NotOurs("it carries another mark".to_owned()));
        }
        if record
            .identity
            .as_ref()
            .is_some_and(|known| *known != thing.identity)
        {
            return Ok(Undone::NotOurs(format!("it is {}", thing.identity)));
        }
        let losses = losses(&thing);
        if !losses.is_empty() && !options.force {
            return Ok(Undone::Kept(losses));
        }
        drop(self.world.ground.take(&record.resource));
        let snapshot = (!losses.is_empty()).then(|| format!("snapshot of {}", record.resource));
        Ok(Undone::Removed { snapshot })
    }

    async fn state(&self, record: &UndoRecord) -> Result<Presence, Error> {
        self.call("state");
        if let Some(reason) = self.world.ground.unknown() {
            return Ok(Presence::Unknown(reason));
        }
        Ok(match self.world.ground.thing(&record.resource) {
            Some(thing) => Presence::Present(thing.identity),
            None => Presence::Absent,
        })
    }

    async fn list(&self) -> Result<Vec<Found>, Error> {
        self.world.ground.known()?;
        let prefix = format!("{}/", self.name);
        let ours = |(name, thing): (String, Thing)| {
            (name.starts_with(&prefix) && thing.attempt.is_some()).then_some(Found {
                attempt: thing.attempt,
                label: name,
            })
        };
        Ok(self.world.things().into_iter().filter_map(ours).collect())
    }

    async fn report(&self, workspace: &Workspace) -> Result<WorkspaceReport, Error> {
        self.world.ground.known()?;
        let tree = self.tree(&workspace.path).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "the workspace is gone")
                .with("path", workspace.path.display())
        })?;
        Ok(WorkspaceReport {
            dirty: !tree.written.is_empty(),
            ..WorkspaceReport::default()
        })
    }
}

//! What a case for executors works with: a ground of its own, the executor on it, and what it made there.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use groundcrew_core::{
    command::Command,
    env::{Environment, Key},
    error::{Chain, Error},
    executor::{Created, Executor, InstanceSpec, Limits, Progress},
    id::{AttemptId, InstanceId, ProcessId, RunId, SessionId},
    identity::Presence,
    instance::{Instance, SharedInstance},
    process::{Lease, ProcessSpec},
    wire::OsText,
};

use super::{fixture::ExecutorFixture, leftovers};
use crate::conformance::{
    broken::Broken,
    fixture::{Fixture, Need},
    place::{Ground, Land},
    programs::{self, Program},
};

/// How the executor is made.
pub(super) type Opening = Arc<dyn Fn(&Ground) -> Result<ExecutorFixture, Error> + Send + Sync>;

/// How long taking one instance away may take when a case is over.
const CLEANUP: Duration = Duration::from_mins(1);

/// A ground, the executor on it, and what a case made there.
pub(super) struct Bench {
    land: Land,
    pub(super) open: Opening,
    pub(super) fixture: ExecutorFixture,
    made: Mutex<Vec<InstanceId>>,
}

/// Where progress goes that nobody reads.
pub(super) struct Unheard;

impl Progress for Unheard {
    fn line(&self, _: &str) {}
}

impl Bench {
    pub(super) fn new(open: Opening) -> Result<Self, Broken> {
        let land = Land::new()?;
        let fixture = open(land.ground())?;
        Ok(Self {
            land,
            open,
            fixture,
            made: Mutex::default(),
        })
    }

    pub(super) fn ground(&self) -> &Ground {
        self.land.ground()
    }

    pub(super) fn executor(&self) -> &Arc<dyn Executor> {
        &self.fixture.executor
    }

    /// Makes the executor once more, as after a restart.
    pub(super) fn reopened(&self) -> Result<Arc<dyn Executor>, Broken> {
        Ok((self.open)(self.ground())?.executor)
    }

    /// Makes the executor of another installation in the same place.
    pub(super) fn of_another_installation(&self) -> Result<Arc<dyn Executor>, Broken> {
        Ok((self.open)(&self.ground().of_another()?)?.executor)
    }

    /// Returns an id that nothing has.
    pub(super) fn fresh(&self) -> Result<InstanceId, Broken> {
        let id = AttemptId::generate()?.instance();
        self.adopt(&id);
        Ok(id)
    }

    /// Remembers an id whose instance is taken away at the end.
    pub(super) fn adopt(&self, id: &InstanceId) {
        self.made().push(id.clone());
    }

    fn made(&self) -> std::sync::MutexGuard<'_, Vec<InstanceId>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn spec(&self) -> Result<InstanceSpec, Broken> {
        Ok(instance_spec(
            &self.fixture,
            self.ground(),
            Lease::Unlimited,
        )?)
    }

    /// Makes an instance.
    pub(super) async fn create(&self, id: &InstanceId) -> Result<Created, Broken> {
        Ok(self.executor().create(id, &self.spec()?, &Unheard).await?)
    }

    /// Makes an instance, reaches it, and hands over the variables that commands need.
    pub(super) async fn ready(&self) -> Result<(InstanceId, SharedInstance), Broken> {
        let id = self.fresh()?;
        drop(self.create(&id).await?);
        let instance = self.executor().connect(&id).await?;
        instance
            .set_environment(&environment(&self.fixture, self.ground(), &[])?)
            .await?;
        Ok((id, instance))
    }

    /// Returns the variables that commands need, and some more.
    pub(super) fn environment(&self, more: &[(&str, &[u8])]) -> Result<Environment, Broken> {
        Ok(environment(&self.fixture, self.ground(), more)?)
    }

    pub(super) fn process(&self, program: &Program<'_>) -> Result<ProcessSpec, Broken> {
        Ok(process_spec(&self.fixture, self.ground(), program)?)
    }

    /// Runs a process to its end; returns what it wrote to standard output.
    pub(super) async fn run(
        &self,
        instance: &dyn Instance,
        name: &str,
        spec: &ProcessSpec,
    ) -> Result<Vec<u8>, Broken> {
        let id = ProcessId::new(name)?;
        instance.start(&id, spec).await?;
        crate::conformance::bench::stdout_of(instance, &id).await
    }

    /// Takes away what the case made; returns what is left then.
    pub(super) async fn end(self) -> Vec<String> {
        let mut left = Vec::new();
        let made = std::mem::take(&mut *self.made());
        for id in &made {
            let taken = async {
                match self.executor().state(id).await? {
                    Presence::Absent => Ok(()),
                    _ => self.executor().delete(id, None).await.map(drop),
                }
            };
            match tokio::time::timeout(CLEANUP, taken).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => left.push(format!("instance {id}: {}", Chain(&error))),
                Err(_) => left.push(format!(
                    "instance {id}, which is not taken away in {CLEANUP:?}"
                )),
            }
        }
        let Self {
            land,
            open,
            fixture,
            ..
        } = self;
        let look = fixture.leftovers.clone();
        // A program that the executor runs for itself goes with it.
        drop((open, fixture));
        left.extend(leftovers::after(land.ground(), &made, look.as_ref()).await);
        left
    }
}

/// Cases for instances see the bench as what makes them.
#[async_trait]
impl Fixture for Bench {
    async fn instance(&self) -> Result<SharedInstance, Error> {
        let id = AttemptId::generate()?.instance();
        self.adopt(&id);
        let spec = instance_spec(&self.fixture, self.ground(), Lease::Unlimited)?;
        drop(self.executor().create(&id, &spec, &Unheard).await?);
        self.executor().connect(&id).await
    }

    fn command(&self, program: &Program<'_>) -> Vec<OsText> {
        (self.fixture.command)(program)
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = self.fixture.variables.clone();
        variables.push((leftovers::MARK, leftovers::mark(self.ground())));
        variables
    }

    fn directory(&self) -> PathBuf {
        directory(&self.fixture, self.ground())
    }

    fn has(&self, need: Need) -> bool {
        self.fixture.has(&self.executor().capabilities(), need)
    }
}

fn directory(fixture: &ExecutorFixture, ground: &Ground) -> PathBuf {
    fixture
        .directory
        .clone()
        .unwrap_or_else(|| ground.workspace())
}

/// Describes an instance on a ground.
pub(super) fn instance_spec(
    fixture: &ExecutorFixture,
    ground: &Ground,
    lease: Lease,
) -> Result<InstanceSpec, Error> {
    Ok(InstanceSpec {
        install: ground.install().clone(),
        run: RunId::new("conformance")?,
        session: SessionId::new("conformance")?,
        workspace: Some(ground.workspace()),
        shared: Vec::new(),
        lease,
        limits: Limits::default(),
        options: fixture.options.clone(),
    })
}

/// Returns the variables that commands need, with the mark by which processes are found again.
pub(super) fn environment(
    fixture: &ExecutorFixture,
    ground: &Ground,
    more: &[(&str, &[u8])],
) -> Result<Environment, Error> {
    let mut environment = Environment::new();
    for (key, value) in &fixture.variables {
        environment.set(Key::new(*key)?, value.as_str());
    }
    environment.set(Key::new(leftovers::MARK)?, leftovers::mark(ground));
    for (key, value) in more {
        environment.set(Key::new(*key)?, *value);
    }
    Ok(environment)
}

/// Describes a process that is not the main one, with pipes and an open input.
pub(super) fn process_spec(
    fixture: &ExecutorFixture,
    ground: &Ground,
    program: &Program<'_>,
) -> Result<ProcessSpec, Error> {
    let command = Command::new((fixture.command)(program))?;
    Ok(programs::process(command, directory(fixture, ground)))
}

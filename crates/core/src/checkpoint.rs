//! Points between two effects, by name: where tests make a launch fail, hang or die; programs pass `()`.

use std::fmt;

use async_trait::async_trait;

use crate::{error::Error, event::Step};

/// A point in a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Checkpoint {
    /// The step.
    pub step: Step,
    /// Where in it.
    pub place: Place,
}

/// Where in a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Before its first effect.
    Before,
    /// Between two of its effects, by the name that the component gave.
    Inside(String),
    /// After its last effect.
    After,
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Before => write!(f, "{}.before", self.step),
            Place::Inside(name) => write!(f, "{}.{name}", self.step),
            Place::After => write!(f, "{}.after", self.step),
        }
    }
}

/// Is told of every point that a launch passes.
#[async_trait]
pub trait Checkpoints: fmt::Debug + Send + Sync + 'static {
    /// Passes a point; an error fails the step there.
    async fn pass(&self, point: &Checkpoint) -> Result<(), Error>;
}

/// Lets everything pass.
#[async_trait]
impl Checkpoints for () {
    async fn pass(&self, _: &Checkpoint) -> Result<(), Error> {
        Ok(())
    }
}

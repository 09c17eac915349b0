//! Reading a run to its end: what its agent writes as it comes, and what follows from the end.
//!
//! It holds no lock while output only streams.

use futures_util::StreamExt as _;

use crate::{
    ending::{self, Settled},
    error::Error,
    process::{Frame, Offset, Role},
    shared::Shared,
    store::RunRecord,
};

/// Hands every frame of the agent to `each`, from an offset on, then settles the run.
pub(crate) async fn follow(
    shared: &Shared,
    record: &RunRecord,
    from: Offset,
    mut each: impl FnMut(Frame) -> Result<(), Error> + Send,
) -> Result<Settled, Error> {
    let (instance, agent) = (shared.instance(record).await?, record.agent_process()?);
    let mut frames = instance.attach(&agent, from, Role::Viewer).await?.output;
    while let Some(frame) = frames.next().await {
        each(frame?)?;
    }
    instance.wait(&agent).await?;
    ending::settle(shared, &record.run).await
}

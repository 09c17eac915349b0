//! `stop`: end the processes of a run; its workspace stays.

use crate::{
    args::{Format, StopArgs},
    documents::{Document, Run},
    exit,
    failing::Failing,
    human,
    program::Context,
};
use groundcrew_core::store::RunState;

/// Stops.
///
/// # Errors
///
/// When there is no such run, or something of it could not be ended.
pub(crate) async fn stop(context: &Context, args: &StopArgs) -> Result<u8, Failing> {
    let console = &context.console;
    let crew = context.open(()).await?;
    let record = crew.launcher.find(&args.id).await?;
    let view = crew.launcher.stop(&record.run, args.grace).await?;
    if console.format == Format::Human {
        human::summary(console, &view);
    }
    console.document(&Document::new(Run::new(&view.record, view.report.as_ref())));
    Ok(if view.record.state == RunState::Stuck {
        exit::LEFTOVERS
    } else {
        exit::DONE
    })
}

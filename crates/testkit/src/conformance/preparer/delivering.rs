//! Cases of work that is brought to where it is looked for while the workspace stays.

use groundcrew_core::{preparer::Contribution, undo::UndoRecord, workspace::Workspace};

use super::bench::Bench;
use crate::conformance::broken::{Broken, broken, hold};

fn workspace(planned: &Contribution) -> Result<&Workspace, Broken> {
    match &planned.workspace {
        Some(workspace) => Ok(workspace),
        None => broken!("it plans no workspace"),
    }
}

/// Delivers everything; nothing may stand against it.
async fn deliver(it: &Bench, records: &[UndoRecord]) -> Result<(), Broken> {
    for record in records {
        let against = it.preparer().deliver(record).await?;
        hold!(
            against.is_empty(),
            "against {} stands {against:?}",
            record.key
        );
    }
    Ok(())
}

pub(super) async fn a_delivery_takes_nothing_away(it: &Bench) -> Result<(), Broken> {
    let (planned, told) = it.made().await?;
    let records = it.records(&planned, &told)?;
    let before = it.states(&records).await?;
    // It is asked at the end of each agent of a run, and a run has several.
    for _ in 0..2 {
        deliver(it, &records).await?;
    }
    let after = it.states(&records).await?;
    hold!(
        before == after,
        "before the delivery it is {before:?}, and then {after:?}"
    );
    it.undo_all(&**it.preparer(), &records).await
}

pub(super) async fn what_is_gone_delivers_nothing(it: &Bench) -> Result<(), Broken> {
    let (planned, told) = it.made().await?;
    let records = it.records(&planned, &told)?;
    it.undo_all(&**it.preparer(), &records).await?;
    deliver(it, &records).await?;
    it.nothing_is_there(&records).await
}

pub(super) async fn work_arrives_where_it_is_looked_for(it: &Bench) -> Result<(), Broken> {
    let (planned, told) = it.made().await?;
    let Some(delivery) = &it.fixture.delivery else {
        broken!("nothing says where work is looked for")
    };
    let (records, workspace) = (it.records(&planned, &told)?, workspace(&planned)?);
    // Twice: a run that goes on does more work.
    for turn in ["first", "second"] {
        (delivery.work)(workspace)?;
        // It may be there already, as a commit in a worktree is.
        deliver(it, &records).await?;
        hold!(
            (delivery.arrived)(workspace)?,
            "the {turn} work was delivered, and is not there"
        );
    }
    Ok(())
}

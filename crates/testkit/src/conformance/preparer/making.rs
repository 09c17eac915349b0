//! Cases of planning and making.

use std::collections::BTreeSet;

use groundcrew_core::{cancel::CancelToken, error::ErrorKind, identity::Presence};

use super::bench::{Bench, Told};
use crate::conformance::{
    bench::refused,
    broken::{Broken, broken, hold},
};

pub(super) async fn a_plan_reads_only_and_says_the_same_again(it: &Bench) -> Result<(), Broken> {
    let (one, again) = (it.plan().await?, it.plan().await?);
    hold!(
        one.resources == again.resources
            && one.workspace == again.workspace
            && one.environment == again.environment
            && one.state == again.state,
        "it says {one:?} and then {again:?}"
    );
    let records = it.records(&one, &Told::default())?;
    it.nothing_is_there(&records).await
}

pub(super) async fn what_is_planned_can_be_taken_back_in_order(it: &Bench) -> Result<(), Broken> {
    let planned = it.plan().await?;
    let keys: BTreeSet<&str> = planned.resources.iter().map(|r| r.key.as_str()).collect();
    hold!(
        keys.len() == planned.resources.len(),
        "two resources have one key"
    );
    it.records(&planned, &Told::default())?;
    Ok(())
}

pub(super) async fn what_was_planned_is_made(it: &Bench) -> Result<(), Broken> {
    let (planned, told) = it.made().await?;
    let records = it.records(&planned, &told)?;
    let states = it.states(&records).await?;
    // One that comes to be later, as a branch does with the first work on it, is planned with the rest.
    hold!(
        states.is_empty()
            || states
                .iter()
                .any(|state| matches!(state, Presence::Present(_))),
        "nothing of what it planned is there: {states:?}"
    );
    it.undo_all(&**it.preparer(), &records).await
}

pub(super) async fn each_thing_is_identified(it: &Bench) -> Result<(), Broken> {
    let (planned, told) = it.made().await?;
    let records = it.records(&planned, &told)?;
    for record in &records {
        // What cannot be mistaken by its name alone need not be.
        let Some(identity) = &record.identity else {
            continue;
        };
        let state = it.preparer().state(record).await?;
        hold!(
            state == Presence::Present(identity.clone()),
            "{} was told as {identity} and is {state:?}",
            record.key
        );
    }
    it.undo_all(&**it.preparer(), &records).await
}

pub(super) async fn what_was_made_is_listed(it: &Bench) -> Result<(), Broken> {
    let (planned, told) = it.made().await?;
    let listed = it.preparer().list().await?;
    let ours = listed.iter().any(|found| found.attempt == Some(it.attempt));
    hold!(ours || planned.resources.is_empty(), "it lists {listed:?}");
    let records = it.records(&planned, &told)?;
    it.undo_all(&**it.preparer(), &records).await
}

pub(super) async fn a_workspace_is_reported_and_opened_again(it: &Bench) -> Result<(), Broken> {
    let (planned, told) = it.made().await?;
    let Some(workspace) = &planned.workspace else {
        broken!("it plans no workspace")
    };
    let report = it.preparer().report(workspace).await?;
    hold!(
        !report.dirty && report.commit_count == 0,
        "a new one is {report:?}"
    );
    let again = it.reopen(&planned).await?;
    hold!(
        again.resources.is_empty(),
        "opened again it plans {:?}",
        again.resources
    );
    let records = it.records(&planned, &told)?;
    it.undo_all(&**it.preparer(), &records).await
}

/// One whose loss can be mended says so in its state; nothing else may be taken instead.
pub(super) async fn a_workspace_that_is_gone_is_not_opened(it: &Bench) -> Result<(), Broken> {
    let (planned, told) = it.made().await?;
    let records = it.records(&planned, &told)?;
    it.undo_all(&**it.preparer(), &records).await?;
    if planned
        .workspace
        .as_ref()
        .is_some_and(|workspace| workspace.owned)
        && let Ok(again) = it.reopen(&planned).await
    {
        hold!(
            !again.state.is_empty(),
            "what is gone is opened as {again:?}"
        );
    }
    Ok(())
}

pub(super) async fn a_cancelled_preparation_says_so_and_is_taken_back(
    it: &Bench,
) -> Result<(), Broken> {
    let planned = it.plan().await?;
    let (told, cancel) = (Told::default(), CancelToken::new());
    cancel.cancel();
    let applied = it.apply(&planned, &told, &cancel).await;
    if !planned.resources.is_empty() {
        refused(applied, ErrorKind::Cancelled)?;
    }
    let records = it.records(&planned, &told)?;
    it.undo_all(&**it.preparer(), &records).await
}

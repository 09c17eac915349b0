//! Cases of rolling back: whatever a verb was broken off by, the next one brings it to an end.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use groundcrew_core::{id::ProcessId, identity::Presence, undo::Undone};

use super::{
    bench::{Bench, Unheard},
    controller::Controller,
};
use crate::{
    conformance::{
        broken::{Broken, hold},
        programs::Program,
    },
    polls::drop_after,
};

/// How many instances are made at once.
const MANY: usize = 6;

/// After how many of its waits a verb is broken off.
const WAITS: [usize; 8] = [1, 2, 3, 4, 6, 9, 14, 30];

/// How long after its first word a controller is killed, in milliseconds.
const MOMENTS: [u64; 8] = [0, 1, 2, 4, 8, 15, 30, 60];

pub(super) async fn a_creation_that_is_broken_off_is_taken_back(it: &Bench) -> Result<(), Broken> {
    for waits in WAITS {
        let id = it.fresh()?;
        let spec = it.spec()?;
        let made = drop_after(waits, it.executor().create(&id, &spec, &Unheard)).await;
        let undone = it.executor().delete(&id, None).await?;
        hold!(
            matches!(undone, Undone::Removed { .. } | Undone::AlreadyGone),
            "broken off after {waits} waits ({}), it is {undone:?}",
            if made.is_some() { "made" } else { "not made" }
        );
        let state = it.executor().state(&id).await?;
        hold!(
            state == Presence::Absent,
            "broken off after {waits} waits and deleted, it is {state:?}"
        );
    }
    Ok(())
}

pub(super) async fn a_creation_whose_controller_is_killed_is_taken_back(
    it: &Bench,
) -> Result<(), Broken> {
    for moment in MOMENTS {
        let id = it.fresh()?;
        let mut controller = Controller::create(it, &id, Some(Duration::from_secs(10)))?;
        controller.until("creating").await?;
        tokio::time::sleep(Duration::from_millis(moment)).await;
        controller.kill().await;
        let undone = it.executor().delete(&id, None).await?;
        hold!(
            matches!(undone, Undone::Removed { .. } | Undone::AlreadyGone),
            "killed after {moment} ms, it is {undone:?}"
        );
        let state = it.executor().state(&id).await?;
        hold!(
            state == Presence::Absent,
            "killed after {moment} ms and deleted, it is {state:?}"
        );
    }
    Ok(())
}

pub(super) async fn many_at_once_are_made_and_taken_back(it: &Bench) -> Result<(), Broken> {
    let ids = (0..MANY)
        .map(|_| it.fresh())
        .collect::<Result<Vec<_>, _>>()?;
    try_join_all(ids.iter().map(|id| it.create(id))).await?;
    let listed = it.executor().list().await?.len();
    hold!(listed == MANY, "{MANY} were made, and {listed} are listed");
    let undone = join_all(ids.iter().map(|id| it.executor().delete(id, None))).await;
    for undone in undone {
        let undone = undone?;
        hold!(
            matches!(undone, Undone::Removed { .. }),
            "one was {undone:?}"
        );
    }
    let listed = it.executor().list().await?;
    hold!(listed.is_empty(), "{listed:?} are still listed");
    Ok(())
}

pub(super) async fn a_deletion_that_is_broken_off_is_done_again(it: &Bench) -> Result<(), Broken> {
    for waits in WAITS {
        let (id, instance) = it.ready().await?;
        let p = ProcessId::new("p")?;
        instance.start(&p, &it.process(&Program::Sleep)?).await?;
        drop(drop_after(waits, it.executor().delete(&id, None)).await);
        let undone = it.executor().delete(&id, None).await?;
        hold!(
            matches!(undone, Undone::Removed { .. } | Undone::AlreadyGone),
            "broken off after {waits} waits, the next is {undone:?}"
        );
        let state = it.executor().state(&id).await?;
        hold!(
            state == Presence::Absent,
            "broken off after {waits} waits and done again, it is {state:?}"
        );
    }
    Ok(())
}

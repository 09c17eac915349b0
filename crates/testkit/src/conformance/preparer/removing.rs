//! Cases of taking away, and of what is never taken away.

use groundcrew_core::{
    cancel::CancelToken,
    id::AttemptId,
    identity::{Identity, Presence},
    undo::{Occasion, UndoOptions, Undone},
};

use super::bench::{Bench, FAILURE, Told};
use crate::conformance::broken::{Broken, broken, hold};

/// More than any preparer makes known.
const CALLS: usize = 60;

pub(super) async fn what_was_made_is_taken_away(it: &Bench) -> Result<(), Broken> {
    let (planned, told) = it.made().await?;
    let records = it.records(&planned, &told)?;
    it.undo_all(&**it.preparer(), &records).await
}

pub(super) async fn what_is_gone_already_is_success(it: &Bench) -> Result<(), Broken> {
    let (planned, told) = it.made().await?;
    let records = it.records(&planned, &told)?;
    it.undo_all(&**it.preparer(), &records).await?;
    for record in &records {
        let undone = it.preparer().undo(record, FAILURE).await?;
        hold!(
            undone == Undone::AlreadyGone,
            "{} is {undone:?}",
            record.key
        );
    }
    Ok(())
}

pub(super) async fn what_was_never_made_is_gone_already(it: &Bench) -> Result<(), Broken> {
    let planned = it.plan().await?;
    for record in it.records(&planned, &Told::default())? {
        let undone = it.preparer().undo(&record, FAILURE).await?;
        hold!(
            undone == Undone::AlreadyGone,
            "{} is {undone:?}",
            record.key
        );
    }
    Ok(())
}

pub(super) async fn what_is_half_made_is_taken_away(it: &Bench) -> Result<(), Broken> {
    for call in 1..=CALLS {
        let planned = it.plan().await?;
        let told = Told::failing_at(call);
        let applied = it.apply(&planned, &told, &CancelToken::new()).await;
        let records = it.records(&planned, &told)?;
        it.undo_all(&**it.preparer(), &records).await?;
        if applied.is_ok() {
            return Ok(());
        }
    }
    broken!("it makes more than {CALLS} things known, and fails at each")
}

pub(super) async fn another_process_takes_it_away(it: &Bench) -> Result<(), Broken> {
    let (planned, told) = it.made().await?;
    let records = it.records(&planned, &told)?;
    it.undo_all(&*it.reopened()?, &records).await
}

/// An identity that the preparer could have told of another thing: the same with another last digit.
fn another(identity: &Identity) -> Identity {
    let at = identity.0.rfind(|c: char| c.is_ascii_digit());
    let other = |at: usize| {
        let digit = if identity.0[at..].starts_with('7') {
            "8"
        } else {
            "7"
        };
        let mut text = identity.0.clone();
        text.replace_range(at..=at, digit);
        text
    };
    Identity(at.map_or_else(|| format!("{identity}7"), other))
}

pub(super) async fn another_identity_is_left_alone(it: &Bench) -> Result<(), Broken> {
    let (planned, told) = it.made().await?;
    let records = it.records(&planned, &told)?;
    for record in &records {
        // Nobody ever told of another one of a thing that is not identified.
        let Some(identity) = &record.identity else {
            continue;
        };
        let mut other = record.clone();
        other.identity = Some(another(identity));
        let undone = it.preparer().undo(&other, FAILURE).await?;
        hold!(
            matches!(undone, Undone::NotOurs(_)),
            "{} is {undone:?}",
            record.key
        );
    }
    it.undo_all(&**it.preparer(), &records).await
}

pub(super) async fn another_attempt_is_left_alone(it: &Bench) -> Result<(), Broken> {
    let (planned, told) = it.made().await?;
    let records = it.records(&planned, &told)?;
    let before = it.states(&records).await?;
    for record in &records {
        let mut other = record.clone();
        other.attempt = AttemptId::generate()?;
        other.identity = None;
        // A record that contradicts itself may as well be an error.
        let undone = it.preparer().undo(&other, FAILURE).await;
        hold!(
            !matches!(undone, Ok(Undone::Removed { .. })),
            "{} was removed for another attempt",
            record.key
        );
        let after = it.states(&records).await?;
        hold!(
            before == after,
            "before it is {before:?}, and then {after:?}"
        );
    }
    it.undo_all(&**it.preparer(), &records).await
}

pub(super) async fn an_assessment_reads_only(it: &Bench) -> Result<(), Broken> {
    let (planned, told) = it.made().await?;
    let records = it.records(&planned, &told)?;
    for record in &records {
        let before = it.preparer().state(record).await?;
        let assessment = it.preparer().assess(record, FAILURE).await?;
        hold!(
            assessment.losses.is_empty(),
            "what nobody touched holds {:?}",
            assessment.losses
        );
        let after = it.preparer().state(record).await?;
        hold!(
            before == after,
            "{} was {before:?} and is {after:?}",
            record.key
        );
    }
    it.undo_all(&**it.preparer(), &records).await
}

fn work(it: &Bench, planned: &groundcrew_core::preparer::Contribution) -> Result<(), Broken> {
    let (Some(work), Some(workspace)) = (&it.fixture.work, &planned.workspace) else {
        broken!("there is no workspace to work in")
    };
    Ok(work(workspace)?)
}

pub(super) async fn work_is_kept(it: &Bench) -> Result<(), Broken> {
    let (planned, told) = it.made().await?;
    work(it, &planned)?;
    let mut kept = Vec::new();
    // As the engine does it: what waits for what was kept is not touched.
    for record in it.records(&planned, &told)? {
        if record.depends_on.iter().any(|key| kept.contains(key)) {
            kept.push(record.key);
            continue;
        }
        match it.preparer().undo(&record, FAILURE).await? {
            Undone::Kept(findings) => {
                hold!(!findings.is_empty(), "{} is kept for nothing", record.key);
                let state = it.preparer().state(&record).await?;
                hold!(
                    matches!(state, Presence::Present(_)),
                    "kept, it is {state:?}"
                );
                kept.push(record.key);
            }
            Undone::Removed { .. } | Undone::AlreadyGone => {}
            other => broken!("{} is {other:?}", record.key),
        }
    }
    hold!(!kept.is_empty(), "everything went, the work included");
    Ok(())
}

pub(super) async fn work_is_saved_before_it_goes(it: &Bench) -> Result<(), Broken> {
    let (planned, told) = it.made().await?;
    work(it, &planned)?;
    let options = UndoOptions {
        occasion: Occasion::Remove,
        force: true,
    };
    let mut saved = false;
    for record in it.records(&planned, &told)? {
        match it.preparer().undo(&record, options).await? {
            Undone::Removed { snapshot } => saved |= snapshot.is_some(),
            Undone::Kept(findings) => saved |= !findings.is_empty(),
            _ => {}
        }
    }
    hold!(saved, "the work went, and nothing names where it is saved");
    Ok(())
}

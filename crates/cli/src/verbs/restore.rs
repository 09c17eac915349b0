//! `restore`: brings back what removing a run took away.

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::RunId,
    store::RunState,
};
use groundcrew_preparer::Restored;
use serde::Serialize;

use crate::{
    args::RestoreArgs,
    documents::Document,
    exit,
    failing::Failing,
    paths::absolute,
    program::{Context, Crew},
    text::{Text, printable, printable_os},
};

#[derive(Debug, Serialize)]
struct RestoredDocument {
    id: String,
    /// Whether something was brought back; false if it was there already.
    restored: bool,
    /// The state of the run; none if the work was brought to another place.
    state: Option<RunState>,
    /// Where the work is.
    places: Vec<Text>,
    /// The branches that were made again.
    branches: Vec<String>,
    notes: Vec<String>,
}

/// Brings a run back.
///
/// # Errors
///
/// * When nothing of the run is known, or in the trash.
/// * When something is in the way; nothing is put over it.
pub(crate) async fn restore(context: &Context, args: &RestoreArgs) -> Result<u8, Failing> {
    let crew = context.open(()).await?;
    let surroundings = &context.surroundings;
    match &args.to {
        Some(to) => {
            let to = absolute(to, &surroundings.directory, surroundings.home())?;
            elsewhere(context, &crew, &args.id, to).await
        }
        None => in_place(context, &crew, &args.id).await,
    }
}

async fn in_place(context: &Context, crew: &Crew, id: &str) -> Result<u8, Failing> {
    let record = match crew.launcher.find(id).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(match in_trash(crew, id).await {
                Ok(run) => Error::new(
                    ErrorKind::NotFound,
                    "the run is forgotten; --to DIR brings its work back as a plain worktree",
                )
                .with("run", run)
                .into(),
                Err(_) => error.into(),
            });
        }
        found => found?,
    };
    let run = record.run;
    let done: Mutex<Option<Restored>> = Mutex::default();
    let view = crew
        .launcher
        .restore(&run, || async {
            let restored = crew.upkeep.restore(&run, None).await?;
            let regained = restored.regained.clone();
            *done.lock().unwrap_or_else(PoisonError::into_inner) = Some(restored);
            Ok(regained)
        })
        .await?;
    // Only now is the run's again what the records in the trash speak of.
    let settled = crew.upkeep.settle(&run).await?;
    let restored = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    if restored.is_none() && settled == 0 {
        context.console.note(&format!(
            "nothing of {run} was removed; it is left as it is"
        ));
    }
    tell(context, &run, restored.as_ref(), Some(view.record.state));
    Ok(exit::DONE)
}

async fn elsewhere(context: &Context, crew: &Crew, id: &str, to: PathBuf) -> Result<u8, Failing> {
    let run = match crew.launcher.find(id).await {
        Ok(record) => record.run,
        Err(error) if error.kind() == ErrorKind::NotFound => in_trash(crew, id).await?,
        Err(error) => return Err(error.into()),
    };
    let restored = crew.upkeep.restore(&run, Some(&to)).await?;
    tell(context, &run, Some(&restored), None);
    context
        .console
        .note("it is a plain worktree of yours now: no run owns it, and nothing removes it");
    Ok(exit::DONE)
}

/// Finds a run in the trash by the beginning of its id.
async fn in_trash(crew: &Crew, prefix: &str) -> Result<RunId, Error> {
    let mut runs: Vec<RunId> = crew
        .upkeep
        .trash()
        .await?
        .into_iter()
        .filter_map(|one| one.run)
        .filter(|run| !prefix.is_empty() && run.as_str().starts_with(prefix))
        .collect();
    runs.sort();
    runs.dedup();
    match (runs.pop(), runs.is_empty()) {
        (Some(run), true) => Ok(run),
        (Some(_), false) => Err(Error::new(
            ErrorKind::Ambiguous,
            "several runs in the trash have an id that begins so; give more of it",
        )
        .with("id", prefix)),
        (None, _) => Err(Error::new(
            ErrorKind::NotFound,
            "no run has an id that begins so, and none in the trash; see `trash ls`",
        )
        .with("id", prefix)),
    }
}

fn tell(context: &Context, run: &RunId, restored: Option<&Restored>, state: Option<RunState>) {
    let console = &context.console;
    if let Some(restored) = restored {
        for branch in &restored.branches {
            console.result(&format!("branch {} is there again", printable(branch)));
        }
        for place in &restored.places {
            console.result(&format!("brought back {}", printable_os(place)));
        }
        for note in &restored.notes {
            console.warn(&printable(note));
        }
        if let Some(state) = state {
            console.result(&format!("{run} is {state}"));
        }
    }
    console.document(&Document::new(RestoredDocument {
        id: run.to_string(),
        restored: restored.is_some(),
        state,
        places: restored.map_or_else(Vec::new, |one| one.places.iter().map(Text::os).collect()),
        branches: restored.map_or_else(Vec::new, |one| one.branches.clone()),
        notes: restored.map_or_else(Vec::new, |one| one.notes.clone()),
    }));
}

//! `ls --workspaces`: every directory of a workspace that is there, whose it is, and what proves it.

use groundcrew_core::{RunView, store::AttemptRow};
use groundcrew_preparer::WorkspacePlace;
use serde::Serialize;

use crate::{
    documents::Document,
    exit,
    failing::Failing,
    program::Context,
    text::{Text, printable, printable_os},
};

/// A directory of a workspace.
#[derive(Debug, Serialize)]
struct Place {
    path: Text,
    #[serde(skip)]
    shown: String,
    kind: &'static str,
    /// Its device and inode.
    identity: String,
    /// `run`, `task` or `stray`.
    owner: &'static str,
    /// What proves that: `row` if ours names this very directory, `marker`, or `none`.
    proof: &'static str,
    run: Option<String>,
    state: Option<String>,
    branch: Option<String>,
    /// Whether there is anything but commits in it; none where that cannot be told.
    dirty: Option<bool>,
    commit_count: Option<usize>,
    /// Why its marker does not speak for us, if so.
    note: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct Places {
    workspaces: Vec<Place>,
}

/// Lists workspaces.
///
/// # Errors
///
/// When the state, or a directory of ours, cannot be read.
pub(crate) async fn workspaces(context: &Context) -> Result<u8, Failing> {
    let console = &context.console;
    let crew = context.open(()).await?;
    let attempts = crew.store.attempts().await?;
    let found = crew.upkeep.workspaces().await?;
    let views = crew.launcher.runs().await?;
    let places: Vec<_> = found
        .iter()
        .map(|found| place(found, &views, &attempts))
        .collect();
    for place in &places {
        console.result(&line(place, console.out_style));
    }
    if places.is_empty() {
        console.note("no workspaces");
    }
    console.document(&Document::new(Places { workspaces: places }));
    Ok(exit::DONE)
}

fn place(found: &WorkspacePlace, views: &[RunView], attempts: &[AttemptRow]) -> Place {
    let row = attempts.iter().find(|row| {
        row.armed.iter().any(|armed| {
            let identity = armed.record.identity.as_ref();
            identity.is_some_and(|identity| identity.0 == found.identity)
        })
    });
    let run = row.map(|row| &row.run).or(found.run.as_ref());
    let view = views.iter().find(|view| {
        let record = &view.record;
        let named = Some(&record.run) == run;
        // A task's directory outlives the run that made it; its row is of whoever works in it now.
        let uses = record.state.is_live()
            && record
                .workspace
                .as_ref()
                .is_some_and(|workspace| workspace.path == found.path);
        uses || (named && record.state.is_live() && found.kind != "scratch")
    });
    let (owner, proof) = match (row, view, found.kind, found.unmarked) {
        (Some(_), _, _, _) => ("run", "row"),
        (None, _, "scratch", None) => ("task", "marker"),
        (None, Some(_), _, None) => ("run", "marker"),
        (None, _, _, None) => ("stray", "marker"),
        (None, _, _, Some(_)) => ("stray", "none"),
    };
    let record = view.map(|view| &view.record);
    let report = view.and_then(|view| view.report.as_ref());
    Place {
        path: Text::os(&found.path),
        shown: printable_os(&found.path),
        kind: found.kind,
        identity: found.identity.clone(),
        owner,
        proof,
        run: run.map(ToString::to_string),
        state: record.map(|record| record.state.to_string()),
        branch: record
            .and_then(|record| record.workspace.as_ref())
            .and_then(|workspace| workspace.branch.clone()),
        dirty: report.map(|report| report.dirty),
        commit_count: report.map(|report| report.commit_count),
        note: found.unmarked,
    }
}

fn line(place: &Place, style: crate::style::Style) -> String {
    let size = match (place.dirty, place.commit_count) {
        (Some(dirty), Some(commits)) => {
            let word = if dirty { "dirty" } else { "clean" };
            format!("{word}, {commits} commits")
        }
        _ => "-".to_owned(),
    };
    let owner = match (place.owner, &place.run) {
        ("run", Some(run)) => format!("{run} {}", place.state.as_deref().unwrap_or("-")),
        ("stray", _) => style.yellow("stray"),
        (owner, _) => owner.to_owned(),
    };
    let branch = place.branch.as_deref().unwrap_or("-");
    let mut line = format!(
        "{owner}  {}  {}  {size}  {}  ({}, {})",
        place.kind,
        printable(branch),
        place.shown,
        place.proof,
        place.identity
    );
    if let Some(note) = place.note {
        line.push_str(": ");
        line.push_str(note);
    }
    line
}

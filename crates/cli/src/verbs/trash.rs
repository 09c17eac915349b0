//! `trash`: what was removed by force, or held only ignored files, and may still be brought back.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use groundcrew_preparer::Trashed;
use serde::Serialize;

use crate::{
    args::{TrashArgs, TrashEmptyArgs, TrashVerb},
    documents::{Document, written},
    exit,
    failing::Failing,
    human,
    program::Context,
    text::{Text, printable, printable_os},
};

/// Something in the trash.
#[derive(Debug, Serialize)]
pub(crate) struct TrashedDocument {
    /// Its name in the trash.
    name: String,
    /// Where it is; none if only a snapshot is left.
    place: Option<Text>,
    /// The run that it was of.
    run: Option<String>,
    /// What it was, such as `worktree`.
    kind: Option<String>,
    /// Where it was.
    path: Option<Text>,
    repository: Option<Text>,
    branch: Option<String>,
    /// The commit that the branch was at.
    tip: Option<String>,
    base: Option<String>,
    /// The ref that keeps what was saved of it.
    snapshot: Option<String>,
    /// Since when it is there, RFC 3339.
    since: Option<String>,
    /// Why it may not be deleted, if so.
    stays: Option<String>,
}

impl From<&Trashed> for TrashedDocument {
    fn from(one: &Trashed) -> Self {
        let path = |path: &Option<PathBuf>| path.as_ref().map(Text::os);
        Self {
            name: one.name.clone(),
            place: path(&one.place),
            run: one.run.as_ref().map(ToString::to_string),
            kind: one.kind.clone(),
            path: path(&one.path),
            repository: path(&one.repository),
            branch: one.branch.clone(),
            tip: one.tip.clone(),
            base: one.base.clone(),
            snapshot: one.snapshot.clone(),
            since: one.since.map(written),
            stays: one.stays.clone(),
        }
    }
}

#[derive(Debug, Serialize)]
struct Listed {
    trash: Vec<TrashedDocument>,
}

#[derive(Debug, Serialize)]
struct Emptied {
    dry_run: bool,
    removed: Vec<TrashedDocument>,
    kept: Vec<Stayed>,
}

#[derive(Debug, Serialize)]
struct Stayed {
    #[serde(flatten)]
    what: TrashedDocument,
    why: String,
}

/// Lists or empties the trash.
///
/// # Errors
///
/// When the trash cannot be read.
pub(crate) async fn trash(context: &Context, args: &TrashArgs) -> Result<u8, Failing> {
    match &args.verb {
        TrashVerb::Ls => ls(context).await,
        TrashVerb::Empty(args) => empty(context, args).await,
    }
}

async fn ls(context: &Context) -> Result<u8, Failing> {
    let console = &context.console;
    let crew = context.open(()).await?;
    let all = crew.upkeep.trash().await?;
    for one in &all {
        console.result(&line(one, SystemTime::now()));
    }
    if all.is_empty() {
        console.note("the trash is empty");
    }
    console.document(&Document::new(Listed {
        trash: all.iter().map(Into::into).collect(),
    }));
    Ok(exit::DONE)
}

async fn empty(context: &Context, args: &TrashEmptyArgs) -> Result<u8, Failing> {
    let console = &context.console;
    let crew = context.open(()).await?;
    let older_than = args.older_than.unwrap_or(Duration::ZERO);
    let emptied = crew.upkeep.empty_trash(older_than, args.dry_run).await?;
    let now = SystemTime::now();
    let word = if args.dry_run {
        "would delete"
    } else {
        "deleted"
    };
    for one in &emptied.removed {
        console.result(&format!("{word} {}", line(one, now)));
    }
    for (one, why) in &emptied.kept {
        console.result(&format!("kept {}: {}", line(one, now), printable(why)));
    }
    if emptied.removed.is_empty() && emptied.kept.is_empty() {
        console.note("nothing in the trash is that old");
    }
    let left = !emptied.kept.is_empty() && !args.dry_run;
    console.document(&Document::new(Emptied {
        dry_run: args.dry_run,
        removed: emptied.removed.iter().map(Into::into).collect(),
        kept: emptied
            .kept
            .iter()
            .map(|(what, why)| Stayed {
                what: what.into(),
                why: why.clone(),
            })
            .collect(),
    }));
    Ok(if left { exit::LEFTOVERS } else { exit::DONE })
}

/// Tells something in the trash in a line: whose, what, where it was, since when.
pub(crate) fn line(one: &Trashed, now: SystemTime) -> String {
    let run = one.run.as_ref().map_or("-", |run| run.as_str());
    let kind = one.kind.as_deref().unwrap_or("tree");
    let path = match (&one.path, &one.place) {
        (Some(path), _) | (None, Some(path)) => printable_os(path),
        (None, None) => one.name.clone(),
    };
    let since = one
        .since
        .and_then(|since| since.duration_since(SystemTime::UNIX_EPOCH).ok())
        .and_then(|since| u64::try_from(since.as_millis()).ok())
        .map_or_else(|| "-".to_owned(), |ms| human::age(ms, now));
    let saved = one.snapshot.as_ref().map_or_else(String::new, |snapshot| {
        let only = if one.place.is_none() { "only " } else { "" };
        format!("  ({only}{})", printable(snapshot))
    });
    format!("{run}  {kind}  {path}  {since}{saved}")
}

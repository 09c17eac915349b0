//! `gc`: removes what is old and proven to be ours; what nobody remembers is only named.
//!
//! Everything is listed before anything is removed: a list that is not complete is an error, and nothing goes.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use groundcrew_core::{
    MaintenanceLease, MaintenanceOptions,
    error::{Chain, Error, ErrorKind},
    id::SessionId,
    store::{AttemptPhase, AttemptRow, RunRecord, RunState},
};
use groundcrew_executor_local::OldLogs;
use groundcrew_preparer::Snapshot;
use serde::Serialize;

use super::trash;
use crate::{
    args::GcArgs,
    console::Console,
    conversation::states,
    documents::{Document, Failure},
    exit,
    failing::Failing,
    program::{Context, Crew},
    text::printable,
    variables::caches_directory,
};

/// How old logs and what is in the trash must be if nobody says: 7 days.
const AGE: Duration = Duration::from_hours(7 * 24);

/// What was removed, or would be.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Gone {
    /// `trash`, `logs`, `snapshot`, `conversation`, `lock`, `directory` or `cache`.
    what: &'static str,
    name: String,
}

/// What stays, and why.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Stays {
    what: &'static str,
    name: String,
    why: String,
}

#[derive(Debug, Default, Serialize)]
struct Collected {
    dry_run: bool,
    removed: Vec<Gone>,
    kept: Vec<Stays>,
    /// What should have gone and could not.
    failed: Vec<Stays>,
    /// What carries our mark and nobody remembers; left alone.
    strays: Vec<String>,
    /// Why it ended before it had looked at everything, if it did.
    unfinished: Option<Failure>,
}

impl Collected {
    fn done(&mut self, what: &'static str, name: String, result: Result<(), Error>) {
        match result {
            Ok(()) => self.removed.push(Gone { what, name }),
            Err(error) => self.failed.push(Stays {
                what,
                name,
                why: Chain(&error).to_string(),
            }),
        }
    }

    fn keep(&mut self, what: &'static str, name: impl Into<String>, why: impl Into<String>) {
        self.kept.push(Stays {
            what,
            name: name.into(),
            why: why.into(),
        });
    }
}

/// Everything that could go, read before anything does.
#[derive(Debug)]
struct Inventory {
    runs: Vec<RunRecord>,
    attempts: Vec<AttemptRow>,
    strays: Vec<String>,
    logs: Vec<OldLogs>,
    snapshots: Vec<Snapshot>,
    /// Sessions of which something is kept.
    conversations: BTreeSet<SessionId>,
    caches: Vec<(PathBuf, Vec<String>)>,
}

/// Collects.
///
/// # Errors
///
/// When anything cannot be listed; nothing was removed then. One that ends early tells first what it removed.
pub(crate) async fn gc(context: &Context, args: &GcArgs) -> Result<u8, Failing> {
    let console = &context.console;
    let crew = context.open(()).await?;
    let inventory = inventory(context, &crew, args).await?;
    let lease = if args.dry_run {
        None
    } else {
        Some(Lease::take(&crew).await?)
    };
    let mut collected = Collected {
        dry_run: args.dry_run,
        strays: inventory.strays.clone(),
        ..Collected::default()
    };
    let ended = collect(&crew, args, &inventory, lease.as_ref(), &mut collected).await;
    drop(lease);
    tell(console, &collected);
    let code = match ended {
        Err(failing) => {
            failing.narrate(console);
            collected.unfinished = Some(failing.failure().clone());
            failing.code(false)
        }
        Ok(()) if collected.failed.is_empty() => exit::DONE,
        Ok(()) => exit::LEFTOVERS,
    };
    console.document(&Document::new(collected));
    Ok(code)
}

fn tell(console: &Console, collected: &Collected) {
    let word = if collected.dry_run {
        "would remove"
    } else {
        "removed"
    };
    for gone in &collected.removed {
        console.result(&printable(&format!("{word} {} {}", gone.what, gone.name)));
    }
    for kept in &collected.kept {
        console.result(&printable(&format!(
            "kept {} {}: {}",
            kept.what, kept.name, kept.why
        )));
    }
    for failed in &collected.failed {
        console.result(&printable(&format!(
            "could not remove {} {}: {}",
            failed.what, failed.name, failed.why
        )));
    }
    for stray in &collected.strays {
        console.result(&printable(&format!(
            "{stray} carries our mark and belongs to no run we know; it is left alone"
        )));
    }
    if collected.removed.is_empty() && collected.failed.is_empty() {
        console.note("nothing to remove");
    }
}

/// The right to clear up, and what is at work beside it.
#[derive(Debug)]
struct Lease {
    maintenance: MaintenanceLease,
    beside: Option<String>,
}

impl Lease {
    /// Takes it; beside other work where there is some, since what goes was proven unused one by one.
    async fn take(crew: &Crew) -> Result<Self, Error> {
        let options = MaintenanceOptions::default();
        let busy = match crew.launcher.maintain(options).await {
            Ok(maintenance) => {
                return Ok(Self {
                    maintenance,
                    beside: None,
                });
            }
            Err(error) if error.kind() == ErrorKind::Busy => error,
            Err(error) => return Err(error),
        };
        let options = MaintenanceOptions {
            force: true,
            ..options
        };
        Ok(Self {
            maintenance: crew.launcher.maintain(options).await?,
            beside: Some(busy.to_string()),
        })
    }
}

/// Fails when a launch waits for the end of this.
fn go_on(lease: Option<&Lease>) -> Result<(), Error> {
    match lease {
        Some(lease) if lease.maintenance.is_pre_empted() => Err(Error::new(
            ErrorKind::Busy,
            "a launch began, and goes first; run it again for the rest",
        )),
        _ => Ok(()),
    }
}

/// Reads everything; one thing that cannot be read is an error.
async fn inventory(context: &Context, crew: &Crew, args: &GcArgs) -> Result<Inventory, Failing> {
    crew.store.check().await?;
    let strays = crew.launcher.strays().await?;
    let runs = crew.store.runs().await?;
    let attempts = crew.store.attempts().await?;
    let trash = crew.upkeep.trash().await?;
    crew.upkeep.workspaces().await?;
    crew.upkeep.sweep_locks(true).await?;
    crew.locks.left_over()?;
    crew.upkeep.remove_empty(true).await?;
    let mut repositories: Vec<PathBuf> =
        trash.into_iter().filter_map(|one| one.repository).collect();
    for workspace in runs.iter().filter_map(|run| run.workspace.as_ref()) {
        repositories.extend(workspace.repository.clone());
        let all = workspace.repositories.iter();
        repositories.extend(all.map(|one| one.repository.clone()));
    }
    let snapshots = if args.snapshots_older_than.is_some() {
        crew.upkeep.snapshots(repositories).await?
    } else {
        Vec::new()
    };
    let caches = if args.caches {
        let root = caches_directory(&context.surroundings)?;
        crew.upkeep.directories(&root).await?
    } else {
        Vec::new()
    };
    Ok(Inventory {
        runs,
        attempts,
        strays,
        logs: crew.local.recorded()?,
        snapshots,
        conversations: states::sessions(&crew.home)?,
        caches,
    })
}

async fn collect(
    crew: &Crew,
    args: &GcArgs,
    all: &Inventory,
    lease: Option<&Lease>,
    collected: &mut Collected,
) -> Result<(), Failing> {
    let age = args.older_than.unwrap_or(AGE);
    let now = SystemTime::now();
    let dry = args.dry_run;
    let emptied = crew.upkeep.empty_trash(age, dry).await?;
    for one in &emptied.removed {
        collected.done("trash", trash::line(one, now), Ok(()));
    }
    for (one, why) in &emptied.kept {
        collected.keep("trash", trash::line(one, now), why);
    }
    for logs in &all.logs {
        go_on(lease)?;
        let name = logs.instance.to_string();
        if let Some(why) = keeps_logs(logs, all, age, now) {
            collected.keep("logs", name, why);
        } else {
            let removed = if dry {
                Ok(())
            } else {
                crew.local.remove_recorded(logs)
            };
            collected.done("logs", name, removed);
        }
    }
    if let Some(age) = args.snapshots_older_than {
        for snapshot in &all.snapshots {
            go_on(lease)?;
            let name = format!("{} in {}", snapshot.name, snapshot.repository.display());
            if now.duration_since(snapshot.made).unwrap_or_default() < age {
                collected.keep("snapshot", name, "it is younger");
                continue;
            }
            let result = if dry {
                Ok(())
            } else {
                crew.upkeep.remove_snapshot(snapshot).await
            };
            collected.done("snapshot", name, result);
        }
    }
    for session in &all.conversations {
        go_on(lease)?;
        conversation(crew, all, session, dry, collected).await;
    }
    go_on(lease)?;
    let locks = crew.locks.left_over()?;
    if !dry {
        groundcrew_core::store::LockDirectory::sweep(&*crew.locks).await?;
    }
    for lock in locks.into_iter().chain(crew.upkeep.sweep_locks(dry).await?) {
        collected.done("lock", lock.display().to_string(), Ok(()));
    }
    for directory in crew.upkeep.remove_empty(dry).await? {
        collected.done("directory", directory.display().to_string(), Ok(()));
    }
    caches(crew, all, dry, lease, collected).await
}

/// Removes what is left of a conversation whose run is gone.
async fn conversation(
    crew: &Crew,
    all: &Inventory,
    session: &SessionId,
    dry: bool,
    collected: &mut Collected,
) {
    if goes_on(session, &all.runs, &all.attempts) {
        return;
    }
    // Read again: a run may have begun since.
    let stays = async {
        let runs = crew.store.runs().await?;
        let attempts = crew.store.attempts().await?;
        Ok(goes_on(session, &runs, &attempts))
    };
    let forgotten = if dry {
        Ok(true)
    } else {
        states::forget_unless(&crew.home, session, stays).await
    };
    match forgotten {
        Ok(false) => {}
        forgotten => collected.done("conversation", session.to_string(), forgotten.map(drop)),
    }
}

/// Tells whether a session has a run that can be gone on with, or one that is being launched or taken away.
fn goes_on(session: &SessionId, runs: &[RunRecord], attempts: &[AttemptRow]) -> bool {
    runs.iter()
        .any(|run| run.session == *session && run.state.is_live())
        || attempts.iter().any(|row| row.session == *session)
}

/// Returns why logs stay, if they do.
fn keeps_logs(logs: &OldLogs, all: &Inventory, age: Duration, now: SystemTime) -> Option<String> {
    if logs.up {
        return Some("its instance is there".to_owned());
    }
    let owned = |row: &&AttemptRow| row.attempt.instance() == logs.instance;
    if let Some(row) = all.attempts.iter().find(owned) {
        return Some(format!("run {} owns it", row.run));
    }
    let of = all.runs.iter().find(|run| run.instance == logs.instance);
    match of {
        Some(run) if run.state.is_live() => {
            return Some(format!("run {} is {}", run.run, run.state));
        }
        Some(_) => {}
        // A run that was resumed has logs that its row does not name.
        None => {
            let began = |run: &&RunRecord| {
                run.state.is_live()
                    && SystemTime::UNIX_EPOCH + Duration::from_millis(run.created_ms)
                        <= logs.written
            };
            if let Some(run) = all.runs.iter().find(began) {
                return Some(format!(
                    "it may be of run {}, which is {}",
                    run.run, run.state
                ));
            }
        }
    }
    (now.duration_since(logs.written).unwrap_or_default() < age).then(|| "it is younger".to_owned())
}

async fn caches(
    crew: &Crew,
    all: &Inventory,
    dry: bool,
    lease: Option<&Lease>,
    collected: &mut Collected,
) -> Result<(), Failing> {
    if all.caches.is_empty() {
        return Ok(());
    }
    // Read again: a run may have begun since.
    let runs = crew.store.runs().await?;
    let attempts = crew.store.attempts().await?;
    let at_work = |run: &&RunRecord| {
        use RunState::{Closing, Preparing, Running, Stuck};
        matches!(run.state, Preparing | Running | Closing | Stuck)
    };
    let up = runs.iter().find(at_work);
    let up = up
        .map(|run| format!("run {} is {}", run.run, run.state))
        .or_else(|| {
            let launching = |row: &&AttemptRow| row.phase == AttemptPhase::Launching;
            let row = attempts.iter().find(launching);
            row.map(|row| format!("run {} is being launched", row.run))
        })
        .or_else(|| lease.and_then(|lease| lease.beside.clone()));
    for (path, users) in &all.caches {
        go_on(lease)?;
        let name = path.display().to_string();
        if let Some(why) = &up {
            collected.keep("cache", name, why);
        } else if !users.is_empty() {
            collected.keep(
                "cache",
                name,
                format!("a process uses it: {}", users.join(", ")),
            );
        } else {
            let result = if dry {
                Ok(())
            } else {
                crew.upkeep.remove_directory(path).await
            };
            collected.done("cache", name, result);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use groundcrew_core::id::AttemptId;

    fn logs(written: SystemTime) -> OldLogs {
        OldLogs {
            instance: AttemptId::generate().unwrap().instance(),
            written,
            up: false,
        }
    }

    fn nothing() -> Inventory {
        Inventory {
            runs: Vec::new(),
            attempts: Vec::new(),
            strays: Vec::new(),
            logs: Vec::new(),
            snapshots: Vec::new(),
            conversations: BTreeSet::new(),
            caches: Vec::new(),
        }
    }

    #[test]
    fn logs_stay_while_they_are_young_or_their_instance_is_there() {
        let now = SystemTime::now();
        let old = logs(now - Duration::from_hours(8 * 24));
        assert_eq!(keeps_logs(&old, &nothing(), AGE, now), None);
        let up = OldLogs { up: true, ..old };
        assert!(
            keeps_logs(&up, &nothing(), AGE, now)
                .unwrap()
                .contains("instance")
        );
        let young = logs(now - Duration::from_hours(6 * 24));
        assert!(
            keeps_logs(&young, &nothing(), AGE, now)
                .unwrap()
                .contains("younger")
        );
    }
}

//! The JSON documents: a contract with programs. Fields are added, never renamed or removed, within one schema version.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use groundcrew_core::{
    error::{Error, ErrorReport},
    process::Lease,
    store::{RunRecord, RunState},
    workspace::{Finding, WorkspaceReport},
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{exit, text::Text};

/// The version of all documents and events.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// A document: its version, then its fields.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Document<T> {
    /// The version.
    pub schema_version: u32,
    /// The fields.
    #[serde(flatten)]
    pub fields: T,
}

impl<T> Document<T> {
    /// Wraps fields.
    pub(crate) const fn new(fields: T) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            fields,
        }
    }
}

/// A run, as `run`, `resume`, `show`, `stop` and `ls` tell it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    /// Its id.
    pub id: String,
    /// Its session.
    pub session: String,
    /// Its executor, as requested.
    pub executor: String,
    /// Where it is in its life.
    pub state: RunState,
    /// The root of its workspace; none once it is gone.
    pub workspace: Option<Text>,
    /// The repository that the workspace was made from.
    pub repository: Option<Text>,
    /// The branch.
    pub branch: Option<String>,
    /// The commit that the branch started from.
    pub base: Option<String>,
    /// Commits since the base, newest first; the newest 1,000 at most.
    pub commits: Vec<Commit>,
    /// The code that `run` ends with for its command; none while it runs, or when its end was not seen.
    pub exit_code: Option<u8>,
    /// The signal that ended the command, such as `SIGKILL`.
    pub signal: Option<String>,
    /// How many commits there are in all; none when the workspace could not be read.
    pub commit_count: Option<usize>,
    /// Whether there are changed, untracked or ignored files; none when the workspace could not be read.
    pub dirty: Option<bool>,
    /// The kind of the workspace, such as `worktree`.
    pub kind: Option<String>,
    /// Where the command was started; none once it is gone.
    pub directory: Option<Text>,
    /// The task.
    pub task: String,
    /// The command.
    pub command: Option<Vec<Text>>,
    /// Words that say what it is for.
    pub title: Option<String>,
    /// How many seconds it lives on without a controller; none for ever.
    pub lease_seconds: Option<f64>,
    /// Whether the workspace stays even if nothing was changed.
    pub keep: bool,
    /// When it was asked for, RFC 3339.
    pub created: String,
    /// When its command ended, RFC 3339.
    pub ended: Option<String>,
    /// Why the workspace was kept.
    pub kept: Vec<FindingDocument>,
    /// What went wrong last.
    pub problem: Option<Failure>,
    /// The agent's own name of its conversation, where it holds one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
}

impl Run {
    /// Tells a run.
    pub(crate) fn new(record: &RunRecord, report: Option<&WorkspaceReport>) -> Self {
        let workspace = record.workspace.as_ref();
        let commits = report.map_or_else(Vec::new, |report| {
            let commit = |c: &groundcrew_core::workspace::Commit| Commit {
                id: c.id.clone(),
                subject: c.subject.clone(),
            };
            report.commits.iter().map(commit).collect()
        });
        Self {
            id: record.run.to_string(),
            session: record.session.to_string(),
            executor: record.executor.to_string(),
            state: record.state,
            workspace: workspace.map(|w| Text::os(&w.path)),
            repository: workspace.and_then(|w| w.repository.as_ref()).map(Text::os),
            branch: workspace.and_then(|w| w.branch.clone()),
            base: workspace.and_then(|w| w.base.clone()),
            commits,
            exit_code: record.exit.map(exit::of_command),
            signal: record
                .exit
                .and_then(|exit| exit.signal)
                .map(|signal| signal.to_string()),
            commit_count: report.map(|report| report.commit_count),
            dirty: report.map(|report| report.dirty),
            kind: workspace.map(|w| w.kind.clone()),
            directory: workspace.map(|w| Text::os(&w.directory)),
            task: record.task.to_string(),
            command: record
                .command
                .as_ref()
                .map(|words| words.iter().map(Text::os).collect()),
            title: record.title.clone(),
            lease_seconds: match record.lease {
                Lease::Unlimited => None,
                Lease::After(duration) => Some(duration.as_secs_f64()),
            },
            keep: record.keep,
            created: moment(record.created_ms),
            ended: record.ended_ms.map(moment),
            kept: record.kept.iter().map(FindingDocument::from).collect(),
            problem: record.problem.as_ref().map(Failure::from),
            conversation: record.resume_token.clone().filter(|_| {
                let used = record.agent.as_ref();
                used.is_some_and(|used| used.wishes.conversation)
            }),
        }
    }
}

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Commit {
    /// Its full object id.
    pub id: String,
    /// The first line of its message.
    pub subject: String,
}

/// The answer of `ls`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Runs {
    /// Each run, oldest first.
    pub runs: Vec<Run>,
}

/// One reason to keep something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FindingDocument {
    /// What was found, such as `untracked`.
    pub what: String,
    /// Which ones, 20 at most.
    pub items: Vec<String>,
    /// How many in all.
    pub count: usize,
}

impl From<&Finding> for FindingDocument {
    fn from(finding: &Finding) -> Self {
        Self {
            what: finding.what.clone(),
            items: finding.items.clone(),
            count: finding.count,
        }
    }
}

/// Tells a finding in a few words, such as `2 untracked (a, b)`.
pub(crate) fn in_words(finding: &Finding) -> String {
    let what = finding.what.replace('_', " ");
    let mut items = finding.items.join(", ");
    if finding.count > finding.items.len() {
        items.push_str(", …");
    }
    format!("{} {what} ({items})", finding.count)
}

/// The answer of `close` and `rm`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Closing {
    /// The run.
    pub id: String,
    /// `closed`, `kept`, `refused` or `stuck`.
    pub outcome: &'static str,
    /// What was kept, and why.
    pub kept: Vec<KeptDocument>,
    /// What was removed.
    pub removed: Vec<String>,
    /// The ref that keeps what was removed by force.
    pub snapshot: Option<String>,
    /// What could not be removed yet; it stays owned and is tried again.
    pub stuck: Vec<StuckDocument>,
    /// What became of each teardown script.
    pub teardown: Vec<TeardownDocument>,
}

/// What became of a teardown script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct TeardownDocument {
    /// Its name.
    pub script: String,
    /// The process, which its log is named after.
    pub process: String,
    /// What went wrong, in words.
    pub problem: Option<String>,
}

/// Something that was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct KeptDocument {
    /// What it is, such as `worktree /a/b`.
    pub what: String,
    /// Why, in words.
    pub why: String,
    /// Why, in parts.
    pub findings: Vec<FindingDocument>,
}

impl KeptDocument {
    /// Tells what was kept.
    pub(crate) fn new(what: &str, findings: &[Finding]) -> Self {
        let words: Vec<_> = findings.iter().map(in_words).collect();
        Self {
            what: what.to_owned(),
            why: words.join("; "),
            findings: findings.iter().map(FindingDocument::from).collect(),
        }
    }
}

/// Something that could not be removed yet.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StuckDocument {
    /// What it is.
    pub what: String,
    /// Why, in words.
    pub why: String,
}

/// The document of a failure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Failed {
    /// The failure.
    pub error: Failure,
}

/// A failure.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Failure {
    /// What a program can decide on, such as `not_found`.
    pub kind: String,
    /// Words for people, sources included.
    pub message: String,
    /// The step of the launch that failed.
    pub step: Option<String>,
    /// Names, paths and numbers.
    pub context: Map<String, Value>,
    /// What became of what the launch had made; none where nothing was launched.
    pub rollback: Option<Rollback>,
    /// Each problem, where a request has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Self>,
}

/// What became of what a failed launch had made.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rollback {
    /// Whether nothing is left that was not kept on purpose.
    pub clean: bool,
    /// What became of each thing, in the order of trying.
    pub items: Vec<RollbackItem>,
}

/// What became of one thing.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RollbackItem {
    /// What it is.
    pub what: String,
    /// What became of it, in words.
    pub outcome: String,
}

impl From<&ErrorReport> for Failure {
    fn from(report: &ErrorReport) -> Self {
        let mut message = report.message.clone();
        for source in &report.sources {
            message.push_str(": ");
            message.push_str(source);
        }
        Self {
            kind: report.kind.as_str().to_owned(),
            message,
            context: report
                .context
                .iter()
                .map(|(key, value)| (key.clone(), Value::from(value.clone())))
                .collect(),
            ..Self::default()
        }
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Self::from(&ErrorReport::from(error))
    }
}

/// Writes a moment, in milliseconds since 1970, as RFC 3339.
pub(crate) fn moment(ms: u64) -> String {
    UNIX_EPOCH
        .checked_add(Duration::from_millis(ms))
        .map_or_else(String::new, written)
}

/// Writes a moment as RFC 3339; one that no calendar holds is empty.
pub(crate) fn written(at: SystemTime) -> String {
    // humantime panics behind the year 9999.
    const END: Duration = Duration::from_secs(253_402_300_799);
    match at.duration_since(UNIX_EPOCH) {
        Ok(since) if since <= END => humantime::format_rfc3339_millis(at).to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;

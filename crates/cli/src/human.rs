//! What people are told about a run: how it ended, where its work is, and how to go on.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use groundcrew_core::{
    RunView,
    error::Chain,
    error::Error,
    store::{RunRecord, RunState},
    workspace::WorkspaceReport,
};

use crate::{
    console::Console,
    documents::in_words,
    style::Style,
    text::{printable, printable_os},
};

/// How many commits are shown in a summary.
const SHOWN_COMMITS: usize = 10;

/// Tells on standard error how a run ended and where its work is.
pub(crate) fn summary(console: &Console, view: &RunView) {
    let record = &view.record;
    let style = console.err_style;
    let ended = match record.exit {
        Some(exit) => exit.to_string(),
        None => record.state.to_string(),
    };
    let id = style.bold(record.run.as_str());
    if record.state == RunState::Closed {
        console.note(&format!(
            "{id} {ended}; nothing was changed, so nothing is kept"
        ));
        return;
    }
    console.note(&format!("{id} {ended}"));
    for line in facts(record, view.report.as_ref(), style) {
        console.plain(&line);
    }
    if record.state == RunState::Stuck {
        let why = record.problem.clone().map(Error::from);
        let why = why
            .as_ref()
            .map_or_else(String::new, |why| format!(": {}", Chain(why)));
        console.warn(&printable(&format!(
            "something could not be taken away yet{why}; see `groundcrew recover`"
        )));
    } else {
        let owned = record
            .workspace
            .as_ref()
            .is_some_and(|workspace| workspace.owned);
        let what = if owned { " and its branch" } else { "" };
        console.plain(&format!("  go on      groundcrew resume {}", record.run));
        console.plain(&format!(
            "  remove it  groundcrew rm {}   (the workspace{what})",
            record.run
        ));
    }
}

/// Tells where the work of a run is.
pub(crate) fn facts(
    record: &RunRecord,
    report: Option<&WorkspaceReport>,
    style: Style,
) -> Vec<String> {
    let mut lines = Vec::new();
    let Some(workspace) = &record.workspace else {
        return lines;
    };
    if workspace.owned && record.state == RunState::Closed {
        return lines;
    }
    if let Some(branch) = &workspace.branch {
        let count = report.map_or_else(String::new, |report| match report.commit_count {
            0 => " (no commits)".to_owned(),
            1 => " (1 commit)".to_owned(),
            n => format!(" ({n} commits)"),
        });
        lines.push(format!(
            "  branch     {}{count}",
            style.green(&printable(branch))
        ));
    }
    if let Some(report) = report {
        for commit in report.commits.iter().take(SHOWN_COMMITS) {
            let id = commit.id.get(..10).unwrap_or(&commit.id);
            lines.push(format!(
                "             {} {}",
                style.yellow(id),
                printable(&commit.subject)
            ));
        }
        if report.commit_count > SHOWN_COMMITS {
            lines.push(format!(
                "             … {} more",
                report.commit_count - SHOWN_COMMITS
            ));
        }
    }
    let dirty = match report {
        Some(report) if report.dirty => " (with files that are not committed)",
        _ => "",
    };
    lines.push(format!(
        "  workspace  {}{dirty}",
        printable_os(&workspace.path)
    ));
    lines
}

/// Tells everything about a run, for `show`.
pub(crate) fn details(view: &RunView, style: Style) -> Vec<String> {
    let record = &view.record;
    let mut lines = vec![format!(
        "{} {}",
        style.bold(record.run.as_str()),
        state(record.state, style)
    )];
    let mut fact = |name: &str, value: String| lines.push(format!("  {name:<10} {value}"));
    if let Some(title) = &record.title {
        fact("title", printable(title));
    }
    if let Some(command) = command(record) {
        fact("command", command);
    }
    fact("session", record.session.to_string());
    fact("executor", record.executor.to_string());
    fact("created", crate::documents::moment(record.created_ms));
    if let Some(ended) = record.ended_ms {
        fact("ended", crate::documents::moment(ended));
    }
    if let Some(exit) = record.exit {
        fact("exit", exit.to_string());
    }
    if let Some(workspace) = &record.workspace {
        if let Some(repository) = &workspace.repository {
            fact("repository", printable_os(repository));
        }
        if let Some(base) = &workspace.base {
            fact("base", printable(base));
        }
    }
    for finding in &record.kept {
        fact("kept", printable(&in_words(finding)));
    }
    if let Some(problem) = record.problem.clone().map(Error::from) {
        fact("problem", printable(&Chain(&problem).to_string()));
    }
    lines.extend(facts(record, view.report.as_ref(), style));
    lines
}

/// Tells a state, coloured by whether it needs care.
pub(crate) fn state(state: RunState, style: Style) -> String {
    match state {
        RunState::Running | RunState::Preparing => style.green(state.as_str()),
        RunState::Stuck | RunState::Failed => style.red(state.as_str()),
        RunState::Interrupted | RunState::TimedOut => style.yellow(state.as_str()),
        _ => state.as_str().to_owned(),
    }
}

/// Tells the command of a run, quoted for people.
pub(crate) fn command(record: &RunRecord) -> Option<String> {
    let words = record.command.clone()?;
    let command = groundcrew_core::command::Command::new(words).ok()?;
    Some(command.to_string())
}

/// Tells how long ago something was, roughly.
pub(crate) fn age(ms: u64, now: SystemTime) -> String {
    let then = UNIX_EPOCH
        .checked_add(Duration::from_millis(ms))
        .unwrap_or(now);
    let seconds = now.duration_since(then).unwrap_or_default().as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_rough_and_never_negative() {
        let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(age(1_000, at(0)), "0s");
        assert_eq!(age(0, at(59)), "59s");
        assert_eq!(age(0, at(3_599)), "59m");
        assert_eq!(age(0, at(86_399)), "23h");
        assert_eq!(age(0, at(86_400 * 3)), "3d");
    }
}

//! `close` and `rm`: take away what a run owned, and never work that would be lost.

use groundcrew_core::{CloseOptions, CloseOutcome, CloseReport, error::Error};

use crate::{
    args::{Format, IdArgs, RmArgs},
    console::Console,
    conversation::{self, states},
    documents::{Closing, Document, Failure, KeptDocument, StuckDocument, TeardownDocument},
    exit,
    failing::{Failing, in_words},
    program::Context,
    text::printable,
};

/// Closes a run; its branch stays.
///
/// # Errors
///
/// When there is no such run, or the state cannot be written.
pub(crate) async fn close(context: &Context, args: &IdArgs) -> Result<u8, Failing> {
    take_away(context, &args.id, CloseOptions::default()).await
}

/// Closes a run and removes its branch.
///
/// # Errors
///
/// As for [`close`].
pub(crate) async fn rm(context: &Context, args: &RmArgs) -> Result<u8, Failing> {
    let options = CloseOptions {
        remove: true,
        force: args.force,
    };
    take_away(context, &args.id, options).await
}

async fn take_away(context: &Context, id: &str, options: CloseOptions) -> Result<u8, Failing> {
    let console = &context.console;
    let crew = context.open(()).await?;
    crew.tend(&context.console).await;
    let record = crew.launcher.find(id).await?;
    let report = crew.launcher.close(&record.run, options).await?;
    if report.outcome == CloseOutcome::Closed && conversation::is_conversation(&record) {
        states::forget(&crew.home, &record.session)?;
    }
    if console.format == Format::Human {
        tell(console, &report, options);
    }
    console.document(&Document::new(document(&report)));
    Ok(code(report.outcome))
}

/// Returns the exit code of an outcome.
const fn code(outcome: CloseOutcome) -> u8 {
    match outcome {
        CloseOutcome::Closed => exit::DONE,
        CloseOutcome::Kept | CloseOutcome::Refused => exit::REFUSED,
        CloseOutcome::Stuck => exit::LEFTOVERS,
    }
}

fn document(report: &CloseReport) -> Closing {
    Closing {
        id: report.run.to_string(),
        outcome: report.outcome.as_str(),
        kept: report
            .kept
            .iter()
            .map(|kept| KeptDocument::new(&kept.what, &kept.findings))
            .collect(),
        removed: report.removed.clone(),
        snapshot: report.snapshot.clone(),
        stuck: report
            .stuck
            .iter()
            .map(|(what, error)| StuckDocument {
                what: what.clone(),
                why: in_words(&Failure::from(error)),
            })
            .collect(),
        teardown: report
            .teardown
            .iter()
            .map(|torn| TeardownDocument {
                script: torn.script.clone(),
                process: torn.process.clone(),
                problem: torn.problem(),
            })
            .collect(),
    }
}

fn tell(console: &Console, report: &CloseReport, options: CloseOptions) {
    let style = console.out_style;
    let id = report.run.as_str();
    for torn in &report.teardown {
        if let Some(problem) = torn.problem() {
            let text = format!("teardown script `{}`: {problem}", torn.script);
            console.warn(&printable(&text));
        }
    }
    for removed in &report.removed {
        console.result(&printable(&format!("removed {removed}")));
    }
    for kept in &report.kept {
        let kept = KeptDocument::new(&kept.what, &kept.findings);
        console.result(&printable(&format!("kept {}: {}", kept.what, kept.why)));
    }
    if let Some(snapshot) = &report.snapshot {
        console.result(&format!("what it held is saved in {}", printable(snapshot)));
    }
    for (what, error) in &report.stuck {
        let why = Error::from(error.clone());
        console.result(&printable(&format!(
            "stuck {what}: {}",
            groundcrew_core::error::Chain(&why)
        )));
    }
    match report.outcome {
        CloseOutcome::Closed => console.result(&format!("{} {id}", style.green("closed"))),
        CloseOutcome::Refused => console.note(&format!(
            "{id} is left as it is, for that would be lost; commit or move it, or `groundcrew rm --force {id}` saves it in a snapshot first"
        )),
        CloseOutcome::Kept if options.remove => {
            console.note(&format!("{id} is not gone: something of it would be lost; see `groundcrew rm --force {id}`"));
        }
        CloseOutcome::Kept => {
            console.note(&format!("the processes of {id} have ended; its workspace is kept, for its work is nowhere else"));
        }
        CloseOutcome::Stuck => console.note("what is stuck stays owned and is tried again; see `groundcrew recover`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use groundcrew_core::{Kept, id::RunId, workspace::Finding};

    #[test]
    fn a_refusal_has_its_own_code_and_says_what_would_be_lost() {
        let report = CloseReport {
            run: RunId::new("abc").unwrap(),
            outcome: CloseOutcome::Refused,
            kept: vec![Kept {
                what: "worktree /w".into(),
                findings: vec![Finding {
                    what: "untracked".into(),
                    items: vec!["a".into()],
                    count: 2,
                }],
            }],
            removed: vec![],
            snapshot: None,
            stuck: vec![],
            teardown: vec![],
        };
        assert_eq!(code(report.outcome), 4);
        let json = serde_json::to_string(&Document::new(document(&report))).unwrap();
        assert_eq!(
            json,
            r#"{"schema_version":1,"id":"abc","outcome":"refused","kept":[{"what":"worktree /w","why":"2 untracked (a, …)","findings":[{"what":"untracked","items":["a"],"count":2}]}],"removed":[],"snapshot":null,"stuck":[],"teardown":[]}"#
        );
        assert_eq!(
            [
                CloseOutcome::Closed,
                CloseOutcome::Kept,
                CloseOutcome::Stuck
            ]
            .map(code),
            [0, 4, 5]
        );
    }
}

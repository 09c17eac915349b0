//! `ls` and `show`: runs as they really are; nothing is written.

use std::time::SystemTime;

use groundcrew_core::{RunView, store::RunRecord};

use crate::{
    args::{Format, IdArgs, LsArgs},
    documents::{Document, Run, Runs},
    exit,
    failing::Failing,
    human,
    program::Context,
    style::Style,
    text::{printable, printable_os},
};

/// Lists runs.
///
/// # Errors
///
/// When the state cannot be read.
pub(crate) async fn ls(context: &Context, args: &LsArgs) -> Result<u8, Failing> {
    let console = &context.console;
    let crew = context.open(()).await?;
    let mut views = crew.launcher.runs().await?;
    views.retain(|view| args.all || view.record.state.is_live());
    if console.format == Format::Human {
        for line in table(&views, SystemTime::now(), console.out_style) {
            console.result(&line);
        }
        if views.is_empty() {
            console.note(if args.all {
                "no runs"
            } else {
                "no runs; --all lists closed and failed ones as well"
            });
        }
    }
    let runs = views
        .iter()
        .map(|view| Run::new(&view.record, view.report.as_ref()))
        .collect();
    console.document(&Document::new(Runs { runs }));
    Ok(exit::DONE)
}

/// Shows one run.
///
/// # Errors
///
/// When there is no such run.
pub(crate) async fn show(context: &Context, args: &IdArgs) -> Result<u8, Failing> {
    let console = &context.console;
    let crew = context.open(()).await?;
    let record = crew.launcher.find(&args.id).await?;
    let view = crew.launcher.observe(&record.run).await?;
    for line in human::details(&view, console.out_style) {
        console.result(&line);
    }
    console.document(&Document::new(Run::new(&view.record, view.report.as_ref())));
    Ok(exit::DONE)
}

/// Makes a table: id, state, age, place, words.
fn table(views: &[RunView], now: SystemTime, style: Style) -> Vec<String> {
    if views.is_empty() {
        return Vec::new();
    }
    let mut rows = vec![["ID", "STATE", "AGE", "PLACE", "WHAT"].map(str::to_owned)];
    rows.extend(views.iter().map(|view| {
        let record = &view.record;
        [
            record.run.to_string(),
            record.state.to_string(),
            human::age(record.created_ms, now),
            place(record),
            what(record),
        ]
    }));
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths = [0, 1, 2, 3].map(width);
    rows.iter()
        .enumerate()
        .map(|(index, row)| {
            let pad = |column: usize| {
                let missing = widths[column].saturating_sub(row[column].chars().count());
                format!("{}{}", row[column], " ".repeat(missing))
            };
            if index == 0 {
                return style.faint(&format!(
                    "{}  {}  {}  {}  {}",
                    pad(0),
                    pad(1),
                    pad(2),
                    pad(3),
                    row[4]
                ));
            }
            // Colour is put around the padded word, so that it takes no room.
            let word = pad(1);
            let coloured = human::state(views[index - 1].record.state, style);
            let rest = &word[row[1].len()..];
            format!(
                "{}  {coloured}{rest}  {}  {}  {}",
                pad(0),
                pad(2),
                pad(3),
                row[4]
            )
        })
        .collect()
}

/// Returns where the work is: the branch, else the path.
fn place(record: &RunRecord) -> String {
    match &record.workspace {
        Some(workspace) => match &workspace.branch {
            Some(branch) => printable(branch),
            None => printable_os(&workspace.path),
        },
        None => "-".to_owned(),
    }
}

fn what(record: &RunRecord) -> String {
    match (&record.title, human::command(record)) {
        (Some(title), _) => printable(title),
        (None, Some(command)) => command,
        (None, None) => "-".to_owned(),
    }
}

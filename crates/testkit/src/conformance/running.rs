//! The `main` of a test program that is a suite: every case is a test of its own to `cargo test` and `cargo nextest`.

use std::{io::Write as _, path::PathBuf, process::ExitCode, sync::Arc};

use groundcrew_core::error::{Chain, Error};
use libtest_mimic::{Arguments, Failed};

use super::{
    report::Outcome,
    trial::{Standing, Suite, Trial},
};

/// Runs what the arguments of this program ask for; `--report FILE` also writes the report there.
///
/// A suite that cannot even be set up is one case that fails.
pub(super) fn run(suite: Result<Suite, Error>) -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().collect();
    let file = match report_file(&mut arguments) {
        Ok(file) => file,
        Err(why) => return complain(&why),
    };
    let suite = match suite {
        Ok(suite) => Arc::new(suite),
        Err(error) => return complain(&format!("the suite cannot be set up: {}", Chain(&error))),
    };
    let tests = (0..suite.trials.len()).map(|index| test(&suite, index));
    let conclusion = libtest_mimic::run(&Arguments::from_iter(arguments), tests.collect());
    if let Some(file) = file
        && let Err(why) = write(&suite, &file)
    {
        return complain(&format!("failed to write {}: {why}", file.display()));
    }
    conclusion.exit_code()
}

fn complain(why: &str) -> ExitCode {
    drop(writeln!(std::io::stderr(), "error: {why}"));
    ExitCode::FAILURE
}

/// Takes `--report FILE` out of the arguments.
fn report_file(arguments: &mut Vec<String>) -> Result<Option<PathBuf>, String> {
    let is_report = |argument: &String| argument.split('=').next() == Some("--report");
    let Some(at) = arguments.iter().position(is_report) else {
        return Ok(None);
    };
    let flag = arguments.remove(at);
    if let Some((_, file)) = flag.split_once('=') {
        return Ok(Some(file.into()));
    }
    if at < arguments.len() {
        return Ok(Some(arguments.remove(at).into()));
    }
    Err("--report names no file".to_owned())
}

fn test(suite: &Arc<Suite>, index: usize) -> libtest_mimic::Trial {
    let trial = &suite.trials[index];
    let lacking = matches!(trial.standing, Standing::Lacking(_));
    let suite = Arc::clone(suite);
    libtest_mimic::Trial::test(trial.name.clone(), move || {
        judge(&suite, &suite.trials[index])
    })
    .with_ignored_flag(lacking)
}

fn judge(suite: &Suite, trial: &Trial) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(trial.judge());
    runtime.shutdown_background();
    suite.note(trial.judged(outcome.clone()));
    match outcome {
        Outcome::Failed(why) => Err(Failed::from(format!("{}\n{why}", trial.sentence))),
        _ => Ok(()),
    }
}

/// Writes the report; what this run was not asked for is not in it, and then it certifies nothing.
fn write(suite: &Suite, file: &std::path::Path) -> std::io::Result<()> {
    for trial in &suite.trials {
        if let Standing::Lacking(need) = trial.standing {
            suite.note(trial.judged(Outcome::Skipped(need)));
        }
    }
    let order = |name: &str| suite.trials.iter().position(|trial| trial.name == name);
    let document = suite.with_report(|report| {
        report.cases.sort_by_key(|judged| order(&judged.name));
        report.cases.dedup_by(|a, b| a.name == b.name);
        report.document()
    });
    let mut text = serde_json::to_vec_pretty(&document)?;
    text.push(b'\n');
    std::fs::write(file, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_taken_out_of_the_arguments() {
        let take = |words: &[&str]| {
            let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let file = report_file(&mut words);
            (file, words.join(" "))
        };
        assert_eq!(take(&["p", "x"]), (Ok(None), "p x".to_owned()));
        for words in [&["p", "--report", "f", "x"][..], &["p", "--report=f", "x"]] {
            assert_eq!(take(words), (Ok(Some("f".into())), "p x".to_owned()));
        }
        assert!(take(&["p", "--report"]).0.is_err());
    }
}

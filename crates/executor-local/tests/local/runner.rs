//! Runs the tests of a program that has its own `main`; understands the arguments of `cargo test` and `cargo nextest`.

use std::{
    io::Write as _,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// A test: its name, and what runs it.
pub(crate) type Test = (&'static str, fn());

/// Lists tests under their names; a test that is not listed is dead code, which the compiler tells.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub(crate) const TESTS: &[$crate::runner::Test] =
            &[$((stringify!($name), || $crate::place::block_on($name()))),*];
    };
}
pub(crate) use tests;

#[derive(Default)]
struct Wanted {
    list: bool,
    exact: bool,
    ignored: bool,
    filters: Vec<String>,
    skips: Vec<String>,
    threads: Option<usize>,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Wanted {
    let mut wanted = Wanted::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--list" => wanted.list = true,
            "--exact" => wanted.exact = true,
            "--ignored" => wanted.ignored = true,
            "--skip" => wanted.skips.extend(arguments.next()),
            "--test-threads" => wanted.threads = arguments.next().and_then(|n| n.parse().ok()),
            "--format" | "--color" | "-Z" | "--logfile" => drop(arguments.next()),
            flag if flag.starts_with('-') => {
                if let Some(count) = flag.strip_prefix("--test-threads=") {
                    wanted.threads = count.parse().ok();
                }
            }
            filter => wanted.filters.push(filter.to_owned()),
        }
    }
    wanted
}

/// Prints a line.
pub(crate) fn say(text: std::fmt::Arguments<'_>) {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{text}").expect("standard output");
}

/// Runs the tests that the arguments name, several at once.
pub(crate) fn run(tests: &[Test]) -> ExitCode {
    let wanted = parse(std::env::args().skip(1));
    let matches = |name: &str, filter: &String| {
        if wanted.exact {
            name == filter
        } else {
            name.contains(filter.as_str())
        }
    };
    let chosen: Vec<Test> = tests
        .iter()
        .filter(|(name, _)| wanted.filters.is_empty() || wanted.filters.iter().any(|f| matches(name, f)))
        .filter(|(name, _)| !wanted.skips.iter().any(|f| matches(name, f)))
        // None of them is ignored.
        .filter(|_| !wanted.ignored)
        .copied()
        .collect();
    if wanted.list {
        for (name, _) in &chosen {
            say(format_args!("{name}: test"));
        }
        return ExitCode::SUCCESS;
    }
    say(format_args!("\nrunning {} tests", chosen.len()));
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..wanted.threads.unwrap_or(4).clamp(1, 64) {
            scope.spawn(|| {
                while let Some((name, test)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let passed = std::panic::catch_unwind(*test).is_ok();
                    say(format_args!(
                        "test {name} ... {}",
                        if passed { "ok" } else { "FAILED" }
                    ));
                    if !passed {
                        failed.lock().expect("no test holds it").push(*name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no test holds it");
    let (word, code) = match failed.as_slice() {
        [] => ("ok", ExitCode::SUCCESS),
        _ => ("FAILED", ExitCode::FAILURE),
    };
    for name in &failed {
        say(format_args!("failed: {name}"));
    }
    say(format_args!(
        "\ntest result: {word}. {} passed; {} failed; 0 ignored; 0 measured; {} filtered out\n",
        chosen.len() - failed.len(),
        failed.len(),
        tests.len() - chosen.len(),
    ));
    code
}

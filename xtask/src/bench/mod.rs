//! `cargo xtask bench`: launches against what they are made of, as ratios of one interleaved run.
//!
//! It uses the built command from outside, in a state directory of its own, and takes everything away again. It promises
//! no absolute times: they belong to a machine.

pub(crate) mod clock;
mod containers;
mod ending;
mod many;
pub(crate) mod peer;
mod place;
mod sample;
mod sessions;
mod steps;
pub(crate) mod streams;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::console;
use crate::metadata::Metadata;
use crate::process::{self, Cmd};

use self::place::Place;
use self::sample::{Row, Target};
use self::steps::Steps;

/// How many fsyncs a local launch may wait for.
const MOST_SYNCS: usize = 4;

/// The agent of a bench: writes down when it began to run.
///
/// # Errors
///
/// Fails when the file cannot be written.
pub(crate) fn agent(file: &Path, started: u64) -> Result<()> {
    fs::write(file, started.to_string()).with_context(|| format!("cannot write {}", file.display()))
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    /// All but what takes long.
    Usual,
    /// All.
    Full,
    /// What speaking to an agent costs.
    Sessions,
}

/// Builds the command, unless one is named, and measures it; what a target says is printed and fails nothing.
///
/// # Errors
///
/// Fails when a launch does, or something stays behind.
pub(crate) fn run(
    metadata: &Metadata,
    which: Rows,
    command: Option<PathBuf>,
    iterations: usize,
) -> Result<()> {
    let command = if let Some(command) = command {
        command
            .canonicalize()
            .context("cannot find the program that is to be measured")?
    } else {
        Cmd::cargo(&metadata.workspace_root)
            .args(["build", "--release", "--package", "groundcrew"])
            .check()?;
        metadata.target_directory.join("release/groundcrew")
    };
    let place = Place::new(command)?;
    console::say(format!("in {}", place.path("").display()));
    let measured = match which {
        Rows::Sessions => sessions(&place, metadata, iterations),
        Rows::Usual | Rows::Full => rows(&place, metadata, which == Rows::Full, iterations),
    };
    // Whatever happened, nothing of the bench stays.
    let removed = place.remove();
    measured?;
    removed
}

fn rows(place: &Place, metadata: &Metadata, full: bool, iterations: usize) -> Result<()> {
    console::say(local(place, iterations)?.to_string());
    if process::is_installed("strace") {
        let syncs = place.syncs_until_running()?;
        let word = if syncs <= MOST_SYNCS { "met" } else { "MISSED" };
        console::say(format!(
            "    {syncs} fsyncs on the path; target ≤ {MOST_SYNCS}: {word}"
        ));
    } else {
        console::remark("SKIPPED: fsyncs on the path; there is no strace to count them");
    }
    worktrees(place, 3_000, iterations, 1.0)?;
    if full {
        worktrees(place, 30_000, iterations.div_ceil(3), 0.8)?;
    } else {
        console::remark("SKIPPED: worktree launch at 30,000 files; ask for it with --full");
    }
    if process::is_installed("tmux") {
        console::say(detached(place, iterations)?.to_string());
    } else {
        console::remark("SKIPPED: detached launch; there is no tmux to compare with");
    }
    if process::is_installed("dockerd") && rustix::process::geteuid().is_root() {
        for row in containers::launches(place, metadata, iterations)? {
            console::say(row.to_string());
        }
    } else {
        console::remark("SKIPPED: launches in containers; root and an engine are needed for them");
    }
    console::say(streams::stdout(place, iterations.div_ceil(3))?.to_string());
    sessions(place, metadata, iterations)?;
    console::say(ending::stubborn(place, iterations.div_ceil(3))?.to_string());
    console::say(ending::large(place, iterations.div_ceil(3))?.to_string());
    console::say(many::idle(place)?.to_string());
    Ok(())
}

/// Says what speaking to an agent through the command costs.
fn sessions(place: &Place, metadata: &Metadata, iterations: usize) -> Result<()> {
    sessions::rows(place, metadata, iterations, |row| {
        console::say(row.to_string());
    })
}

fn local(place: &Place, iterations: usize) -> Result<Row> {
    Row::measure(
        "local launch to agent running",
        "bare fork and exec of the same argv",
        Target::OnTop(Duration::from_millis(10)),
        iterations,
        || {
            let mut id = None;
            let taken = place.until_running(|argv| {
                id = Some(place.run(&["--executor", "local"], None, argv)?);
                Ok(())
            })?;
            id.map_or(Ok(()), |id| place.clear(&id, false))?;
            Ok(taken)
        },
        || place.until_running(|argv| place.bare(argv)),
    )
}

/// Says how a worktree launch compares, and where its time goes.
fn worktrees(place: &Place, files: usize, iterations: usize, most: f64) -> Result<()> {
    let repository = place.repository(files)?;
    console::say(worktree(place, &repository, files, iterations, most)?.to_string());
    let mut steps = Steps::default();
    for _ in 0..iterations {
        place.until_running(|argv| {
            let (id, printed) = place.run_telling(&repository, argv)?;
            place.clear(&id, false)?;
            steps.read(&printed)
        })?;
    }
    console::say(steps.to_string());
    Ok(())
}

fn worktree(
    place: &Place,
    repository: &Path,
    files: usize,
    iterations: usize,
    most: f64,
) -> Result<Row> {
    let tree = place.path("tree");
    let git = |arguments: &[&str]| Cmd::new("git").arg("-C").arg(repository).args(arguments);
    Row::measure(
        format!("worktree launch to agent running, {files} files"),
        "`git worktree add` and fork and exec of the same argv",
        Target::Times(most),
        iterations,
        || {
            let mut id = None;
            let taken = place.until_running(|argv| {
                id = Some(place.run(&["--executor", "worktree"], Some(repository), argv)?);
                Ok(())
            })?;
            id.map_or(Ok(()), |id| place.clear(&id, false))?;
            Ok(taken)
        },
        || {
            let taken = place.until_running(|argv| {
                git(&["worktree", "add", "-b", "bench"]).arg(&tree).read()?;
                place.bare(argv)
            })?;
            git(&["worktree", "remove", "--force"]).arg(&tree).read()?;
            git(&["branch", "--quiet", "-D", "bench"]).read()?;
            Ok(taken)
        },
    )
}

fn detached(place: &Place, iterations: usize) -> Result<Row> {
    let argv = ["sleep", "60"].map(PathBuf::from);
    let server = Tmux::start(place)?;
    Row::measure(
        "detached launch, until the command returns",
        "`tmux new-session -d` of the same argv, its server running",
        Target::Times(2.0),
        iterations,
        || {
            let started = Instant::now();
            let id = place.run(&["--executor", "local", "--detach"], None, &argv)?;
            let taken = started.elapsed();
            place.clear(&id, true)?;
            Ok(taken)
        },
        || {
            let started = Instant::now();
            server
                .tmux(&["new-session", "-d", "-s", "bench"])
                .args(&argv)
                .read()?;
            let taken = started.elapsed();
            server.tmux(&["kill-session", "-t", "bench"]).read()?;
            Ok(taken)
        },
    )
}

/// A server of tmux that belongs to this bench; it ends with the value.
struct Tmux {
    socket: PathBuf,
}

impl Tmux {
    fn start(place: &Place) -> Result<Self> {
        let server = Self {
            socket: place.path("tmux"),
        };
        server
            .tmux(&["new-session", "-d", "-s", "first", "sleep", "3600"])
            .read()?;
        Ok(server)
    }

    fn tmux(&self, arguments: &[&str]) -> Cmd {
        Cmd::new("tmux")
            .args(["-f", "/dev/null", "-S"])
            .arg(&self.socket)
            .args(arguments)
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        if let Err(error) = self.tmux(&["kill-server"]).read() {
            console::remark(format!("the server of tmux stays: {error:#}"));
        }
    }
}

//! The command, with points at which a test can make it fail, die or wait; without any, exactly the product's `main`.
//!
//! * `GROUNDCREW_FAULT=create.before=kill9` is a plan of faults.
//! * `GROUNDCREW_HOLD=create.before=/a/file` waits there until the file exists, after it made `/a/file.reached`.
//! * `GROUNDCREW_PASSED=/a/file` adds the name of each point to the file as it is passed.

use std::{
    fs::OpenOptions, io::Write as _, path::PathBuf, process::ExitCode, sync::Arc, time::Duration,
};

use async_trait::async_trait;
use groundcrew::Program;
use groundcrew_core::{
    checkpoint::{Checkpoint, Checkpoints},
    error::{Error, ErrorKind},
};
use groundcrew_testkit::faulty::Faulty;

/// What happens at the points of a launch.
#[derive(Debug)]
struct Points {
    faults: Faulty,
    hold: Option<(String, PathBuf)>,
    passed: Option<PathBuf>,
}

impl Points {
    /// Reads what is wanted; `None` when nothing is.
    fn wanted() -> Result<Option<Self>, Error> {
        let (fault, hold, passed) = (
            variable("GROUNDCREW_FAULT"),
            variable("GROUNDCREW_HOLD"),
            variable("GROUNDCREW_PASSED"),
        );
        if (&fault, &hold, &passed) == (&None, &None, &None) {
            return Ok(None);
        }
        let hold = match hold.as_deref().map(|text| text.split_once('=')) {
            None => None,
            Some(Some((point, file))) => Some((point.to_owned(), PathBuf::from(file))),
            Some(None) => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "a hold is written POINT=FILE",
                ));
            }
        };
        Ok(Some(Self {
            faults: Faulty::new(fault.unwrap_or_default().parse()?),
            hold,
            passed: passed.map(PathBuf::from),
        }))
    }
}

#[async_trait]
impl Checkpoints for Points {
    async fn pass(&self, point: &Checkpoint) -> Result<(), Error> {
        let name = point.to_string();
        let failed = |error| Error::io("the files of the test cannot be written", error);
        if let Some(passed) = &self.passed {
            let mut file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(passed)
                .map_err(failed)?;
            writeln!(file, "{name}").map_err(failed)?;
        }
        if let Some((_, file)) = self.hold.as_ref().filter(|(held, _)| *held == name) {
            std::fs::write(file.with_extension("reached"), "").map_err(failed)?;
            while !file.exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        self.faults.pass(point).await
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests drive this program from outside, as they drive the product; read in one place"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[expect(
    clippy::print_stderr,
    reason = "this program stands outside the product, which would print it"
)]
fn main() -> ExitCode {
    groundcrew_supervisor::run_if_invoked();
    match Points::wanted() {
        Ok(None) => groundcrew::main(Program::default()),
        Ok(Some(points)) => groundcrew::main(Program {
            checkpoints: Arc::new(points),
            ..Program::default()
        }),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(99)
        }
    }
}

//! The part of a controller in a process of its own: what it does until it is killed.

use std::{io::Write as _, process::ExitCode, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use groundcrew_core::{
    error::{Chain, Error, ErrorKind},
    executor::Progress,
    id::{InstallId, InstanceId, ProcessId},
    process::{FrameKind, Lease, Offset, Role},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{
    bench::{Opening, environment, instance_spec, process_spec},
    controller::ARGUMENT,
    faults,
};
use crate::conformance::{place::Ground, programs::Program};

/// Runs this process as a controller if it was started to be one.
pub(super) fn run_if_asked(open: &Opening, arguments: &[String]) -> Option<ExitCode> {
    let [argument, directory, install, rest @ ..] = arguments else {
        return None;
    };
    if argument != ARGUMENT {
        return None;
    }
    let work = || {
        let ground = Ground::new(directory.into(), InstallId::new(install.as_str())?);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|e| Error::io("failed to start a runtime", e))?;
        runtime.block_on(play(open, &ground, rest))
    };
    Some(match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("failed: {}", Chain(&error)));
            ExitCode::FAILURE
        }
    })
}

/// Says a word; nobody may be there any more to hear it.
fn say(word: &str) {
    let mut stdout = std::io::stdout();
    drop(writeln!(stdout, "{word}").and_then(|()| stdout.flush()));
}

struct Aloud;

impl Progress for Aloud {
    fn line(&self, line: &str) {
        say(&format!("progress: {line}"));
    }
}

async fn play(open: &Opening, ground: &Ground, words: &[String]) -> Result<(), Error> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["create", id, lease] => {
            let lease = match lease.parse() {
                Ok(milliseconds) => Lease::After(Duration::from_millis(milliseconds)),
                Err(_) => Lease::Unlimited,
            };
            create(open, ground, &InstanceId::new(*id)?, lease).await
        }
        ["launch", point] => faults::launch_to_death(open(ground)?, ground, point).await,
        _ => Err(Error::new(
            ErrorKind::InvalidInput,
            "no such part for a controller",
        )),
    }
}

async fn create(
    open: &Opening,
    ground: &Ground,
    id: &InstanceId,
    lease: Lease,
) -> Result<(), Error> {
    let fixture = open(ground)?;
    let executor = Arc::clone(&fixture.executor);
    let spec = instance_spec(&fixture, ground, lease)?;
    say("creating");
    drop(executor.create(id, &spec, &Aloud).await?);
    say("created");
    let instance = executor.connect(id).await?;
    instance
        .set_environment(&environment(&fixture, ground, &[])?)
        .await?;
    let p = ProcessId::new("p")?;
    let process = process_spec(&fixture, ground, &Program::Copy)?;
    instance.start(&p, &process).await?;
    let mut stdio = instance.attach(&p, Offset(0), Role::Writer).await?;
    let lost = || Error::new(ErrorKind::Unexpected, "a process cannot be talked to");
    let input = stdio.input.as_mut().ok_or_else(lost)?;
    input
        .write_all(b"before")
        .await
        .map_err(|e| lost().with_source(e))?;
    input.flush().await.map_err(|e| lost().with_source(e))?;
    while let Some(frame) = stdio.output.next().await {
        if matches!(frame?.kind, FrameKind::Stdout(_)) {
            break;
        }
    }
    say("started");
    // Whoever started it kills it, or goes.
    let mut nothing = [0; 1];
    drop(tokio::io::stdin().read(&mut nothing).await);
    Ok(())
}

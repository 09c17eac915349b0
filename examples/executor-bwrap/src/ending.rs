//! Ending an instance: its supervisor is asked; if it does not answer, its namespace is ended with everything in it.

use std::{fs::File, path::Path, sync::Arc, time::Duration};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::InstanceId,
    instance::Instance as _,
};
use groundcrew_supervisor::{SOCKET, START_FILE, StartLock, SupervisorInstance, UnixConnector};

use crate::place::Place;

/// How long processes may take after they were asked to end.
const GRACE: Duration = Duration::from_secs(5);

/// How long the supervisor may take for all of it.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long what was killed may take to vanish.
const VANISH: Duration = Duration::from_secs(10);

/// Ends everything, and returns what keeps a supervisor from coming up again; none where there never was a start file.
///
/// # Errors
///
/// `Unavailable` when it cannot be ended; then the instance is as it was.
pub(crate) async fn end(id: &InstanceId, place: &Place) -> Result<Option<StartLock>, Error> {
    let control = place.control();
    let mut held = lock(&control, Duration::ZERO).await?;
    if held.is_none() {
        // One that is coming up does not listen yet, and is killed: whoever wanted it is gone.
        drop(tokio::time::timeout(PATIENCE, ask(id, &control)).await);
        held = lock(&control, Duration::from_secs(2)).await?;
    }
    // Also what never became a supervisor: bubblewrap waits for ever for a part of itself that was killed.
    kill(&control).await?;
    if let Some(lock) = held {
        return Ok(lock);
    }
    lock(&control, VANISH).await?.ok_or_else(|| {
        Error::new(
            ErrorKind::Unavailable,
            "the instance cannot be ended; it stays",
        )
        .with("instance", id)
    })
}

async fn ask(id: &InstanceId, control: &Path) -> Result<(), Error> {
    let connector = Arc::new(UnixConnector::new(control.join(SOCKET)));
    let instance = SupervisorInstance::connect(connector, id, None).await?;
    instance.shutdown(GRACE).await
}

/// Takes the start file, the sign of life of a supervisor; the inner none is one that is not there.
async fn lock(control: &Path, patience: Duration) -> Result<Option<Option<StartLock>>, Error> {
    let until = tokio::time::Instant::now() + patience;
    loop {
        let Ok(directory) = File::open(control) else {
            return Ok(Some(None));
        };
        match StartLock::try_take(&directory) {
            Ok(Some(lock)) => return Ok(Some(Some(lock))),
            Ok(None) if tokio::time::Instant::now() >= until => return Ok(None),
            // A lock has no event for those who wait without blocking.
            Ok(None) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Some(None)),
            Err(error) => return Err(error),
        }
    }
}

/// Kills all that was started on a start file: the first process of the namespace is among it, and takes the rest along.
async fn kill(control: &Path) -> Result<(), Error> {
    let start_file = control.join(START_FILE);
    let failed = |e| Error::io("failed to look for the processes of an instance", e);
    for entry in std::fs::read_dir("/proc").map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let words = std::fs::read(path.join("cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        let is_its = words.any(|word| word == start_file.as_os_str().as_encoded_bytes());
        if let (true, Some(pid)) = (is_its, path.file_name()) {
            #[expect(
                clippy::disallowed_methods,
                reason = "std has no call that sends a signal"
            )]
            let mut command = tokio::process::Command::new("kill");
            let killed = command.arg("-KILL").arg(pid).status().await;
            killed.map_err(|e| Error::io("failed to kill a process of an instance", e))?;
        }
    }
    Ok(())
}

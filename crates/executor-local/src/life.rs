//! Ending an instance: politely through its supervisor, else by ending the supervisor and sweeping up behind it.

use std::{sync::Arc, time::Duration};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::InstanceId,
    instance::Instance as _,
};
use groundcrew_supervisor::{SOCKET, StartLock, SupervisorInstance, UnixConnector, end_remains};
use rustix::process::Signal;

use crate::{holder, instance_directory::InstanceDirectory};

/// How long processes may take after they were asked to end.
const GRACE: Duration = Duration::from_secs(10);

/// How long the supervisor may take on top of that to kill what is left and to answer.
const ANSWER: Duration = Duration::from_secs(15);

/// How long a killed process may take to vanish.
const VANISH: Duration = Duration::from_secs(10);

/// Ends everything in an instance, and returns the lock that keeps a supervisor from coming up again.
///
/// # Errors
///
/// What could not be ended, named; then the instance is as it was.
pub(crate) async fn end(
    directory: &InstanceDirectory,
    id: &InstanceId,
) -> Result<StartLock, Error> {
    let lock = match StartLock::try_take(directory.fd())? {
        Some(lock) => lock,
        None => end_supervisor(directory, id).await?,
    };
    if let Some(cgroup) = directory.cgroup()? {
        end_remains(&cgroup, id, VANISH).await?;
    }
    Ok(lock)
}

async fn end_supervisor(
    directory: &InstanceDirectory,
    id: &InstanceId,
) -> Result<StartLock, Error> {
    let asked = tokio::time::timeout(GRACE + ANSWER, ask(directory, id)).await;
    let why = match asked {
        Ok(Ok(())) => None,
        // It lives, it tried, and it still owns them: killing it would only lose sight of them.
        Ok(Err(error)) if error.get(SURVIVORS).is_some() => return Err(error.with("instance", id)),
        Ok(Err(error)) => Some(error),
        Err(_) => Some(Error::new(
            ErrorKind::TimedOut,
            "the supervisor does not answer",
        )),
    };
    if why.is_none() {
        // It ends within moments; where it can be found, its end is awaited and not looked for again and again.
        if let Ok(Some(holder)) = holder::find(directory.fd(), directory.path()) {
            holder.ended(VANISH).await;
        }
        if let Some(lock) = wait_for_lock(directory, VANISH).await? {
            return Ok(lock);
        }
    }
    for (signal, patience) in [(Signal::TERM, GRACE + ANSWER), (Signal::KILL, VANISH)] {
        if let Some(lock) = StartLock::try_take(directory.fd())? {
            return Ok(lock);
        }
        let Some(holder) = holder::find(directory.fd(), directory.path())? else {
            // Gone between the two looks, or held by something that is no supervisor.
            match wait_for_lock(directory, Duration::from_secs(1)).await? {
                Some(lock) => return Ok(lock),
                None => break,
            }
        };
        match rustix::process::pidfd_send_signal(&holder.handle, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(errno) => {
                return Err(Error::io("failed to signal the supervisor", errno.into())
                    .with("instance", id)
                    .with("pid", holder.pid));
            }
        }
        if let Some(lock) = wait_for_lock(directory, patience).await? {
            return Ok(lock);
        }
    }
    let error = Error::new(
        ErrorKind::Unavailable,
        "the supervisor could not be ended; its instance stays",
    )
    .with("instance", id);
    Err(match why {
        Some(why) => error.with_source(why),
        None => error,
    })
}

/// The context of an error that names processes which did not end.
const SURVIVORS: &str = "survivors";

async fn ask(directory: &InstanceDirectory, id: &InstanceId) -> Result<(), Error> {
    let connector = Arc::new(UnixConnector::new(directory.path().join(SOCKET)));
    let instance = SupervisorInstance::connect(connector, id, None).await?;
    instance.shutdown(GRACE).await
}

/// Waits until nobody has the start file; a lock has no event, so it is looked at in growing steps.
async fn wait_for_lock(
    directory: &InstanceDirectory,
    patience: Duration,
) -> Result<Option<StartLock>, Error> {
    let deadline = tokio::time::Instant::now() + patience;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(lock) = StartLock::try_take(directory.fd())? {
            return Ok(Some(lock));
        }
        if tokio::time::Instant::now() >= deadline {
            return Ok(None);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

//! The beginning and the end of a container: waiting until its supervisor is up, and taking it away whatever it is.

use std::{collections::HashMap, path::Path, time::Duration};

use groundcrew_core::{
    error::{Error, ErrorKind, ErrorReport},
    id::{InstallId, InstanceId},
    identity::Identity,
};
use groundcrew_supervisor::{Connector as _, SOCKET, UnixConnector};
use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    engine::{Engine, Listed, said},
    labels::{ATTEMPT, CARRIER, INSTALL, Labels, ROLE},
    volumes::{self, Volume},
};

/// How long a container's supervisor may take to come up.
const UP_TIME: Duration = Duration::from_secs(30);

/// How long processes may take after they were asked to end, the supervisor's own killing included.
const GRACE: Duration = Duration::from_secs(25);

/// How long a container is looked for that the engine was asked for and nobody saw: since it was asked, and since it answers.
pub(crate) const LATE: Duration = Duration::from_secs(5);

/// How long a container may seem to run whose supervisor listens no more.
pub(crate) const GOING: Duration = Duration::from_secs(10);

/// How long the looks are apart.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// The first word of a supervisor, which the engine keeps.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FirstWord {
    Ready {},
    Failed(ErrorReport),
}

/// Waits until the supervisor of a container listens; the container's own end is noticed meanwhile.
///
/// Where its control directory is not at hand, its first word tells that it does.
///
/// # Errors
///
/// Why it did not come up: its own words, the exit code, or that memory ran out.
pub(crate) async fn up(
    engine: &Engine,
    container: &str,
    control: Option<&Path>,
) -> Result<(), Error> {
    let come = async {
        match control {
            Some(control) => {
                listens(&UnixConnector::new(control.join(SOCKET))).await;
                Ok(())
            }
            None => ready(engine, container).await,
        }
    };
    tokio::select! {
        biased;
        come = come => come,
        ended = engine.ended(container) => {
            ended?;
            Err(why(engine, container).await)
        }
        () = tokio::time::sleep(UP_TIME) => Err(Error::new(
            ErrorKind::TimedOut,
            "the container runs, but its supervisor did not come up in time; if the engine is in another machine that only shares files, use --control exec",
        )
        .with("container", container)
        .with("seconds", UP_TIME.as_secs())),
    }
}

/// Waits for the first word of a supervisor, which the engine keeps.
async fn ready(engine: &Engine, container: &str) -> Result<(), Error> {
    match engine.first_line(container).await? {
        Some(line) if matches!(serde_json::from_str(&line), Ok(FirstWord::Ready {})) => Ok(()),
        // It ends, or has ended; the container tells the rest.
        _ => {
            engine.ended(container).await?;
            Err(why(engine, container).await)
        }
    }
}

/// Waits until somebody listens; what happens inside a container has no event for us but its effect.
///
/// That its socket exists is not enough: for a moment nobody listens on it.
async fn listens(connector: &UnixConnector) {
    let mut pause = Duration::from_millis(1);
    while connector
        .open()
        .await
        .is_err_and(|error| error.kind() == ErrorKind::Unavailable)
    {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// Tells why a container ended before its supervisor was up.
async fn why(engine: &Engine, container: &str) -> Error {
    let condition = match engine.condition(container).await {
        Ok(condition) => condition.unwrap_or_default(),
        Err(error) => return error,
    };
    let (out, err) = engine.output(container).await.unwrap_or_default();
    let word = out
        .lines()
        .find_map(|line| serde_json::from_str::<FirstWord>(line).ok());
    if let Some(FirstWord::Failed(report)) = word {
        return Error::from(report).with("container", container);
    }
    let code = condition
        .exit_code
        .map_or_else(|| "unknown".to_owned(), |code| code.to_string());
    let error = if condition.out_of_memory {
        Error::new(
            ErrorKind::ResourceExhausted,
            "the container ran out of memory before its supervisor was up; raise --memory",
        )
    } else {
        Error::new(
            ErrorKind::Unavailable,
            "the container ended before its supervisor was up",
        )
        .retryable(false)
    };
    error.with("exit_code", code).with(
        "container_said",
        said(&format!("{out}{err}{}", condition.said)),
    )
}

/// Everything in an engine that has the labels of an instance.
#[derive(Debug, Default)]
pub(crate) struct Things {
    /// The container: one, none, or what forged its labels.
    pub(crate) containers: Vec<Listed>,
    /// Containers that are never started.
    pub(crate) carriers: Vec<Listed>,
    pub(crate) volumes: Vec<Volume>,
}

/// Whether something has exactly the labels of an instance, whatever an engine makes of a filter.
fn is_of(labels: &HashMap<String, String>, install: &InstallId, id: &InstanceId) -> bool {
    labels.get(INSTALL).map(String::as_str) == Some(install.as_str())
        && labels.get(ATTEMPT).map(String::as_str) == Some(id.as_str())
}

fn filters(install: &InstallId, id: &InstanceId) -> Vec<String> {
    vec![Labels::filter(install), format!("{ATTEMPT}={id}")]
}

async fn containers(
    engine: &Engine,
    install: &InstallId,
    id: &InstanceId,
) -> Result<(Vec<Listed>, Vec<Listed>), Error> {
    let mut found = engine.list(filters(install, id)).await?;
    found.retain(|container| is_of(&container.labels, install, id));
    let carries = |one: &Listed| one.labels.get(ROLE).map(String::as_str) == Some(CARRIER);
    Ok(found.into_iter().partition(|one| !carries(one)))
}

/// Finds the containers of an instance: one, none, or what forged its labels.
pub(crate) async fn find(
    engine: &Engine,
    install: &InstallId,
    id: &InstanceId,
) -> Result<Vec<Listed>, Error> {
    Ok(containers(engine, install, id).await?.0)
}

/// Finds everything of an instance, with its volumes where it may have some.
///
/// Of volumes only those of our names and those of its image: others with our labels are somebody else's.
pub(crate) async fn things(
    engine: &Engine,
    install: &InstallId,
    id: &InstanceId,
    may_have_volumes: bool,
) -> Result<Things, Error> {
    let (containers, carriers) = containers(engine, install, id).await?;
    let mut volumes = if may_have_volumes {
        engine.volumes_of(id).await?
    } else {
        Vec::new()
    };
    volumes.retain(|volume| {
        let of_image = volumes::is_of_image(id, &volume.name);
        let known = of_image || [volumes::own(id), volumes::work(id)].contains(&volume.name);
        // The engine was killed between making it and writing down its labels; nothing was ever in it.
        let nameless = of_image && volume.labels.is_empty();
        known && (nameless || is_of(&volume.labels, install, id))
    });
    Ok(Things {
        containers,
        carriers,
        volumes,
    })
}

/// Returns the one container of these that is meant; the error says why none may be touched.
pub(crate) fn chosen(
    found: Vec<Listed>,
    identity: Option<&Identity>,
) -> Result<Option<Listed>, String> {
    match identity {
        Some(identity) => {
            let ids: Vec<_> = found.iter().map(|one| one.id.clone()).collect();
            match found.into_iter().find(|one| one.id == identity.0) {
                Some(one) => Ok(Some(one)),
                None if ids.is_empty() => Ok(None),
                None => Err(format!(
                    "it is container {}, not {identity}",
                    ids.join(", ")
                )),
            }
        }
        None if found.len() > 1 => Err(format!(
            "{} containers have its labels, and nothing tells which one is ours",
            found.len()
        )),
        None => Ok(found.into_iter().next()),
    }
}

/// Ends a container, whose files are still wanted; one that does not run is success.
pub(crate) async fn end(engine: &Engine, container: &Listed) -> Result<(), Error> {
    if !container.running {
        return Ok(());
    }
    // What is paused hears nothing.
    let grace = if container.paused {
        Duration::ZERO
    } else {
        GRACE
    };
    engine.stop(&container.id, grace).await
}

/// Ends and removes a container; returns when the engine does not know it any more.
///
/// # Errors
///
/// The engine's; then the container is still there, and the removal is to be tried again.
pub(crate) async fn remove(engine: &Engine, container: &Listed) -> Result<(), Error> {
    if container.running && !container.paused {
        engine.stop(&container.id, GRACE).await?;
    }
    match engine.remove(&container.id).await {
        // Somebody else removes it too.
        Err(error) if error.kind() == ErrorKind::Conflict => {
            gone(engine, &container.id, error).await
        }
        removed => removed,
    }
}

async fn gone(engine: &Engine, container: &str, why: Error) -> Result<(), Error> {
    let deadline = Instant::now() + engine.patience();
    let mut pause = Duration::from_millis(10);
    while engine.condition(container).await?.is_some() {
        if Instant::now() >= deadline {
            return Err(why);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(200));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(id: &str) -> Listed {
        Listed {
            id: id.to_owned(),
            labels: HashMap::new(),
            running: false,
            paused: false,
        }
    }

    #[test]
    fn f123_a_container_is_taken_by_its_id_where_that_is_known_and_never_by_a_guess() {
        let identity = Identity("one".to_owned());
        let ids = |found: Result<Option<Listed>, String>| found.map(|one| one.map(|one| one.id));
        assert_eq!(
            ids(chosen(vec![listed("two"), listed("one")], Some(&identity))),
            Ok(Some("one".to_owned()))
        );
        assert!(chosen(vec![listed("two")], Some(&identity)).is_err());
        assert_eq!(ids(chosen(Vec::new(), Some(&identity))), Ok(None));
        assert_eq!(
            ids(chosen(vec![listed("two")], None)),
            Ok(Some("two".to_owned()))
        );
        assert!(chosen(vec![listed("one"), listed("two")], None).is_err());
    }
}

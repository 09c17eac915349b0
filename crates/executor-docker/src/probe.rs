//! What the engine gives to containers, for `doctor`.

use groundcrew_core::{error::Error, executor::ProbeReport};

use crate::{engine::Engine, program::Program};

/// Finds the facts.
///
/// # Errors
///
/// Those of an engine that should be there and does not answer; a machine without any is only told.
pub(crate) async fn probe(
    engine: &Engine,
    program: Result<Program, Error>,
) -> Result<ProbeReport, Error> {
    let mut report = ProbeReport::default();
    if let Some(socket) = engine.socket()
        && !socket.exists()
    {
        report.facts.push((
            "engine".to_owned(),
            format!("none at {}", engine.endpoint()),
        ));
        report.warnings.push(
            "there is no engine for containers; start one, or name one with DOCKER_HOST".to_owned(),
        );
        return Ok(report);
    }
    let version = engine.version().await?;
    let info = engine.info().await?;
    let mut fact = |name: &str, value: String| report.facts.push((name.to_owned(), value));
    fact("engine", engine.endpoint().to_owned());
    fact("version", version.version.unwrap_or_default());
    fact("API", version.api_version.unwrap_or_default());
    let cgroup = info
        .cgroup_version
        .map_or_else(String::new, |v| v.to_string());
    fact("cgroup", format!("v{cgroup}"));
    let mut limits = Vec::new();
    let mut missing = Vec::new();
    for (name, can) in [
        ("memory", info.memory_limit),
        ("cpus", info.cpu_cfs_quota),
        ("pids", info.pids_limit),
    ] {
        if can == Some(true) {
            &mut limits
        } else {
            &mut missing
        }
        .push(name);
    }
    fact("limits", limits.join(", "));
    let networks = engine.networks().await?;
    let has_default = networks.iter().any(|name| name == "bridge");
    // The host's own is never given.
    let known = networks
        .iter()
        .map(String::as_str)
        .filter(|name| !["bridge", "host", "none"].contains(name));
    let policies: Vec<&str> = ["none"]
        .into_iter()
        .chain(has_default.then_some("default"))
        .chain(known)
        .collect();
    fact("networks", policies.join(", "));
    match program {
        Ok(program) => fact(
            "supervisor",
            format!("{} ({})", program.path.display(), program.architecture),
        ),
        Err(error) => report.warnings.push(format!(
            "{error}; {}",
            error.get("advice").unwrap_or_default()
        )),
    }
    if !missing.is_empty() {
        report.warnings.push(format!(
            "the engine's machine cannot limit {}; a run that asks for it is refused",
            missing.join(", ")
        ));
    }
    Ok(report)
}

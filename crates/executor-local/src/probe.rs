//! What this machine gives to instances, for `doctor`.

use std::path::Path;

use groundcrew_core::{
    error::{Error, ErrorKind},
    executor::{Limits, ProbeReport},
};
use groundcrew_supervisor::SupervisorSource;
use rustix::{fs::Access, process::Resource};

use crate::service_manager;

/// The first kernel that is supported.
const OLDEST_KERNEL: (u32, u32) = (5, 10);

/// Below this many descriptors a few hundred runs do not fit.
const FEW_FILES: u64 = 4096;

/// Reads the first two numbers of a kernel release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Tells which limits of all processes together this machine can hold an instance to, and what the others lack.
fn limits() -> String {
    let none = Limits::default();
    let each = [
        (
            "memory",
            Limits {
                memory: Some(1 << 30),
                ..none
            },
        ),
        (
            "cpus",
            Limits {
                milli_cpus: Some(1000),
                ..none
            },
        ),
        (
            "pids",
            Limits {
                processes: Some(1000),
                ..none
            },
        ),
    ];
    let (can, lack): (Vec<_>, Vec<_>) = each
        .iter()
        .partition(|(_, limits)| groundcrew_supervisor::check_limits(limits).is_ok());
    let names = |of: &[&(&str, Limits)]| {
        of.iter()
            .map(|(name, _)| *name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    match (can.is_empty(), lack.is_empty()) {
        (_, true) => names(&can),
        (true, false) => {
            "of each process only: the cgroup v2 hierarchy gives us no controllers".to_owned()
        }
        (false, false) => format!(
            "{}; not {}, whose cgroup v2 controllers we are not given",
            names(&can),
            names(&lack)
        ),
    }
}

/// Finds the facts.
///
/// # Errors
///
/// `Unavailable` when there is no program for a supervisor; anything else works with less.
pub(crate) fn probe(supervisor: &SupervisorSource, instances: &Path) -> Result<ProbeReport, Error> {
    let program = supervisor.program();
    rustix::fs::access(program, Access::EXEC_OK).map_err(|errno| {
        Error::new(
            ErrorKind::Unavailable,
            "the supervisor's program cannot be executed",
        )
        .retryable(false)
        .with("program", program.display())
        .with_source(std::io::Error::from(errno))
    })?;
    let mut report = ProbeReport::default();
    let mut fact = |name: &str, value: String| report.facts.push((name.to_owned(), value));
    fact(
        "supervisor",
        match supervisor {
            SupervisorSource::SelfExec => "this program itself".to_owned(),
            _ => program.display().to_string(),
        },
    );
    fact("instances", instances.display().to_string());
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    fact("kernel", release.clone());
    let files = rustix::process::getrlimit(Resource::Nofile).current;
    fact(
        "open files",
        files.map_or_else(|| "unlimited".to_owned(), |n| n.to_string()),
    );
    let cgroup = groundcrew_supervisor::tree::probe()?;
    fact(
        "ending trees",
        cgroup.as_deref().and_then(Path::parent).map_or_else(
            || "subreaper only".to_owned(),
            |parent| format!("cgroup v2 below {}, and subreaper", parent.display()),
        ),
    );
    fact("limits", limits());
    if version(&release).is_none_or(|version| version < OLDEST_KERNEL) {
        report.warnings.push(format!(
            "kernel {release} is older than 5.10, the oldest one that is tested"
        ));
    }
    if files.is_some_and(|n| n < FEW_FILES) {
        report.warnings.push(format!(
            "only {} open files are allowed; raise the limit (ulimit -n) for many runs at once",
            files.unwrap_or_default()
        ));
    }
    if cgroup.is_none() {
        report.warnings.push(
            "this user has no writable cgroup v2: what the processes of a killed supervisor had started cannot be found; \
             on systemd, start the command in a delegated scope (systemd-run --user --scope -p Delegate=yes)"
                .to_owned(),
        );
    }
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let uid = rustix::process::geteuid().as_raw();
    report
        .warnings
        .extend(service_manager::warnings(Path::new("/"), &groups, uid));
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_releases_are_compared_as_numbers() {
        assert_eq!(version("5.10.0-28-amd64"), Some((5, 10)));
        assert_eq!(version("6.18"), Some((6, 18)));
        assert!(version("5.9.1") < Some(OLDEST_KERNEL));
        assert_eq!(version("strange"), None);
    }
}

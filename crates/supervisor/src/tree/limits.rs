//! What holds an instance to limits: controllers of cgroup v2 for all its processes together, resource limits for each.
//!
//! A limit that was asked for is in force or is an error; it is never left out. Controllers of cgroup v1 are not used: a
//! process could not be born in one, and none of them ends a tree at once.

use std::{
    io,
    path::{Path, PathBuf},
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    executor::Limits,
};
use rustix::process::{Resource, getrlimit};

/// In how many microseconds the time of a processor is shared out anew; the kernel's own default.
const PERIOD: u64 = 100_000;

/// A limit that a controller holds a group to.
struct Controlled {
    /// The limit's name, as in [`Limits`].
    limit: &'static str,
    controller: &'static str,
    file: &'static str,
    text: String,
}

fn controlled(limits: &Limits) -> Vec<Controlled> {
    let one = |limit, controller, file, text: Option<String>| {
        text.map(|text| Controlled {
            limit,
            controller,
            file,
            text,
        })
    };
    let cpus = limits
        .milli_cpus
        .map(|milli| format!("{} {PERIOD}", milli.saturating_mul(PERIOD / 1000)));
    [
        one(
            "memory",
            "memory",
            "memory.max",
            limits.memory.map(|n| n.to_string()),
        ),
        one("milli_cpus", "cpu", "cpu.max", cpus),
        one(
            "processes",
            "pids",
            "pids.max",
            limits.processes.map(|n| n.to_string()),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Reads the words of a file of the hierarchy; none if there is no such file.
fn words(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

/// Says why a controller cannot be had for groups below one; none if it can.
fn lacks(below: Option<&Path>, controller: &str) -> Option<String> {
    let Some(below) = below else {
        return Some(format!(
            "the cgroup v2 controller `{controller}` (this machine has no cgroup v2 hierarchy)"
        ));
    };
    let has = |file: &str| {
        words(&below.join(file))
            .iter()
            .any(|word| word == controller)
    };
    if has("cgroup.subtree_control") {
        return None;
    }
    let shown = below.display();
    if !has("cgroup.controllers") {
        return Some(format!(
            "the cgroup v2 controller `{controller}` (not among those of {shown}; cgroup v1 may hold it)"
        ));
    }
    // Only the root may hand a controller down while processes live in it; it alone has no type.
    if below.join("cgroup.type").exists() {
        return Some(format!(
            "the cgroup v2 controller `{controller}` (not in cgroup.subtree_control of {shown}, where processes live)"
        ));
    }
    None
}

/// Returns every controller that limits need and that cannot be had for groups below one.
fn missing(below: Option<&Path>, limits: &Limits) -> Vec<(&'static str, String)> {
    controlled(limits)
        .into_iter()
        .filter_map(|asked| Some((asked.limit, lacks(below, asked.controller)?)))
        .collect()
}

fn unsupported(missing: &[(&'static str, String)]) -> Error {
    let names: Vec<_> = missing.iter().map(|(limit, _)| *limit).collect();
    let what: Vec<_> = missing.iter().map(|(_, what)| what.as_str()).collect();
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "this machine cannot hold an instance to what was asked for; missing: {}",
            what.join(", ")
        ),
    )
    .with("limits", names.join(", "))
}

/// Finds out whether instances below a group can be held to limits.
///
/// # Errors
///
/// As for [`check`](super::check_limits).
pub(super) fn check(below: Option<&Path>, limits: &Limits) -> Result<(), Error> {
    limits.check()?;
    let missing = missing(below, limits);
    if !missing.is_empty() {
        return Err(unsupported(&missing));
    }
    // The system's administrator may go beyond every limit, anybody else only below his own.
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    for (name, resource, asked) in each_process(limits) {
        let (Some(asked), Some(most)) = (asked, getrlimit(resource).maximum) else {
            continue;
        };
        if asked > most {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the limit is above what this user may set; raise the hard limit (ulimit -H) or ask for less",
            )
            .with("limits", name)
            .with("asked", asked)
            .with("most", most));
        }
    }
    Ok(())
}

/// Returns the limits that hold for each process alone.
pub(crate) fn each_process(limits: &Limits) -> [(&'static str, Resource, Option<u64>); 3] {
    [
        ("open_files", Resource::Nofile, limits.open_files),
        ("file_size", Resource::Fsize, limits.file_size),
        ("core_size", Resource::Core, limits.core_size),
    ]
}

/// Holds a new group to limits.
///
/// # Errors
///
/// `Unsupported`, naming what is missing; those of the hierarchy.
pub(super) fn apply(group: Option<&Path>, limits: &Limits) -> Result<(), Error> {
    let asked = controlled(limits);
    if asked.is_empty() {
        return Ok(());
    }
    let below = group.and_then(Path::parent);
    let missing = missing(below, limits);
    let (Some(group), Some(below), true) = (group, below, missing.is_empty()) else {
        return Err(unsupported(&missing));
    };
    let failed = |path: PathBuf| {
        move |e: io::Error| {
            Error::io("failed to set a limit of the instance", e).with("file", path.display())
        }
    };
    for Controlled {
        controller,
        file,
        text,
        ..
    } in asked
    {
        let handed = below.join("cgroup.subtree_control");
        if !words(&handed).iter().any(|word| word == controller) {
            std::fs::write(&handed, format!("+{controller}")).map_err(failed(handed))?;
        }
        let path = group.join(file);
        std::fs::write(&path, text).map_err(failed(path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Limits = Limits {
        memory: Some(1 << 30),
        milli_cpus: Some(1500),
        processes: Some(64),
        open_files: None,
        file_size: None,
        core_size: None,
    };

    /// A group with some controllers and some of them handed down; not a root where `inner`.
    fn hierarchy(controllers: &str, handed: &str, inner: bool) -> tempfile::TempDir {
        let own = tempfile::tempdir().unwrap();
        std::fs::write(own.path().join("cgroup.controllers"), controllers).unwrap();
        std::fs::write(own.path().join("cgroup.subtree_control"), handed).unwrap();
        if inner {
            std::fs::write(own.path().join("cgroup.type"), "domain\n").unwrap();
        }
        std::fs::create_dir(own.path().join("group")).unwrap();
        own
    }

    #[test]
    fn f007_a_limit_without_its_controller_is_an_error_that_names_it() {
        let limits = Limits {
            memory: None,
            ..ALL
        };
        for (own, missing) in [
            (hierarchy("", "", false), ["`cpu`", "`pids`"]),
            (hierarchy("cpu pids", "memory", true), ["`cpu`", "`pids`"]),
        ] {
            let error = check(Some(own.path()), &limits).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            let text = error.to_string();
            assert!(missing.iter().all(|name| text.contains(name)), "{text}");
            assert!(!text.contains("`memory`"), "{text}");
            let group = own.path().join("group");
            assert_eq!(
                apply(Some(&group), &limits).unwrap_err().kind(),
                ErrorKind::Unsupported
            );
            assert_eq!(std::fs::read_dir(&group).unwrap().count(), 0);
        }
        let none = check(None, &limits).unwrap_err().to_string();
        assert!(none.contains("no cgroup v2 hierarchy"), "{none}");
        assert!(apply(None, &limits).is_err());
        assert!(
            apply(
                None,
                &Limits {
                    open_files: Some(64),
                    ..Limits::default()
                }
            )
            .is_ok()
        );
    }

    #[test]
    fn limits_are_written_in_the_kernels_words() {
        // The root hands down what is missing; an inner group must have done so before.
        for own in [
            hierarchy("cpu memory pids\n", "cpu\n", false),
            hierarchy("cpu memory pids\n", "cpu memory pids\n", true),
        ] {
            check(Some(own.path()), &ALL).unwrap();
            let group = own.path().join("group");
            apply(Some(&group), &ALL).unwrap();
            let read = |name: &str| std::fs::read_to_string(group.join(name)).unwrap();
            assert_eq!(read("memory.max"), "1073741824");
            assert_eq!(read("cpu.max"), "150000 100000");
            assert_eq!(read("pids.max"), "64");
        }
    }

    #[test]
    fn a_limit_under_which_nothing_lives_is_refused() {
        let limits = Limits {
            open_files: Some(0),
            ..Limits::default()
        };
        let error = check(None, &limits).unwrap_err();
        assert_eq!(
            (error.kind(), error.get("limit")),
            (ErrorKind::InvalidInput, Some("open_files"))
        );
    }
}

//! Which processes belong to a test: those in whose environment, words, directory or open files its root appears.

use std::{
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use rustix::process::{Pid, Signal};

/// A process that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its number.
    pub(crate) pid: i32,
    /// Its words, joined by spaces.
    pub(crate) words: String,
    /// Where its root was seen.
    pub(crate) seen: String,
}

/// Finds the processes that belong to a root; this one and zombies are left out.
pub(crate) fn below(root: &Path) -> Vec<Process> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        if name.to_str() == Some(&own) {
            continue;
        }
        if let Some(seen) = mention(&entry.path(), root) {
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            found.push(Process { pid, words, seen });
        }
    }
    found
}

/// Tells where a process mentions a root.
fn mention(process: &Path, root: &Path) -> Option<String> {
    let root = root.as_os_str().as_bytes();
    let holds = |bytes: &[u8]| bytes.windows(root.len()).any(|window| window == root);
    for name in ["environ", "cmdline"] {
        if fs::read(process.join(name)).is_ok_and(|bytes| holds(&bytes)) {
            return Some(name.to_owned());
        }
    }
    let mut links: Vec<PathBuf> = vec![process.join("cwd"), process.join("exe")];
    let files = fs::read_dir(process.join("fd")).into_iter().flatten();
    links.extend(files.flatten().map(|entry| entry.path()));
    links.into_iter().find_map(|link| {
        let target = fs::read_link(&link).ok()?;
        holds(target.as_os_str().as_bytes()).then(|| target.display().to_string())
    })
}

/// Kills processes.
pub(crate) fn kill(processes: &[Process]) {
    for process in processes {
        if let Some(pid) = Pid::from_raw(process.pid) {
            // One that has ended meanwhile is no failure.
            _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

/// Tells whether a process exists and is no zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

//! Which live processes have their working directory or root inside a tree.

use std::path::Path;

/// Lists processes inside `tree` as `pid name`; processes that may not be looked at are not listed.
pub(crate) fn inside(tree: &Path) -> Vec<String> {
    let Ok(tree) = tree.canonicalize() else {
        return Vec::new();
    };
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let own = std::process::id();
    let mut found = Vec::new();
    for process in processes.flatten() {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        if pid == own {
            continue;
        }
        let place = |link: &str| {
            std::fs::read_link(process.path().join(link)).is_ok_and(|at| at.starts_with(&tree))
        };
        if place("cwd") || place("root") {
            let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push(format!("{pid} {}", name.trim_end()));
        }
    }
    found
}

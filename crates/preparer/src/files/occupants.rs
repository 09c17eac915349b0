//! Which live processes are inside a tree, or use something of it.

use std::path::Path;

/// Lists processes inside `tree` as `pid name`; processes that may not be looked at are not listed.
pub(crate) fn inside(tree: &Path) -> Vec<String> {
    find(tree, |process, tree| {
        leads(&process.join("cwd"), tree) || leads(&process.join("root"), tree)
    })
}

/// Lists processes that use anything of `tree`: those inside, those whose program is there, and those with a file of it open.
pub(crate) fn using(tree: &Path) -> Vec<String> {
    find(tree, |process, tree| {
        ["cwd", "root", "exe"]
            .iter()
            .any(|link| leads(&process.join(link), tree))
            || std::fs::read_dir(process.join("fd"))
                .is_ok_and(|open| open.flatten().any(|fd| leads(&fd.path(), tree)))
    })
}

fn leads(link: &Path, tree: &Path) -> bool {
    std::fs::read_link(link).is_ok_and(|at| at.starts_with(tree))
}

fn find(tree: &Path, is_there: impl Fn(&Path, &Path) -> bool) -> Vec<String> {
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
        if is_there(&process.path(), &tree) {
            let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push(format!("{pid} {}", name.trim_end()));
        }
    }
    found
}

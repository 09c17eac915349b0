//! What a service manager would do to runs that shall outlive their caller, for `doctor`; reads, and changes nothing.

use std::path::{Path, PathBuf};

/// Where the settings of logind are; a later one outranks an earlier one.
const LOGIND: [&str; 2] = ["usr/lib/systemd/logind.conf", "etc/systemd/logind.conf"];

/// Directories with further settings, whose files are read in the order of their names.
const LOGIND_PARTS: [&str; 3] = [
    "usr/lib/systemd/logind.conf.d",
    "run/systemd/logind.conf.d",
    "etc/systemd/logind.conf.d",
];

/// Returns what would end detached runs, and how to keep them.
pub(crate) fn warnings(root: &Path, groups: &str, uid: u32) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(unit) = unit(groups) {
        warnings.push(format!(
            "we run in the unit {unit}: when it stops, systemd ends detached runs with it; start them with \
             `systemd-run --user --scope`, or set KillMode=process in the unit"
        ));
    }
    if ends_at_logout(root) && uid != 0 && !lingers(root, uid) {
        warnings.push(
            "logind ends what a user left running at logout (KillUserProcesses=yes), detached runs as well; \
             keep them with `loginctl enable-linger`"
                .to_owned(),
        );
    }
    warnings
}

/// Returns the service that we belong to, if we do; a scope, such as a login's, ends with nothing of its own.
fn unit(groups: &str) -> Option<&str> {
    let path = groups.lines().find_map(|line| {
        line.strip_prefix("0::")
            .filter(|path| *path != "/")
            .or_else(|| line.split_once(":name=systemd:").map(|(_, path)| path))
    })?;
    // `user@1000.service` is the manager of a user's own units, and lives as long as the user is there or lingers.
    let last = path.rsplit('/').find(|part| {
        let kind = Path::new(part).extension();
        kind.is_some_and(|kind| kind == "service" || kind == "scope")
    })?;
    let service = Path::new(last)
        .extension()
        .is_some_and(|kind| kind == "service");
    (service && !last.starts_with("user@")).then_some(last)
}

/// Returns whether logind ends processes of a user who logs out.
fn ends_at_logout(root: &Path) -> bool {
    let mut files: Vec<PathBuf> = Vec::new();
    files.extend(LOGIND.iter().map(|name| root.join(name)));
    let mut parts: Vec<PathBuf> = LOGIND_PARTS
        .iter()
        .filter_map(|name| std::fs::read_dir(root.join(name)).ok())
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "conf"))
        .collect();
    parts.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
    files.extend(parts);
    let mut ends = false;
    for file in files {
        for line in std::fs::read_to_string(file).unwrap_or_default().lines() {
            if let Some((key, value)) = line.split_once('=')
                && key.trim() == "KillUserProcesses"
            {
                ends = matches!(value.trim(), "yes" | "true" | "on" | "1");
            }
        }
    }
    ends
}

/// Returns whether the user's manager lives on without a login.
fn lingers(root: &Path, uid: u32) -> bool {
    let users = std::fs::read_to_string(root.join("etc/passwd")).unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    });
    name.is_some_and(|name| root.join("var/lib/systemd/linger").join(name).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_that_we_would_end_with_is_named() {
        for (groups, unit_name) in [
            ("0::/\n", None),
            ("0::/system.slice/agents.service\n", Some("agents.service")),
            ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/editor.service\n",
                Some("editor.service"),
            ),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope\n",
                None,
            ),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/init.scope\n",
                None,
            ),
            (
                "9:name=systemd:/system.slice/old.service\n0::/\n",
                Some("old.service"),
            ),
        ] {
            assert_eq!(unit(groups), unit_name, "{groups}");
        }
    }

    #[test]
    fn logind_is_told_of_where_it_would_end_runs() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let warned = || !warnings(root.path(), "0::/\n", 1000).is_empty();
        assert!(!warned());
        write(
            "etc/systemd/logind.conf",
            "[Login]\n#KillUserProcesses=yes\n",
        );
        assert!(!warned());
        write(
            "etc/systemd/logind.conf",
            "[Login]\nKillUserProcesses=yes\n",
        );
        assert!(warned());
        assert!(
            warnings(root.path(), "0::/\n", 0).is_empty(),
            "root is left alone by default"
        );
        write(
            "etc/systemd/logind.conf.d/50-keep.conf",
            "[Login]\nKillUserProcesses = no\n",
        );
        assert!(!warned());
        write(
            "usr/lib/systemd/logind.conf.d/90-end.conf",
            "[Login]\nKillUserProcesses=true\n",
        );
        assert!(warned());
        write(
            "etc/passwd",
            "root:x:0:0::/root:/bin/sh\nsomebody:x:1000:1000::/nowhere:/bin/sh\n",
        );
        write("var/lib/systemd/linger/somebody", "");
        assert!(!warned());
    }
}

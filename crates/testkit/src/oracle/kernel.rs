//! Mounts below the roots, and control groups by name.

use std::{
    fs,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use groundcrew_core::error::Error;

use super::{
    files::{failed, walk},
    snapshot::{Kind, Snapshot, text},
};

/// Notes every mount on or below a root.
pub(super) fn mounts(roots: &[&Path], snapshot: &mut Snapshot) -> Result<(), Error> {
    let table = Path::new("/proc/self/mountinfo");
    let content = fs::read(table).map_err(|e| failed(table, e))?;
    for line in content.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        let (Some(number), Some(point)) = (fields.next(), fields.nth(3)) else {
            continue;
        };
        let point = unescaped(point);
        if roots.iter().any(|root| point.starts_with(root)) {
            let name = format!("{} ({})", text(&point), number.escape_ascii());
            snapshot.see(Kind::Mount, name, "");
        }
    }
    Ok(())
}

/// Undoes the kernel's octal escapes.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    std::ffi::OsString::from_vec(bytes).into()
}

/// Where the kernel shows control groups, of both versions.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Notes every control group whose name begins with `prefix`.
pub(super) fn control_groups(prefix: &str, snapshot: &mut Snapshot) -> Result<(), Error> {
    groups_below(Path::new(CONTROL_GROUPS), prefix, snapshot)
}

fn groups_below(root: &Path, prefix: &str, snapshot: &mut Snapshot) -> Result<(), Error> {
    walk(root, &mut |path, metadata| {
        if !metadata.is_dir() {
            return Ok(false);
        }
        let name = path.file_name().unwrap_or_default().as_bytes();
        if name.starts_with(prefix.as_bytes()) {
            snapshot.see(Kind::ControlGroup, text(path), "");
        }
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_on_a_root_is_found() {
        let mut snapshot = Snapshot::default();
        mounts(&[Path::new("/proc")], &mut snapshot).unwrap();
        let names = snapshot.names(Kind::Mount);
        assert!(names[0].starts_with("/proc ("), "{names:?}");
        let mut elsewhere = Snapshot::default();
        mounts(&[Path::new("/nothing/is/here")], &mut elsewhere).unwrap();
        assert_eq!(elsewhere, Snapshot::default());
    }

    #[test]
    fn a_control_group_is_found_by_its_name() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("user.slice/groundcrew-1f/leaf");
        fs::create_dir_all(&deep).unwrap();
        fs::create_dir(root.path().join("other")).unwrap();
        fs::write(root.path().join("groundcrew-file"), "").unwrap();
        let mut snapshot = Snapshot::default();
        groups_below(root.path(), "groundcrew-", &mut snapshot).unwrap();
        let parent = text(deep.parent().unwrap());
        assert_eq!(snapshot.names(Kind::ControlGroup), [parent.as_str()]);
        control_groups("groundcrew-", &mut snapshot).unwrap();
    }

    #[test]
    fn f057_mount_points_with_spaces_are_read() {
        assert_eq!(unescaped(br"/a\040b\134c"), Path::new("/a b\\c"));
        assert_eq!(unescaped(br"/a\04"), Path::new("/a\\04"));
    }
}

//! Directories: every name below a root; links are seen, never followed.

use std::{
    fs,
    hash::{DefaultHasher, Hasher as _},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use groundcrew_core::error::Error;

use super::snapshot::{Kind, Snapshot, text};

/// Notes every name below a directory with its type; one that does not exist has none.
pub(super) fn names(root: &Path, snapshot: &mut Snapshot) -> Result<(), Error> {
    walk(root, &mut |path, metadata| {
        let what = if metadata.is_dir() {
            "directory"
        } else if metadata.is_symlink() {
            "link"
        } else {
            "file"
        };
        snapshot.see(Kind::Path, text(path), what);
        Ok(metadata.is_dir())
    })
}

/// Notes every file of a work tree with mode and content; `.git` is left out.
pub(super) fn contents(tree: &Path, kind: Kind, snapshot: &mut Snapshot) -> Result<(), Error> {
    walk(tree, &mut |path, metadata| {
        if path.file_name().is_some_and(|name| name == ".git") {
            return Ok(false);
        }
        let mode = metadata.permissions().mode();
        let what = if metadata.is_symlink() {
            let target = fs::read_link(path).map_err(|e| failed(path, e))?;
            format!("link to {}", text(&target))
        } else if metadata.is_file() {
            format!("{mode:o} {}", hash(path)?)
        } else {
            format!("{mode:o}")
        };
        snapshot.see(kind, text(path), what);
        Ok(metadata.is_dir())
    })
}

/// Returns a number that differs when the content does.
pub(super) fn hash(file: &Path) -> Result<String, Error> {
    let bytes = fs::read(file).map_err(|e| failed(file, e))?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    Ok(format!("{} bytes, {:016x}", bytes.len(), hasher.finish()))
}

/// Visits everything below a directory; what vanishes meanwhile was never there.
pub(super) fn walk(
    root: &Path,
    visit: &mut dyn FnMut(&Path, &fs::Metadata) -> Result<bool, Error>,
) -> Result<(), Error> {
    let mut pending: Vec<PathBuf> = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if vanished(&error) => continue,
            Err(error) => return Err(failed(&directory, error)),
        };
        for entry in entries {
            let path = match entry {
                Ok(entry) => entry.path(),
                Err(error) if vanished(&error) => break,
                Err(error) => return Err(failed(&directory, error)),
            };
            let metadata = match fs::symlink_metadata(&path) {
                Ok(metadata) => metadata,
                Err(error) if vanished(&error) => continue,
                Err(error) => return Err(failed(&path, error)),
            };
            if visit(&path, &metadata)? {
                pending.push(path);
            }
        }
    }
    Ok(())
}

fn vanished(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

pub(super) fn failed(path: &Path, error: io::Error) -> Error {
    Error::io("failed to look at a file", error).with("path", path.display())
}

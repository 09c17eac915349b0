//! Copies commits between repositories, with everything that they need; libgit2 does it, and executes nothing of either.

use std::{collections::HashSet, io::Write as _, os::unix::ffi::OsStrExt as _, path::Path};

use git2::{Oid, Repository};
use groundcrew_core::error::{Error, ErrorKind};

use super::repository::git_error;

/// Copies `tips`, and what they need, into a repository that has everything that `held` needs.
///
/// Nothing there names them yet; objects that nothing names are no left-overs that anybody meets.
pub(crate) fn copy_commits(
    from: &Repository,
    into: &Repository,
    tips: &[Oid],
    held: &[Oid],
) -> Result<(), Error> {
    let failed = |error| git_error("failed to copy commits between repositories", error);
    let mut walk = from.revwalk().map_err(failed)?;
    let mut any = false;
    for tip in tips {
        if !held.contains(tip) {
            walk.push(*tip).map_err(failed)?;
            any = true;
        }
    }
    if !any {
        return Ok(());
    }
    let held: HashSet<Oid> = held.iter().copied().collect();
    for id in held {
        if from.find_commit(id).is_ok() {
            walk.hide(id).map_err(failed)?;
        }
    }
    let mut builder = from.packbuilder().map_err(failed)?;
    builder.insert_walk(&mut walk).map_err(failed)?;
    if builder.object_count() > 0 {
        let odb = into.odb().map_err(failed)?;
        let mut writer = odb.packwriter().map_err(failed)?;
        let mut broken = None;
        let written = builder.foreach(|bytes| match writer.write_all(bytes) {
            Ok(()) => true,
            Err(error) => {
                broken = Some(error);
                false
            }
        });
        if let Some(error) = broken {
            return Err(Error::io(
                "failed to copy commits between repositories",
                error,
            ));
        }
        written.map_err(failed)?;
        writer.commit().map_err(failed)?;
    }
    for tip in tips {
        into.find_commit(*tip)
            .and_then(|commit| commit.tree())
            .map_err(failed)?;
    }
    Ok(())
}

/// Copies one object, unless it is there.
pub(crate) fn copy_object(from: &Repository, into: &Repository, id: Oid) -> Result<(), Error> {
    let failed = |error| git_error("failed to copy an object between repositories", error);
    let target = into.odb().map_err(failed)?;
    if target.exists(id) {
        return Ok(());
    }
    let source = from.odb().map_err(failed)?;
    let object = source.read(id).map_err(failed)?;
    target.write(object.kind(), object.data()).map_err(failed)?;
    Ok(())
}

/// Writes the path of another repository's objects as git reads it.
///
/// # Errors
///
/// `Unsupported` for a path that cannot be said there.
pub(crate) fn alternate(objects: &Path) -> Result<Vec<u8>, Error> {
    let bytes = objects.as_os_str().as_bytes();
    if bytes.contains(&b'\n') || bytes.starts_with(b"#") || bytes.starts_with(b"\"") {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "git cannot share the objects of a repository whose path has a line break",
        )
        .with("path", objects.display()));
    }
    Ok([bytes, b"\n"].concat())
}

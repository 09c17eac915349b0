//! Copies commits between repositories, with everything that they need; libgit2 does it, and executes nothing of either.
//!
//! What is copied is named by no ref at first. It is kept from a clean-up of the repository until the caller made one.

use std::{
    collections::HashSet,
    fs,
    io::{self, Write as _},
    os::{fd::AsRawFd as _, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
};

use git2::{Indexer, ObjectType, Odb, Oid, Repository, Revwalk};
use groundcrew_core::error::{Error, ErrorKind};

use super::repository::git_error;
use crate::files::beneath;

/// Copies `tips`, and what they need, into a repository that has everything that `held` needs; [`sweep`] once they have a ref.
///
/// `mark` is that of the attempt: nobody else uses its names.
///
/// # Errors
///
/// Also when anything that `tips` need is in neither repository.
pub(crate) fn copy_commits(
    from: &Repository,
    into: &Repository,
    tips: &[Oid],
    held: &[Oid],
    mark: &str,
) -> Result<(), Error> {
    let failed = |error| git_error("failed to copy commits between repositories", error);
    if tips.iter().all(|tip| held.contains(tip)) {
        return Ok(());
    }
    let held: HashSet<Oid> = held.iter().copied().collect();
    let commits = walk_of(from, tips, &held)?
        .collect::<Result<Vec<Oid>, _>>()
        .map_err(failed)?;
    let mut walk = walk_of(from, tips, &held)?;
    let mut builder = from.packbuilder().map_err(failed)?;
    builder.insert_walk(&mut walk).map_err(failed)?;
    if builder.object_count() > 0 {
        let place = place(into.commondir(), mark);
        remove(&place)?;
        let packs = place.join("pack");
        fs::create_dir_all(&packs).map_err(io_failed(&packs))?;
        let odb = into.odb().map_err(failed)?;
        // Its own check that everything is there takes the commits of submodules for objects of this repository.
        let mut indexer = Indexer::new(Some(&odb), &packs, 0o444, false).map_err(failed)?;
        let mut broken = None;
        let written = builder.foreach(|bytes| match indexer.write_all(bytes) {
            Ok(()) => true,
            Err(error) => {
                broken = Some(error);
                false
            }
        });
        if let Some(error) = broken {
            return Err(io_failed(&place)(error));
        }
        written.map_err(failed)?;
        let name = indexer.commit().map_err(failed)?;
        let copied = Odb::new().map_err(failed)?;
        // libgit2 takes text here, and a path need not be any.
        let held = beneath::open_root(&place).map_err(|errno| io_failed(&place)(errno.into()))?;
        copied
            .add_disk_alternate(&format!("/proc/self/fd/{}", held.as_raw_fd()))
            .map_err(failed)?;
        check_whole(from, &commits, |id| copied.exists(id) || odb.exists(id))?;
        put(into.commondir(), &place, &name, mark)?;
        odb.refresh().map_err(failed)?;
    }
    for tip in tips {
        into.find_commit(*tip)
            .and_then(|commit| commit.tree())
            .map_err(failed)?;
    }
    Ok(())
}

/// Walks from the tips that are not held to what is.
fn walk_of<'a>(
    from: &'a Repository,
    tips: &[Oid],
    held: &HashSet<Oid>,
) -> Result<Revwalk<'a>, Error> {
    let failed = |error| git_error("failed to copy commits between repositories", error);
    let mut walk = from.revwalk().map_err(failed)?;
    for tip in tips {
        if !held.contains(tip) {
            walk.push(*tip).map_err(failed)?;
        }
    }
    for id in held {
        if from.find_commit(*id).is_ok() {
            walk.hide(*id).map_err(failed)?;
        }
    }
    Ok(walk)
}

/// Makes sure that everything is there that commits refer to: parents, directories and files, but no commits of submodules.
fn check_whole(
    from: &Repository,
    commits: &[Oid],
    is_there: impl Fn(Oid) -> bool,
) -> Result<(), Error> {
    let failed = |error| git_error("failed to copy commits between repositories", error);
    let shallow = from.is_shallow();
    let mut seen = HashSet::new();
    let mut open = Vec::new();
    let need = |id: Oid| {
        if is_there(id) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::NotFound,
            "failed to copy commits between repositories: something that they need is in neither",
        )
        .with("object", id))
    };
    for id in commits {
        let commit = from.find_commit(*id).map_err(failed)?;
        need(*id)?;
        // The history of a shallow repository ends somewhere.
        if !shallow {
            commit.parent_ids().try_for_each(need)?;
        }
        open.push(commit.tree_id());
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            need(id)?;
            for entry in &from.find_tree(id).map_err(failed)? {
                match entry.kind() {
                    Some(ObjectType::Tree) => open.push(entry.id()),
                    Some(ObjectType::Commit) => {}
                    _ if seen.insert(entry.id()) => need(entry.id())?,
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

fn io_failed(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |error| {
        Error::io("failed to copy commits between repositories", error).with("path", path.display())
    }
}

/// Where a pack is written before it is whole: beside the objects, where no git looks.
fn place(common: &Path, mark: &str) -> PathBuf {
    common.join("objects").join(mark.replace(':', "-"))
}

/// Moves a pack to its place; it is marked to be kept before it is there, and its index comes last.
fn put(common: &Path, place: &Path, name: &str, mark: &str) -> Result<(), Error> {
    let packs = common.join("objects/pack");
    fs::create_dir_all(&packs).map_err(io_failed(&packs))?;
    let file = |end: &str| format!("pack-{name}.{end}");
    let keep = packs.join(file("keep"));
    match fs::File::create_new(&keep) {
        Ok(mut keep_file) => keep_file
            .write_all(format!("{mark}\n").as_bytes())
            .map_err(io_failed(&keep))?,
        // Somebody keeps the same pack.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(io_failed(&keep)(error)),
    }
    for end in ["pack", "idx"] {
        let target = packs.join(file(end));
        fs::rename(place.join("pack").join(file(end)), &target).map_err(io_failed(&target))?;
    }
    remove(place)
}

/// Lets a clean-up have what was copied, and removes what a killed process left; what was copied has a ref now, or need not stay.
pub(crate) fn sweep(common: &Path, mark: &str) -> Result<(), Error> {
    remove(&place(common, mark))?;
    let packs = common.join("objects/pack");
    let entries = match fs::read_dir(&packs) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_failed(&packs)(error)),
    };
    for entry in entries {
        let path = entry.map_err(io_failed(&packs))?.path();
        let ours = path.extension().is_some_and(|end| end == "keep")
            && fs::read(&path).is_ok_and(|text| text.trim_ascii_end() == mark.as_bytes());
        if ours {
            match fs::remove_file(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(io_failed(&path)(error)),
            }
        }
    }
    Ok(())
}

fn remove(place: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(place) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_failed(place)(error)),
    }
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

#[cfg(test)]
mod tests {
    use git2::Signature;

    use super::*;

    fn commit(repository: &Repository, parents: &[Oid], text: &str) -> Oid {
        let who = Signature::now("t", "t@example.org").unwrap();
        let blob = repository.blob(text.as_bytes()).unwrap();
        let mut tree = repository.treebuilder(None).unwrap();
        tree.insert("f", blob, 0o100_644).unwrap();
        let tree = repository.find_tree(tree.write().unwrap()).unwrap();
        let parents: Vec<_> = parents
            .iter()
            .map(|id| repository.find_commit(*id).unwrap())
            .collect();
        let parents: Vec<_> = parents.iter().collect();
        repository
            .commit(None, &who, &who, text, &tree, &parents)
            .unwrap()
    }

    #[test]
    fn f096_what_is_copied_is_kept_until_it_is_swept() {
        let root = tempfile::tempdir().unwrap();
        let from = Repository::init_bare(root.path().join("from")).unwrap();
        let into = Repository::init_bare(root.path().join("into")).unwrap();
        let first = commit(&from, &[], "one");
        let second = commit(&from, &[first], "two");
        let files = || {
            let mut ends: Vec<_> = fs::read_dir(root.path().join("into/objects/pack"))
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .map(|path| path.extension().unwrap().to_str().unwrap().to_owned())
                .collect();
            ends.sort();
            ends
        };
        copy_commits(&from, &into, &[first], &[], "groundcrew:1").unwrap();
        assert_eq!(files(), ["idx", "keep", "pack"]);
        sweep(into.commondir(), "groundcrew:other").unwrap();
        assert_eq!(files(), ["idx", "keep", "pack"]);
        sweep(into.commondir(), "groundcrew:1").unwrap();
        assert_eq!(files(), ["idx", "pack"]);
        // What the other side is said to have is not copied; one that lacks it is found out.
        copy_commits(&from, &into, &[second], &[first], "groundcrew:1").unwrap();
        assert!(into.find_commit(second).is_ok());
        assert!(!root.path().join("into/objects/groundcrew-1").exists());
        let lacking = Repository::init_bare(root.path().join("lacking")).unwrap();
        let result = copy_commits(&from, &lacking, &[second], &[first], "groundcrew:1");
        assert!(result.is_err());
        assert!(lacking.find_commit(second).is_err());
        sweep(lacking.commondir(), "groundcrew:1").unwrap();
        assert!(!root.path().join("lacking/objects/groundcrew-1").exists());
    }

    #[test]
    fn f092_the_commit_of_a_submodule_is_no_object_that_is_missing_and_a_file_is() {
        let root = tempfile::tempdir().unwrap();
        let odd = root.path().join(std::ffi::OsStr::from_bytes(b"in\xffto"));
        let from = Repository::init_bare(root.path().join("from")).unwrap();
        let into = Repository::init_bare(&odd).unwrap();
        let who = Signature::now("t", "t@example.org").unwrap();
        let make = |name: &str, id: Oid, mode: i32| {
            let mut tree = from.treebuilder(None).unwrap();
            tree.insert(name, id, mode).unwrap();
            let tree = from.find_tree(tree.write().unwrap()).unwrap();
            from.commit(None, &who, &who, name, &tree, &[]).unwrap()
        };
        let elsewhere = Oid::from_str(&"1".repeat(40)).unwrap();
        let with_module = make("lib", elsewhere, 0o160_000);
        copy_commits(&from, &into, &[with_module], &[], "groundcrew:1").unwrap();
        sweep(into.commondir(), "groundcrew:1").unwrap();
        assert!(into.find_commit(with_module).is_ok());
        // Held by a commit that the other side is said to have whole, and has not.
        let blob = from.blob(b"x").unwrap();
        let held = make("f", blob, 0o100_644);
        let tree = from.find_commit(held).unwrap().tree().unwrap();
        let parents = from.find_commit(held).unwrap();
        let tip = from
            .commit(None, &who, &who, "tip", &tree, &[&parents])
            .unwrap();
        let error = copy_commits(&from, &into, &[tip], &[held], "groundcrew:1").unwrap_err();
        assert!(error.get("object").is_some(), "{error:?}");
        assert!(into.find_commit(tip).is_err());
    }
}

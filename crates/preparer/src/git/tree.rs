//! The files of a commit, by names that are bytes: libgit2's own walk stops at a directory whose name is not UTF-8.

use git2::{ObjectType, Oid, Repository, Tree};
use groundcrew_core::error::Error;

use super::repository::git_error;

/// A file of a commit.
#[derive(Clone, Debug)]
pub(crate) struct TreeFile {
    /// Its path, with slashes, relative to the root.
    pub(crate) name: Vec<u8>,
    /// Its mode.
    pub(crate) mode: u32,
    /// Its object.
    pub(crate) id: Oid,
}

/// Lists the files, links and submodules of a tree, in no particular order.
pub(crate) fn files(repository: &Repository, tree: &Tree<'_>) -> Result<Vec<TreeFile>, Error> {
    let mut files = Vec::new();
    let mut open = vec![(Vec::new(), tree.id())];
    while let Some((directory, id)) = open.pop() {
        let tree = repository
            .find_tree(id)
            .map_err(|error| git_error("failed to read the files of a commit", error))?;
        for entry in &tree {
            let name = [&directory[..], entry.name_bytes()].concat();
            if entry.kind() == Some(ObjectType::Tree) {
                open.push(([&name[..], b"/"].concat(), entry.id()));
            } else {
                files.push(TreeFile {
                    name,
                    mode: u32::from_ne_bytes(entry.filemode().to_ne_bytes()),
                    id: entry.id(),
                });
            }
        }
    }
    Ok(files)
}

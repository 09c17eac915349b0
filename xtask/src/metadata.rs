//! The workspace as `cargo metadata` tells it: packages, targets, declared and resolved dependencies.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::process::{self, Cmd};

/// Everything `cargo metadata` says that we use.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) resolve: Resolve,
    pub(crate) workspace_root: PathBuf,
    pub(crate) target_directory: PathBuf,
}

/// One package, ours or foreign.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
    pub(crate) manifest_path: PathBuf,
}

/// A dependency as the manifest declares it.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Option<Kind>,
}

/// What a dependency is for; absent means the package itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Normal,
    Dev,
    Build,
}

/// One library, binary or test of a package.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
    pub(crate) src_path: PathBuf,
}

/// The resolved graph.
#[derive(Debug, Deserialize)]
pub(crate) struct Resolve {
    pub(crate) nodes: Vec<Node>,
}

/// A package in the graph.
#[derive(Debug, Deserialize)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) deps: Vec<Edge>,
}

/// An edge of the graph.
#[derive(Debug, Deserialize)]
pub(crate) struct Edge {
    pub(crate) pkg: String,
    pub(crate) dep_kinds: Vec<EdgeKind>,
}

/// For what an edge is there.
#[derive(Debug, Deserialize)]
pub(crate) struct EdgeKind {
    pub(crate) kind: Option<Kind>,
}

impl Metadata {
    /// Asks cargo about the workspace this program belongs to.
    ///
    /// # Errors
    ///
    /// Fails when cargo fails or prints what we cannot read.
    pub(crate) fn load() -> Result<Self> {
        let printed = Cmd::cargo(&root())
            .args(["metadata", "--format-version", "1"])
            .read()?;
        serde_json::from_slice(&printed).context("cannot read the output of `cargo metadata`")
    }

    /// Lists the packages of the workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| self.workspace_members.contains(&package.id))
    }

    /// Lists the packages that others depend on: all below `crates`.
    pub(crate) fn published(&self) -> impl Iterator<Item = &Package> {
        let crates = self.workspace_root.join("crates");
        self.members()
            .filter(move |package| package.directory().starts_with(&crates))
    }

    /// Maps ids to packages.
    pub(crate) fn by_id(&self) -> BTreeMap<&str, &Package> {
        self.packages
            .iter()
            .map(|package| (package.id.as_str(), package))
            .collect()
    }

    /// Returns the directory for what these commands leave behind, below cargo's target directory.
    pub(crate) fn own_directory(&self) -> PathBuf {
        self.target_directory.join("xtask")
    }
}

impl Package {
    /// Whether others can link it.
    pub(crate) fn is_library(&self) -> bool {
        let kinds = |target: &Target| target.kind.iter().any(|kind| kind == "lib");
        self.targets.iter().any(kinds)
    }

    /// Returns the directory of the package.
    pub(crate) fn directory(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }
}

/// Returns the root of the workspace: the directory above this package.
pub(crate) fn root() -> PathBuf {
    let here = process::variable("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().unwrap_or(&here).to_owned()
}

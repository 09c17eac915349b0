//! Which crate may depend on which, and what the core must never pull in.

use std::collections::{BTreeMap, BTreeSet};

use crate::metadata::{Kind, Metadata, Package};

use super::repository::Finding;

const CORE: &str = "groundcrew-core";
const SUPERVISOR: &str = "groundcrew-supervisor";
const TESTKIT: &str = "groundcrew-testkit";
const TESTS: &str = "groundcrew-tests";
const COMMAND: &str = "groundcrew";
const XTASK: &str = "xtask";

/// The crates that know the core and nothing else of ours.
const ON_CORE_ONLY: [&str; 6] = [
    SUPERVISOR,
    "groundcrew-preparer",
    "groundcrew-secrets",
    "groundcrew-state",
    "groundcrew-session",
    TESTKIT,
];

/// What must not be in the core's tree: HTTP, TLS, SQL, git, Docker, the platform, the command line.
const NEVER_IN_CORE: [&str; 25] = [
    "aws-lc-rs",
    "aws-lc-sys",
    "bollard",
    "clap",
    "git2",
    "gix",
    "h2",
    "http",
    "hyper",
    "hyper-util",
    "libgit2-sys",
    "libsqlite3-sys",
    "native-tls",
    "nix",
    "openssl",
    "openssl-sys",
    "pty-process",
    "reqwest",
    "ring",
    "rusqlite",
    "rustix",
    "rustls",
    "sqlx",
    "tonic",
    "ureq",
];

/// Checks every declared edge between our crates, and the core's resolved tree.
pub(crate) fn check(metadata: &Metadata) -> Vec<Finding> {
    let mut findings = Vec::new();
    let members: BTreeSet<&str> = metadata.members().map(|p| p.name.as_str()).collect();
    for package in metadata.members() {
        if !has_rule(package) {
            findings.push(Finding::new(
                &package.name,
                "crate without a place in the layers: give it one in tidy/layers.rs",
            ));
            continue;
        }
        for dependency in &package.dependencies {
            let dev = dependency.kind == Some(Kind::Dev);
            if members.contains(dependency.name.as_str()) && !may(package, &dependency.name, dev) {
                let edge = if dev { "dev-depends" } else { "depends" };
                findings.push(Finding::new(
                    &package.name,
                    format!("{edge} on {}, which the layers forbid", dependency.name),
                ));
            }
        }
    }
    findings.extend(check_core_tree(metadata));
    findings
}

fn is_example(package: &Package) -> bool {
    package
        .directory()
        .parent()
        .is_some_and(|parent| parent.ends_with("examples"))
}

fn is_executor(name: &str) -> bool {
    name.starts_with("groundcrew-executor-")
}

fn has_rule(package: &Package) -> bool {
    let name = package.name.as_str();
    [CORE, COMMAND, TESTS, XTASK].contains(&name)
        || ON_CORE_ONLY.contains(&name)
        || is_executor(name)
        || is_example(package)
}

fn may(from: &Package, to: &str, dev: bool) -> bool {
    let name = from.name.as_str();
    if name == CORE || name == XTASK || to == XTASK || to == TESTS {
        return false;
    }
    if name == TESTS || is_example(from) || to == CORE {
        return true;
    }
    if to == TESTKIT {
        return dev;
    }
    name == COMMAND || (is_executor(name) && to == SUPERVISOR)
}

/// Walks what the core needs to be built; what only its tests need does not count.
fn check_core_tree(metadata: &Metadata) -> Vec<Finding> {
    let packages = metadata.by_id();
    let nodes: BTreeMap<&str, _> = metadata
        .resolve
        .nodes
        .iter()
        .map(|node| (node.id.as_str(), node))
        .collect();
    let Some(core) = metadata.members().find(|package| package.name == CORE) else {
        return vec![Finding::new(CORE, "no such crate in the workspace")];
    };
    let mut seen = BTreeSet::new();
    let mut queue = vec![(core.id.as_str(), vec![CORE])];
    let mut findings = Vec::new();
    while let Some((id, path)) = queue.pop() {
        if !seen.insert(id) {
            continue;
        }
        let Some(node) = nodes.get(id) else { continue };
        for edge in &node.deps {
            let needed = edge
                .dep_kinds
                .iter()
                .any(|kind| kind.kind != Some(Kind::Dev));
            let Some(package) = packages.get(edge.pkg.as_str()).filter(|_| needed) else {
                continue;
            };
            let mut path = path.clone();
            path.push(&package.name);
            if NEVER_IN_CORE.contains(&package.name.as_str()) && !seen.contains(edge.pkg.as_str()) {
                findings.push(Finding::new(
                    CORE,
                    format!("pulls in {}: {}", package.name, path.join(" → ")),
                ));
            }
            queue.push((&edge.pkg, path));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::repository::rendered;
    use super::*;

    /// A workspace of these edges; each is `(from, to, kind)`.
    fn workspace(edges: &[(&str, &str, Option<&str>)]) -> Metadata {
        let mut names: BTreeSet<&str> = edges.iter().flat_map(|(a, b, _)| [*a, *b]).collect();
        names.insert(CORE);
        let ours = |name: &str| {
            name.starts_with("groundcrew") || name == XTASK || name.starts_with("example")
        };
        let packages: Vec<_> = names
            .iter()
            .map(|name| {
                let parent = if name.starts_with("example") {
                    "examples"
                } else {
                    "crates"
                };
                let dependencies: Vec<_> = edges
                    .iter()
                    .filter(|(from, ..)| from == name)
                    .map(|(_, to, kind)| json!({"name": to, "kind": kind}))
                    .collect();
                json!({
                    "id": name, "name": name, "version": "1.0.0", "license": null, "source": null,
                    "dependencies": dependencies, "targets": [],
                    "manifest_path": format!("/w/{parent}/{name}/Cargo.toml"),
                })
            })
            .collect();
        let nodes: Vec<_> = names
            .iter()
            .map(|name| {
                let deps: Vec<_> = edges
                    .iter()
                    .filter(|(from, ..)| from == name)
                    .map(|(_, to, kind)| json!({"pkg": to, "dep_kinds": [{"kind": kind}]}))
                    .collect();
                json!({"id": name, "deps": deps})
            })
            .collect();
        let members: Vec<_> = names.iter().filter(|name| ours(name)).collect();
        serde_json::from_value(json!({
            "packages": packages, "workspace_members": members, "resolve": {"nodes": nodes},
            "workspace_root": "/w", "target_directory": "/w/target",
        }))
        .unwrap()
    }

    fn found(edges: &[(&str, &str, Option<&str>)]) -> Vec<String> {
        rendered(&check(&workspace(edges)))
    }

    #[test]
    fn the_layers_of_the_design_pass() {
        let edges = [
            ("groundcrew-supervisor", CORE, None),
            ("groundcrew-state", CORE, None),
            ("groundcrew-testkit", CORE, None),
            ("groundcrew-state", TESTKIT, Some("dev")),
            ("groundcrew-executor-local", CORE, None),
            ("groundcrew-executor-local", SUPERVISOR, None),
            ("groundcrew-executor-local", TESTKIT, Some("dev")),
            ("groundcrew", CORE, None),
            ("groundcrew", "groundcrew-state", None),
            ("groundcrew", "groundcrew-executor-local", None),
            ("groundcrew-tests", "groundcrew", Some("dev")),
            ("groundcrew-tests", TESTKIT, Some("dev")),
            ("example-binary", "groundcrew-state", None),
            ("xtask", "clap", None),
        ];
        assert_eq!(found(&edges), [""; 0]);
    }

    #[test]
    fn every_other_edge_is_found() {
        for (from, to, kind) in [
            (CORE, "groundcrew-state", None),
            (CORE, TESTKIT, Some("dev")),
            ("groundcrew-state", "groundcrew-preparer", None),
            ("groundcrew-state", "groundcrew-preparer", Some("dev")),
            ("groundcrew-preparer", SUPERVISOR, None),
            ("groundcrew-state", TESTKIT, None),
            ("groundcrew", TESTKIT, None),
            ("groundcrew-executor-local", "groundcrew-preparer", None),
            (
                "groundcrew-executor-local",
                "groundcrew-executor-docker",
                None,
            ),
            (TESTKIT, "groundcrew-state", Some("dev")),
            (XTASK, CORE, None),
            ("groundcrew", XTASK, None),
            ("groundcrew", TESTS, Some("dev")),
        ] {
            let found = found(&[(from, to, kind)]);
            assert_eq!(found.len(), 1, "{from} on {to}: {found:?}");
            assert!(found[0].starts_with(&format!("{from}: ")), "{found:?}");
            assert!(found[0].contains(to), "{found:?}");
        }
    }

    #[test]
    fn an_unknown_crate_needs_a_place() {
        let found = found(&[("groundcrew-new", CORE, None)]);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("without a place"), "{found:?}");
    }

    #[test]
    fn the_core_tree_is_walked_to_its_end() {
        let found = found(&[
            (CORE, "a", None),
            ("a", "b", Some("build")),
            ("b", "rustls", None),
        ]);
        assert_eq!(
            found,
            ["groundcrew-core: pulls in rustls: groundcrew-core → a → b → rustls"]
        );
    }

    #[test]
    fn what_the_tests_of_the_core_need_is_theirs() {
        assert_eq!(found(&[(CORE, "rustix", Some("dev"))]), [""; 0]);
    }
}

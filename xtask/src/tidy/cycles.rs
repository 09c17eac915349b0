//! No circles of imports between the files of a crate, and no file that belongs to none.
//!
//! * A file imports another when its code, outside of `#[cfg(test)]`, names an item of it: in a `use` or in a path,
//!   through `crate`, `self`, `super` or a child module. A name that a file only hands on is followed to where it is
//!   defined.
//! * `mod child;` and `pub use child::Item` are no imports: a parent may show what its children have.
//! * A path that only passes through a parent is no import of the parent: only an item that the parent itself defines
//!   is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use crate::metadata::{Metadata, Package};

use super::repository::{Finding, SourceFile};
use super::tree::{Edges, ModulePath, Tree};

/// Checks every target of every package of the workspace.
pub(crate) fn check(root: &Path, metadata: &Metadata, files: &[SourceFile]) -> Vec<Finding> {
    let files: BTreeMap<PathBuf, &SourceFile> = files
        .iter()
        .filter(|file| file.has_extension("rs"))
        .map(|file| (root.join(&file.path), file))
        .collect();
    let mut findings = Vec::new();
    for package in metadata.members() {
        let mut belonging = BTreeSet::new();
        for target in &package.targets {
            let target = Tree::read(&target.src_path, &files);
            belonging.extend(target.every_file.iter().cloned());
            findings.extend(knots(&target, root));
        }
        findings.extend(forgotten(package, metadata, &files, &belonging));
    }
    findings
}

/// Finds files that no `mod` declares: the compiler never sees them.
fn forgotten(
    package: &Package,
    metadata: &Metadata,
    files: &BTreeMap<PathBuf, &SourceFile>,
    belonging: &BTreeSet<PathBuf>,
) -> Vec<Finding> {
    let directory = package.directory();
    let nested = |path: &Path| {
        metadata.members().any(|other| {
            let other = other.directory();
            other != directory && other.starts_with(directory) && path.starts_with(other)
        })
    };
    let fixture = |path: &Path| path.components().any(|part| part.as_os_str() == "fixtures");
    files
        .iter()
        .filter(|(path, _)| path.starts_with(directory) && !nested(path))
        .filter(|(path, file)| !belonging.contains(*path) && !fixture(&file.path))
        .map(|(_, file)| {
            Finding::new(
                file.path.display(),
                "belongs to no target: declare it with `mod`, or remove it",
            )
        })
        .collect()
}

/// Finds the knots: files that all reach each other. Of each, one finding shows the shortest circle.
fn knots(tree: &Tree, root: &Path) -> Vec<Finding> {
    let edges = tree.edges();
    let reach: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> = edges
        .keys()
        .map(|module| (*module, reachable(module, &edges)))
        .collect();
    let mut findings = Vec::new();
    let mut reported: BTreeSet<&ModulePath> = BTreeSet::new();
    for (module, reached) in &reach {
        if reported.contains(module) {
            continue;
        }
        let knot: Vec<_> = reached
            .iter()
            .copied()
            .filter(|other| reach[other].contains(module))
            .collect();
        reported.extend(&knot);
        let shortest = knot
            .iter()
            .filter_map(|start| shortest_circle(start, &edges))
            .min_by_key(Vec::len);
        if let Some(circle) = shortest {
            findings.push(told(tree, root, &circle, knot.len(), &edges));
        }
    }
    findings
}

fn told(
    tree: &Tree,
    root: &Path,
    circle: &[&ModulePath],
    knot: usize,
    edges: &Edges<'_>,
) -> Finding {
    let first = tree.shown(root, circle[0]);
    let steps: Vec<_> = circle
        .iter()
        .zip(circle.iter().cycle().skip(1))
        .map(|(from, to)| format!("{}:{}", tree.shown(root, from), edges[from][to]))
        .collect();
    let others = match knot - circle.len() {
        0 => String::new(),
        others => format!(" ({others} more hang on it)"),
    };
    Finding::new(
        &first,
        format!(
            "files import each other in a circle: {} → {first}{others}",
            steps.join(" → ")
        ),
    )
}

/// Lists what a module imports, directly or not; itself only if a way leads back.
fn reachable<'a>(start: &'a ModulePath, edges: &Edges<'a>) -> BTreeSet<&'a ModulePath> {
    let mut found = BTreeSet::new();
    let mut queue = vec![start];
    while let Some(at) = queue.pop() {
        for next in edges.get(at).into_iter().flat_map(BTreeMap::keys).copied() {
            if found.insert(next) {
                queue.push(next);
            }
        }
    }
    found
}

/// Finds the shortest way from a module back to itself.
fn shortest_circle<'a>(start: &'a ModulePath, edges: &Edges<'a>) -> Option<Vec<&'a ModulePath>> {
    let mut came_from: BTreeMap<&ModulePath, &ModulePath> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(at) = queue.pop_front() {
        for next in edges.get(at).into_iter().flat_map(BTreeMap::keys).copied() {
            if next == start {
                let mut circle = vec![at];
                let mut back = at;
                while let Some(previous) = came_from.get(back) {
                    circle.push(previous);
                    back = previous;
                }
                circle.reverse();
                return Some(circle);
            }
            if !came_from.contains_key(next) {
                came_from.insert(next, at);
                queue.push_back(next);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::repository::{fixture, rendered};
    use super::*;

    /// Checks a crate whose root is `src/lib.rs`.
    fn found(sources: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = sources
            .iter()
            .map(|(path, text)| fixture(path, text))
            .collect();
        let metadata: Metadata = serde_json::from_value(json!({
            "packages": [{
                "id": "a", "name": "a", "version": "1.0.0", "license": null, "source": null, "dependencies": [],
                "targets": [{"name": "a", "kind": ["lib"], "src_path": "/w/src/lib.rs"}],
                "manifest_path": "/w/Cargo.toml",
            }],
            "workspace_members": ["a"], "resolve": {"nodes": []},
            "workspace_root": "/w", "target_directory": "/w/target",
        }))
        .unwrap();
        rendered(&check(Path::new("/w"), &metadata, &files))
    }

    const ROOT: (&str, &str) = ("src/lib.rs", "mod a; mod b; pub use a::A; pub use b::B;");

    #[test]
    fn one_direction_is_fine() {
        let b = (
            "src/b.rs",
            "use crate::a::A; pub struct B(A); fn c() { super::a::d(); }",
        );
        assert_eq!(
            found(&[ROOT, ("src/a.rs", "pub struct A; pub fn d() {}"), b]),
            [""; 0]
        );
    }

    #[test]
    fn a_circle_is_reported_once_with_its_lines() {
        let a = ("src/a.rs", "\nuse crate::b::B;\npub struct A(B);");
        let b = ("src/b.rs", "pub struct B; fn c(_: super::a::A) {}");
        assert_eq!(
            found(&[ROOT, a, b]),
            ["src/a.rs: files import each other in a circle: src/a.rs:2 → src/b.rs:1 → src/a.rs"]
        );
    }

    #[test]
    fn a_name_handed_on_by_the_root_is_followed() {
        let a = ("src/a.rs", "use crate::B; pub struct A(B);");
        let b = ("src/b.rs", "use crate::{A as X}; pub struct B;");
        assert_eq!(found(&[ROOT, a, b]).len(), 1);
        let glob = ("src/lib.rs", "mod a; mod b; pub use a::*; pub use b::*;");
        assert_eq!(found(&[glob, a, b]).len(), 1);
        let b = ("src/b.rs", "pub struct B;");
        assert_eq!(found(&[ROOT, a, b]), [""; 0]);
        assert_eq!(found(&[glob, a, b]), [""; 0]);
    }

    #[test]
    fn a_longer_circle_is_found() {
        let root = ("src/lib.rs", "mod a; mod b; mod c;");
        let sources = [
            root,
            ("src/a.rs", "use crate::b::B; pub struct A;"),
            ("src/b.rs", "use crate::c::C; pub struct B;"),
            ("src/c/mod.rs", "use crate::a::A; pub struct C;"),
        ];
        assert_eq!(found(&sources).len(), 1);
    }

    #[test]
    fn parent_and_child_count_only_when_both_really_import() {
        let child = ("src/a/child.rs", "use super::Item; pub struct Child;");
        let shows = (
            "src/a.rs",
            "mod child; pub use child::Child; pub struct Item;",
        );
        let uses = (
            "src/a.rs",
            "mod child; use child::Child; pub struct Item(Child);",
        );
        let calls = (
            "src/a.rs",
            "mod child; pub struct Item; fn x() { child::Child; }",
        );
        let both = (
            "src/a.rs",
            "mod child; pub use child::Child; pub struct Item(Child);",
        );
        let root = ("src/lib.rs", "mod a;");
        assert_eq!(found(&[root, shows, child]), [""; 0]);
        for parent in [uses, calls, both] {
            assert_eq!(found(&[root, parent, child]).len(), 1, "{parent:?}");
        }
        let passing = (
            "src/a/child.rs",
            "use super::other::Other; pub struct Child(Other);",
        );
        let parent = (
            "src/a.rs",
            "mod child; mod other; use child::Child; pub struct Item(Child);",
        );
        let other = ("src/a/other.rs", "pub struct Other;");
        assert_eq!(found(&[root, parent, passing, other]), [""; 0]);
    }

    #[test]
    fn tests_strings_and_comments_do_not_import() {
        let a = ("src/a.rs", "use crate::b::B; pub struct A;");
        let b = (
            "src/b.rs",
            "pub struct B; // use crate::a::A;\nconst C: &str = \"crate::a::A\";\n#[cfg(test)] mod tests { use crate::a::A; }",
        );
        assert_eq!(found(&[ROOT, a, b]), [""; 0]);
        let b = ("src/b.rs", "pub struct B; #[cfg(test)] mod tests;");
        let tests = ("src/b/tests.rs", "use crate::a::A;");
        assert_eq!(found(&[ROOT, a, b, tests]), [""; 0]);
    }

    #[test]
    fn files_of_tests_may_go_in_circles() {
        let root = ("src/lib.rs", "#[cfg(test)] mod one; #[cfg(test)] mod two;");
        let one = ("src/one.rs", "use crate::two::Two; pub struct One;");
        let two = ("src/two.rs", "use crate::one::One; pub struct Two;");
        assert_eq!(found(&[root, one, two]), [""; 0]);
        let root = ("src/lib.rs", "mod one; mod two;");
        assert_eq!(found(&[root, one, two]).len(), 1);
    }

    #[test]
    fn a_knot_is_told_once_by_its_shortest_circle() {
        let sources = [
            ("src/lib.rs", "mod a; mod b; mod c;"),
            ("src/a.rs", "use crate::b::B; pub struct A;"),
            ("src/b.rs", "use crate::c::C; pub struct B;"),
            ("src/c.rs", "use crate::{a::A, b::B}; pub struct C;"),
        ];
        assert_eq!(
            found(&sources),
            [
                "src/b.rs: files import each other in a circle: src/b.rs:1 → src/c.rs:1 → src/b.rs (1 more hang on it)"
            ]
        );
    }

    #[test]
    fn what_a_parent_does_not_define_is_not_imported_from_it() {
        let root = ("src/lib.rs", "mod a;");
        let parent = (
            "src/a.rs",
            "mod child; use serde::Foreign; make!(Generated); fn x(_: child::Child) {}",
        );
        let child = (
            "src/a/child.rs",
            "use super::{Foreign, Generated}; pub struct Child;",
        );
        assert_eq!(found(&[root, parent, child]), [""; 0]);
    }

    #[test]
    fn inline_modules_belong_to_their_file() {
        let a = (
            "src/a.rs",
            "pub struct A; mod in_a { use super::super::b::B; use super::A; }",
        );
        let b = ("src/b.rs", "pub struct B; use crate::a::A;");
        assert_eq!(found(&[ROOT, a, b]).len(), 1);
        let a = ("src/a.rs", "pub struct A; mod in_a { use super::A; }");
        assert_eq!(found(&[ROOT, a, b]), [""; 0]);
    }

    #[test]
    fn a_file_that_nothing_declares_is_found() {
        let root = ("src/lib.rs", "#[cfg(test)] mod a;");
        let sources = [
            root,
            ("src/a.rs", ""),
            ("src/b.rs", ""),
            ("tests/fixtures/c.rs", ""),
        ];
        assert_eq!(
            found(&sources),
            ["src/b.rs: belongs to no target: declare it with `mod`, or remove it"]
        );
    }
}

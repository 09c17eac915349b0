//! The files of one target as a tree of modules, and where the paths in them lead.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use super::modules::{self, Mention, Outline};
use super::repository::SourceFile;

/// The names of the modules above a module and its own; none for the root.
pub(super) type ModulePath = Vec<String>;

/// The files of one target, by module.
pub(super) struct Tree {
    modules: BTreeMap<ModulePath, Node>,
    /// Every file that a `mod` leads to, those of tests included.
    pub(super) every_file: BTreeSet<PathBuf>,
}

struct Node {
    path: PathBuf,
    outline: Outline,
}

/// For each module the modules it imports, each with the first line that does.
pub(super) type Edges<'a> = BTreeMap<&'a ModulePath, BTreeMap<&'a ModulePath, usize>>;

/// Where a path leads: a module with a file, and the item in it, if one is named.
type Place = (ModulePath, Option<String>);

impl Tree {
    /// Follows the `mod` declarations from the root of a target.
    pub(super) fn read(src: &Path, files: &BTreeMap<PathBuf, &SourceFile>) -> Self {
        let mut tree = Self {
            modules: BTreeMap::new(),
            every_file: BTreeSet::new(),
        };
        let directory = src.parent().unwrap_or(src).to_owned();
        let mut queue = VecDeque::from([(Vec::new(), src.to_owned(), directory, true)]);
        while let Some((module, path, directory, in_program)) = queue.pop_front() {
            let Some(file) = files.get(&path) else {
                continue;
            };
            if !tree.every_file.insert(path.clone()) {
                continue;
            }
            let outline = modules::outline(&file.text);
            for declared in &outline.declared {
                let (within, name) = declared;
                let mut below = directory.clone();
                below.extend(within);
                let mut child = module.clone();
                child.extend(within.iter().cloned());
                child.push(name.clone());
                let child_in_program = in_program && outline.in_program.contains(declared);
                let own = below.join(name);
                for candidate in [below.join(format!("{name}.rs")), own.join("mod.rs")] {
                    queue.push_back((child.clone(), candidate, own.clone(), child_in_program));
                }
            }
            if in_program {
                tree.modules.insert(module, Node { path, outline });
            }
        }
        tree
    }

    /// Returns the path of a module's file, from the root of the repository.
    pub(super) fn shown(&self, root: &Path, module: &ModulePath) -> String {
        let path = &self.modules[module].path;
        path.strip_prefix(root)
            .unwrap_or(path)
            .display()
            .to_string()
    }

    /// Lists who imports whom.
    pub(super) fn edges(&self) -> Edges<'_> {
        let mut edges = Edges::new();
        for (module, node) in &self.modules {
            let targets = edges.entry(module).or_default();
            for mention in &node.outline.mentioned {
                let Some(target) = self.import(module, mention) else {
                    continue;
                };
                if let Some((target, _)) = self.modules.get_key_value(&target) {
                    targets.entry(target).or_insert(mention.line);
                }
            }
        }
        edges
    }

    /// Returns the module that a mention imports from, if it is one of ours and counts.
    fn import(&self, module: &ModulePath, mention: &Mention) -> Option<ModulePath> {
        let (target, item) =
            self.follow(module, &mention.within, &mention.path, &mut BTreeSet::new())?;
        let is_child = target.starts_with(module);
        if &target == module || (is_child && mention.handed_on) {
            return None;
        }
        if module.starts_with(&target) {
            let defined = &self.modules[&target].outline.defined;
            let counts = match item.as_deref() {
                Some("*") => !defined.is_empty(),
                Some(item) => defined.contains(item),
                None => false,
            };
            if !counts {
                return None;
            }
        }
        Some(target)
    }

    /// Follows a path to the file that defines its item, through names that are handed on.
    fn follow(
        &self,
        module: &ModulePath,
        within: &[String],
        path: &[String],
        seen: &mut BTreeSet<ModulePath>,
    ) -> Option<Place> {
        let (target, item) = self.resolve(module, within, path)?;
        let node = &self.modules[&target];
        let Some(name) = item else {
            return Some((target, None));
        };
        // A module that was asked already has nothing new to say.
        let again = !seen.insert(target.clone());
        if again || name == "*" || node.outline.defined.contains(&name) {
            return Some((target, Some(name)));
        }
        let mut globs = Vec::new();
        for import in &node.outline.imported {
            if import.name == name {
                // What is handed on from another crate is nobody's import here.
                return self.follow(&target, &[], &import.path, seen);
            }
            if import.name == "*" {
                globs.push(&import.path);
            }
        }
        for glob in globs {
            let mut path = glob.clone();
            path.pop();
            path.push(name.clone());
            if let Some((found, item)) = self.follow(&target, &[], &path, seen)
                && self.modules[&found].outline.defined.contains(&name)
            {
                return Some((found, item));
            }
        }
        Some((target, Some(name)))
    }

    /// Reads a path as far as it names modules with files; what comes next is the item.
    fn resolve(&self, module: &ModulePath, within: &[String], path: &[String]) -> Option<Place> {
        let mut here: ModulePath = module.iter().chain(within).cloned().collect();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => {
                here.clear();
                rest = &rest[1..];
            }
            "self" | "super" => {
                if rest[0] == "self" {
                    rest = &rest[1..];
                }
                while rest.first().is_some_and(|word| word == "super") {
                    here.pop()?;
                    rest = &rest[1..];
                }
            }
            child => {
                let mut inner = here.clone();
                inner.push(child.to_owned());
                if !self.modules.contains_key(&inner) {
                    return None;
                }
            }
        }
        while let Some(next) = rest.first() {
            here.push(next.clone());
            if !self.modules.contains_key(&here) {
                here.pop();
                break;
            }
            rest = &rest[1..];
        }
        let item = rest.first().cloned();
        // An inline module has no file; its items are its file's.
        while !self.modules.contains_key(&here) {
            here.pop()?;
        }
        Some((here, item))
    }
}

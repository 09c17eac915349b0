//! What a run owns again when its work is back: the records of what its launch made, as far as it is there.

use groundcrew_core::{
    Owned, Regained,
    error::{Error, ErrorKind},
    id::PreparerName,
    preparer::PlannedResource,
    undo::Due,
};

use super::things::Thing;
use crate::{
    files::id::FileId,
    worktree::resource::{Kind, Part, Planned, Resource},
};

/// Says what the run owns again.
pub(super) fn regained(things: &[Thing]) -> Result<Regained, Error> {
    let mut owned = Vec::new();
    let first = things.iter().find_map(|thing| thing.resource.as_ref());
    if let Some(first) = first {
        let planned = planned(first);
        let parts: Vec<&Part> = planned
            .parts
            .iter()
            .filter(|part| is_back(part, things))
            .collect();
        let tree = things
            .iter()
            .find(|thing| thing.is(Kind::Clone))
            .map_or(Kind::Worktree, |_| Kind::Clone);
        let mut own = |kind: Kind,
                       part: &Part,
                       label: String,
                       due,
                       depends_on: Vec<String>,
                       id: Option<FileId>| {
            let resource = Resource::new(kind, &planned, part);
            owned.push(Owned {
                preparer: PreparerName::new("worktree")?,
                resource: PlannedResource {
                    key: resource.key(),
                    resource: serde_json::to_string(&resource).map_err(|error| {
                        Error::new(ErrorKind::Unexpected, "failed to write a record down")
                            .with_source(error)
                    })?,
                    label,
                    due,
                    depends_on,
                },
                identity: id.map(Into::into),
            });
            Ok::<_, Error>(())
        };
        if let Some(part) = planned.parts.first() {
            let trees = parts.iter().map(|part| part.key(tree)).collect();
            let label = format!("directory {}", planned.directory.display());
            let id = FileId::of(&planned.directory)?;
            own(Kind::Directory, part, label, Due::Close, trees, id)?;
        }
        for part in parts {
            let behind = vec![part.key(tree)];
            if tree == Kind::Clone {
                let label = format!("start point of {}", part.branch);
                own(Kind::Base, part, label, Due::Close, behind.clone(), None)?;
            }
            let label = format!("branch {}", part.branch);
            own(Kind::Branch, part, label, Due::Remove, behind, None)?;
            let what = if tree == Kind::Clone {
                "clone"
            } else {
                "worktree"
            };
            let label = format!("{what} {}", part.tree.display());
            own(
                tree,
                part,
                label,
                Due::Close,
                Vec::new(),
                FileId::of(&part.tree)?,
            )?;
        }
    }
    for thing in things.iter().filter(|thing| thing.resource.is_none()) {
        let scratch = thing.origin.kind == "scratch";
        let what = if scratch {
            "task directory"
        } else {
            "directory"
        };
        owned.push(Owned {
            preparer: PreparerName::new(&*thing.origin.kind)?,
            resource: PlannedResource {
                key: thing.origin.key.clone(),
                resource: thing.origin.resource.clone(),
                label: format!("{what} {}", thing.target.display()),
                due: if scratch { Due::Failure } else { Due::Close },
                depends_on: Vec::new(),
            },
            identity: Some(thing.origin.id.into()),
        });
    }
    let attempt = things
        .first()
        .map(|thing| thing.origin.attempt)
        .ok_or_else(|| Error::new(ErrorKind::Unexpected, "nothing was brought back"))?;
    Ok(Regained { attempt, owned })
}

fn is_back(part: &Part, things: &[Thing]) -> bool {
    things.iter().any(|thing| {
        thing.resource.as_ref().is_some_and(|resource| {
            resource.kind != Kind::Directory && resource.part.index == part.index
        })
    })
}

fn planned(resource: &Resource) -> Planned {
    let mut parts = vec![resource.part.clone()];
    parts.extend(resource.others.iter().cloned());
    parts.sort_by_key(|part| part.index);
    Planned {
        install: resource.install.clone(),
        run: resource.run.clone(),
        attempt: resource.attempt,
        directory: resource.directory.clone(),
        parts,
    }
}

//! The composer: many definitions in, one environment or all conflicts out.
//!
//! It is pure, total, and blind to the order of its input; it reveals nothing.

use crate::env::{
    composition::{Composition, Conflict, Overridden, Variable},
    definition::{Definition, Tier, Value},
    git_config,
};

/// Decides which definition of each variable holds.
///
/// * The strongest tier wins; definers of one tier must agree.
/// * A secret is never outranked: a stronger definition that differs from it is a conflict.
/// * A variable of the tier `Identity` holds whatever a profile says; a request that names it is a conflict.
/// * Git's indexed configuration is merged as a list, weakest definer first, so that a stronger one has the last word.
///
/// # Errors
///
/// All conflicts, in the order of the names.
pub fn compose(
    definitions: impl IntoIterator<Item = Definition>,
) -> Result<Composition, Vec<Conflict>> {
    let mut definitions: Vec<_> = definitions.into_iter().collect();
    definitions.sort_by(Definition::order);
    definitions.dedup();
    let mut conflicts = Vec::new();
    let git = git_config::lift(&mut definitions).unwrap_or_else(|damaged| {
        conflicts.extend(damaged.into_iter().map(|(origin, why)| Conflict {
            key: git_config::COUNT.into(),
            origins: vec![origin],
            why,
        }));
        git_config::List::default()
    });
    let mut composition = Composition::default();
    for group in definitions.chunk_by(|a, b| a.key == b.key) {
        match decide(group) {
            Ok(winner) => composition.variables.push(decided(winner, group)),
            Err(why) => conflicts.push(Conflict {
                key: group[0].key.to_string(),
                origins: group.iter().map(|d| d.origin.clone()).collect(),
                why: why.into(),
            }),
        }
    }
    if !conflicts.is_empty() {
        conflicts.sort_by(|a, b| a.key.cmp(&b.key));
        return Err(conflicts);
    }
    composition.variables.extend(git.into_variables());
    composition
        .variables
        .sort_by(|a, b| a.definition.order(&b.definition));
    Ok(composition)
}

fn decided(winner: &Definition, group: &[Definition]) -> Variable {
    let (same, lost): (Vec<_>, Vec<_>) = group.iter().partition(|d| d.value == winner.value);
    Variable {
        definition: winner.clone(),
        agreeing: same
            .into_iter()
            .filter(|d| d.origin != winner.origin)
            .map(|d| d.origin.clone())
            .collect(),
        overridden: lost
            .into_iter()
            .map(|d| Overridden {
                origin: d.origin.clone(),
                tier: d.tier,
            })
            .collect(),
    }
}

/// Decides one variable; `group` is sorted by strength and not empty.
fn decide(group: &[Definition]) -> Result<&Definition, &'static str> {
    let strongest = &group[group.len() - 1];
    let differs = |d: &&Definition| d.value != strongest.value;
    if group
        .iter()
        .filter(|d| d.tier == strongest.tier)
        .any(|d| differs(&d))
    {
        return Err("defined twice with different values; remove one");
    }
    if group
        .iter()
        .any(|d| matches!(d.value, Value::Secret(_)) && differs(&d))
    {
        return Err("a secret would be overridden; remove one of the two");
    }
    if strongest.tier == Tier::Identity
        && group.iter().any(|d| d.tier > Tier::Profile && differs(&d))
    {
        return Err("names the run and cannot be set; choose another name");
    }
    Ok(strongest)
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

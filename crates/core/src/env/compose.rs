//! The composer: many definitions in, one environment or all conflicts out.
//!
//! It is pure, total, and blind to the order of its input; it reveals nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    env::{
        definition::{Definition, Origin, Tier, Value},
        environment::Key,
        git_config,
    },
    wire::OsText,
};

/// A variable that cannot be decided, with everybody who defines it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The variable.
    pub key: String,
    /// Who defines it, weakest first.
    pub origins: Vec<Origin>,
    /// Why it cannot be decided.
    pub why: String,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origins: Vec<_> = self.origins.iter().map(|o| o.0.as_str()).collect();
        write!(f, "{}: {} ({})", self.key, self.why, origins.join(", "))
    }
}

/// A definition that lost against a stronger one; without values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// The variable.
    pub key: Key,
    /// Who won.
    pub winner: Origin,
    /// Who lost.
    pub loser: Origin,
}

/// A decided environment, secrets still unrevealed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Composition {
    /// One definition for each variable, in the order of the names.
    pub variables: Vec<Definition>,
    /// What lost.
    pub overrides: Vec<Override>,
}

/// Decides which definition of each variable holds.
///
/// * The strongest tier wins; definers of one tier must agree.
/// * A secret is never outranked: a stronger definition that differs from it is a conflict.
/// * A variable of the tier `Identity` admits no other definition but an inherited one.
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
            key: "GIT_CONFIG_COUNT".into(),
            origins: vec![origin],
            why,
        }));
        Vec::new()
    });
    let mut composition = Composition::default();
    for group in definitions.chunk_by(|a, b| a.key == b.key) {
        match decide(group) {
            Ok(winner) => {
                composition
                    .overrides
                    .extend(
                        group
                            .iter()
                            .filter(|d| d.value != winner.value)
                            .map(|loser| Override {
                                key: winner.key.clone(),
                                winner: winner.origin.clone(),
                                loser: loser.origin.clone(),
                            }),
                    );
                composition.variables.push(winner.clone());
            }
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
    if !git.is_empty() {
        let origin = "git configuration, merged";
        let mut push = |name: String, value: Value| {
            // The names are ours and always valid.
            if let Ok(key) = Key::new(name.as_str()) {
                composition.variables.push(Definition {
                    key,
                    value,
                    origin: Origin(origin.into()),
                    tier: Tier::Request,
                });
            }
        };
        push(
            "GIT_CONFIG_COUNT".into(),
            Value::Literal(OsText::new(git.len().to_string())),
        );
        for (index, (key, value)) in git.into_iter().enumerate() {
            push(format!("GIT_CONFIG_KEY_{index}"), Value::Literal(key));
            push(format!("GIT_CONFIG_VALUE_{index}"), value);
        }
        composition.variables.sort_by(Definition::order);
    }
    Ok(composition)
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
        && group
            .iter()
            .any(|d| d.tier > Tier::Inherited && differs(&d))
    {
        return Err("names the run and cannot be set; choose another name");
    }
    Ok(strongest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::SecretRef;
    use proptest::prelude::*;

    fn def(key: &str, value: &str, tier: Tier, origin: &str) -> Definition {
        Definition::literal(Key::new(key).unwrap(), value, tier, origin)
    }

    fn value<'a>(composition: &'a Composition, key: &str) -> &'a [u8] {
        match &composition
            .variables
            .iter()
            .find(|d| d.key.as_bytes() == key.as_bytes())
            .unwrap()
            .value
        {
            Value::Literal(text) => text.as_bytes(),
            Value::Secret(_) => b"<secret>",
        }
    }

    #[test]
    fn the_strongest_tier_wins_and_the_loser_is_recorded_without_value() {
        let composition = compose([
            def("A", "weak", Tier::Inherited, "caller"),
            def("A", "strong", Tier::Request, "--env"),
        ])
        .unwrap();
        assert_eq!(value(&composition, "A"), b"strong");
        assert_eq!(composition.overrides[0].loser.0, "caller");
        assert!(!format!("{:?}", composition.overrides).contains("weak"));
    }

    #[test]
    fn all_conflicts_are_reported_at_once_with_every_origin() {
        let secret = Definition::secret(
            Key::new("B").unwrap(),
            SecretRef::new("b").unwrap(),
            Tier::Profile,
            "profile",
        );
        let conflicts = compose([
            def("A", "1", Tier::Request, "one"),
            def("A", "2", Tier::Request, "two"),
            secret,
            def("B", "x", Tier::Request, "--env"),
            def("GROUNDCREW_RUN_ID", "fake", Tier::Request, "--env"),
            def("GROUNDCREW_RUN_ID", "real", Tier::Identity, "run"),
        ])
        .unwrap_err();
        assert_eq!(
            conflicts.iter().map(|c| c.key.as_str()).collect::<Vec<_>>(),
            ["A", "B", "GROUNDCREW_RUN_ID"]
        );
        assert!(conflicts.iter().all(|c| c.origins.len() == 2));
    }

    #[test]
    fn git_lists_of_two_definers_are_merged_and_damaged_ones_refused() {
        let list = |tier, origin: &str, key: &str| {
            [
                def("GIT_CONFIG_COUNT", "1", tier, origin),
                def("GIT_CONFIG_KEY_0", key, tier, origin),
                def("GIT_CONFIG_VALUE_0", "v", tier, origin),
            ]
        };
        let merged = compose(
            [
                list(Tier::Request, "b", "y.y"),
                list(Tier::Inherited, "a", "x.x"),
            ]
            .concat(),
        )
        .unwrap();
        assert_eq!(value(&merged, "GIT_CONFIG_COUNT"), b"2");
        assert_eq!(
            (
                value(&merged, "GIT_CONFIG_KEY_0"),
                value(&merged, "GIT_CONFIG_KEY_1")
            ),
            (&b"x.x"[..], &b"y.y"[..])
        );
        let conflicts = compose([
            def("GIT_CONFIG_COUNT", "2", Tier::Request, "a"),
            def("GIT_CONFIG_KEY_0", "x", Tier::Request, "a"),
        ])
        .unwrap_err();
        assert_eq!(conflicts[0].origins[0].0, "a");
    }

    proptest! {
        #[test]
        fn the_order_of_input_plays_no_part(mut input in proptest::collection::vec((0..4u8, 0..3u8, 0..4u8, 0..3u8), 0..12), seed in any::<u64>()) {
            let tiers = [Tier::Inherited, Tier::Profile, Tier::Request, Tier::Identity];
            let make = |input: &[(u8, u8, u8, u8)]| compose(input.iter().map(|(k, v, t, o)| def(&format!("K{k}"), &v.to_string(), tiers[usize::from(*t)], &format!("o{o}"))));
            let first = make(&input);
            let len = input.len().max(1);
            input.rotate_left(usize::try_from(seed % len as u64).unwrap());
            input.reverse();
            prop_assert_eq!(make(&input), first);
        }

        #[test]
        fn merging_a_merged_git_list_again_changes_nothing(keys in proptest::collection::vec("[a-c]\\.[a-c]", 1..6)) {
            let mut input = vec![def("GIT_CONFIG_COUNT", &keys.len().to_string(), Tier::Request, "a")];
            for (n, key) in keys.iter().enumerate() {
                input.push(def(&format!("GIT_CONFIG_KEY_{n}"), key, Tier::Request, "a"));
                input.push(def(&format!("GIT_CONFIG_VALUE_{n}"), "v", Tier::Request, "a"));
            }
            let once = compose(input.clone()).unwrap();
            let again = compose(input.into_iter().chain(once.variables.clone())).unwrap();
            prop_assert_eq!(once.variables, again.variables);
        }
    }
}

//! Git's indexed configuration (`GIT_CONFIG_COUNT`, `GIT_CONFIG_KEY_n`, `GIT_CONFIG_VALUE_n`) as one ordered list.
//!
//! Variables with a number in their name cannot be merged one by one: two definers would overwrite each other's entries.
//! Order and repetition mean something to git, so nothing is sorted, and nothing is dropped but a list that stands already.

use std::collections::BTreeMap;

use crate::{
    env::{
        composition::Variable,
        definition::{Definition, Origin, Tier, Value},
        environment::Key,
    },
    wire::OsText,
};

/// The variable that says how many entries there are.
pub(super) const COUNT: &str = "GIT_CONFIG_COUNT";
const KEY: &str = "GIT_CONFIG_KEY_";
const VALUE: &str = "GIT_CONFIG_VALUE_";

/// The most entries that are taken; what git itself reads without trouble.
pub(super) const MAX_ENTRIES: usize = 256;

/// What merged entries are said to come from.
const MERGED: &str = "git configuration, merged";

/// One entry: the configuration's key and its value, which may be a secret.
type Entry = (OsText, Value);

/// The entries of all definers, weakest first: a later entry has the last word.
#[derive(Debug, Default)]
pub(super) struct List {
    entries: Vec<Entry>,
    origins: Vec<Origin>,
}

/// Takes git's indexed variables out of `definitions`; returns them as one list.
///
/// * Entries without a count are ignored, as are those at or beyond it: so does git.
///
/// # Errors
///
/// The definers whose list is damaged, each with the reason.
pub(super) fn lift(definitions: &mut Vec<Definition>) -> Result<List, Vec<(Origin, String)>> {
    let mut blocks: BTreeMap<(Tier, Origin), BTreeMap<Vec<u8>, Vec<Value>>> = BTreeMap::new();
    definitions.retain(|definition| {
        let key = definition.key.as_bytes();
        let indexed = key == COUNT.as_bytes()
            || key.starts_with(KEY.as_bytes())
            || key.starts_with(VALUE.as_bytes());
        if indexed {
            let block = blocks
                .entry((definition.tier, definition.origin.clone()))
                .or_default();
            let values = block.entry(key.to_vec()).or_default();
            values.push(definition.value.clone());
        }
        !indexed
    });
    let mut list = List::default();
    let mut damaged = Vec::new();
    for ((_, origin), block) in blocks {
        match read(&block) {
            Ok(block) if block.is_empty() => {}
            Ok(block) => {
                append(&mut list.entries, block);
                list.origins.push(origin);
            }
            Err(why) => damaged.push((origin, why)),
        }
    }
    if list.entries.len() > MAX_ENTRIES {
        damaged.push((
            Origin(MERGED.into()),
            format!(
                "{} entries, at most {MAX_ENTRIES} are taken",
                list.entries.len()
            ),
        ));
    }
    if damaged.is_empty() {
        Ok(list)
    } else {
        Err(damaged)
    }
}

/// Appends a list without the longest part of its beginning that is the end already: merging again changes nothing.
fn append(entries: &mut Vec<Entry>, more: Vec<Entry>) {
    let longest = entries.len().min(more.len());
    let overlap = (1..=longest)
        .rev()
        .find(|length| entries.ends_with(&more[..*length]))
        .unwrap_or(0);
    entries.extend(more.into_iter().skip(overlap));
}

fn read(block: &BTreeMap<Vec<u8>, Vec<Value>>) -> Result<Vec<Entry>, String> {
    let one = |name: &str| match block.get(name.as_bytes()).map(Vec::as_slice) {
        Some([value]) => Ok(value),
        Some(_) => Err(format!("{name} has two different values")),
        None => Err(format!("{name} is missing")),
    };
    let literal = |name: &str| match one(name)? {
        Value::Literal(text) => Ok(text.clone()),
        Value::Secret(_) => Err(format!("{name} must not be a secret")),
    };
    if !block.contains_key(COUNT.as_bytes()) {
        return Ok(Vec::new());
    }
    let count = literal(COUNT)?;
    let count: usize = std::str::from_utf8(count.as_bytes())
        .ok()
        .and_then(|text| text.parse().ok())
        .filter(|count| *count <= MAX_ENTRIES)
        .ok_or_else(|| format!("{COUNT} is not a number from 0 to {MAX_ENTRIES}"))?;
    (0..count)
        .map(|index| {
            let name = format!("{KEY}{index}");
            let key = literal(&name)?;
            if key.as_bytes().is_empty() {
                return Err(format!("{name} is empty"));
            }
            let value = one(&format!("{VALUE}{index}"))?;
            Ok((key, value.clone()))
        })
        .collect()
}

impl List {
    /// Returns the variables that say all entries; none for no entries.
    pub(super) fn into_variables(self) -> Vec<Variable> {
        let count = self.entries.len();
        if count == 0 {
            return Vec::new();
        }
        let count = (
            COUNT.to_owned(),
            Value::Literal(OsText::new(count.to_string())),
        );
        let numbered = self.entries.into_iter().enumerate();
        let numbered = numbered.flat_map(|(index, (key, value))| {
            let key = (format!("{KEY}{index}"), Value::Literal(key));
            [key, (format!("{VALUE}{index}"), value)]
        });
        let variable = |(name, value): (String, Value)| {
            // The names are ours and always valid.
            let key = Key::new(name.as_str()).ok()?;
            Some(Variable {
                definition: Definition {
                    key,
                    value,
                    origin: Origin(MERGED.into()),
                    tier: Tier::Request,
                },
                agreeing: self.origins.clone(),
                overridden: Vec::new(),
            })
        };
        [count]
            .into_iter()
            .chain(numbered)
            .filter_map(variable)
            .collect()
    }
}

//! Git's indexed configuration (`GIT_CONFIG_COUNT`, `GIT_CONFIG_KEY_n`, `GIT_CONFIG_VALUE_n`) as one ordered list.
//!
//! Variables with a number in their name cannot be merged one by one: two definers would overwrite each other's entries.

use std::collections::BTreeMap;

use crate::{
    env::definition::{Definition, Origin, Tier, Value},
    wire::OsText,
};

/// The most entries that are taken; what git itself reads without trouble.
pub(super) const MAX_ENTRIES: usize = 256;

/// One entry: the configuration's key and its value, which may be a secret.
type Entry = (OsText, Value);

/// Takes git's indexed variables out of `definitions`; returns the merged entries, weakest definer first.
///
/// # Errors
///
/// The definers whose list is damaged, each with the reason.
pub(super) fn lift(definitions: &mut Vec<Definition>) -> Result<Vec<Entry>, Vec<(Origin, String)>> {
    let mut blocks: BTreeMap<(Tier, Origin), BTreeMap<Vec<u8>, Value>> = BTreeMap::new();
    definitions.retain(|definition| {
        let key = definition.key.as_bytes();
        let indexed = key == b"GIT_CONFIG_COUNT"
            || key.starts_with(b"GIT_CONFIG_KEY_")
            || key.starts_with(b"GIT_CONFIG_VALUE_");
        if indexed {
            let block = blocks
                .entry((definition.tier, definition.origin.clone()))
                .or_default();
            block.insert(key.to_vec(), definition.value.clone());
        }
        !indexed
    });
    let mut entries: Vec<Entry> = Vec::new();
    let mut damaged = Vec::new();
    for ((_, origin), block) in blocks {
        match read(&block) {
            // An entry that stands already is not said twice, so that merging again changes nothing.
            Ok(block) => {
                let new: Vec<_> = block
                    .into_iter()
                    .filter(|entry| !entries.contains(entry))
                    .collect();
                entries.extend(new);
            }
            Err(why) => damaged.push((origin, why)),
        }
    }
    if entries.len() > MAX_ENTRIES {
        damaged.push((
            Origin("git configuration".into()),
            format!("{} entries, at most {MAX_ENTRIES} are taken", entries.len()),
        ));
    }
    if damaged.is_empty() {
        Ok(entries)
    } else {
        Err(damaged)
    }
}

fn read(block: &BTreeMap<Vec<u8>, Value>) -> Result<Vec<Entry>, String> {
    let literal = |name: &str| match block.get(name.as_bytes()) {
        Some(Value::Literal(text)) => Ok(text.clone()),
        Some(Value::Secret(_)) => Err(format!("{name} must not be a secret")),
        None => Err(format!("{name} is missing")),
    };
    let count = literal("GIT_CONFIG_COUNT")?;
    let count: usize = std::str::from_utf8(count.as_bytes())
        .ok()
        .and_then(|text| text.parse().ok())
        .filter(|count| *count <= MAX_ENTRIES)
        .ok_or_else(|| format!("GIT_CONFIG_COUNT is not a number from 0 to {MAX_ENTRIES}"))?;
    (0..count)
        .map(|index| {
            let key = literal(&format!("GIT_CONFIG_KEY_{index}"))?;
            let value = block
                .get(format!("GIT_CONFIG_VALUE_{index}").as_bytes())
                .ok_or_else(|| format!("GIT_CONFIG_VALUE_{index} is missing"))?;
            Ok((key, value.clone()))
        })
        .collect()
}

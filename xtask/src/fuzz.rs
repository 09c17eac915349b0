//! `cargo xtask fuzz`: the properties of everything that reads what strangers wrote, many thousand times each.
//!
//! The same tests run a few hundred times among all others; here only their number differs. A property is a test in a module
//! named `properties`.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::{console, metadata::Metadata, process::Cmd};

/// How often a gate runs each property.
pub(crate) const CASES: u32 = 50_000;

/// What must be among them: the composer, the tokeniser, the reader of files of variables, the redactor.
const MODULES: [&str; 4] = [
    "env::compose::properties",
    "profile::tokens::properties",
    "env_file::properties",
    "redact::properties",
];

/// Runs every property that often.
///
/// # Errors
///
/// Fails when a property does, and when one of the modules that must be there has none.
pub(crate) fn run(metadata: &Metadata, cases: u32) -> Result<()> {
    let mut passed = BTreeSet::new();
    let status = Cmd::cargo(&metadata.workspace_root)
        .args(["test", "--workspace", "--lib", "--", "properties::"])
        .variable("PROPTEST_CASES", cases.to_string())
        .variable("PROPTEST_MAX_SHRINK_ITERS", "20000")
        .follow(|line| {
            let name = line
                .strip_prefix("test ")
                .and_then(|rest| rest.strip_suffix(" ... ok"));
            passed.extend(name.map(str::to_owned));
        })?;
    ensure!(status.success(), "a property does not hold");
    for module in MODULES {
        let found = passed.iter().any(|name| name.starts_with(module));
        ensure!(found, "no property of {module} was run");
    }
    console::say(format!(
        "{} properties hold, {cases} cases each",
        passed.len()
    ));
    Ok(())
}

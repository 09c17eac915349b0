//! Licences, bans and sources of every dependency, by the rules of `deny.toml`.
//!
//! It repeats what `cargo deny check licenses bans sources` says, for machines without that tool.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::metadata::Metadata;

use super::repository::Finding;

/// The part of `deny.toml` that is checked here.
#[derive(Debug, Deserialize)]
pub(crate) struct Policy {
    licenses: Licences,
    bans: Bans,
    sources: Sources,
}

#[derive(Debug, Deserialize)]
struct Licences {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Debug, Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

impl Policy {
    /// Reads `deny.toml`.
    ///
    /// # Errors
    ///
    /// Fails when the file is missing or says something else than we read.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("cannot understand {}", path.display()))
    }
}

/// Checks every package of the resolved graph.
pub(crate) fn check(metadata: &Metadata, policy: &Policy) -> Vec<Finding> {
    let bans: BTreeMap<&str, &str> = policy
        .bans
        .deny
        .iter()
        .map(|ban| (ban.name.as_str(), ban.reason.as_str()))
        .collect();
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let place = format!("{} {}", package.name, package.version);
        if let Some(reason) = bans.get(package.name.as_str()) {
            findings.push(Finding::new(&place, format!("is banned: {reason}")));
        }
        if let Some(source) = &package.source
            && !policy
                .sources
                .allow_registry
                .iter()
                .any(|registry| source == &format!("registry+{registry}"))
        {
            findings.push(Finding::new(&place, format!("comes from {source}")));
        }
        match &package.license {
            None => findings.push(Finding::new(&place, "names no licence")),
            Some(expression) => match allows(expression, &policy.licenses.allow) {
                Ok(true) => {}
                Ok(false) => findings.push(Finding::new(
                    &place,
                    format!("has licence `{expression}`, which deny.toml does not allow"),
                )),
                Err(error) => findings.push(Finding::new(
                    &place,
                    format!("has licence `{expression}`, which cannot be read: {error}"),
                )),
            },
        }
    }
    findings
}

/// Tells whether an SPDX expression can be met with the allowed licences.
///
/// * `OR`, and the old `/`, need one side; `AND` needs both and binds closer.
/// * `X WITH Y` is a licence of its own name.
fn allows(expression: &str, allowed: &[String]) -> Result<bool> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser {
        words: &words,
        allowed,
    };
    let value = parser.either()?;
    if let Some(word) = parser.words.first() {
        bail!("`{word}` where the end was expected");
    }
    Ok(value)
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl Parser<'_> {
    fn take(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        if found {
            self.words = &self.words[1..];
        }
        found
    }

    fn either(&mut self) -> Result<bool> {
        let mut value = self.both()?;
        while self.take("OR") {
            value |= self.both()?;
        }
        Ok(value)
    }

    fn both(&mut self) -> Result<bool> {
        let mut value = self.one()?;
        while self.take("AND") {
            value &= self.one()?;
        }
        Ok(value)
    }

    fn one(&mut self) -> Result<bool> {
        if self.take("(") {
            let value = self.either()?;
            if !self.take(")") {
                bail!("a parenthesis stays open");
            }
            return Ok(value);
        }
        let mut name = self.name()?;
        if self.take("WITH") {
            name = format!("{name} WITH {}", self.name()?);
        }
        Ok(self.allowed.contains(&name))
    }

    fn name(&mut self) -> Result<String> {
        match self.words.split_first() {
            Some((word, rest)) if !["AND", "OR", "WITH", "(", ")"].contains(word) => {
                self.words = rest;
                Ok((*word).to_owned())
            }
            Some((word, _)) => bail!("`{word}` where a licence was expected"),
            None => bail!("it ends where a licence was expected"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::repository::rendered;
    use super::*;

    fn met(expression: &str) -> bool {
        let allowed = ["MIT", "Apache-2.0", "Unicode-3.0"].map(str::to_owned);
        allows(expression, &allowed).unwrap()
    }

    #[test]
    fn expressions_are_met_or_not() {
        for expression in [
            "MIT",
            "MIT OR GPL-3.0-only",
            "GPL-3.0-only OR MIT",
            "MIT/Apache-2.0",
            "GPL-2.0 / MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
            "GPL-3.0-only AND Foo OR MIT",
        ] {
            assert!(met(expression), "{expression}");
        }
        for expression in [
            "GPL-3.0-only",
            "MIT AND GPL-3.0-only",
            "Apache-2.0 WITH LLVM-exception",
            "(MIT OR Apache-2.0) AND OpenSSL",
            "MIT AND (GPL-3.0-only OR OpenSSL)",
        ] {
            assert!(!met(expression), "{expression}");
        }
    }

    #[test]
    fn broken_expressions_are_errors() {
        for expression in ["", "MIT OR", "(MIT", "MIT MIT", "AND", "MIT WITH"] {
            assert!(allows(expression, &[]).is_err(), "{expression}");
        }
    }

    #[test]
    fn each_rule_finds_its_package() {
        let policy: Policy = toml::from_str(
            r#"
            [licenses]
            allow = ["MIT"]
            [bans]
            deny = [{ crate = "openssl-sys", reason = "no system TLS" }]
            [sources]
            allow-registry = ["https://example.org/index"]
            "#,
        )
        .unwrap();
        let package = |name: &str, licence: Option<&str>, source: Option<&str>| {
            json!({"id": name, "name": name, "version": "1.0.0", "license": licence, "source": source,
                   "dependencies": [], "targets": [], "manifest_path": "/x/Cargo.toml"})
        };
        let good = Some("registry+https://example.org/index");
        let metadata: Metadata = serde_json::from_value(json!({
            "packages": [
                package("fine", Some("MIT"), good),
                package("ours", Some("MIT"), None),
                package("openssl-sys", Some("MIT"), good),
                package("copyleft", Some("GPL-3.0-only"), good),
                package("nameless", None, good),
                package("elsewhere", Some("MIT"), Some("git+https://example.org/x")),
            ],
            "workspace_members": [], "resolve": {"nodes": []}, "workspace_root": "/x", "target_directory": "/x/t",
        }))
        .unwrap();
        assert_eq!(
            rendered(&check(&metadata, &policy)),
            [
                "openssl-sys 1.0.0: is banned: no system TLS",
                "copyleft 1.0.0: has licence `GPL-3.0-only`, which deny.toml does not allow",
                "nameless 1.0.0: names no licence",
                "elsewhere 1.0.0: comes from git+https://example.org/x",
            ]
        );
    }
}

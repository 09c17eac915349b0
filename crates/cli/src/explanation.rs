//! Why each variable is what it is: who holds, who agrees, who lost; never a secret's value, nor what may be one.

use groundcrew_core::env::{Composition, Tier, Value, Variable};
use serde::Serialize;

use crate::{
    secrecy::may_be_secret,
    style::Style,
    text::{Text, printable},
};

/// A variable that the command would get.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Explained {
    pub name: Text,
    /// None where it is, or may be, a secret.
    pub value: Option<Text>,
    /// The name of the secret, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Who says so.
    pub origin: String,
    pub tier: Tier,
    /// Who says the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agreeing: Vec<String>,
    /// What lost, weakest first; without values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overridden: Vec<Loser>,
}

/// A definition that lost.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Loser {
    pub origin: String,
    pub tier: Tier,
}

/// Explains all variables, in the order of their names.
pub(crate) fn explain(composition: &Composition) -> Vec<Explained> {
    composition.variables.iter().map(explain_one).collect()
}

fn explain_one(variable: &Variable) -> Explained {
    let definition = &variable.definition;
    let name = definition.key.as_bytes();
    let (value, secret) = match &definition.value {
        // Who the run is, is no secret.
        Value::Literal(text)
            if definition.tier != Tier::Identity && may_be_secret(name, text.as_bytes()) =>
        {
            (None, None)
        }
        Value::Literal(text) => (Some(Text::new(text.as_bytes())), None),
        Value::Secret(secret) => (None, Some(secret.to_string())),
    };
    Explained {
        name: Text::new(name),
        value,
        secret,
        origin: definition.origin.to_string(),
        tier: definition.tier,
        agreeing: variable.agreeing.iter().map(ToString::to_string).collect(),
        overridden: variable
            .overridden
            .iter()
            .map(|lost| Loser {
                origin: lost.origin.to_string(),
                tier: lost.tier,
            })
            .collect(),
    }
}

impl Explained {
    /// Returns the lines for people: the variable, then one for each that lost.
    pub(crate) fn lines(&self, style: Style) -> Vec<String> {
        let value = match (&self.value, &self.secret) {
            (Some(value), _) => value.to_string(),
            (None, Some(name)) => format!("<secret {}>", printable(name)),
            (None, None) => "<not shown>".to_owned(),
        };
        let mut who = vec![printable(&self.origin)];
        who.extend(self.agreeing.iter().map(|origin| printable(origin)));
        let mut lines = vec![format!(
            "{}={value}  {}",
            self.name,
            style.faint(&format!("({})", who.join(", ")))
        )];
        lines.extend(self.overridden.iter().rev().map(|lost| {
            let origin = printable(&lost.origin);
            style.faint(&format!("    instead of the one of {origin}"))
        }));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use groundcrew_core::{
        env::{Definition, Key, compose},
        secret::SecretRef,
    };

    #[test]
    fn f144_winners_and_losers_are_told_without_what_may_be_secret() {
        let define = |name: &str, value: &str, tier, origin: &str| {
            Definition::literal(Key::new(name).unwrap(), value, tier, origin)
        };
        let secret = SecretRef::new("a/b").unwrap();
        let composition = compose([
            define(
                "EDITOR",
                "weak-value",
                Tier::Inherited,
                "caller's environment",
            ),
            define("EDITOR", "vi", Tier::Request, "--env"),
            define(
                "API_TOKEN",
                "hunter2",
                Tier::Inherited,
                "caller's environment",
            ),
            Definition::secret(Key::new("X").unwrap(), secret, Tier::Request, "--secret"),
        ])
        .unwrap();
        let explained = explain(&composition);
        let lines: Vec<_> = explained
            .iter()
            .flat_map(|variable| variable.lines(Style::PLAIN))
            .collect();
        assert_eq!(
            lines,
            [
                "API_TOKEN=<not shown>  (caller's environment)",
                "EDITOR=vi  (--env)",
                "    instead of the one of caller's environment",
                "X=<secret a/b>  (--secret)",
            ]
        );
        let document = serde_json::to_string(&explained).unwrap();
        assert!(!document.contains("hunter2") && !document.contains("weak-value"));
        assert!(
            document
                .contains(r#""overridden":[{"origin":"caller's environment","tier":"inherited"}]"#)
        );
    }
}

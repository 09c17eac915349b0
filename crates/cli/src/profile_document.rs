//! A profile as documents and people see it: everything that it says, but no value that had better not be shown.

use groundcrew_core::profile::{AgentProfile, split};
use serde_json::{Map, Value, json};

use crate::secrecy::may_be_secret;

/// What stands for a word that is not shown.
const HIDDEN: &str = "<hidden>";

/// Returns the fields of a profile.
pub(crate) fn fields(profile: &AgentProfile) -> Map<String, Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(profile) else {
        // A profile is a table of text; nothing in it cannot be written.
        return Map::new();
    };
    for part in ["environment", "defaults"] {
        if let Some(Value::Object(variables)) = fields.get_mut(part) {
            hide_variables(variables);
        }
    }
    if let Some(Value::Object(variables)) = fields
        .get_mut("approval")
        .and_then(|rule| rule.get_mut("variables"))
    {
        hide_variables(variables);
    }
    for part in ["command", "continue_command", "prefix"] {
        if let Some(words) = fields.get_mut(part) {
            hide_words(words);
        }
    }
    for part in ["approval", "model", "resume"] {
        if let Some(words) = fields
            .get_mut(part)
            .and_then(|rule| rule.get_mut("arguments"))
        {
            hide_words(words);
        }
    }
    if let Some(Value::Array(flags)) = fields.get_mut("flags") {
        for flag in flags {
            if let Some(text) = flag.get_mut("text") {
                hide_words(text);
            }
        }
    }
    fields
}

/// Hides words of an argument list that had better not be shown.
pub(crate) fn shown(words: &[String]) -> Vec<String> {
    let before = std::iter::once("").chain(words.iter().map(String::as_str));
    before
        .zip(words)
        .map(|(before, word)| match word.split_once('=') {
            Some((name, value)) if may_be_secret(name.as_bytes(), value.as_bytes()) => {
                format!("{name}={HIDDEN}")
            }
            _ => {
                let option = if before.starts_with('-') { before } else { "" };
                let hide =
                    !word.starts_with('-') && may_be_secret(option.as_bytes(), word.as_bytes());
                if hide {
                    HIDDEN.to_owned()
                } else {
                    word.clone()
                }
            }
        })
        .collect()
}

fn hide_variables(variables: &mut Map<String, Value>) {
    for (name, value) in variables {
        let hide = match &*value {
            Value::String(text) => may_be_secret(name.as_bytes(), text.as_bytes()),
            // Bytes that are no text are shown to nobody; the name of a secret and a path are none.
            Value::Object(table) => table.contains_key("base16"),
            _ => true,
        };
        if hide {
            *value = json!({ "hidden": true });
        }
    }
}

fn hide_words(words: &mut Value) {
    match words {
        Value::Array(list) => {
            let texts: Vec<_> = list
                .iter()
                .map(|word| word.as_str().unwrap_or(HIDDEN).to_owned())
                .collect();
            *list = shown(&texts).into_iter().map(Value::String).collect();
        }
        Value::String(line) => {
            let guarded = match split(line) {
                Ok(texts) if shown(&texts) == texts => return,
                Ok(texts) => shown(&texts).join(" "),
                // What cannot be split is shown only if no part of it looks like a secret.
                Err(_) => {
                    let texts: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
                    if shown(&texts) == texts {
                        return;
                    }
                    HIDDEN.to_owned()
                }
            };
            *line = guarded;
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use groundcrew_core::{
        id::ProfileName,
        profile::{Flag, Prefix},
    };

    #[test]
    fn f144_no_value_that_looks_secret_is_shown() {
        let name = ProfileName::new("x").unwrap();
        let mut profile = AgentProfile::new(
            name,
            ["a", "--api-key", "hunter1", "--token=hunter2", "sk-hunter3"],
        );
        profile.prefix = Prefix::Line("w --password hunter4".into());
        profile.flags = vec![
            Flag::on("--auth-token hunter5 --x"),
            Flag::on("--secret=hunter6 'open"),
            Flag::on("--plain yes"),
        ];
        let key = |name: &str| groundcrew_core::env::Key::new(name).unwrap();
        profile.environment.insert(key("API_KEY"), "hunter7".into());
        profile
            .environment
            .insert(key("PLAIN"), "ghp_hunter8".into());
        profile.environment.insert(key("EDITOR"), "vi".into());
        profile.defaults.insert(key("MY_TOKEN"), "hunter9".into());
        let text = serde_json::to_string(&fields(&profile)).unwrap();
        assert!(!text.contains("hunter"), "{text}");
        for part in [
            "\"EDITOR\":\"vi\"",
            "--plain yes",
            "--auth-token <hidden> --x",
            "--token=<hidden>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn ordinary_words_are_shown() {
        let words = [
            "--model",
            "x",
            "--sandbox",
            "workspace-write",
            "KEY",
            "--a=b",
        ]
        .map(str::to_owned);
        assert_eq!(shown(&words), words);
    }
}

//! A tool server's definition, read once for all protocols.
//!
//! A definition is an object: `command`, `args`, `env` for a program, or `url`, `headers` and `type`, `http` or `sse`, for one
//! that listens somewhere. `env` and `headers` are objects, or lists of objects with `name` and `value`.

use groundcrew_core::{
    error::{Error, ErrorKind},
    instance::McpServer,
};
use serde_json::Value;

/// A tool server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolServer {
    /// Its name.
    pub name: String,
    /// How it is reached.
    pub way: Way,
}

/// How a tool server is reached.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// The agent starts a program and speaks to it over its standard streams.
    Command {
        /// The program.
        program: String,
        /// Its arguments.
        arguments: Vec<String>,
        /// Its own variables.
        environment: Vec<(String, String)>,
    },
    /// Over HTTP.
    Http {
        /// Where.
        url: String,
        /// With these headers.
        headers: Vec<(String, String)>,
    },
    /// Over server-sent events.
    Sse {
        /// Where.
        url: String,
        /// With these headers.
        headers: Vec<(String, String)>,
    },
}

impl std::fmt::Debug for Way {
    /// Shows no argument, value or header: any of them may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Command { program, .. } => write!(f, "Command({program:?}, …)"),
            Self::Http { .. } => f.write_str("Http(…)"),
            Self::Sse { .. } => f.write_str("Sse(…)"),
        }
    }
}

impl ToolServer {
    /// Reads a definition.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, with the server's name, when it says no way, or says one wrongly.
    pub fn read(server: &McpServer) -> Result<Self, Error> {
        let wrong = |what| Error::new(ErrorKind::InvalidInput, what).with("server", &server.name);
        let definition = &server.definition;
        let pairs = |key: &str| {
            pairs(&definition[key]).ok_or_else(|| {
                wrong("variables and headers of a tool server are names with texts")
                    .with("key", key)
            })
        };
        let way = if let Some(program) = definition["command"].as_str() {
            let arguments = match &definition["args"] {
                Value::Null => Some(Vec::new()),
                Value::Array(words) => words
                    .iter()
                    .map(|word| word.as_str().map(str::to_owned))
                    .collect(),
                _ => None,
            };
            Way::Command {
                program: program.to_owned(),
                arguments: arguments
                    .ok_or_else(|| wrong("the `args` of a tool server are a list of texts"))?,
                environment: pairs("env")?,
            }
        } else if let Some(url) = definition["url"].as_str() {
            let (url, headers) = (url.to_owned(), pairs("headers")?);
            match definition["type"].as_str() {
                None | Some("http") => Way::Http { url, headers },
                Some("sse") => Way::Sse { url, headers },
                Some(_) => return Err(wrong("a tool server with a `url` is of type http or sse")),
            }
        } else {
            return Err(wrong(
                "the definition of a tool server needs a `command` or a `url`",
            ));
        };
        Ok(Self {
            name: server.name.clone(),
            way,
        })
    }
}

/// Reads names with texts, in either form.
fn pairs(value: &Value) -> Option<Vec<(String, String)>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match value {
        Value::Null => Some(Vec::new()),
        Value::Object(pairs) => pairs
            .iter()
            .map(|(name, value)| Some((name.clone(), text(value)?)))
            .collect(),
        Value::Array(pairs) => pairs
            .iter()
            .map(|pair| Some((text(&pair["name"])?, text(&pair["value"])?)))
            .collect(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(definition: Value) -> Result<Way, Error> {
        let server = McpServer {
            name: "it".to_owned(),
            definition,
        };
        ToolServer::read(&server).map(|server| server.way)
    }

    #[test]
    fn both_forms_of_variables_are_read() {
        let expected = Way::Command {
            program: "tools".to_owned(),
            arguments: vec!["a b".to_owned()],
            environment: vec![("A".to_owned(), "1".to_owned())],
        };
        for env in [json!({ "A": "1" }), json!([{ "name": "A", "value": "1" }])] {
            let way = read(json!({ "command": "tools", "args": ["a b"], "env": env }));
            assert_eq!(way.unwrap(), expected);
        }
        let way = read(json!({ "url": "http://x.example/", "headers": { "A": "1" } })).unwrap();
        assert!(matches!(&way, Way::Http { headers, .. } if headers.len() == 1));
        // What may be a secret is not shown.
        assert!(!format!("{way:?} {expected:?}").contains('1'));
        let way = read(json!({ "type": "sse", "url": "x" })).unwrap();
        assert!(matches!(way, Way::Sse { .. }));
    }

    #[test]
    fn what_says_no_way_is_refused_by_name() {
        for definition in [
            json!({}),
            json!("tools"),
            json!({ "command": 7 }),
            json!({ "command": "x", "args": "y" }),
            json!({ "command": "x", "args": [7] }),
            json!({ "command": "x", "env": { "A": 7 } }),
            json!({ "command": "x", "env": [{ "name": "A" }] }),
            json!({ "url": "x", "type": "carrier pigeon" }),
        ] {
            let error = read(definition.clone()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{definition}");
            assert_eq!(error.get("server"), Some("it"));
        }
    }
}

//! The form of messages: what a line is, and how one is written.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use super::{call::Refusal, content};

/// Whether messages say which version of JSON-RPC they are; both are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Envelope {
    /// Without the field, as the Codex app-server.
    Plain,
    /// With `"jsonrpc": "2.0"`.
    Versioned,
}

/// The id of a request of the peer, as it was written: its own space, echoed byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WireId(Box<str>);

impl WireId {
    /// Returns the JSON text of it.
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// Returns whether a value, such as the parameter of a notification, names it.
    pub fn is(&self, value: &Value) -> bool {
        serde_json::from_str::<Value>(&self.0).is_ok_and(|id| id == *value)
    }
}

impl Serialize for WireId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for WireId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // It is written into a message as it is, so it must be one value of JSON.
        RawValue::from_string(text.clone()).map_err(D::Error::custom)?;
        Ok(Self(text.into()))
    }
}

/// A message of the peer.
#[derive(Debug)]
pub(crate) enum Message {
    /// It asks something.
    Request {
        id: WireId,
        method: String,
        params: Value,
    },
    /// It tells something.
    Notification { method: String, params: Value },
    /// It asks, where there is an id, or tells something, and nobody can read what.
    Unreadable {
        id: Option<WireId>,
        method: String,
        why: String,
    },
    /// It answers; an id that cannot be ours is none.
    Reply {
        id: Option<u64>,
        result: Result<Value, Refusal>,
    },
}

/// What we answer to a request of the peer.
pub(crate) type Reply = Result<Value, Refusal>;

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

impl Message {
    /// Reads a line; none if it is no message.
    pub(crate) fn read(line: &[u8]) -> Option<Self> {
        let line: Line<'_> = serde_json::from_slice(line).ok()?;
        Some(match (line.id, line.method) {
            (id, Some(method)) => {
                let id = id.map(|id| WireId(id.get().into()));
                let method = method.into_owned();
                match (value(line.params), id) {
                    (Ok(params), Some(id)) => Self::Request { id, method, params },
                    (Ok(params), None) => Self::Notification { method, params },
                    (Err(error), id) => Self::Unreadable {
                        id,
                        method,
                        why: error.to_string(),
                    },
                }
            }
            (Some(id), None) => Self::Reply {
                id: own_id(id.get()),
                result: match line.error {
                    None => value(line.result).map_err(|error| {
                        Refusal::new(UNREADABLE, format!("the answer cannot be read: {error}"))
                    }),
                    Some(error) => Err(refusal(error)),
                },
            },
            // An object that says nothing; `{"id": null, "error": …}` is an answer to nobody.
            (None, None) => Self::Reply {
                id: None,
                result: Err(refusal(line.error?)),
            },
        })
    }
}

/// The code of an answer that came and cannot be read: JSON-RPC's for what is no JSON.
const UNREADABLE: i64 = -32700;

/// Reads what may be left out.
fn value(raw: Option<&RawValue>) -> Result<Value, serde_json::Error> {
    raw.map_or(Ok(Value::Null), content::read)
}

/// Reads an error, of whatever form.
fn refusal(raw: &RawValue) -> Refusal {
    content::read(raw).unwrap_or_else(|_| Refusal::new(0, raw.get()))
}

/// Reads one of our own ids: a number, or a text that holds one.
fn own_id(raw: &str) -> Option<u64> {
    raw.trim_matches('"').parse().ok()
}

#[derive(Serialize)]
struct Written<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    jsonrpc: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Refusal>,
}

impl Envelope {
    fn blank<'a>(self) -> Written<'a> {
        Written {
            jsonrpc: (self == Self::Versioned).then_some("2.0"),
            id: None,
            method: None,
            params: None,
            result: None,
            error: None,
        }
    }

    /// Writes a call, or without an id a notification; null parameters are left out.
    pub(crate) fn call(self, id: Option<u64>, method: &str, params: &Value) -> Vec<u8> {
        let id = id.and_then(|id| to_raw_value(&id).ok());
        line(&Written {
            id: id.as_deref(),
            method: Some(method),
            params: Some(params).filter(|params| !params.is_null()),
            ..self.blank()
        })
    }

    /// Writes an answer.
    pub(crate) fn reply(self, id: &WireId, reply: &Reply) -> Vec<u8> {
        let id = RawValue::from_string(id.as_json().to_owned()).ok();
        line(&Written {
            id: id.as_deref(),
            result: reply.as_ref().ok(),
            error: reply.as_ref().err(),
            ..self.blank()
        })
    }
}

fn line(message: &Written<'_>) -> Vec<u8> {
    // Values of JSON, texts and numbers: nothing that could not be written.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_ids_of_the_peer_come_back_byte_for_byte() {
        for id in [
            "0",
            "1e2",
            "-0.0",
            "\"a\\u0062\"",
            "\"7\"",
            "12345678901234567890123",
        ] {
            let text = format!(r#"{{"id": {id}, "method": "ask", "params": {{}}}}"#);
            let Some(Message::Request { id: read, .. }) = Message::read(text.as_bytes()) else {
                panic!("{text}");
            };
            let line = Envelope::Plain.reply(&read, &Ok(json!({})));
            assert_eq!(
                String::from_utf8(line).unwrap(),
                format!("{{\"id\":{id},\"result\":{{}}}}\n")
            );
            let kept = serde_json::to_string(&read).unwrap();
            assert_eq!(serde_json::from_str::<WireId>(&kept).unwrap(), read);
        }
        assert!(serde_json::from_str::<WireId>("\"1,\\\"x\\\":2\"").is_err());
    }

    #[test]
    fn our_ids_are_read_as_numbers_and_as_texts() {
        for (text, id) in [
            ("7", Some(7)),
            ("\"7\"", Some(7)),
            ("\"x\"", None),
            ("-1", None),
        ] {
            let line = format!(r#"{{"id": {text}, "result": null, "extra": 1}}"#);
            let Some(Message::Reply { id: read, result }) = Message::read(line.as_bytes()) else {
                panic!("{line}");
            };
            assert_eq!((read, result), (id, Ok(Value::Null)));
        }
    }

    #[test]
    fn what_is_no_object_with_a_meaning_is_no_message() {
        for line in ["7", "[]", "{}", "{\"a\":1}", "x", "{\"method\":3}"] {
            assert!(Message::read(line.as_bytes()).is_none(), "{line}");
        }
        assert!(matches!(
            Message::read(br#"{"id":null,"error":{"code":-32700,"message":"x"}}"#),
            Some(Message::Reply { id: None, .. })
        ));
    }

    #[test]
    fn what_cannot_be_read_is_neither_null_nor_nonsense() {
        let read = |text: String| Message::read(text.as_bytes());
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for bad in ["1e400", &deep] {
            let asked = read(format!(r#"{{"id": 3, "method": "ask", "params": {bad}}}"#));
            let Some(Message::Unreadable { id, method, .. }) = asked else {
                panic!("{asked:?}");
            };
            let id = id.unwrap();
            assert_eq!((id.as_json(), method.as_str()), ("3", "ask"));
            let told = read(format!(r#"{{"method": "told", "params": {bad}}}"#));
            let without_id = matches!(&told, Some(Message::Unreadable { id: None, .. }));
            assert!(without_id, "{told:?}");
            let answered = read(format!(r#"{{"id": 7, "result": {bad}}}"#));
            let Some(Message::Reply { id, result }) = answered else {
                panic!("{answered:?}");
            };
            assert_eq!((id, result.unwrap_err().code), (Some(7), UNREADABLE));
            let refused = read(format!(r#"{{"id": 7, "error": {bad}}}"#));
            let Some(Message::Reply { result, .. }) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(result.unwrap_err().message, bad);
        }
    }

    #[test]
    fn half_a_character_costs_no_message() {
        let told = Message::read(br#"{"method": "told", "params": {"text": "ab\ud83d"}}"#);
        let Some(Message::Notification { params, .. }) = told else {
            panic!("{told:?}");
        };
        assert_eq!(params, json!({"text": "ab\u{fffd}"}));
        let line = br#"{"id": 7, "error": {"code": 5, "message": "no\udc00"}}"#;
        let Some(Message::Reply { result, .. }) = Message::read(line) else {
            panic!("no reply");
        };
        assert_eq!(result, Err(Refusal::new(5, "no\u{fffd}")));
    }

    #[test]
    fn the_version_is_said_where_it_is_wished() {
        let line = Envelope::Versioned.call(Some(1), "go", &Value::Null);
        assert_eq!(line, b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"go\"}\n");
        let line = Envelope::Plain.call(None, "told", &json!({"a": 1}));
        assert_eq!(line, b"{\"method\":\"told\",\"params\":{\"a\":1}}\n");
    }
}

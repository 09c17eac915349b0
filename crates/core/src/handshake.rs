//! The first words with an agent that speaks a protocol: what it is asked, and what it must answer; data and pure functions.
//!
//! Nothing here knows a protocol: a profile says the words, and who speaks the protocol goes on from the answer.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind};

/// How much of what an agent said stands in an error, in characters.
const EXCERPT: usize = 200;

/// The longest that an agent may be waited for, in seconds.
const MAX_SECONDS: u32 = 3600;

/// What makes an agent ready: a request on its standard input and the answer on its standard output, each one line of JSON.
///
/// * The form is that of JSON-RPC: an answer has the request's `id`, and `result` or `error`.
/// * What has a `method` is no answer and may come before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Handshake {
    /// What is asked, with `id` and `method`.
    pub request: Map<String, Value>,
    /// What is said when the answer came, such as a notification that we are ready as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<Map<String, Value>>,
    /// What the answer's `result` must hold, by JSON pointer, such as `/protocolVersion`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub expect: BTreeMap<String, Value>,
    /// How many seconds the whole of it may take, from the moment that the agent runs.
    #[serde(default = "half_a_minute")]
    pub seconds: u32,
}

/// What an agent answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Greeting {
    /// The `result` of its answer.
    pub result: Value,
    /// The offset of its output behind the answer: who speaks its protocol reads on from here.
    pub behind: crate::process::Offset,
}

impl Handshake {
    /// Makes one that asks this and takes any answer but an error, within half a minute.
    pub fn new(request: Map<String, Value>) -> Self {
        Self {
            request,
            then: None,
            expect: BTreeMap::new(),
            seconds: half_a_minute(),
        }
    }

    /// Returns how long the whole of it may take.
    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    /// Returns everything that is wrong with it.
    pub fn check(&self) -> Vec<Error> {
        let mut problems = Vec::new();
        let id = self.request.get("id");
        if !id.is_some_and(|id| id.is_string() || id.is_number()) {
            problems.push("the request of a handshake needs an `id`, a number or a text");
        }
        if !self.request.get("method").is_some_and(Value::is_string) {
            problems.push("the request of a handshake needs a `method`");
        }
        if self
            .then
            .as_ref()
            .is_some_and(|then| !then.contains_key("method"))
        {
            problems.push("what is said after the answer of a handshake needs a `method`");
        }
        if self
            .expect
            .keys()
            .any(|at| !at.is_empty() && !at.starts_with('/'))
        {
            problems
                .push("what a handshake expects is named by JSON pointers, which begin with `/`");
        }
        if !(1..=MAX_SECONDS).contains(&self.seconds) {
            problems.push("a handshake takes from one second to an hour");
        }
        let wrong = |what| Error::new(ErrorKind::InvalidInput, what).with("in", "handshake");
        problems.into_iter().map(wrong).collect()
    }

    /// Returns a message as it is sent.
    pub(crate) fn line(message: &Map<String, Value>) -> Vec<u8> {
        let mut line = Value::Object(message.clone()).to_string().into_bytes();
        line.push(b'\n');
        line
    }

    /// Reads one line of an agent's standard output; none if it is no answer and may stand there.
    ///
    /// # Errors
    ///
    /// `Protocol` when it is no message, answers another question, refuses, or does not hold what is expected.
    pub(crate) fn hear(&self, line: &[u8]) -> Result<Option<Value>, Error> {
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        let nonsense = |what| {
            let text: String = String::from_utf8_lossy(line)
                .chars()
                .take(EXCERPT)
                .collect();
            Error::new(ErrorKind::Protocol, what).with("said", text.escape_debug())
        };
        let Ok(Value::Object(mut message)) = serde_json::from_slice(line) else {
            return Err(nonsense(
                "the agent said something that is no message of a protocol",
            ));
        };
        if message.contains_key("method") {
            return Ok(None);
        }
        if message.get("id") != self.request.get("id") {
            return Err(nonsense("the agent answered another question than ours"));
        }
        if message.contains_key("error") {
            return Err(nonsense("the agent refused the handshake"));
        }
        let Some(result) = message.remove("result") else {
            return Err(nonsense("the agent's answer holds no result"));
        };
        for (at, expected) in &self.expect {
            let found = result.pointer(at);
            if found != Some(expected) {
                let found = found.map_or_else(|| "nothing".to_owned(), ToString::to_string);
                return Err(
                    nonsense("the agent speaks another version than its profile says")
                        .with("at", at)
                        .with("expected", expected)
                        .with("found", found),
                );
            }
        }
        Ok(Some(result))
    }
}

fn half_a_minute() -> u32 {
    30
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn handshake() -> Handshake {
        let request = json!({"jsonrpc": "2.0", "id": 7, "method": "initialize"});
        let mut handshake = Handshake::new(request.as_object().unwrap().clone());
        handshake.expect.insert("/version".to_owned(), json!(1));
        handshake
    }

    #[test]
    fn an_answer_is_told_from_what_may_come_before_it() {
        let it = handshake();
        for line in [
            "",
            " \t",
            r#"{"method":"log"}"#,
            r#"{"method":"ask","id":7}"#,
        ] {
            assert_eq!(it.hear(line.as_bytes()).unwrap(), None, "{line}");
        }
        let answer = r#" {"id":7,"result":{"version":1,"name":"x"},"jsonrpc":"2.0"}"#;
        let result = it.hear(answer.as_bytes()).unwrap();
        assert_eq!(result, Some(json!({"version": 1, "name": "x"})));
    }

    #[test]
    fn f013_garbage_and_other_versions_are_errors_that_show_what_was_said() {
        let it = handshake();
        let long = "x".repeat(100_000);
        for (line, word) in [
            ("\u{1b}[31mWelcome!", "no message"),
            ("[1,2]", "no message"),
            (&long, "no message"),
            ("{\"id\":7", "no message"),
            (r#"{"id":8,"result":{"version":1}}"#, "another question"),
            (r#"{"id":"7","result":{"version":1}}"#, "another question"),
            (r#"{"result":{"version":1}}"#, "another question"),
            (r#"{"id":7}"#, "no result"),
            (
                r#"{"id":7,"error":{"message":"not logged in"}}"#,
                "not logged in",
            ),
            (r#"{"id":7,"result":{"version":2}}"#, "another version"),
            (r#"{"id":7,"result":[]}"#, "another version"),
        ] {
            let error = it.hear(line.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol);
            let text = error.to_string();
            assert!(text.contains(word) && text.len() < 2000, "{text}");
            assert!(!text.contains('\u{1b}'), "{text:?}");
        }
        let error = it.hear(b"\xff\xfe\0").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }

    #[test]
    fn a_handshake_that_cannot_be_is_told_in_full() {
        assert_eq!(handshake().check().len(), 0);
        let text =
            r#"{"request": {"id": null}, "then": {}, "expect": {"version": 1}, "seconds": 0}"#;
        let wrong: Handshake = serde_json::from_str(text).unwrap();
        assert_eq!(wrong.check().len(), 5);
        assert_eq!(handshake().limit(), Duration::from_secs(30));
    }
}

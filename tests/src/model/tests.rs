//! The model server is asked as agents ask it, over its own port.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use serde_json::{Value, json};

use super::Model;

const LIMIT: Duration = Duration::from_secs(30);

/// Asks, and returns the open answer.
fn ask(model: &Model, path: &str, body: &Value) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(model.address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let body = body.to_string();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    BufReader::new(stream)
}

fn whole(mut answer: BufReader<TcpStream>) -> String {
    let mut text = String::new();
    answer.read_to_string(&mut text).unwrap();
    text
}

fn responses(prompt: &str) -> Value {
    json!({
        "model": "m", "tools": [{ "type": "function", "name": "exec_command" }],
        "input": [{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": prompt }] }],
    })
}

#[test]
fn each_dialect_has_a_command_run_and_hears_what_came_of_it() {
    let model = Model::start().unwrap();
    let mut body = responses("do: ask echo hi");
    let answer = whole(ask(&model, "/v1/responses", &body));
    assert!(
        answer.contains("exec_command") && answer.contains("require_escalated"),
        "{answer}"
    );
    assert!(answer.contains("response.completed"), "{answer}");
    let output = json!({ "type": "function_call_output", "call_id": "call_1", "output": "hi" });
    body["input"].as_array_mut().unwrap().push(output);
    let answer = whole(ask(&model, "/v1/responses", &body));
    assert!(answer.contains("the last output was: hi"), "{answer}");

    let body = json!({
        "model": "m", "stream": true,
        "tools": [{ "type": "function", "function": { "name": "bash" } }],
        "messages": [{ "role": "user", "content": "do: run echo hi" }],
    });
    let answer = whole(ask(&model, "/v1/chat/completions", &body));
    assert!(
        answer.contains("tool_calls") && answer.contains("echo hi") && answer.contains("[DONE]"),
        "{answer}"
    );

    let body = json!({
        "tools": [{ "functionDeclarations": [{ "name": "run_shell_command" }] }],
        "contents": [{ "role": "user", "parts": [{ "text": "do: run echo hi" }] }],
    });
    let path = "/v1beta/models/flash:streamGenerateContent?alt=sse";
    let answer = whole(ask(&model, path, &body));
    assert!(
        answer.contains("functionCall") && answer.contains("STOP"),
        "{answer}"
    );

    let mut body = json!({
        "model": "m", "stream": true, "tools": [{ "name": "Bash" }],
        "messages": [{ "role": "user", "content": "do: run echo hi" }],
    });
    let answer = whole(ask(&model, "/v1/messages?beta=true", &body));
    assert!(
        answer.contains("input_json_delta") && answer.contains("message_stop"),
        "{answer}"
    );
    let output = json!({ "type": "tool_result", "tool_use_id": "toolu_1", "content": "hi" });
    let output = json!({ "role": "user", "content": [output] });
    body["messages"].as_array_mut().unwrap().push(output);
    body["stream"] = json!(false);
    let answer = whole(ask(&model, "/v1/messages", &body));
    let (_, document) = answer.split_once("\r\n\r\n").unwrap();
    assert!(answer.contains("application/json"), "{answer}");
    assert!(document.contains("the last output was: hi"), "{answer}");

    let asked = model.asked();
    assert_eq!(asked.len(), 6);
    assert_eq!(asked[1].outputs, ["hi"]);
    assert_eq!(asked[3].model, "flash");
}

#[test]
fn a_gate_holds_an_answer_until_it_is_opened() {
    let model = Model::start().unwrap();
    let mut answer = ask(&model, "/v1/responses", &responses("do: wait here"));
    let mut line = String::new();
    while !line.contains("waiting at here") {
        line.clear();
        assert_ne!(answer.read_line(&mut line).unwrap(), 0, "it ended");
        assert!(!line.contains("went through"), "{line}");
    }
    model.open("here");
    assert!(whole(answer).contains("went through here"));
}

#[test]
fn it_fails_and_floods_and_hangs_until_it_ends() {
    let model = Model::start().unwrap();
    let answer = whole(ask(&model, "/v1/responses", &responses("do: fail 500")));
    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    let answer = whole(ask(&model, "/v1/responses", &responses("do: flood 100000")));
    assert!(answer.len() > 100_000, "{}", answer.len());
    let mut hung = ask(&model, "/v1/responses", &responses("do: hang"));
    let is_it = |question: &super::Question| question.prompt == "do: hang";
    assert!(model.until_asked(LIMIT, is_it).is_some());
    drop(model);
    let mut first = [0; 1];
    // Nothing was answered before the end, and the end closes the connection.
    assert!(matches!(hung.read(&mut first), Ok(0) | Err(_)));
}

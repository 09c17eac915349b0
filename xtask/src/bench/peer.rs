//! An agent for benchmarks that speaks as the Codex app-server does: it answers at once, and says as much as it is asked for.

use std::io::{BufRead as _, Write};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// Its one conversation.
const THREAD: &str = "019a0000-0000-7000-8000-000000000001";
/// What each of its turns is called.
const TURN: &str = "turn-1";
/// The length of a piece of text, in bytes.
const PIECE: usize = 4096;

/// Answers until its input ends.
///
/// # Errors
///
/// Fails when it is told what is no message, or nobody reads its answers.
pub(crate) fn serve() -> Result<()> {
    let mut out = std::io::BufWriter::with_capacity(64 << 10, std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let line = line.context("cannot read a message")?;
        let message: Value = serde_json::from_str(&line).context("what was said is no message")?;
        let (Some(method), id) = (message["method"].as_str(), &message["id"]) else {
            continue;
        };
        if id.is_null() {
            continue;
        }
        let result = match method {
            "initialize" => json!({ "userAgent": "peer/0", "codexHome": "/" }),
            "account/read" => json!({ "account": null, "requiresOpenaiAuth": false }),
            "thread/start" => json!({ "thread": { "id": THREAD } }),
            "turn/start" => json!({ "turn": { "id": TURN, "status": "inProgress" } }),
            _ => json!({}),
        };
        say(&mut out, &json!({ "id": id, "result": result }))?;
        if method == "turn/start" {
            let asked = message["params"]["input"][0]["text"].as_str();
            let bytes = asked.and_then(|text| text.trim().parse().ok());
            turn(&mut out, bytes.unwrap_or_default())?;
        }
        out.flush().context("nobody reads")?;
    }
    Ok(())
}

fn turn(out: &mut impl Write, bytes: usize) -> Result<()> {
    let notice = |method: &str, mut params: Value| {
        params["threadId"] = json!(THREAD);
        params["turnId"] = json!(TURN);
        json!({ "method": method, "params": params })
    };
    let running = json!({ "turn": { "id": TURN, "status": "inProgress" } });
    say(out, &notice("turn/started", running))?;
    let mut left = bytes;
    let piece = "0123456789abcde ".repeat(PIECE / 16);
    let delta = |text: &str| {
        let delta = json!({ "itemId": "m", "delta": text });
        notice("item/agentMessage/delta", delta)
    };
    // Written once: it is not our own work that is measured.
    let mut whole = Vec::new();
    say(&mut whole, &delta(&piece))?;
    while left >= PIECE {
        out.write_all(&whole).context("nobody reads")?;
        left -= PIECE;
    }
    if left > 0 {
        say(out, &delta(&piece[..left]))?;
    }
    let over = json!({ "turn": { "id": TURN, "status": "completed" } });
    say(out, &notice("turn/completed", over))
}

fn say(out: &mut impl Write, message: &Value) -> Result<()> {
    serde_json::to_writer(&mut *out, message).context("nobody reads")?;
    out.write_all(b"\n").context("nobody reads")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_says_as_much_as_it_is_asked_for() {
        let mut out = Vec::new();
        turn(&mut out, 10_000).unwrap();
        let text = String::from_utf8(out).unwrap();
        let messages = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let said: usize = messages
            .filter_map(|message| Some(message["params"]["delta"].as_str()?.len()))
            .sum();
        assert_eq!(said, 10_000);
        assert!(text.trim_end().ends_with('}') && text.contains("turn/completed"));
    }
}

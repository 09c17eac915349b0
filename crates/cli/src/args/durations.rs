//! Durations as they are typed; nothing else.

use std::time::Duration;

/// Reads a duration such as `1h30m`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && text != "0" {
        return Err(format!("say in which unit, such as {text}s or {text}m"));
    }
    humantime::parse_duration(text).map_err(|e| format!("{e}; write it like 90s, 30m or 1h30m"))
}

//! Files of settings: read with a bound, and refused with file, line and column.

use std::path::Path;

use groundcrew_core::error::{Error, ErrorKind};
use serde::de::DeserializeOwned;

use crate::bounded;

/// The largest file that is read: 1 MiB.
const MAX_FILE: u64 = 1024 * 1024;

/// Reads a file of text; none if there is no file.
///
/// # Errors
///
/// `InvalidInput` when it is no plain file or no UTF-8, `TooLarge`, or what reading ran into; each with the file.
pub(crate) fn read(path: &Path) -> Result<Option<String>, Error> {
    let failed = |e| Error::io("failed to read a file of settings", e).with("file", path.display());
    let file = match std::fs::metadata(path) {
        // Opening a pipe would wait for its writer.
        Ok(found) if !found.is_file() => {
            let error = Error::new(
                ErrorKind::InvalidInput,
                "what should be a file of settings is no plain file",
            );
            return Err(error.with("file", path.display()));
        }
        Ok(_) => std::fs::File::open(path).map_err(failed)?,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    let bytes = bounded::read(file, MAX_FILE).map_err(failed)?;
    let bytes = bytes.ok_or_else(|| {
        Error::new(ErrorKind::TooLarge, "a file of settings is too large")
            .with("file", path.display())
            .with("limit", MAX_FILE)
    })?;
    String::from_utf8(bytes).map(Some).map_err(|e| {
        Error::new(ErrorKind::InvalidInput, "a file of settings is not UTF-8")
            .with("file", path.display())
            .with("byte", e.utf8_error().valid_up_to())
    })
}

/// Reads settings of text.
///
/// # Errors
///
/// `InvalidInput` with file, line, column and what is wrong there.
pub(crate) fn parse<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T, Error> {
    toml::from_str(text).map_err(|error| {
        let mut wrong = Error::new(
            ErrorKind::InvalidInput,
            format!(
                "a file of settings is wrong: {}",
                without_value(error.message())
            ),
        )
        .with("file", path.display());
        if let Some(span) = error.span() {
            let before = text.get(..span.start).unwrap_or(text);
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or(before).chars().count() + 1;
            wrong = wrong.with("line", line).with("column", column);
        }
        wrong
    })
}

/// Leaves out the text that stood where something else belongs: it could be a secret.
fn without_value(message: &str) -> String {
    let parts = message.split_once("string \"").and_then(|(before, rest)| {
        let (_, after) = rest.rsplit_once("\", expected ")?;
        Some(format!("{before}string, expected {after}"))
    });
    parts.unwrap_or_else(|| message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f144_a_value_in_the_wrong_place_is_not_told() {
        for text in ["A = \"sk-hunter2\"", "A = \"a \\\", expected hunter2\""] {
            let error = parse::<std::collections::BTreeMap<String, u8>>(text, Path::new("/c"));
            let error = error.unwrap_err();
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
            assert!(error.message().contains("string, expected u8"), "{error}");
        }
    }
}

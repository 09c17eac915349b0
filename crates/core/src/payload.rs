//! Large values: what no variable should hold goes to a private file of the instance, and a variable says where it is.
//!
//! Nothing here is written on the host: the files are handed over through the instance, so that one rule serves all executors.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use bytes::Bytes;

use crate::{
    env::{Definition, Key, Origin, Tier},
    error::{Error, ErrorKind},
    instance::ByteStream,
    wire::OsText,
};

/// The largest payload that is a plain variable: 64 KiB, half of what the kernel takes for one string.
pub const MAX_INLINE: usize = 64 * 1024;

/// The largest payload at all: 64 MiB. It is held in memory until it is handed over.
pub const MAX_PAYLOAD: usize = 64 * 1024 * 1024;

/// What is added to a payload's name for the variable that says where it is.
pub const PATH_SUFFIX: &str = "_PATH";

/// A value that may be too large for a variable.
///
/// * Up to [`MAX_INLINE`] bytes it is the variable itself.
/// * A larger one, or one with a NUL byte, is a file of mode 0600 in the instance's own directory; the variable is absent
///   then, and the one with [`PATH_SUFFIX`] behind its name holds the absolute path of the file.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    /// The variable.
    pub variable: Key,
    /// The bytes.
    pub content: Bytes,
    /// Who says so.
    pub origin: Origin,
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload")
            .field("variable", &self.variable.to_string())
            .field("bytes", &self.content.len())
            .field("origin", &self.origin)
            .finish()
    }
}

impl Payload {
    /// Returns whether it is handed over in a file.
    pub fn needs_file(&self) -> bool {
        self.content.len() > MAX_INLINE || self.content.contains(&0)
    }

    /// Returns the definitions it stands for; the first one is that of the variable itself, and is dropped for a file.
    ///
    /// # Errors
    ///
    /// * `TooLarge`, with the size and the limit.
    /// * `InvalidInput` when the name cannot be that of a file.
    pub(crate) fn definitions(&self, directory: &Path) -> Result<Vec<Definition>, Error> {
        if self.content.len() > MAX_PAYLOAD {
            return Err(Error::new(
                ErrorKind::TooLarge,
                "a payload is too large; put it into the workspace instead",
            )
            .with("variable", &self.variable)
            .with("bytes", self.content.len())
            .with("limit", MAX_PAYLOAD));
        }
        let define = |key: Key, value: OsText, tier| Definition {
            key,
            value: crate::env::Value::Literal(value),
            origin: self.origin.clone(),
            tier,
        };
        let variable = self.variable.clone();
        if !self.needs_file() {
            let content = OsText::from_bytes(self.content.to_vec());
            return Ok(vec![define(variable, content, Tier::Request)]);
        }
        let mut name = self.variable.as_bytes().to_vec();
        name.extend(PATH_SUFFIX.bytes());
        let path = self.path(directory)?.into_os_string();
        Ok(vec![
            define(variable, OsText::default(), Tier::Request),
            define(
                Key::new(OsText::from_bytes(name))?,
                OsText(path),
                Tier::Managed,
            ),
        ])
    }

    fn path(&self, directory: &Path) -> Result<PathBuf, Error> {
        let name = self.variable.to_string();
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if name.len() <= 100 && name.bytes().all(plain) {
            return Ok(directory.join(name));
        }
        Err(Error::new(
            ErrorKind::InvalidInput,
            "the name of a large payload is made of at most 100 letters, digits and '_'",
        )
        .with("variable", &self.variable))
    }
}

/// Packs the payloads that go into files, as one archive for the directory that the variables point into.
///
/// # Errors
///
/// None that can occur: the archive is written to memory.
pub(crate) fn archive(payloads: &[Payload]) -> Result<Option<ByteStream>, Error> {
    let failed = |e| Error::io("failed to pack the payloads", e);
    let mut builder = tar::Builder::new(Vec::new());
    let mut any = false;
    for payload in payloads.iter().filter(|payload| payload.needs_file()) {
        any = true;
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(0o600);
        header.set_size(payload.content.len() as u64);
        builder
            .append_data(&mut header, payload.variable.to_string(), &*payload.content)
            .map_err(failed)?;
    }
    let whole = builder.into_inner().map_err(failed)?;
    Ok(any.then(|| one_piece(whole)))
}

/// Returns an archive without entries: unpacking it makes the directory, and nothing else.
pub(crate) fn empty_archive() -> Result<ByteStream, Error> {
    let whole = tar::Builder::new(Vec::new())
        .into_inner()
        .map_err(|e| Error::io("failed to pack nothing", e))?;
    Ok(one_piece(whole))
}

fn one_piece(whole: Vec<u8>) -> ByteStream {
    Box::pin(futures_util::stream::iter([Ok(Bytes::from(whole))]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(name: &str, content: impl Into<Vec<u8>>) -> Payload {
        Payload {
            variable: Key::new(name).unwrap(),
            content: Bytes::from(content.into()),
            origin: Origin("--payload".into()),
        }
    }

    #[test]
    fn k23_one_byte_beyond_the_limit_goes_to_a_file() {
        let at = payload("TASK", vec![b'x'; MAX_INLINE]);
        let definitions = at.definitions(Path::new("/i")).unwrap();
        assert_eq!((definitions.len(), at.needs_file()), (1, false));
        let beyond = payload("TASK", vec![b'x'; MAX_INLINE + 1]);
        let definitions = beyond.definitions(Path::new("/i")).unwrap();
        assert_eq!(definitions[1].key.to_string(), "TASK_PATH");
        let crate::env::Value::Literal(path) = &definitions[1].value else {
            panic!("a literal");
        };
        assert_eq!(path.as_bytes(), b"/i/TASK");
        assert!(payload("BIN", b"a\0b".to_vec()).needs_file());
    }

    #[test]
    fn k23_names_and_sizes_that_cannot_be_are_refused() {
        for bad in ["../x", "a/b", "a b", &"n".repeat(101), "."] {
            let error = payload(bad, vec![0])
                .definitions(Path::new("/i"))
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad}");
        }
        let large = payload("X", vec![0; MAX_PAYLOAD + 1]);
        let error = large.definitions(Path::new("/i")).unwrap_err();
        assert_eq!(
            (error.kind(), error.get("limit")),
            (ErrorKind::TooLarge, Some("67108864"))
        );
    }

    #[test]
    fn f144_debug_shows_the_size_only() {
        let text = format!("{:?}", payload("T", "hunter2"));
        assert!(!text.contains("hunter2") && text.contains('7'), "{text}");
    }
}

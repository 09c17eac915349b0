//! What crosses the control connection: paths, JSON bodies, and the binary form of frames and environments.
//!
//! A change that an older peer would misread raises [`PROTOCOL`].

use std::{ffi::OsString, os::unix::ffi::OsStringExt as _};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use groundcrew_core::{
    env::{Environment, Key},
    error::{Error, ErrorKind, ErrorReport},
    id::{InstallId, InstanceId, RunId, SessionId},
    process::{EndCause, ExitStatus, Frame, FrameKind, Lease, Offset},
    wire::OsText,
};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The newest version of the control protocol that we speak; a version is the first element of every path.
///
/// | version | what it brought |
/// |---|---|
/// | 1 | everything |
/// | 2 | idle limits, and the end that they cause |
/// | 3 | the end for want of memory |
///
/// Both sides speak every version from [`OLDEST`] on: a controller begins with its newest, and goes down to what the
/// supervisor answers with. So a run outlives an upgrade of the controller, and a downgrade.
pub(crate) const PROTOCOL: u32 = 3;

/// The oldest version that we speak.
pub(crate) const OLDEST: u32 = 1;

/// The version that brought idle limits.
pub(crate) const IDLE_LIMITS: u32 = 2;

/// The version that tells when memory ran out.
const OUT_OF_MEMORY: u32 = 3;

/// Returns the version that a word names, if we speak it.
pub(crate) fn spoken(word: &[u8]) -> Option<u32> {
    let word = std::str::from_utf8(word).ok()?;
    let version = word.parse().ok()?;
    ((OLDEST..=PROTOCOL).contains(&version) && version.to_string() == word).then_some(version)
}

/// Tells an end in the words of a version.
pub(crate) fn told_in(version: u32, mut status: ExitStatus) -> ExitStatus {
    if version < IDLE_LIMITS && status.cause == EndCause::Idle {
        status.cause = EndCause::TimedOut;
    }
    if version < OUT_OF_MEMORY && status.cause == EndCause::OutOfMemory {
        status.cause = EndCause::Itself;
    }
    status
}

/// The header in which each side tells its version.
pub(crate) const PROTOCOL_HEADER: &str = "x-groundcrew-protocol";

/// What one HTTP/2 stream may have under way before its reader must have read.
pub(crate) const STREAM_WINDOW: u32 = 4 << 20;

/// What one connection may have under way; so large that readers who do not read never stall the others.
pub(crate) const CONNECTION_WINDOW: u32 = 1 << 30;

/// The largest HTTP/2 frame, and how much output is gathered into one piece.
pub(crate) const MAX_FRAME: u32 = 256 << 10;

/// The answer to `GET /v3`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) protocol: u32,
    pub(crate) pid: u32,
    pub(crate) install: InstallId,
    pub(crate) instance: InstanceId,
    pub(crate) run: RunId,
    pub(crate) session: SessionId,
    pub(crate) lease: Lease,
}

/// The body of `POST /v3/shutdown`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Shutdown {
    pub(crate) grace_ms: u64,
}

/// The body of an answer that is an error.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) error: ErrorReport,
}

/// The error of a peer that speaks another version.
pub(crate) fn mismatch(theirs: &str) -> Error {
    Error::new(
        ErrorKind::Protocol,
        "controller and supervisor speak different versions of the control protocol; use the version that started it",
    )
    .with("ours", format!("{OLDEST} to {PROTOCOL}"))
    .with("theirs", theirs)
}

/// Writes bytes so that they can stand in a query.
pub(crate) fn percent_encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'/') {
            text.push(char::from(byte));
        } else {
            text.push('%');
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
            }
        }
    }
    text
}

/// Reads what [`percent_encode`] wrote; none if it is malformed.
pub(crate) fn percent_decode(text: &str) -> Option<OsString> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || {
                let digit = char::from(rest.next()?).to_digit(16)?;
                u8::try_from(digit).ok()
            };
            bytes.push(digit()? << 4 | digit()?);
        } else {
            bytes.push(byte);
        }
    }
    Some(OsString::from_vec(bytes))
}

/// Writes variables as `KEY=VALUE` with a NUL byte behind each; the bytes are wiped when dropped.
///
/// # Errors
///
/// `InvalidInput` when a value holds a NUL byte.
pub(crate) fn encode_environment(environment: &Environment) -> Result<Bytes, Error> {
    environment.check(0)?;
    let size = environment
        .iter()
        .map(|(key, value)| key.as_bytes().len() + value.len() + 2)
        .sum();
    let mut bytes = Zeroizing::new(Vec::with_capacity(size));
    for (key, value) in environment.iter() {
        bytes.extend_from_slice(key.as_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(value);
        bytes.push(0);
    }
    Ok(Bytes::from_owner(bytes))
}

/// Reads what [`encode_environment`] wrote.
///
/// # Errors
///
/// `InvalidInput` when it is no list of variables.
pub(crate) fn decode_environment(bytes: &[u8]) -> Result<Environment, Error> {
    let wrong = || {
        Error::new(
            ErrorKind::InvalidInput,
            "an environment is KEY=VALUE with a NUL byte behind each variable",
        )
    };
    let mut environment = Environment::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let end = rest.iter().position(|b| *b == 0).ok_or_else(wrong)?;
        let variable = &rest[..end];
        let equals = variable.iter().position(|b| *b == b'=').ok_or_else(wrong)?;
        let key = Key::new(OsText::from_bytes(variable[..equals].to_vec()))?;
        environment.set(key, &variable[equals + 1..]);
        rest = &rest[end + 1..];
    }
    Ok(environment)
}

const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const TRUNCATED: u8 = 3;
const EXIT: u8 = 4;
const FAILURE: u8 = 5;

/// Kind, offset, time and length of the payload.
const HEADER: usize = 1 + 8 + 8 + 4;

/// The longest payload that a reader believes in.
const MAX_PAYLOAD: usize = 64 << 20;

fn put(out: &mut BytesMut, kind: u8, offset: Offset, at_ms: u64, payload: &[u8]) {
    out.reserve(HEADER + payload.len());
    out.put_u8(kind);
    out.put_u64(offset.0);
    out.put_u64(at_ms);
    // Frames are cut far below 4 GiB where they are recorded.
    out.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    out.put_slice(payload);
}

/// Writes one piece of an output stream: a frame, or the error that ends it.
pub(crate) fn put_frame(out: &mut BytesMut, frame: &Result<Frame, Error>) -> Result<(), Error> {
    let json = |error: serde_json::Error| {
        Error::new(ErrorKind::Unexpected, "failed to write a frame").with_source(error)
    };
    match frame {
        Ok(Frame {
            offset,
            at_ms,
            kind,
        }) => match kind {
            FrameKind::Stdout(bytes) => put(out, STDOUT, *offset, *at_ms, bytes),
            FrameKind::Stderr(bytes) => put(out, STDERR, *offset, *at_ms, bytes),
            FrameKind::Truncated(bytes) => {
                put(out, TRUNCATED, *offset, *at_ms, &bytes.to_be_bytes());
            }
            FrameKind::Exit(status) => {
                let status = serde_json::to_vec(status).map_err(json)?;
                put(out, EXIT, *offset, *at_ms, &status);
            }
            other => {
                return Err(Error::new(
                    ErrorKind::Protocol,
                    "the control protocol has no form for this kind of frame",
                )
                .with("frame", format!("{other:?}")));
            }
        },
        Err(error) => {
            let report = serde_json::to_vec(&ErrorReport::from(error)).map_err(json)?;
            put(out, FAILURE, Offset(0), 0, &report);
        }
    }
    Ok(())
}

/// Cuts an output stream into its frames.
#[derive(Debug, Default)]
pub(crate) struct FrameDecoder {
    buffer: Bytes,
}

impl FrameDecoder {
    /// Takes the next piece of the stream.
    pub(crate) fn push(&mut self, piece: Bytes) {
        if self.buffer.is_empty() {
            self.buffer = piece;
        } else {
            let mut joined = BytesMut::with_capacity(self.buffer.len() + piece.len());
            joined.put_slice(&self.buffer);
            joined.put_slice(&piece);
            self.buffer = joined.freeze();
        }
    }

    /// Returns the next whole frame, if there is one.
    ///
    /// # Errors
    ///
    /// The error that the other side sent in its place, or `Protocol` for nonsense.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, Error> {
        let Some(mut header) = self.buffer.get(..HEADER) else {
            return Ok(None);
        };
        let kind = header.get_u8();
        let offset = Offset(header.get_u64());
        let at_ms = header.get_u64();
        let length = header.get_u32() as usize;
        let nonsense = |what: &'static str| Error::new(ErrorKind::Protocol, what);
        if length > MAX_PAYLOAD {
            return Err(
                nonsense("a frame of output is longer than any can be").with("bytes", length)
            );
        }
        if self.buffer.len() < HEADER + length {
            return Ok(None);
        }
        self.buffer.advance(HEADER);
        let payload = self.buffer.split_to(length);
        let kind = match kind {
            STDOUT => FrameKind::Stdout(payload),
            STDERR => FrameKind::Stderr(payload),
            TRUNCATED => FrameKind::Truncated(
                payload
                    .as_ref()
                    .try_into()
                    .map(u64::from_be_bytes)
                    .map_err(|_| nonsense("a frame about lost output has the wrong length"))?,
            ),
            EXIT => FrameKind::Exit(
                serde_json::from_slice(&payload)
                    .map_err(|e| nonsense("an exit frame cannot be read").with_source(e))?,
            ),
            FAILURE => {
                return Err(serde_json::from_slice::<ErrorReport>(&payload).map_or_else(
                    |e| nonsense("an error frame cannot be read").with_source(e),
                    Error::from,
                ));
            }
            other => return Err(nonsense("a frame of unknown kind").with("frame", other)),
        };
        Ok(Some(Frame {
            offset,
            at_ms,
            kind,
        }))
    }
}

/// Returns where the frame behind this one begins.
pub(crate) fn end_of(frame: &Frame) -> Offset {
    Offset(
        frame.offset.0
            + match &frame.kind {
                FrameKind::Stdout(bytes) | FrameKind::Stderr(bytes) => bytes.len() as u64,
                FrameKind::Truncated(bytes) => *bytes,
                _ => 0,
            },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(offset: u64, kind: FrameKind) -> Frame {
        Frame {
            offset: Offset(offset),
            at_ms: 1_700_000_000_000,
            kind,
        }
    }

    #[test]
    fn f017_frames_survive_any_cutting_of_the_stream() {
        let frames = [
            frame(0, FrameKind::Truncated(7)),
            frame(7, FrameKind::Stdout(Bytes::from_static(b"\xff\0\x1b[1m\r"))),
            frame(14, FrameKind::Stderr(Bytes::from_static(b"e"))),
            frame(15, FrameKind::Exit(ExitStatus::exited(3))),
        ];
        let mut stream = BytesMut::new();
        for frame in &frames {
            put_frame(&mut stream, &Ok(frame.clone())).unwrap();
        }
        let stream = stream.freeze();
        for size in 1..=stream.len() {
            let mut decoder = FrameDecoder::default();
            let mut seen = Vec::new();
            for start in (0..stream.len()).step_by(size) {
                decoder.push(stream.slice(start..stream.len().min(start + size)));
                while let Some(frame) = decoder.next().unwrap() {
                    seen.push(frame);
                }
            }
            assert_eq!(seen, frames, "cut every {size} bytes");
        }
        assert!(frames.windows(2).all(|w| end_of(&w[0]) == w[1].offset));
    }

    #[test]
    fn an_error_in_the_stream_keeps_its_kind() {
        let mut stream = BytesMut::new();
        let error = Error::new(ErrorKind::Corrupt, "the log is damaged").with("path", "/x");
        put_frame(&mut stream, &Err(error)).unwrap();
        let mut decoder = FrameDecoder::default();
        decoder.push(stream.freeze());
        let back = decoder.next().unwrap_err();
        assert_eq!(
            (back.kind(), back.get("path")),
            (ErrorKind::Corrupt, Some("/x"))
        );
    }

    #[test]
    fn f013_nonsense_is_a_protocol_error() {
        for bytes in [[9; HEADER], [0xff; HEADER]] {
            let mut decoder = FrameDecoder::default();
            decoder.push(Bytes::copy_from_slice(&bytes));
            decoder.push(Bytes::from(vec![0; 9 << 24]));
            assert_eq!(decoder.next().unwrap_err().kind(), ErrorKind::Protocol);
        }
    }

    #[test]
    fn c36_environments_keep_every_byte() {
        let environment: Environment = [("A", &b""[..]), ("B\u{e9}", b"\xff=\n"), ("C", b"x")]
            .into_iter()
            .map(|(key, value)| (Key::new(key).unwrap(), value.to_vec()))
            .collect();
        let bytes = encode_environment(&environment).unwrap();
        assert_eq!(decode_environment(&bytes).unwrap(), environment);
        for bad in [&b"A=1"[..], b"A\0", b"=x\0"] {
            assert!(decode_environment(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn c36_paths_keep_every_byte_in_a_query() {
        let bytes: Vec<u8> = (1..=255).collect();
        let text = percent_encode(&bytes);
        assert!(
            text.bytes()
                .all(|b| b.is_ascii_graphic() && b != b'&' && b != b'#')
        );
        assert_eq!(percent_decode(&text).unwrap(), OsString::from_vec(bytes));
        assert!(percent_decode("%4").is_none() && percent_decode("%zz").is_none());
    }
}

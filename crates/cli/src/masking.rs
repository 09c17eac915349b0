//! Hides a run's secrets in its output on the way to ours, frame by frame; every byte keeps its offset.
//!
//! What may be the beginning of a secret is held back until that is decided; the frames that come out have the offsets, the
//! times and the lengths of those that went in.

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes};
use groundcrew_core::{
    process::{Frame, FrameKind, Offset},
    redact::{RedactStream, Redactor},
};

/// Hides secrets in frames.
#[derive(Debug)]
pub(crate) struct Masking {
    lanes: Option<[Lane; 2]>,
}

/// One of the command's streams.
#[derive(Debug)]
struct Lane {
    stream: RedactStream,
    kind: fn(Bytes) -> FrameKind,
    /// Where the bytes that are held back come from.
    pieces: VecDeque<Piece>,
}

#[derive(Debug)]
struct Piece {
    offset: u64,
    at_ms: u64,
    length: usize,
}

impl Masking {
    /// Makes one; `hold_from` as for [`Redactor::stream`].
    pub(crate) fn new(redactor: &Redactor, hold_from: usize) -> Self {
        let lane = |kind| Lane {
            stream: redactor.stream(hold_from),
            kind,
            pieces: VecDeque::new(),
        };
        let lanes = || [lane(FrameKind::Stdout), lane(FrameKind::Stderr)];
        Self {
            lanes: (!redactor.is_empty()).then(lanes),
        }
    }

    /// Takes a frame, and returns those that are decided.
    pub(crate) fn push(&mut self, frame: Frame) -> Vec<Frame> {
        let Some([out, err]) = &mut self.lanes else {
            return vec![frame];
        };
        match &frame.kind {
            FrameKind::Stdout(bytes) => out.push(&frame, bytes),
            FrameKind::Stderr(bytes) => err.push(&frame, bytes),
            // Whatever else it is, what came before it is over.
            _ => {
                let mut frames = self.finish();
                frames.push(frame);
                frames
            }
        }
    }

    /// Returns what is held back: it has not become a secret.
    pub(crate) fn finish(&mut self) -> Vec<Frame> {
        let lanes = self.lanes.iter_mut().flatten();
        lanes.flat_map(Lane::finish).collect()
    }
}

impl Lane {
    fn push(&mut self, frame: &Frame, bytes: &Bytes) -> Vec<Frame> {
        self.pieces.push_back(Piece {
            offset: frame.offset.0,
            at_ms: frame.at_ms,
            length: bytes.len(),
        });
        let ready = Bytes::copy_from_slice(self.stream.push(bytes));
        self.placed(ready)
    }

    fn finish(&mut self) -> Vec<Frame> {
        let rest = Bytes::from(self.stream.finish());
        self.placed(rest)
    }

    /// Gives each byte the place that it came from.
    fn placed(&mut self, mut ready: Bytes) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(piece) = self.pieces.front_mut() {
            let length = piece.length.min(ready.len());
            if length == 0 && piece.length > 0 {
                break;
            }
            frames.push(Frame {
                offset: Offset(piece.offset),
                at_ms: piece.at_ms,
                kind: (self.kind)(ready.copy_to_bytes(length)),
            });
            if length < piece.length {
                piece.offset += length as u64;
                piece.length -= length;
                break;
            }
            self.pieces.pop_front();
        }
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use groundcrew_core::{
        process::ExitStatus,
        redact::{HOLD_FOR_PIPE, HOLD_FOR_TERMINAL},
        secret::SecretValue,
    };

    fn masking(hold_from: usize) -> Masking {
        let values = [SecretValue::new("plain-token-123456")];
        Masking::new(&Redactor::new(&values).unwrap(), hold_from)
    }

    fn frame(offset: u64, kind: FrameKind) -> Frame {
        Frame {
            offset: Offset(offset),
            at_ms: offset,
            kind,
        }
    }

    fn out(text: &'static str) -> FrameKind {
        FrameKind::Stdout(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn c14_a_secret_in_two_frames_is_hidden_and_every_byte_keeps_its_offset() {
        let mut masking = masking(HOLD_FOR_PIPE);
        assert_eq!(
            masking.push(frame(0, out("a plain-tok"))),
            [frame(0, out("a "))]
        );
        // The other stream goes on meanwhile.
        let err = FrameKind::Stderr(Bytes::from_static(b"!"));
        assert_eq!(masking.push(frame(11, err.clone())), [frame(11, err)]);
        let hidden = masking.push(frame(12, out("en-123456\nx")));
        let first = Frame {
            at_ms: 0,
            ..frame(2, out("*********"))
        };
        assert_eq!(hidden, [first, frame(12, out("*********\nx"))]);
    }

    #[test]
    fn c14_what_did_not_become_a_secret_comes_before_the_end() {
        let mut masking = masking(HOLD_FOR_PIPE);
        assert_eq!(masking.push(frame(0, out("plain-tok"))), []);
        let exit = frame(9, FrameKind::Exit(ExitStatus::exited(0)));
        assert_eq!(
            masking.push(exit.clone()),
            [frame(0, out("plain-tok")), exit]
        );
        assert_eq!(masking.finish(), []);
    }

    #[test]
    fn a_letter_that_is_typed_is_seen_at_once() {
        let mut masking = masking(HOLD_FOR_TERMINAL);
        assert_eq!(masking.push(frame(0, out("p"))), [frame(0, out("p"))]);
    }

    #[test]
    fn without_secrets_frames_pass_as_they_are() {
        let mut masking = Masking::new(&Redactor::default(), HOLD_FOR_PIPE);
        assert_eq!(masking.push(frame(3, out(""))), [frame(3, out(""))]);
    }
}

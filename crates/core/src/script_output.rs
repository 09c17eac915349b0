//! What a script says, as it says it: told line by line with secrets hidden, and its end kept for an error.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use crate::{
    executor::Progress,
    process::{Frame, FrameKind},
    redact::{HOLD_FOR_PIPE, RedactStream, Redactor},
};

/// The longest line that is told in one piece, in bytes.
const MAX_LINE: usize = 4096;
/// How many lines are told within [`WINDOW`]; the rest is in the log only.
const MAX_LINES: usize = 200;
const WINDOW: Duration = Duration::from_secs(1);
/// How many lines of the end an error shows.
const TAIL_LINES: usize = 12;
/// How many bytes of the end an error shows.
const TAIL_BYTES: usize = 2048;

/// Takes the frames of one script.
pub(crate) struct ScriptOutput<'a> {
    progress: &'a dyn Progress,
    streams: [Stream; 2],
    tail: VecDeque<String>,
    window: Instant,
    told: usize,
    left_out: usize,
}

struct Stream {
    redact: RedactStream,
    line: Vec<u8>,
}

impl<'a> ScriptOutput<'a> {
    pub(crate) fn new(redactor: &Redactor, progress: &'a dyn Progress) -> Self {
        let stream = || Stream {
            redact: redactor.stream(HOLD_FOR_PIPE),
            line: Vec::new(),
        };
        Self {
            progress,
            streams: [stream(), stream()],
            tail: VecDeque::new(),
            window: Instant::now(),
            told: 0,
            left_out: 0,
        }
    }

    /// Takes a frame; that of the end is the caller's.
    pub(crate) fn take(&mut self, frame: &Frame) {
        match &frame.kind {
            FrameKind::Stdout(bytes) => self.push(0, bytes),
            FrameKind::Stderr(bytes) => self.push(1, bytes),
            FrameKind::Truncated(bytes) => self.line(&format!("({bytes} bytes are not kept)")),
            FrameKind::Exit(_) => {}
        }
    }

    /// Tells what is left, and returns the end of everything that was said.
    pub(crate) fn finish(mut self) -> String {
        for index in 0..self.streams.len() {
            let Some(stream) = self.streams.get_mut(index) else {
                continue;
            };
            let rest = stream.redact.finish();
            self.split(index, &rest);
            let Some(stream) = self.streams.get_mut(index) else {
                continue;
            };
            let line = std::mem::take(&mut stream.line);
            self.whole(&line);
        }
        self.tell_left_out();
        Vec::from(self.tail).join(" | ")
    }

    fn push(&mut self, index: usize, bytes: &[u8]) {
        let Some(stream) = self.streams.get_mut(index) else {
            return;
        };
        let hidden = stream.redact.push(bytes).to_vec();
        self.split(index, &hidden);
    }

    fn split(&mut self, index: usize, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let Some(stream) = self.streams.get_mut(index) else {
                return;
            };
            stream.line.extend_from_slice(piece);
            let ended = matches!(piece.last(), Some(b'\n' | b'\r'));
            if ended || stream.line.len() >= MAX_LINE {
                let line = std::mem::take(&mut stream.line);
                for piece in line.chunks(MAX_LINE) {
                    self.whole(piece);
                }
            }
        }
    }

    fn whole(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end();
        if !text.is_empty() {
            self.line(text);
        }
    }

    fn line(&mut self, text: &str) {
        self.tail.push_back(text.to_owned());
        while self.tail.len() > 1
            && (self.tail.len() > TAIL_LINES
                || self.tail.iter().map(String::len).sum::<usize>() > TAIL_BYTES)
        {
            self.tail.pop_front();
        }
        if let [only] = self.tail.make_contiguous() {
            only.truncate(only.floor_char_boundary(TAIL_BYTES));
        }
        if self.window.elapsed() >= WINDOW {
            self.tell_left_out();
            self.window = Instant::now();
            self.told = 0;
        }
        if self.told < MAX_LINES {
            self.told += 1;
            self.progress.line(text);
        } else {
            self.left_out += 1;
        }
    }

    fn tell_left_out(&mut self) {
        if self.left_out > 0 {
            let text = format!("({} lines are in its log only)", self.left_out);
            self.left_out = 0;
            self.progress.line(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use bytes::Bytes;

    use super::*;
    use crate::{process::Offset, secret::SecretValue};

    #[derive(Debug, Default)]
    struct Lines(Mutex<Vec<String>>);

    impl Progress for Lines {
        fn line(&self, line: &str) {
            self.0.lock().unwrap().push(line.to_owned());
        }
    }

    fn said(frames: &[FrameKind], redactor: &Redactor) -> (Vec<String>, String) {
        let lines = Lines::default();
        let mut output = ScriptOutput::new(redactor, &lines);
        for kind in frames {
            output.take(&Frame {
                offset: Offset(0),
                at_ms: 0,
                kind: kind.clone(),
            });
        }
        let tail = output.finish();
        (lines.0.into_inner().unwrap(), tail)
    }

    fn out(text: &str) -> FrameKind {
        FrameKind::Stdout(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn lines_are_whole_whatever_the_pieces_are() {
        let err = FrameKind::Stderr(Bytes::from_static(b"oops\n"));
        let frames = [out("on"), err, out("e\ntwo\r10%\r"), out("\n\nlast")];
        let (lines, tail) = said(&frames, &Redactor::default());
        assert_eq!(lines, ["oops", "one", "two", "10%", "last"]);
        assert_eq!(tail, "oops | one | two | 10% | last");
    }

    #[test]
    fn a_secret_in_two_pieces_or_over_two_lines_is_hidden() {
        let secrets = [
            SecretValue::new("hunter2-long"),
            SecretValue::new("first-l\nsecond-l"),
        ];
        let redactor = Redactor::new(&secrets).unwrap();
        let frames = [
            out("a hunter2"),
            out("-long b\n"),
            out("first-l\nsec"),
            out("ond-l c\n"),
        ];
        let (lines, tail) = said(&frames, &redactor);
        for text in lines.iter().chain([&tail]) {
            for part in ["hunter2", "first-l", "second-l"] {
                assert!(!text.contains(part), "{text}");
            }
        }
        assert!(tail.contains('b') && tail.contains('c'), "{tail}");
    }

    #[test]
    fn a_flood_is_counted_and_its_end_is_kept() {
        let flood: String = "a line\n".repeat(1000);
        let long = "x".repeat(3 * MAX_LINE);
        let (lines, tail) = said(&[out(&flood), out(&long)], &Redactor::default());
        assert!(lines.len() <= MAX_LINES + 1, "{}", lines.len());
        assert!(
            lines.last().unwrap().contains("in its log only"),
            "{lines:?}"
        );
        assert!(tail.len() <= TAIL_BYTES, "{}", tail.len());
    }
}

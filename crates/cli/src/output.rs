//! A command's output on its way to ours, in the format that was asked for.

use std::io;

use bytes::Bytes;
use futures_util::StreamExt as _;
use groundcrew_core::{
    error::Error,
    instance::Stdio,
    process::{ExitStatus, Frame, FrameKind, Offset},
};
use serde_json::{Value, json};

use crate::{
    args::Format,
    console::event,
    documents,
    masking::Masking,
    printer::{Printer, Target},
    screen::Screen,
    text::base64,
};

/// Writes frames to our streams.
#[derive(Debug)]
pub(crate) struct Output {
    printer: Printer,
    shape: Shape,
    /// What hides the run's secrets.
    masking: Masking,
    /// What is left out.
    filter: Filter,
    /// What a program switched at our terminal, if it works in it.
    screen: Option<Screen>,
    /// Behind the last byte that was taken.
    at: Offset,
}

/// Which output is written; the end is, whatever it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Nothing that was recorded before, in milliseconds since 1970.
    pub since_ms: u64,
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            since_ms: 0,
            stdout: true,
            stderr: true,
        }
    }
}

impl Filter {
    fn passes(self, frame: &Frame) -> bool {
        match frame.kind {
            FrameKind::Stdout(_) => self.stdout && frame.at_ms >= self.since_ms,
            FrameKind::Stderr(_) => self.stderr && frame.at_ms >= self.since_ms,
            _ => true,
        }
    }
}

/// How frames are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Standard output to standard output, standard error to standard error.
    Streams,
    /// Both to standard error: standard output is for a document.
    Aside,
    /// One event a line to standard output.
    Events,
    /// The members of a JSON array, with a comma before each but the first.
    Members {
        /// Whether the first is still to come.
        first: bool,
    },
}

impl Shape {
    /// Returns the shape of a command's own output in a format.
    pub(crate) const fn of(format: Format) -> Self {
        match format {
            Format::Human => Self::Streams,
            Format::Json => Self::Aside,
            Format::Jsonl => Self::Events,
        }
    }
}

impl Output {
    /// Begins to write what comes behind an offset.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub(crate) fn start(shape: Shape, at: Offset, masking: Masking) -> io::Result<Self> {
        Ok(Self {
            printer: Printer::start()?,
            shape,
            masking,
            filter: Filter::default(),
            screen: None,
            at,
        })
    }

    /// Leaves some of it out.
    pub(crate) fn only(&mut self, filter: Filter) {
        self.filter = filter;
    }

    /// Follows what is switched at our terminal, so that [`finish`](Self::finish) puts it back.
    pub(crate) fn follow_screen(&mut self) {
        self.screen = Some(Screen::default());
    }

    /// Returns the offset behind the last byte that was taken.
    pub(crate) const fn at(&self) -> Offset {
        self.at
    }

    /// Writes a stream of frames to its end, or to an offset; returns the exit status if it was reached.
    ///
    /// # Errors
    ///
    /// Those of the stream; [`at`](Self::at) tells where to go on.
    pub(crate) async fn copy(
        &mut self,
        stdio: &mut Stdio,
        until: Option<Offset>,
    ) -> Result<Option<ExitStatus>, Error> {
        while until.is_none_or(|until| self.at < until) {
            match stdio.output.next().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(error),
                Some(Ok(frame)) => {
                    if let FrameKind::Exit(status) = frame.kind {
                        self.write(cut(frame, until)).await;
                        return Ok(Some(status));
                    }
                    self.write(cut(frame, until)).await;
                }
            }
        }
        Ok(None)
    }

    async fn write(&mut self, frame: Frame) {
        let behind = frame.offset.0
            + match &frame.kind {
                FrameKind::Stdout(bytes) | FrameKind::Stderr(bytes) => bytes.len() as u64,
                FrameKind::Truncated(bytes) => *bytes,
                _ => 0,
            };
        for frame in self.masking.push(frame) {
            self.write_masked(frame).await;
        }
        self.at = Offset(behind);
    }

    /// Writes a frame unless it is left out; only here, because a secret may begin in one that is.
    async fn write_masked(&mut self, frame: Frame) {
        if !self.filter.passes(&frame) {
            return;
        }
        if let (Some(screen), FrameKind::Stdout(bytes)) = (&mut self.screen, &frame.kind) {
            screen.read(bytes);
        }
        let (target, bytes) = match (self.shape, &frame.kind) {
            (Shape::Streams, FrameKind::Stdout(bytes)) => (Target::Out, bytes.clone()),
            (Shape::Streams | Shape::Aside, FrameKind::Stderr(bytes))
            | (Shape::Aside, FrameKind::Stdout(bytes)) => (Target::Err, bytes.clone()),
            (Shape::Streams | Shape::Aside, FrameKind::Truncated(count)) => {
                let text = format!("groundcrew: {count} bytes of output are no longer kept\n");
                (Target::Err, Bytes::from(text))
            }
            (Shape::Streams | Shape::Aside, _) => return,
            (Shape::Events, kind) => {
                let (name, fields) = told(&frame, kind);
                (Target::Out, Bytes::from(event(name, &fields) + "\n"))
            }
            (Shape::Members { first }, kind) => {
                let (name, fields) = told(&frame, kind);
                self.shape = Shape::Members { first: false };
                let comma = if first { "" } else { ",\n" };
                let mut member = json!({"frame": name});
                if let (Value::Object(member), Value::Object(fields)) = (&mut member, fields) {
                    member.extend(fields);
                }
                (Target::Out, Bytes::from(format!("{comma}{member}")))
            }
        };
        self.printer.print(target, bytes).await;
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    ///
    /// The first failure that was not a reader who is gone.
    pub(crate) async fn finish(mut self) -> io::Result<()> {
        for frame in self.masking.finish() {
            self.write_masked(frame).await;
        }
        let restore = self.screen.map(|screen| screen.restore());
        if let Some(restore) = restore.filter(|restore| !restore.is_empty()) {
            self.printer.print(Target::Out, Bytes::from(restore)).await;
        }
        self.printer.finish().await
    }
}

/// Cuts a frame off at an offset.
fn cut(mut frame: Frame, until: Option<Offset>) -> Frame {
    if let Some(until) = until
        && let FrameKind::Stdout(bytes) | FrameKind::Stderr(bytes) = &mut frame.kind
    {
        let room = usize::try_from(until.0.saturating_sub(frame.offset.0)).unwrap_or(usize::MAX);
        bytes.truncate(room);
    }
    frame
}

/// Tells a frame to programs: its name and its fields.
fn told(frame: &Frame, kind: &FrameKind) -> (&'static str, Value) {
    let offset = frame.offset.0;
    let at = documents::moment(frame.at_ms);
    let output = |stream: &str, bytes: &Bytes| match std::str::from_utf8(bytes) {
        Ok(text) => json!({"stream": stream, "offset": offset, "at": at, "text": text}),
        Err(_) => json!({"stream": stream, "offset": offset, "at": at, "base64": base64(bytes)}),
    };
    match kind {
        FrameKind::Stdout(bytes) => ("output", output("stdout", bytes)),
        FrameKind::Stderr(bytes) => ("output", output("stderr", bytes)),
        FrameKind::Truncated(bytes) => (
            "truncated",
            json!({"offset": offset, "at": at, "bytes": bytes}),
        ),
        FrameKind::Exit(status) => (
            "exit",
            json!({
                "offset": offset,
                "at": at,
                "code": status.code,
                "signal": status.signal.map(|signal| signal.to_string()),
                "cause": status.cause,
            }),
        ),
        other => (
            "other",
            json!({"offset": offset, "at": at, "message": format!("{other:?}")}),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use groundcrew_core::redact::{HOLD_FOR_PIPE, Redactor};

    fn frame(offset: u64, kind: FrameKind) -> Frame {
        Frame {
            offset: Offset(offset),
            at_ms: 0,
            kind,
        }
    }

    #[test]
    fn output_is_text_where_it_is_text_and_flagged_where_not() {
        let line = |bytes: &'static [u8]| {
            let frame = frame(5, FrameKind::Stdout(Bytes::from_static(bytes)));
            let (name, fields) = told(&frame, &frame.kind);
            event(name, &fields)
        };
        let start = r#"{"schema_version":1,"event":"output","stream":"stdout","offset":5,"at":"1970-01-01T00:00:00.000Z","#;
        assert_eq!(line(b"a\n"), format!(r#"{start}"text":"a\n"}}"#));
        assert_eq!(line(b"\xff"), format!(r#"{start}"base64":"/w=="}}"#));
    }

    #[test]
    fn an_exit_says_how() {
        let frame = frame(9, FrameKind::Exit(ExitStatus::exited(3)));
        let (name, fields) = told(&frame, &frame.kind);
        assert_eq!(
            (name, &fields["code"], &fields["cause"]),
            ("exit", &json!(3), &json!("itself"))
        );
    }

    #[test]
    fn a_frame_is_cut_where_reading_ends() {
        let whole = frame(10, FrameKind::Stdout(Bytes::from_static(b"abcdef")));
        assert_eq!(
            cut(whole.clone(), Some(Offset(13))).kind,
            FrameKind::Stdout(Bytes::from_static(b"abc"))
        );
        assert_eq!(cut(whole.clone(), None), whole);
    }

    #[tokio::test]
    async fn copying_ends_at_the_offset_and_not_before_what_was_recorded() {
        let frames = [
            frame(0, FrameKind::Stdout(Bytes::new())),
            frame(0, FrameKind::Stderr(Bytes::from_static(b""))),
            frame(0, FrameKind::Truncated(4)),
            frame(4, FrameKind::Stdout(Bytes::from_static(b""))),
        ];
        let output =
            futures_util::stream::iter(frames.map(Ok)).chain(futures_util::stream::pending());
        let nothing = Masking::new(&Redactor::default(), HOLD_FOR_PIPE);
        let mut stdio = Stdio {
            output: output.boxed(),
            input: None,
        };
        let mut output = Output::start(Shape::Aside, Offset(0), nothing).unwrap();
        assert_eq!(
            output.copy(&mut stdio, Some(Offset(4))).await.unwrap(),
            None
        );
        assert_eq!(output.at(), Offset(4));
        output.finish().await.unwrap();
    }
}

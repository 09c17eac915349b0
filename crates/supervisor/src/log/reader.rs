//! Reads a log from its files, live or finished, without its writer; memory is constant, whatever the reader's pace.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use bytes::{Buf as _, BytesMut};
use groundcrew_core::{
    error::Error,
    id::ProcessId,
    process::{Frame, FrameKind, Offset},
};

use super::{
    files,
    frame::{HEADER, Header},
    record::{self, Record},
    segments,
};

const CHUNK: usize = 64 * 1024;

/// Reads the frames of one process from an offset on.
///
/// * Frames come in order, without gap or duplicate; a frame that holds the offset is cut there.
/// * Output that is no longer kept, or was never kept, is one `Truncated` frame.
/// * What a writer has not finished yet, or never will, is no frame.
#[derive(Debug)]
pub struct LogReader {
    directory: PathBuf,
    position: u64,
    segment: Option<Segment>,
    exit: Option<Frame>,
    finished: bool,
}

#[derive(Debug)]
struct Segment {
    file: File,
    start: u64,
    /// Where in the file the next bytes behind `buffer` stand.
    at: u64,
    buffer: BytesMut,
}

impl Segment {
    fn open(directory: &Path, start: u64) -> io::Result<Self> {
        Ok(Self {
            file: files::open(directory, &segments::name(start))?,
            start,
            at: 0,
            buffer: BytesMut::new(),
        })
    }

    /// Makes sure that `wanted` bytes are in the buffer; false when the file ends before.
    fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        while self.buffer.len() < wanted {
            let had = self.buffer.len();
            self.buffer.resize(had + (wanted - had).max(CHUNK), 0);
            let read = self.file.read_at(&mut self.buffer[had..], self.at);
            self.buffer.truncate(had + read.as_ref().map_or(0, |n| *n));
            match read {
                Ok(0) => return Ok(false),
                Ok(n) => self.at += n as u64,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Returns the next header without taking it; `None` when there is no whole frame.
    fn peek(&mut self) -> io::Result<Option<Header>> {
        if !self.fill(HEADER)? {
            if self.buffer.is_empty() {
                // A follower that waits holds no memory.
                self.buffer = BytesMut::new();
            }
            return Ok(None);
        }
        let Some(header) = Header::decode(&self.buffer) else {
            // What does not check now may be a write in progress: it is read again.
            self.at -= self.buffer.len() as u64;
            self.buffer = BytesMut::new();
            return Ok(None);
        };
        let whole = self.at - self.buffer.len() as u64 + (HEADER + header.len()) as u64;
        let there = whole <= self.at || self.file.metadata()?.len() >= whole;
        Ok(there.then_some(header))
    }

    fn skip(&mut self, header: &Header) {
        let len = HEADER + header.len();
        let buffered = len.min(self.buffer.len());
        self.buffer.advance(buffered);
        self.at += (len - buffered) as u64;
    }
}

impl LogReader {
    /// Opens the log of a process below the log directory of its instance.
    ///
    /// # Errors
    ///
    /// `NotFound` when no such process was ever started there; those of reading the files.
    pub fn open(log_directory: &Path, id: &ProcessId, from: Offset) -> Result<Self, Error> {
        let directory = log_directory.join(id.as_str());
        if Record::load(&directory)?.is_none() {
            return Err(record::unknown(id));
        }
        Ok(Self::at(directory, from.0))
    }

    pub(crate) fn at(directory: PathBuf, position: u64) -> Self {
        Self {
            directory,
            position,
            segment: None,
            exit: None,
            finished: false,
        }
    }

    /// Tells the exit frame, for a writer that could not store it.
    pub(crate) fn ended(&mut self, exit: Frame) {
        self.exit = Some(exit);
    }

    /// Ends it: behind an error there is nothing more.
    pub(crate) fn give_up(&mut self) {
        self.finished = true;
    }

    /// Returns the offset behind the last byte that was returned.
    pub fn position(&self) -> Offset {
        Offset(self.position)
    }

    /// Returns whether the exit frame was returned.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Returns the next frame; `None` when there is none yet, and for ever behind the exit frame.
    ///
    /// # Errors
    ///
    /// Those of reading the files.
    #[expect(
        clippy::should_implement_trait,
        reason = "none now is not the end, as an iterator would have it"
    )]
    pub fn next(&mut self) -> Result<Option<Frame>, Error> {
        if self.finished {
            return Ok(None);
        }
        if let Some(frame) = self.output()? {
            return Ok(Some(frame));
        }
        if self.exit.is_none() {
            self.exit = record::exit(&self.directory)?;
            // Output that came before the exit frame was perhaps written after the look above.
            if self.exit.is_some()
                && let Some(frame) = self.output()?
            {
                return Ok(Some(frame));
            }
        }
        let Some(exit) = &self.exit else {
            return Ok(None);
        };
        if exit.offset.0 > self.position {
            let gap = self.gap(exit.offset.0, exit.at_ms);
            return Ok(Some(gap));
        }
        self.finished = true;
        self.segment = None;
        Ok(self.exit.clone())
    }

    fn gap(&mut self, until: u64, at_ms: u64) -> Frame {
        let offset = Offset(self.position);
        let missing = until - self.position;
        self.position = until;
        Frame {
            offset,
            at_ms,
            kind: FrameKind::Truncated(missing),
        }
    }

    fn output(&mut self) -> Result<Option<Frame>, Error> {
        self.read().map_err(|e| {
            Error::io("failed to read the log", e).with("path", self.directory.display())
        })
    }

    fn read(&mut self) -> io::Result<Option<Frame>> {
        loop {
            let position = self.position;
            let Some(segment) = &mut self.segment else {
                if !self.enter()? {
                    return Ok(None);
                }
                continue;
            };
            let Some(header) = segment.peek()? else {
                let start = segment.start;
                let Some(next) = self.successor(start)? else {
                    return Ok(None);
                };
                // The old segment may have grown before the new one began.
                if let Some(segment) = &mut self.segment
                    && segment.peek()?.is_some()
                {
                    continue;
                }
                self.segment = match Segment::open(&self.directory, next) {
                    Ok(segment) => Some(segment),
                    Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                    Err(e) => return Err(e),
                };
                continue;
            };
            if header.end() <= position {
                segment.skip(&header);
                continue;
            }
            if header.offset > position {
                return Ok(Some(self.gap(header.offset, header.at_ms)));
            }
            if !segment.fill(HEADER + header.len())? {
                return Ok(None);
            }
            segment.buffer.advance(HEADER);
            let payload = segment.buffer.split_to(header.len()).freeze();
            let cut = usize::try_from(position - header.offset).unwrap_or(usize::MAX);
            self.position = header.end();
            return Ok(Some(header.frame(&payload, cut)));
        }
    }

    /// Opens the segment that holds the position, or the first one behind it; false when there is none.
    fn enter(&mut self) -> io::Result<bool> {
        loop {
            let starts = segments::starts(&self.directory)?;
            let inside = starts.iter().rev().find(|start| **start <= self.position);
            let Some(start) = inside.or(starts.first()) else {
                return Ok(false);
            };
            match Segment::open(&self.directory, *start) {
                Ok(segment) => {
                    self.segment = Some(segment);
                    return Ok(true);
                }
                // It went at the cap, just now.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn successor(&self, start: u64) -> io::Result<Option<u64>> {
        let starts = segments::starts(&self.directory)?;
        Ok(starts.into_iter().find(|next| *next > start))
    }
}

/// Returns the offset behind the last whole frame.
pub(crate) fn end(directory: &Path) -> Result<u64, Error> {
    let failed = |e| Error::io("failed to read the log", e).with("path", directory.display());
    let Some(start) = segments::starts(directory).map_err(failed)?.pop() else {
        return Ok(0);
    };
    let mut end = start;
    let mut segment = match Segment::open(directory, start) {
        Ok(segment) => segment,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(end),
        Err(e) => return Err(failed(e)),
    };
    while let Some(header) = segment.peek().map_err(failed)? {
        end = header.end();
        segment.skip(&header);
    }
    Ok(end)
}

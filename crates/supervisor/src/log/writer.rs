//! Appends frames; never blocks on a reader, never fails: what the disk does not take is dropped and leaves a gap.

use std::{
    collections::VecDeque, fs::File, io::Write as _, os::unix::fs::FileExt as _, path::PathBuf,
    time::SystemTime,
};

use groundcrew_core::process::{ExitStatus, Frame, FrameKind, Offset};
use tokio::sync::watch;

use super::{
    frame::{Channel, HEADER, Header, MAX_PAYLOAD, encode_exit},
    record, segments,
};

const SMALLEST_LIMIT: u64 = 4096;
const SMALLEST_SEGMENT: u64 = 64 * 1024;
const LARGEST_SEGMENT: u64 = 64 * 1024 * 1024;

/// Writes the log of one process.
///
/// * At most `limit` bytes of output are kept (4 KiB at least); whole segments go, the oldest first.
/// * Bytes that could not be written count as output: the offset moves on, and readers see `Truncated`.
#[derive(Debug)]
pub(crate) struct LogWriter {
    directory: PathBuf,
    limit: u64,
    segment_size: u64,
    segment: Option<Segment>,
    starts: VecDeque<u64>,
    end: u64,
    exit: File,
    progress: watch::Sender<Option<Frame>>,
}

#[derive(Debug)]
struct Segment {
    file: File,
    start: u64,
    size: u64,
}

fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

impl LogWriter {
    /// Writes into a prepared directory; `exit` is the file with room for the exit frame.
    pub(crate) fn new(directory: PathBuf, limit: u64, exit: File) -> Self {
        let limit = limit.max(SMALLEST_LIMIT);
        Self {
            directory,
            limit,
            segment_size: (limit / 8)
                .min(LARGEST_SEGMENT)
                .max(SMALLEST_SEGMENT.min(limit / 2)),
            segment: None,
            starts: VecDeque::new(),
            end: 0,
            exit,
            progress: watch::Sender::new(None),
        }
    }

    /// Returns the most bytes that one frame may hold.
    pub(crate) fn max_payload(&self) -> usize {
        usize::try_from(self.segment_size).map_or(MAX_PAYLOAD, |size| size.min(MAX_PAYLOAD))
    }

    /// Returns the first offset that is kept.
    pub(crate) fn start(&self) -> Offset {
        Offset(self.starts.front().copied().unwrap_or(self.end))
    }

    /// Returns the offset behind the last byte.
    pub(crate) fn end(&self) -> Offset {
        Offset(self.end)
    }

    /// Returns a receiver that wakes at every frame and holds the exit frame once there is one.
    pub(crate) fn follow(&self) -> watch::Receiver<Option<Frame>> {
        self.progress.subscribe()
    }

    /// Appends what stands in `buffer` behind `HEADER` spare bytes, with one write.
    pub(crate) fn append(&mut self, channel: Channel, buffer: &mut [u8]) {
        let payload = buffer.len().saturating_sub(HEADER);
        let Ok(len @ 1..) = u32::try_from(payload) else {
            return;
        };
        let header = Header {
            channel,
            len,
            offset: self.end,
            at_ms: now_ms(),
        };
        buffer[..HEADER].copy_from_slice(&header.encode());
        self.write(buffer, u64::from(len));
        self.end += u64::from(len);
        self.trim();
        self.progress.send_modify(|_| {});
    }

    /// Writes one frame; a failure leaves no trace but the gap in the offsets.
    fn write(&mut self, frame: &[u8], len: u64) {
        let full = |segment: &Segment| self.end - segment.start + len > self.segment_size;
        if self.segment.as_ref().is_none_or(full) {
            let Ok(file) = record::create(&segments::path(&self.directory, self.end)) else {
                // The old segment takes the next frame that fits; the offsets tell what is missing.
                self.segment = None;
                return;
            };
            self.starts.push_back(self.end);
            self.segment = Some(Segment {
                file,
                start: self.end,
                size: 0,
            });
        }
        let Some(segment) = &mut self.segment else {
            return;
        };
        if segment.file.write_all(frame).is_ok() {
            segment.size += frame.len() as u64;
            return;
        }
        // What was written of it must not stand before the next frame. Where even that fails, a new segment begins.
        let torn = segment.file.set_len(segment.size).is_err() || {
            use std::io::{Seek as _, SeekFrom};
            segment.file.seek(SeekFrom::Start(segment.size)).is_err()
        };
        if segment.size == 0 {
            let _gone = std::fs::remove_file(segments::path(&self.directory, segment.start));
            self.starts.pop_back();
        }
        if torn || segment.size == 0 {
            self.segment = None;
        }
    }

    fn trim(&mut self) {
        while let Some(oldest) = self.starts.front().copied() {
            if self.end - oldest <= self.limit || self.starts.len() == 1 {
                return;
            }
            let path = segments::path(&self.directory, oldest);
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return,
                _ => self.starts.pop_front(),
            };
        }
    }

    /// Writes the exit frame, durably, and wakes every reader.
    ///
    /// * Readers inside this process get it even where the disk refuses it.
    pub(crate) fn finish(&mut self, status: ExitStatus) -> std::io::Result<()> {
        let at_ms = now_ms();
        let written = self
            .exit
            .write_all_at(&encode_exit(self.end, at_ms, status), 0)
            .and_then(|()| self.exit.sync_data());
        self.segment = None;
        self.progress.send_replace(Some(Frame {
            offset: Offset(self.end),
            at_ms,
            kind: FrameKind::Exit(status),
        }));
        written
    }
}

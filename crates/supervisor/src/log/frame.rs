//! The form of a frame on disk: a header of 32 bytes, checked by a checksum of itself, then the bytes of output.
//!
//! All numbers are little-endian. A header that does not check is the torn tail of a write that never finished.

use bytes::Bytes;
use groundcrew_core::process::{EndCause, ExitStatus, Frame, FrameKind, Offset, Signal};

/// How many bytes stand before the output.
pub(crate) const HEADER: usize = 32;

/// How many bytes the exit frame takes: header, status, checksum of the status.
pub(crate) const EXIT_LEN: usize = HEADER + STATUS + 4;

/// The most bytes of output in one frame.
pub(crate) const MAX_PAYLOAD: usize = 256 * 1024;

const MAGIC: [u8; 4] = *b"gcf\x01";
const STATUS: usize = 12;

/// Which stream a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Standard output, or the terminal.
    Stdout,
    /// Standard error.
    Stderr,
    /// The end; only in the exit file.
    Exit,
}

/// What stands before the bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) channel: Channel,
    pub(crate) len: u32,
    pub(crate) offset: u64,
    pub(crate) at_ms: u64,
}

/// FNV-1a: enough to tell a header from a torn one; nobody attacks his own log.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| {
        (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = match self.channel {
            Channel::Stdout => 1,
            Channel::Stderr => 2,
            Channel::Exit => 3,
        };
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.offset.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.at_ms.to_le_bytes());
        let sum = checksum(&bytes[..28]);
        bytes[28..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a header; `None` when it is no whole header.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..28)?;
        if head[..4] != MAGIC || u32_at(bytes, 28)? != checksum(head) {
            return None;
        }
        let header = Self {
            channel: match head[4] {
                1 => Channel::Stdout,
                2 => Channel::Stderr,
                3 => Channel::Exit,
                _ => return None,
            },
            len: u32_at(bytes, 8)?,
            offset: u64_at(bytes, 12)?,
            at_ms: u64_at(bytes, 20)?,
        };
        (header.len() <= MAX_PAYLOAD).then_some(header)
    }

    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.len).unwrap_or(usize::MAX)
    }

    /// Returns the offset behind the last byte of the frame.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.len))
    }

    /// Returns the frame with its first `cut` bytes left out.
    pub(crate) fn frame(&self, payload: &Bytes, cut: usize) -> Frame {
        let bytes = payload.slice(cut.min(payload.len())..);
        Frame {
            offset: Offset(self.end() - bytes.len() as u64),
            at_ms: self.at_ms,
            kind: match self.channel {
                Channel::Stderr => FrameKind::Stderr(bytes),
                Channel::Stdout | Channel::Exit => FrameKind::Stdout(bytes),
            },
        }
    }
}

/// Writes the exit frame.
pub(crate) fn encode_exit(end: u64, at_ms: u64, status: ExitStatus) -> [u8; EXIT_LEN] {
    let mut bytes = [0; EXIT_LEN];
    let header = Header {
        channel: Channel::Exit,
        len: 0,
        offset: end,
        at_ms,
    };
    bytes[..HEADER].copy_from_slice(&header.encode());
    let body = &mut bytes[HEADER..HEADER + STATUS];
    body[..4].copy_from_slice(&status.code.unwrap_or(0).to_le_bytes());
    body[4..8].copy_from_slice(&status.signal.map_or(0, |s| s.0).to_le_bytes());
    body[8] = u8::from(status.code.is_some())
        | u8::from(status.signal.is_some()) << 1
        | u8::from(status.core_dumped) << 2;
    body[9] = match status.cause {
        EndCause::Itself => 0,
        EndCause::Stopped => 1,
        EndCause::TimedOut => 2,
        EndCause::LeaseLapsed => 3,
        EndCause::Idle => 4,
        EndCause::OutOfMemory => 5,
    };
    let sum = checksum(body);
    bytes[HEADER + STATUS..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Reads the exit frame; `None` when there is none yet, or a torn one.
pub(crate) fn decode_exit(bytes: &[u8]) -> Option<Frame> {
    let header = Header::decode(bytes)?;
    let body = bytes.get(HEADER..HEADER + STATUS)?;
    if header.channel != Channel::Exit || u32_at(bytes, HEADER + STATUS)? != checksum(body) {
        return None;
    }
    let number = |at| u32_at(body, at).map(u32::cast_signed);
    let status = ExitStatus {
        code: number(0).filter(|_| body[8] & 1 != 0),
        signal: number(4).filter(|_| body[8] & 2 != 0).map(Signal),
        core_dumped: body[8] & 4 != 0,
        cause: match body[9] {
            0 => EndCause::Itself,
            1 => EndCause::Stopped,
            2 => EndCause::TimedOut,
            3 => EndCause::LeaseLapsed,
            4 => EndCause::Idle,
            5 => EndCause::OutOfMemory,
            _ => return None,
        },
    };
    Some(Frame {
        offset: Offset(header.offset),
        at_ms: header.at_ms,
        kind: FrameKind::Exit(status),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_any_bit_turned_is_no_header() {
        let header = Header {
            channel: Channel::Stderr,
            len: 77,
            offset: 1 << 40,
            at_ms: 1_700_000_000_000,
        };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Some(header));
        assert_eq!(Header::decode(&bytes[..31]), None);
        for bit in 0..HEADER * 8 {
            // Bytes 5 to 7 are spare and covered by the checksum as well.
            let mut torn = bytes;
            torn[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&torn), None, "bit {bit}");
        }
    }

    #[test]
    fn f020_every_exit_status_survives_the_disk() {
        for code in [None, Some(0), Some(1), Some(255)] {
            for signal in [None, Some(Signal::KILL), Some(Signal(64))] {
                for (core_dumped, cause) in [
                    (false, EndCause::Itself),
                    (true, EndCause::Stopped),
                    (true, EndCause::TimedOut),
                    (false, EndCause::LeaseLapsed),
                    (true, EndCause::Idle),
                    (false, EndCause::OutOfMemory),
                ] {
                    let status = ExitStatus {
                        code,
                        signal,
                        core_dumped,
                        cause,
                    };
                    let bytes = encode_exit(9, 8, status);
                    let frame = decode_exit(&bytes).unwrap();
                    assert_eq!(
                        (frame.offset.0, frame.at_ms, frame.kind),
                        (9, 8, FrameKind::Exit(status))
                    );
                    assert!(decode_exit(&bytes[..EXIT_LEN - 1]).is_none());
                }
            }
        }
        assert!(decode_exit(&[0; EXIT_LEN]).is_none());
    }
}

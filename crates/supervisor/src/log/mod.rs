//! The frame log: what a process wrote and how it ended, on disk, addressed by offset.
//!
//! Layout below the log directory of an instance, one directory for each process:
//!
//! | file | what |
//! |---|---|
//! | `state.json` | which process it is, and what was started |
//! | `<offset>.frames` | a segment: frames one after the other, the first one at that offset |
//! | `exit` | room for the exit frame, made before the process, so that a full disk cannot lose it |
//!
//! * An offset counts bytes of output, standard output and standard error together; a position inside a frame is allowed.
//! * Offsets that no frame covers were dropped, at the cap or because the disk was full; readers see `Truncated`.
//! * Directories are 0700, files 0600; no value of a variable is ever stored.
//! * A log is read from its files, by the supervisor and by anybody else in the same way.

mod files;
mod frame;
mod listing;
mod reader;
mod record;
mod segments;
mod writer;

pub use listing::{list, status};
pub use reader::LogReader;

pub(crate) use frame::{Channel, HEADER, MAX_PAYLOAD};
pub(crate) use record::{Record, clear, prepare};
pub(crate) use writer::LogWriter;

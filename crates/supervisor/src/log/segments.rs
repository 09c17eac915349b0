//! The names of segment files: the offset of their first byte in twenty digits, so that they sort.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::files;

const SUFFIX: &str = ".frames";

/// Returns the name of the segment that begins at `start`.
pub(crate) fn name(start: u64) -> String {
    format!("{start:020}{SUFFIX}")
}

/// Returns where the segment that begins at `start` is kept.
pub(crate) fn path(directory: &Path, start: u64) -> PathBuf {
    directory.join(name(start))
}

/// Returns the starts of all segments, in order; none when the directory is gone.
pub(crate) fn starts(directory: &Path) -> io::Result<Vec<u64>> {
    let directory = match files::open_directory(directory) {
        Ok(directory) => directory,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut starts = Vec::new();
    for entry in rustix::fs::Dir::new(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_str().ok();
        let digits = name.and_then(|name| name.strip_suffix(SUFFIX));
        if let Some(Ok(start)) = digits.map(str::parse) {
            starts.push(start);
        }
    }
    starts.sort_unstable();
    Ok(starts)
}

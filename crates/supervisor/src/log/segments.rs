//! The names of segment files: the offset of their first byte in twenty digits, so that they sort.

use std::{
    io,
    path::{Path, PathBuf},
};

const SUFFIX: &str = ".frames";

/// Returns where the segment that begins at `start` is kept.
pub(crate) fn path(directory: &Path, start: u64) -> PathBuf {
    directory.join(format!("{start:020}{SUFFIX}"))
}

/// Returns the starts of all segments, in order; none when the directory is gone.
pub(crate) fn starts(directory: &Path) -> io::Result<Vec<u64>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut starts = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
        if let Some(Ok(start)) = digits.map(str::parse) {
            starts.push(start);
        }
    }
    starts.sort_unstable();
    Ok(starts)
}

//! Reads what others wrote, up to a bound: one byte more than that is too much, and is noticed.

use std::io::{self, Read};

/// Reads everything; none if there is more than `limit` bytes.
///
/// # Errors
///
/// Those of reading.
pub(crate) fn read(source: impl Read, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    source.take(limit + 1).read_to_end(&mut content)?;
    Ok(u64::try_from(content.len())
        .is_ok_and(|length| length <= limit)
        .then_some(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_more_is_too_much() {
        assert_eq!(read(&b"abc"[..], 3).unwrap().unwrap(), b"abc");
        assert_eq!(read(&b"abcd"[..], 3).unwrap(), None);
        assert_eq!(read(&b""[..], 0).unwrap().unwrap(), b"");
    }
}

//! Checksums: `SQLite` has none on its pages, so each row carries one, and a table's rows must add up.

use std::hash::Hasher as _;

use fnv::FnvHasher;
use groundcrew_core::error::Error;

use crate::fault::corrupt;

/// A running hash; every change of a single byte changes it, and every version of this crate has the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Begins a hash; rows of two tables never share one.
    pub(crate) fn new(domain: &str) -> Self {
        Self(FnvHasher::default().finish()).text(domain)
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        let mut hash = FnvHasher::with_key(self.0);
        hash.write(bytes);
        Self(hash.finish())
    }

    /// Takes text in, with its length, so that two fields cannot trade letters.
    pub(crate) fn text(self, text: &str) -> Self {
        self.bytes(&text.len().to_le_bytes()).bytes(text.as_bytes())
    }

    /// Takes text in that may be absent.
    pub(crate) fn optional(self, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.bytes(b"+").text(text),
            None => self.bytes(b"-"),
        }
    }

    /// Takes a number in.
    pub(crate) fn number(self, number: i64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    /// Returns the hash as `SQLite` stores numbers.
    pub(crate) fn end(self) -> i64 {
        self.0.cast_signed()
    }
}

/// What the rows of a table, or of a part of it, add up to: a row that vanished is noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// How many there are.
    pub(crate) count: i64,
    /// The sum of their sums.
    pub(crate) mix: i64,
}

impl Tally {
    /// Counts a row in.
    pub(crate) fn add(&mut self, sum: i64) {
        self.count += 1;
        self.mix = self.mix.wrapping_add(sum);
    }

    /// Counts a row out.
    pub(crate) fn remove(&mut self, sum: i64) {
        self.count -= 1;
        self.mix = self.mix.wrapping_sub(sum);
    }

    /// Checks that what was found is what was written.
    pub(crate) fn check(self, found: Self, what: &'static str) -> Result<(), Error> {
        if self == found {
            Ok(())
        } else {
            Err(
                corrupt(format!("{what} are not the ones that were written"))
                    .with("written", self.count)
                    .with("found", found.count),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f132_every_flipped_bit_changes_the_sum() {
        let text = r#"{"run":"abc","state":"running"}"#;
        let sum = |bytes: &[u8]| Sum::new("runs").bytes(bytes).end();
        let right = sum(text.as_bytes());
        for at in 0..text.len() * 8 {
            let mut bytes = text.as_bytes().to_vec();
            bytes[at / 8] ^= 1 << (at % 8);
            assert_ne!(sum(&bytes), right, "bit {at}");
        }
        assert_ne!(
            Sum::new("x").text("ab").text("c").end(),
            Sum::new("x").text("a").text("bc").end()
        );
    }
    #[test]
    fn f132_the_sum_is_the_one_that_earlier_versions_wrote() {
        let sum = Sum::new("runs").text("text").end();
        assert_eq!(sum, -2_684_738_035_144_870_588);
    }
}

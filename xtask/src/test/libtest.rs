//! What plain `cargo test` prints: which test ended how.
//!
//! Tests may write in between, even in the middle of a line; what a line leaves open is settled by the list of failures
//! and by the closing line of its binary.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::listing::Listing;
use super::results::Outcome;

/// Reads the output line by line.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    listing: &'a Listing,
    binary: String,
    /// Tests of this binary that began, with what their line said.
    begun: BTreeMap<String, Option<Outcome>>,
    failures: BTreeSet<String>,
    in_failures: bool,
    running: bool,
    outcomes: BTreeMap<String, Outcome>,
}

impl<'a> Reader<'a> {
    /// Starts to read; the listing knows the binaries by the paths that cargo prints.
    pub(super) fn new(listing: &'a Listing) -> Self {
        Self {
            listing,
            binary: String::new(),
            begun: BTreeMap::new(),
            failures: BTreeSet::new(),
            in_failures: false,
            running: false,
            outcomes: BTreeMap::new(),
        }
    }

    /// Reads one line.
    pub(super) fn line(&mut self, line: &str) {
        let trimmed = line.trim_start();
        if let Some(path) = trimmed
            .strip_prefix("Running ")
            .and_then(|rest| rest.strip_suffix(')'))
            .and_then(|rest| rest.rsplit_once('('))
            .map(|(_, path)| path)
        {
            self.next(self.listing.binary_at(Path::new(path)));
        } else if let Some(name) = line.trim_end().strip_prefix("   Doc-tests ") {
            self.next(self.listing.doctests_of(name));
        } else if line.starts_with("running ") && trimmed.trim_end_matches('s').ends_with(" test") {
            self.running = true;
            self.in_failures = false;
        } else if line.starts_with("test result: ") {
            self.settle(true);
        } else if line == "failures:" {
            self.in_failures = true;
        } else if let Some((name, said)) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.rsplit_once(" ... "))
        {
            let name = name.strip_suffix(" - should panic").unwrap_or(name);
            let outcome = match said.trim_end() {
                "ok" => Some(Outcome::Passed),
                "FAILED" => Some(Outcome::Failed),
                said if said.starts_with("ignored") => Some(Outcome::Skipped),
                _ => None,
            };
            self.begun.insert(name.to_owned(), outcome);
        } else if self.in_failures
            && let Some(name) = line.strip_prefix("    ")
            && self.begun.contains_key(name)
        {
            self.failures.insert(name.to_owned());
        }
    }

    /// Returns how each test ended, once there is no more to read.
    pub(super) fn finish(mut self) -> BTreeMap<String, Outcome> {
        self.settle(false);
        self.outcomes
    }

    fn next(&mut self, binary: String) {
        self.settle(false);
        self.binary = binary;
    }

    /// Closes a group of tests; without its closing line the binary died, and what is open did not pass.
    fn settle(&mut self, closed: bool) {
        if !closed && self.running {
            let name = format!("{} did not finish", self.binary);
            self.outcomes.insert(name, Outcome::Failed);
        }
        for (name, said) in std::mem::take(&mut self.begun) {
            let outcome = match said {
                _ if self.failures.contains(&name) => Outcome::Failed,
                Some(said) => said,
                None if closed => Outcome::Passed,
                None => Outcome::Failed,
            };
            self.outcomes
                .insert(format!("{} {name}", self.binary), outcome);
        }
        self.failures.clear();
        self.in_failures = false;
        self.running = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, Outcome)> {
        let listing = Listing::fixture(
            &[
                ("/t/debug/deps/it-12ab", "groundcrew-tests::it"),
                ("/t/debug/deps/a-34", "a"),
            ],
            &[("groundcrew_core", "groundcrew-core")],
        );
        let mut reader = Reader::new(&listing);
        text.lines().for_each(|line| reader.line(line));
        reader.finish().into_iter().collect()
    }

    fn expected(list: &[(&str, Outcome)]) -> Vec<(String, Outcome)> {
        list.iter()
            .map(|(name, outcome)| ((*name).to_owned(), *outcome))
            .collect()
    }

    #[test]
    fn binaries_and_doctests_are_told_apart() {
        let text = "\
     Running it/main.rs (target/debug/deps/it-12ab)

running 3 tests
test a::one ... ok
test a::two - should panic ... ok
test b::three ... ignored, slow

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests groundcrew_core

running 1 test
test crates/core/src/lib.rs - plan (line 7) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
";
        assert_eq!(
            read(text),
            expected(&[
                (
                    "groundcrew-core::doc crates/core/src/lib.rs - plan (line 7)",
                    Outcome::Passed
                ),
                ("groundcrew-tests::it a::one", Outcome::Passed),
                ("groundcrew-tests::it a::two", Outcome::Passed),
                ("groundcrew-tests::it b::three", Outcome::Skipped),
            ])
        );
    }

    #[test]
    fn noise_in_a_line_is_settled_by_the_failures() {
        let text = "\
     Running unittests src/lib.rs (/t/debug/deps/a-34)
running 3 tests
test one ... noise of a child
ok
test two ... more noise
FAILED
test three ... FAILED

failures:

---- two stdout ----
    not a name

failures:
    three
    two

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out
";
        assert_eq!(
            read(text),
            expected(&[
                ("a one", Outcome::Passed),
                ("a three", Outcome::Failed),
                ("a two", Outcome::Failed),
            ])
        );
    }

    #[test]
    fn a_binary_that_died_did_not_pass() {
        let text = "\
     Running unittests src/lib.rs (/t/debug/deps/a-34)
running 2 tests
test one ... ok
test two ... it says
error: test failed
";
        assert_eq!(
            read(text),
            expected(&[
                ("a did not finish", Outcome::Failed),
                ("a one", Outcome::Passed),
                ("a two", Outcome::Failed),
            ])
        );
    }
}

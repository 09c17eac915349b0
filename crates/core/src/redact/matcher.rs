//! Finds every place of every pattern in bytes that may come in pieces.
//!
//! It must never miss a match, read a byte more than a fixed number of times, or remember text.
//!
//! An automaton (Aho-Corasick) knows after each byte how long the longest beginning of a pattern is that ends there, and the longest
//! pattern that ends there. Ordinary text is skipped without it: every third place is asked whether four bytes of it stand at one
//! of the first three places of any pattern; the shortest pattern has six, so none slips through.
//! The automaton is of the library and keeps its bytes in a form that we cannot wipe; the patterns themselves are not kept.

use std::ops::Range;

use aho_corasick::{
    Anchored,
    automaton::{Automaton as _, StateID},
    nfa::noncontiguous::NFA,
};
use zeroize::Zeroizing;

use super::{encodings::Form, patterns::MIN_LEN};
use crate::error::{Error, ErrorKind};

/// The most that all patterns together may hold, in bytes; an automaton takes some forty times as much while it is made.
const MAX_TOTAL: usize = 4 << 20;

/// How many bytes of a text are looked at to decide that no pattern begins there.
const GRAM: usize = 4;
/// How far apart these looks are: a pattern is long enough to hold one of them whole.
const STRIDE: usize = MIN_LEN - GRAM + 1;
/// The longest beginning of a pattern that is given up to skip again; what it covers is read a second time.
const GIVEN_UP: usize = 3;
// What is given up is too short to hold a match, so none is found twice.
const _: () = assert!(GIVEN_UP < MIN_LEN && STRIDE > 0);

/// Where a search stands between two pieces of text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    state: StateID,
    /// The length of the longest beginning of a pattern that the text ends with, in bytes.
    pub(super) pending: usize,
}

/// What is known of a state of the automaton.
#[derive(Clone, Copy, Debug, Default)]
struct Note {
    /// How many bytes lead to it: the length of the beginning of a pattern that the text ends with.
    depth: u32,
    /// The length of the longest pattern that ends here; 0 if none does.
    longest: u32,
}

/// Many patterns, ready to be found.
pub(super) struct Matcher {
    automaton: NFA,
    start: StateID,
    /// By state.
    notes: Vec<Note>,
    /// One bit for each hash of the grams of all patterns.
    grams: Zeroizing<[u64; 1024]>,
    pub(super) patterns: usize,
}

impl Matcher {
    /// Takes patterns of at least [`MIN_LEN`] bytes.
    pub(super) fn new(patterns: &[Form]) -> Result<Self, Error> {
        let total: usize = patterns.iter().map(|pattern| pattern.len()).sum();
        if total > MAX_TOTAL {
            return Err(Error::new(
                ErrorKind::TooLarge,
                "the encodings of the secrets of this run are too many to be hidden in its output; hand large ones over as files",
            )
            .with("bytes", total)
            .with("limit_bytes", MAX_TOTAL));
        }
        let unfit = |error: &dyn std::fmt::Display| {
            Error::new(
                ErrorKind::TooLarge,
                "the secrets of this run cannot be hidden in its output",
            )
            .with_source(error.to_string())
        };
        let automaton = NFA::builder()
            .prefilter(false)
            .build(patterns.iter().map(|pattern| pattern.as_slice()))
            .map_err(|e| unfit(&e))?;
        let start = automaton.start_state(Anchored::No).map_err(|e| unfit(&e))?;
        let mut matcher = Self {
            automaton,
            start,
            notes: Vec::with_capacity(total + 4),
            grams: Zeroizing::new([0; 1024]),
            patterns: patterns.len(),
        };
        for pattern in patterns {
            matcher.note(pattern);
        }
        Ok(matcher)
    }

    /// Walks along one pattern, and notes each state on the way: so all of them are met.
    fn note(&mut self, pattern: &[u8]) {
        let mut state = self.start;
        for (depth, byte) in (1_u32..).zip(pattern) {
            state = self.automaton.next_state(Anchored::No, state, *byte);
            let longest = (0..self.automaton.match_len(state))
                .map(|i| self.automaton.match_pattern(state, i))
                .map(|id| self.automaton.pattern_len(id))
                .max()
                .and_then(|len| u32::try_from(len).ok())
                .unwrap_or(0);
            let index = state.as_usize();
            if index >= self.notes.len() {
                self.notes.resize(index + 1, Note::default());
            }
            if let Some(note) = self.notes.get_mut(index) {
                *note = Note { depth, longest };
            }
        }
        for gram in pattern.windows(GRAM).take(STRIDE) {
            if let Some(gram) = gram.first_chunk() {
                let (word, bit) = place(*gram);
                if let Some(word) = self.grams.get_mut(word) {
                    *word |= bit;
                }
            }
        }
    }

    /// Returns the cursor of a text that begins.
    pub(super) fn begin(&self) -> Cursor {
        Cursor {
            state: self.start,
            pending: 0,
        }
    }

    /// Reads the next piece of a text, and calls `found` with the end, in this piece, and the length of matches, ends ascending.
    ///
    /// A match may be longer than what comes before its end in this piece. Of all that end at one place only the longest is told:
    /// it covers the others.
    pub(super) fn read(
        &self,
        cursor: &mut Cursor,
        text: &[u8],
        mut found: impl FnMut(usize, usize),
    ) {
        let mut state = cursor.state;
        let mut depth = cursor.pending;
        let mut at = 0;
        // Where the automaton was started in this piece; none if in an earlier one.
        let mut since = None;
        'skip: loop {
            if state == self.start {
                at = self.candidate(text, at);
                since = Some(at);
            }
            for byte in text.get(at..).unwrap_or_default() {
                state = self.automaton.next_state(Anchored::No, state, *byte);
                at += 1;
                let note = self
                    .notes
                    .get(state.as_usize())
                    .copied()
                    .unwrap_or_default();
                depth = note.depth as usize;
                if note.longest > 0 {
                    found(at, note.longest as usize);
                }
                // Nothing that began where the automaton was started lives on: skip from where the rest begins.
                if depth <= GIVEN_UP
                    && let Some(begin) = at.checked_sub(depth)
                    && since.is_none_or(|since| begin > since)
                {
                    at = begin;
                    depth = 0;
                    state = self.start;
                    continue 'skip;
                }
            }
            break;
        }
        *cursor = Cursor {
            state,
            pending: depth,
        };
    }

    /// Returns the first place from `from` on where a pattern may begin, or so near to the end that this cannot be told.
    #[inline]
    fn candidate(&self, text: &[u8], from: usize) -> usize {
        let mut at = from;
        while let Some(gram) = text.get(at..).and_then(|rest| rest.first_chunk()) {
            let (word, bit) = place(*gram);
            if self.grams.get(word).is_some_and(|word| word & bit != 0) {
                break;
            }
            at += STRIDE;
        }
        at.saturating_sub(STRIDE - 1).max(from)
    }
}

/// Returns the word and the bit in it that stand for a gram.
#[inline]
fn place(gram: [u8; GRAM]) -> (usize, u64) {
    let hash = (u32::from_le_bytes(gram).wrapping_mul(0x9e37_79b1) >> 16) as usize;
    (hash >> 6, 1 << (hash & 63))
}

/// Places that are to be masked: ascending, apart from each other.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Vec<Range<usize>>);

impl Places {
    /// Adds a place that ends no earlier than all others; what it meets becomes one with it.
    pub(super) fn add(&mut self, mut place: Range<usize>) {
        while let Some(last) = self.0.pop_if(|last| last.end >= place.start) {
            place.start = place.start.min(last.start);
        }
        self.0.push(place);
    }

    pub(super) fn as_slice(&self) -> &[Range<usize>] {
        &self.0
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

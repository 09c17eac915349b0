//! Hides secrets in output that comes in pieces, without moving a byte: each byte of a secret becomes `*`.
//!
//! It must never let a secret through because it was cut, hold more than the longest pattern, or wait for anything else than bytes.

use std::{fmt, mem, sync::Arc};

use zeroize::Zeroizing;

use super::matcher::{Cursor, Matcher, Places};

/// Hold back from the first byte on that may belong to a secret: nothing of one gets through, however it is cut.
pub const HOLD_FOR_PIPE: usize = 1;

/// Let up to three bytes through at once, so that a terminal shows what is typed.
pub const HOLD_FOR_TERMINAL: usize = 4;

/// Hides secrets in one stream; made by [`Redactor::stream`](super::Redactor::stream).
///
/// * What it gives out, all together, is as long as what it was given, and differs only where bytes became `*`.
/// * With `hold_from` 1 it does not depend on how the stream was cut. With more, a secret that came in several pieces may show fewer
///   than `hold_from` of its first bytes; they count as its beginning, and the rest is masked.
/// * At the end of the stream call [`finish`](Self::finish); what is still held is lost without it.
pub struct RedactStream {
    matcher: Option<(Arc<Matcher>, Cursor)>,
    hold_from: usize,
    /// The last bytes of the stream: not given out yet, masked where they are known to be secret.
    held: Zeroizing<Vec<u8>>,
    /// What the last push gave out, if it is not the same as what was pushed.
    ready: Zeroizing<Vec<u8>>,
    places: Places,
}

impl RedactStream {
    pub(super) fn new(matcher: Option<Arc<Matcher>>, hold_from: usize) -> Self {
        Self {
            matcher: matcher.map(|matcher| {
                let cursor = matcher.begin();
                (matcher, cursor)
            }),
            hold_from: hold_from.max(1),
            held: Zeroizing::default(),
            ready: Zeroizing::default(),
            places: Places::default(),
        }
    }

    /// Takes the next bytes of the stream, and gives out those that are decided; nothing is copied if they are the same.
    pub fn push<'a>(&'a mut self, piece: &'a [u8]) -> &'a [u8] {
        let Some((matcher, cursor)) = &mut self.matcher else {
            return piece;
        };
        let before = self.held.len();
        let places = &mut self.places;
        places.clear();
        matcher.read(cursor, piece, |end, len| {
            // What begins before the held bytes was given out: masked, or with leave of `hold_from`.
            let end = before + end;
            places.add(end.saturating_sub(len)..end);
        });
        let end = before + piece.len();
        let undecided = if cursor.pending < self.hold_from {
            end
        } else {
            end.saturating_sub(cursor.pending)
        };
        // Masked is decided too.
        let covering = places
            .as_slice()
            .iter()
            .rev()
            .take_while(|place| place.end > undecided)
            .find(|place| place.start <= undecided);
        let undecided = covering.map_or(undecided, |place| place.end);

        if places.as_slice().is_empty() {
            if before == 0 {
                let (ready, held) = piece.split_at_checked(undecided).unwrap_or((piece, &[]));
                self.held.extend_from_slice(held);
                return ready;
            }
            if undecided == 0 {
                self.held.extend_from_slice(piece);
                return &[];
            }
        }
        self.ready.clear();
        self.ready.append(&mut self.held);
        self.ready.extend_from_slice(piece);
        for place in places.as_slice() {
            if let Some(secret) = self.ready.get_mut(place.clone()) {
                secret.fill(b'*');
            }
        }
        self.held
            .extend_from_slice(self.ready.get(undecided..).unwrap_or_default());
        self.ready.truncate(undecided);
        &self.ready
    }

    /// Returns how many bytes are held back.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Gives out what is held, though it may still become a secret: who reads it cannot wait. What is left of that secret is
    /// masked when it comes.
    #[must_use]
    pub fn release(&mut self) -> Vec<u8> {
        mem::take(&mut self.held)
    }

    /// Ends the stream, and gives out what was held: it has not become a secret. The next push begins another stream.
    #[must_use]
    pub fn finish(&mut self) -> Vec<u8> {
        if let Some((matcher, cursor)) = &mut self.matcher {
            *cursor = matcher.begin();
        }
        mem::take(&mut self.held)
    }
}

impl fmt::Debug for RedactStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedactStream")
            .field("hold_from", &self.hold_from)
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Redactor, patterns::MAX_LEN};
    use super::*;
    use crate::secret::SecretValue;

    fn stream(values: &[&str], hold_from: usize) -> RedactStream {
        Redactor::new(values.iter().map(|value| SecretValue::new(*value)))
            .unwrap()
            .stream(hold_from)
    }

    fn shown(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn c14_a_secret_cut_by_a_write_is_hidden() {
        let mut stream = stream(&["plain-token-123456", "e"], HOLD_FOR_PIPE);
        assert_eq!(shown(stream.push(b"x plain-tok")), "x ");
        assert_eq!(stream.held(), 9);
        assert_eq!(
            shown(stream.push(b"en-123456\neleven here\n")),
            "******************\neleven here\n"
        );
        assert_eq!(shown(stream.push(b"plain-tok")), "");
        assert_eq!(shown(stream.push(b"ay\n")), "plain-tokay\n");
        assert_eq!(stream.held(), 0);
        assert_eq!(shown(stream.push(b"again plain-token")), "again ");
        assert_eq!(stream.finish(), b"plain-token");
        assert_eq!(
            shown(stream.push(b"-123456\n")),
            "-123456\n",
            "another stream"
        );
    }

    #[test]
    fn c14_what_is_masked_is_not_held_back() {
        let mut stream = stream(&["abcdefgh", "abcdefghijkl", "ghijkl"], HOLD_FOR_PIPE);
        assert_eq!(shown(stream.push(b"-abcdefgh")), "-********");
        assert_eq!(shown(stream.push(b"ij")), "");
        assert_eq!(shown(stream.push(b"kl-")), "****-");
    }

    #[test]
    fn c14_the_rest_of_a_secret_is_masked_though_its_beginning_was_released() {
        let mut stream = stream(&["plain-token-123456"], HOLD_FOR_PIPE);
        assert_eq!(shown(stream.push(b"x plain-tok")), "x ");
        assert_eq!(stream.release(), b"plain-tok");
        assert_eq!(shown(stream.push(b"en-")), "");
        assert_eq!(stream.release(), b"en-");
        assert_eq!(shown(stream.push(b"123456 y")), "****** y");
        assert_eq!(stream.finish(), b"");
    }

    #[test]
    fn c14_a_terminal_shows_the_first_letters_at_once_and_masks_the_rest() {
        let mut stream = stream(&["plain-token-123456"], HOLD_FOR_TERMINAL);
        let mut out = Vec::new();
        let mut delays = Vec::new();
        for byte in b"plot plain-token-123456\n" {
            out.extend_from_slice(stream.push(&[*byte]));
            delays.push(stream.held());
        }
        assert_eq!(shown(&out), "plot pla***************\n");
        assert!(delays.iter().take(8).all(|held| *held == 0));
        assert_eq!(delays.last(), Some(&0));
        let whole = stream.push(b"plain-token-123456").to_vec();
        assert_eq!(shown(&whole), "*".repeat(18));
    }

    #[test]
    fn c14_a_long_secret_is_hidden_whole_and_never_held_whole() {
        let value: String = ('a'..='z')
            .flat_map(|a| ('a'..='z').map(move |b| [a, b]))
            .flatten()
            .collect();
        let value = format!("{value}-{}", value.to_uppercase());
        assert!(value.len() > 2 * MAX_LEN);
        let mut stream = stream(&[&value], HOLD_FOR_PIPE);
        let mut out = Vec::new();
        for piece in format!("<{value}>").as_bytes().chunks(7) {
            out.extend_from_slice(stream.push(piece));
            assert!(stream.held() < MAX_LEN);
        }
        out.extend(stream.finish());
        assert_eq!(shown(&out), format!("<{}>", "*".repeat(value.len())));
    }

    #[test]
    fn nothing_is_copied_where_nothing_is_hidden() {
        let text = b"an ordinary line of output\n";
        for mut stream in [stream(&["plain-token-123456"], 1), stream(&[], 1)] {
            assert!(std::ptr::eq(stream.push(text), text));
        }
    }
}

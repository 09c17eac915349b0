//! What a program switched on at our terminal, so that it is switched off when we leave the program or it is killed.

use std::collections::BTreeSet;

/// Modes that change how keys, the mouse or the screen work; each is off at first.
const OFF_AT_FIRST: [u16; 11] = [1, 9, 47, 1000, 1002, 1003, 1004, 1006, 1047, 1049, 2004];
/// The cursor is shown; on at first.
const CURSOR: u16 = 25;
/// How long a sequence may be that we look at.
const LONGEST: usize = 32;

/// Follows the sequences that switch modes, also across pieces of output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Screen {
    on: BTreeSet<u16>,
    cursor_hidden: bool,
    /// How many times keys were asked for in the extended way.
    extended_keys: u16,
    /// The beginning of a sequence that is not complete.
    pending: Vec<u8>,
}

impl Screen {
    /// Reads a piece of output.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match (self.pending.as_slice(), byte) {
                (_, 0x1b) => self.pending = vec![byte],
                ([], _) => {}
                ([0x1b], b'[') => self.pending.push(byte),
                ([0x1b, b'[', ..], 0x20..=0x3f) if self.pending.len() < LONGEST => {
                    self.pending.push(byte);
                }
                ([0x1b, b'[', parameters @ ..], 0x40..=0x7e) => {
                    let parameters = parameters.to_vec();
                    self.pending.clear();
                    self.apply(&parameters, byte);
                }
                _ => self.pending.clear(),
            }
        }
    }

    fn apply(&mut self, parameters: &[u8], last: u8) {
        match (parameters.split_first(), last) {
            (Some((b'?', modes)), b'h' | b'l') => {
                let on = last == b'h';
                for mode in modes.split(|b| *b == b';') {
                    let mode = std::str::from_utf8(mode)
                        .ok()
                        .and_then(|text| text.parse::<u16>().ok());
                    match mode {
                        Some(CURSOR) => self.cursor_hidden = !on,
                        Some(mode) if on && OFF_AT_FIRST.contains(&mode) => {
                            _ = self.on.insert(mode);
                        }
                        Some(mode) => _ = self.on.remove(&mode),
                        None => {}
                    }
                }
            }
            (Some((b'>', _)), b'u') => self.extended_keys = self.extended_keys.saturating_add(1),
            (Some((b'<', _)), b'u') => self.extended_keys = self.extended_keys.saturating_sub(1),
            _ => {}
        }
    }

    /// Returns what puts the terminal back to how it was, which is nothing if nothing was switched.
    pub(crate) fn restore(&self) -> Vec<u8> {
        let mut text = String::new();
        if self.extended_keys > 0 {
            text = format!("\x1b[<{}u", self.extended_keys);
        }
        for mode in self.on.iter().rev() {
            text = format!("{text}\x1b[?{mode}l");
        }
        if self.cursor_hidden {
            text.push_str("\x1b[?25h");
        }
        if !text.is_empty() {
            text.push_str("\x1b[0m");
        }
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restored(pieces: &[&str]) -> String {
        let mut screen = Screen::default();
        for piece in pieces {
            screen.read(piece.as_bytes());
        }
        String::from_utf8(screen.restore()).unwrap()
    }

    #[test]
    fn what_was_switched_on_is_switched_off_and_nothing_else() {
        assert_eq!(restored(&["plain \x1b[31mred\x1b[0m"]), "");
        assert_eq!(
            restored(&["\x1b[?1049h\x1b[?25l"]),
            "\x1b[?1049l\x1b[?25h\x1b[0m"
        );
        assert_eq!(
            restored(&["\x1b[?1049h\x1b[?25l", "\x1b[?1049l\x1b[?25h"]),
            ""
        );
        assert_eq!(
            restored(&["\x1b[?1002;1006h"]),
            "\x1b[?1006l\x1b[?1002l\x1b[0m"
        );
        assert_eq!(restored(&["\x1b[>1u\x1b[>5u\x1b[<u"]), "\x1b[<1u\x1b[0m");
    }

    #[test]
    fn sequences_are_followed_across_pieces_and_nonsense_is_survived() {
        assert_eq!(restored(&["\x1b", "[", "?20", "04h"]), "\x1b[?2004l\x1b[0m");
        assert_eq!(
            restored(&["\x1b[?99999999999999999999999999999999999999999999h"]),
            ""
        );
        assert_eq!(restored(&["\x1b[?2004\x1b[?1000h"]), "\x1b[?1000l\x1b[0m");
    }
}

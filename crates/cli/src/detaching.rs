//! The keys that leave a terminal: which ones they are, and where they were pressed in what was typed.

use std::{fmt, str::FromStr};

/// Ctrl-].
const DEFAULT: &str = "ctrl-]";

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    name: String,
    /// What a terminal sends for it, in the usual way and in the extended one.
    forms: Vec<Vec<u8>>,
}

impl Key {
    fn read(word: &str) -> Option<Self> {
        let lower = word.to_ascii_lowercase();
        let control = lower.strip_prefix("ctrl-").or(lower.strip_prefix('^'));
        let forms = if let Some(key) = control {
            let [key] = key.as_bytes() else { return None };
            let plain = match key {
                b'a'..=b'z' | b'[' | b'\\' | b']' | b'_' => key & 0x1f,
                b'^' => 0x1e,
                b'@' | b' ' => 0,
                _ => return None,
            };
            vec![vec![plain], format!("\x1b[{key};5u").into_bytes()]
        } else {
            let [key] = word.as_bytes() else { return None };
            if !key.is_ascii_graphic() {
                return None;
            }
            vec![vec![*key]]
        };
        let name = if control.is_some() {
            lower
        } else {
            word.to_owned()
        };
        Some(Self { name, forms })
    }

    /// Returns how long the key is at the beginning of what was typed; none if it is not there.
    fn at(&self, typed: &[u8]) -> Option<usize> {
        let form = self.forms.iter().find(|form| typed.starts_with(form))?;
        Some(form.len())
    }
}

/// The keys that leave, pressed one after the other; none leave nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DetachKeys(Vec<Key>);

impl Default for DetachKeys {
    fn default() -> Self {
        Self(Key::read(DEFAULT).into_iter().collect())
    }
}

impl FromStr for DetachKeys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(Vec::new()));
        }
        let keys: Option<Vec<Key>> = text.split(',').map(Key::read).collect();
        keys.map(Self).ok_or_else(|| {
            format!("{text:?} are no keys; write them like ctrl-] or ctrl-p,ctrl-q, or none")
        })
    }
}

impl fmt::Display for DetachKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, key) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            f.write_str(&key.name)?;
        }
        Ok(())
    }
}

/// What was typed, with the keys that leave looked for.
#[derive(Debug)]
pub(crate) struct Typed {
    keys: DetachKeys,
    /// The first of the keys, while the others may follow.
    held: Vec<u8>,
}

impl Typed {
    pub(crate) const fn new(keys: DetachKeys) -> Self {
        Self {
            keys,
            held: Vec::new(),
        }
    }

    /// Takes what was typed; returns what goes to the program, and whether all the keys were pressed behind it.
    ///
    /// * The first keys of several are held back until another key decides.
    pub(crate) fn push(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(typed);
        for start in 0..all.len() {
            match self.pressed(&all[start..]) {
                Pressed::All => {
                    all.truncate(start);
                    return (all, true);
                }
                Pressed::Some => {
                    self.held = all.split_off(start);
                    return (all, false);
                }
                Pressed::No => {}
            }
        }
        (all, false)
    }

    fn pressed(&self, typed: &[u8]) -> Pressed {
        let mut rest = typed;
        for (index, key) in self.keys.0.iter().enumerate() {
            if rest.is_empty() && index > 0 {
                return Pressed::Some;
            }
            match key.at(rest) {
                Some(length) => rest = &rest[length..],
                None => return Pressed::No,
            }
        }
        if self.keys.0.is_empty() {
            Pressed::No
        } else {
            Pressed::All
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Pressed {
    All,
    Some,
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &str) -> Typed {
        Typed::new(keys.parse().unwrap())
    }

    #[test]
    fn the_usual_key_is_found_in_both_forms_and_is_not_sent() {
        for pressed in [&b"ab\x1dcd"[..], b"ab\x1b[93;5ucd"] {
            assert_eq!(
                Typed::new(DetachKeys::default()).push(pressed),
                (b"ab".to_vec(), true)
            );
        }
        assert_eq!(
            Typed::new(DetachKeys::default()).push(b"\x1b"),
            (b"\x1b".to_vec(), false)
        );
        assert_eq!(DetachKeys::default().to_string(), "ctrl-]");
    }

    #[test]
    fn several_keys_are_held_until_it_is_decided() {
        let mut keys = typed("ctrl-p,ctrl-q");
        assert_eq!(keys.push(b"a\x10"), (b"a".to_vec(), false));
        assert_eq!(keys.push(b"b"), (b"\x10b".to_vec(), false));
        assert_eq!(keys.push(b"\x10"), (Vec::new(), false));
        // Pressed again, the first one goes through.
        assert_eq!(keys.push(b"\x10"), (b"\x10".to_vec(), false));
        assert_eq!(keys.push(b"\x11x"), (Vec::new(), true));
    }

    #[test]
    fn no_keys_send_everything_and_odd_ones_are_refused() {
        assert_eq!(typed("none").push(b"\x1d"), (b"\x1d".to_vec(), false));
        assert_eq!(typed("x").push(b"ax"), (b"a".to_vec(), true));
        for bad in ["", "ctrl-", "ctrl-1", "ctrl-p,", "escape", "é"] {
            assert!(
                bad.parse::<DetachKeys>().unwrap_err().contains("ctrl-]"),
                "{bad}"
            );
        }
    }
}

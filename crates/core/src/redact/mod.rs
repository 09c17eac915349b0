//! Hides secret values in what people get to see: texts, errors, events, and output that comes in pieces.
//!
//! It must never show a secret value itself: not in `Debug`, not in an error, not in a panic.
//!
//! * What is hidden of each value, and what is too short or too ordinary to be hidden, stands at `patterns`.
//! * Out of promise: an agent that wants to show a secret can (reversed, one letter a line, encrypted); plain forms and common
//!   encodings are hidden.

mod encodings;
mod matcher;
mod patterns;
#[cfg(test)]
mod properties;
mod redactor;
mod stream;
mod told;

pub use patterns::MIN_LEN;
pub use redactor::{MASK, Redactor};
pub use stream::{HOLD_FOR_PIPE, HOLD_FOR_TERMINAL, RedactStream};

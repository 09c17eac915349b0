//! The engine on parts in memory: what it promises holds at every step, whatever goes wrong there.

mod death;
mod dropping;
mod events;
mod gates;
mod keeping;
mod matrix;
mod planning;
mod recovery;
mod resuming;
mod sessions;
mod support;
mod unwinding;
mod verbs;

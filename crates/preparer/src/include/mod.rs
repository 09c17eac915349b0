//! Files that git does not track and that are taken along from a checkout into a new work tree.
//!
//! What is copied never comes from outside the checkout and never replaces anything; nothing here runs a program.

mod copy;
mod find;
mod manifest;
mod patterns;

pub(crate) use copy::take_along;
pub(crate) use find::{Taken, find};
pub(crate) use manifest::{Manifest, is_manifest};
pub(crate) use patterns::{Patterns, check, of_file};

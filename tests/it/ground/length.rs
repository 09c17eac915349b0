//! How long the loops of the tests are.

/// Returns whether they are whole, as under `cargo xtask soak`, and not as small as among all tests.
#[expect(
    clippy::disallowed_methods,
    reason = "a test is told its length by its runner"
)]
pub(crate) fn is_whole() -> bool {
    std::env::var_os("GROUNDCREW_SOAK").is_some()
}

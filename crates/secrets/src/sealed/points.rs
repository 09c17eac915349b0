//! Points between the effects of a write, by name: where tests make it fail or die; programs pass `()`.

use std::fmt;

use groundcrew_core::error::Error;

/// Is told of every point that a write passes.
///
/// * In order: `key.written`, `key.linked` (only when a master key is made), `half`, `written`, `renamed`, `durable`; and for a
///   rotation `next.written`, then those of a write, `next.placed`, then those of a write again.
pub trait WritePoints: fmt::Debug + Send + Sync + 'static {
    /// Passes a point; an error breaks the write off there.
    fn pass(&self, point: &'static str) -> Result<(), Error>;
}

/// Lets everything pass.
impl WritePoints for () {
    fn pass(&self, _: &'static str) -> Result<(), Error> {
        Ok(())
    }
}

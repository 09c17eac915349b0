//! Files below directories that an agent may write: opened relative to a directory, no link followed, no mount crossed.

#[cfg(test)]
mod attacks;
pub(crate) mod beneath;
pub(crate) mod copy;
pub(crate) mod id;
pub(crate) mod lock;
pub(crate) mod marker;
pub(crate) mod occupants;
pub(crate) mod origin;
pub(crate) mod removal;
pub(crate) mod trash;

use groundcrew_core::error::{Error, ErrorKind};

/// Runs what may block on a thread for that.
///
/// # Cancel safety
///
/// Dropping the future does not end the work; its result is lost.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        Error::new(ErrorKind::Panicked, "the preparer's thread died").with_source(error)
    })?
}

//! Work that goes on when its caller goes away, and work that may panic.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use groundcrew_core::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
};
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

/// Cancels when it is dropped: a caller that goes away wants nothing any more.
struct CancelOnDrop(CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Runs work in a task of its own; when the caller goes away, the token it works with is cancelled, and nothing else.
///
/// # Errors
///
/// `Panicked`.
pub(super) async fn detached<T, F>(
    tracker: &TaskTracker,
    work: impl FnOnce(CancelToken) -> F,
) -> Result<T, Error>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let cancel = CancelToken::new();
    let caller = CancelOnDrop(cancel.clone());
    let (sender, receiver) = oneshot::channel();
    let work = work(cancel);
    tracker.spawn(async move {
        // What nobody takes is dropped, and takes itself back.
        drop(sender.send(work.await));
    });
    let result = receiver.await.map_err(|_| panicked("a call of a session"));
    drop(caller);
    result
}

/// Runs foreign code: a panic is an error.
///
/// # Errors
///
/// `Panicked`, with what it is.
pub(super) async fn guarded<T>(
    what: &'static str,
    work: impl Future<Output = T> + Send,
) -> Result<T, Error> {
    AssertUnwindSafe(work)
        .catch_unwind()
        .await
        .map_err(|_| panicked(what))
}

fn panicked(what: &'static str) -> Error {
    Error::new(ErrorKind::Panicked, "a part of the program panicked").with("in", what)
}

/// The error of a call that nobody waits for any more.
pub(super) fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the call was given up")
}

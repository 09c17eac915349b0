//! Control connections: who may have one, how each is served, and how the last ones end.

use std::{
    cell::{Cell, OnceCell},
    convert::Infallible,
    pin::pin,
    rc::Rc,
    time::Duration,
};

use groundcrew_core::error::{Error, ErrorKind};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{Notify, watch},
    task::{AbortHandle, spawn_local},
    time::Instant,
};

use super::{
    body::{self, ResponseBody},
    control::Control,
    routes,
};
use crate::{
    note::note,
    wire::{CONNECTION_WINDOW, MAX_FRAME, STREAM_WINDOW},
};

/// How long the head of an HTTP/1.1 request may take.
const HEAD_TIME: Duration = Duration::from_secs(30);

/// How many requests may wait for their answers on one connection.
const MAX_STREAMS: u32 = 1 << 16;

/// How long accepting pauses when descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The control connections of a supervisor.
#[derive(Debug)]
pub(super) struct Connections {
    accepting: AbortHandle,
    end: watch::Sender<bool>,
    open: Rc<Open>,
}

#[derive(Debug, Default)]
struct Open {
    count: Cell<usize>,
    none_left: Notify,
}

struct OneOpen(Rc<Open>);

impl OneOpen {
    fn new(open: &Rc<Open>) -> Self {
        open.count.set(open.count.get() + 1);
        Self(Rc::clone(open))
    }
}

impl Drop for OneOpen {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        if self.0.count.get() == 0 {
            self.0.none_left.notify_one();
        }
    }
}

impl Connections {
    /// Begins to accept.
    pub(super) fn accept(listener: UnixListener, control: Rc<Control>) -> Self {
        let (end, ending) = watch::channel(false);
        let open = Rc::new(Open::default());
        let accepting = spawn_local(accept(listener, control, Rc::clone(&open), ending));
        Self {
            accepting: accepting.abort_handle(),
            end,
            open,
        }
    }

    /// Accepts no more, and returns when every answer under way is complete, when nobody took a piece of one for `patience`, or
    /// after `limit`: readers get the rest from the log on disk.
    pub(super) async fn finish(self, patience: Duration, limit: Duration, control: &Control) {
        self.accepting.abort();
        self.end.send_replace(true);
        let last = Instant::now() + limit;
        let mut seen = control.progress.get();
        while self.open.count.get() > 0 {
            tokio::select! {
                () = self.open.none_left.notified() => {}
                () = tokio::time::sleep_until(last.min(Instant::now() + patience)) => {
                    if control.progress.get() == seen || Instant::now() >= last {
                        note(format_args!("ended without readers that did not keep up"));
                        return;
                    }
                    seen = control.progress.get();
                }
            }
        }
    }
}

async fn accept(
    listener: UnixListener,
    control: Rc<Control>,
    open: Rc<Open>,
    ending: watch::Receiver<bool>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let open = OneOpen::new(&open);
                spawn_local(serve(stream, Rc::clone(&control), open, ending.clone()));
            }
            Err(error) => {
                note(format_args!(
                    "failed to accept a control connection: {error}"
                ));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Finds out whether the other side may control this instance.
fn admit(stream: &UnixStream, allowed: u32) -> Result<(), Error> {
    let peer = stream
        .peer_cred()
        .map_err(|e| Error::io("failed to find out who connected", e))?;
    if peer.uid() == allowed {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::PermissionDenied,
        "only the user who owns the instance may control it",
    )
    .with("uid", peer.uid())
    .with("owner", allowed))
}

#[derive(Clone, Copy, Debug)]
struct OnThisThread;

impl<F: Future + 'static> hyper::rt::Executor<F> for OnThisThread {
    fn execute(&self, future: F) {
        spawn_local(async move { drop(future.await) });
    }
}

async fn serve(
    stream: UnixStream,
    control: Rc<Control>,
    _open: OneOpen,
    mut ending: watch::Receiver<bool>,
) {
    let admitted = admit(&stream, control.start.uid);
    let admitted = Rc::new(admitted);
    // Counted from the first request on that does more than ask, until the connection is gone. Somebody who may not control
    // the instance, and somebody who only looks at it, does not keep it alive.
    let connected = Rc::new(OnceCell::new());
    let counted = Rc::clone(&connected);
    let service = service_fn(move |request: Request<Incoming>| {
        let (control, admitted) = (Rc::clone(&control), Rc::clone(&admitted));
        if admitted.is_ok() && !routes::only_asks(&request) {
            counted.get_or_init(|| control.lease.connected());
        }
        async move {
            let answer: Response<ResponseBody> = match admitted.as_ref() {
                Ok(()) => routes::answer(&control, request).await,
                Err(error) => body::failure(error),
            };
            Ok::<_, Infallible>(answer)
        }
    });
    let mut builder = auto::Builder::new(OnThisThread);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .half_close(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(MAX_FRAME)
        .max_concurrent_streams(MAX_STREAMS)
        // The other side is this user: one that gives up many requests at once is no attacker.
        .max_pending_accept_reset_streams(MAX_STREAMS as usize)
        .max_local_error_reset_streams(MAX_STREAMS as usize)
        .max_send_buf_size(MAX_FRAME as usize * 2);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let served = tokio::select! {
        served = connection.as_mut() => served,
        _ = ending.wait_for(|end| *end) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // A controller that was killed leaves its connection in any state; there is nobody to tell.
    drop(served);
}

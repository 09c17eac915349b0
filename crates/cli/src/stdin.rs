//! Our standard input, read by a thread of its own so that a read which never returns holds nobody up.

use std::{
    future::{pending, poll_fn},
    io,
    pin::Pin,
    task::Poll,
    thread,
};

use bytes::Bytes;
use groundcrew_core::error::{Error, ErrorKind};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
};

use crate::detaching::{DetachKeys, Typed};

/// Where the process's standard input is written.
pub(crate) type Writer = Pin<Box<dyn AsyncWrite + Send>>;

/// What ended the forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forwarded {
    /// The input is at its end, or nobody wants it any more.
    All,
    /// The person at the terminal wants to leave.
    Detach,
    /// The terminal is gone.
    Gone,
}

/// Our standard input.
#[derive(Debug)]
pub(crate) struct Input(mpsc::Receiver<Bytes>);

impl Input {
    /// Begins to read.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(1);
        thread::Builder::new()
            .name("stdin".into())
            .spawn(move || read_all(&sender))?;
        Ok(Self(receiver))
    }

    /// Forwards everything to its end, then closes the process's standard input; `taken` is told if another writer took over.
    pub(crate) async fn forward_pipe(
        mut self,
        mut writer: Writer,
        taken: impl FnOnce(),
    ) -> Forwarded {
        loop {
            let bytes = tokio::select! {
                bytes = self.0.recv() => bytes,
                error = refused(Some(&mut writer)) => {
                    tell(&error, taken);
                    return Forwarded::All;
                }
            };
            let Some(bytes) = bytes else {
                drop(writer.shutdown().await);
                return Forwarded::All;
            };
            // A process that does not read its input to the end is no failure.
            if let Err(error) = send(&mut writer, &bytes).await {
                tell(&error, taken);
                return Forwarded::All;
            }
        }
    }

    /// Forwards keys until those that leave are pressed or the terminal is gone.
    ///
    /// * A writer that took over from us, of which `taken` is told at once, leaves us watching; the keys still leave.
    pub(crate) async fn forward_terminal(
        mut self,
        writer: Writer,
        keys: DetachKeys,
        taken: impl FnOnce(),
    ) -> Forwarded {
        let (mut writer, mut taken) = (Some(writer), Some(taken));
        let mut typed = Typed::new(keys);
        loop {
            let bytes = tokio::select! {
                bytes = self.0.recv() => bytes,
                error = refused(writer.as_mut()) => {
                    writer = None;
                    if let Some(taken) = taken.take() {
                        tell(&error, taken);
                    }
                    continue;
                }
            };
            let Some(bytes) = bytes else {
                return Forwarded::Gone;
            };
            let (keys, leave) = typed.push(&bytes);
            if let Some(open) = &mut writer
                && let Err(error) = send(open, &keys).await
            {
                writer = None;
                if let Some(taken) = taken.take() {
                    tell(&error, taken);
                }
            }
            if leave {
                return Forwarded::Detach;
            }
        }
    }
}

async fn send(writer: &mut Writer, bytes: &[u8]) -> io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

/// Waits until nothing can be written any more; never returns where that is not told.
async fn refused(writer: Option<&mut Writer>) -> io::Error {
    let Some(writer) = writer else {
        return pending().await;
    };
    poll_fn(|cx| match writer.as_mut().poll_write(cx, &[]) {
        Poll::Ready(Err(error)) => Poll::Ready(error),
        _ => Poll::Pending,
    })
    .await
}

/// Tells that another writer took over, if that is why; a process that ended tells so itself.
fn tell(error: &io::Error, taken: impl FnOnce()) {
    let why = error.get_ref().and_then(|why| why.downcast_ref::<Error>());
    if why.is_some_and(|why| why.kind() == ErrorKind::Conflict) {
        taken();
    }
}

fn read_all(sender: &mpsc::Sender<Bytes>) {
    let stdin = io::stdin();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match rustix::io::read(&stdin, &mut buffer) {
            Ok(0) => return,
            Ok(n) => {
                if sender
                    .blocking_send(Bytes::copy_from_slice(&buffer[..n]))
                    .is_err()
                {
                    return;
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                // Somebody who shares the stream with us made it non-blocking.
                let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
                if poll(&mut waiting, None).is_err_and(|e| e != Errno::INTR) {
                    return;
                }
            }
            // A terminal that hung up, or a closed descriptor: there is no more input.
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(chunks: &[&'static [u8]]) -> Input {
        let (sender, receiver) = mpsc::channel(chunks.len().max(1));
        for chunk in chunks {
            sender.try_send(Bytes::from_static(chunk)).unwrap();
        }
        Input(receiver)
    }

    #[tokio::test]
    async fn c19_input_is_sent_whole_then_closed() {
        let (near, mut far) = tokio::io::duplex(4);
        let sent = input(&[b"hello ", b"\x1dworld"])
            .forward_pipe(Box::pin(near), || panic!("nobody took over"));
        let read = async {
            let mut all = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut far, &mut all)
                .await
                .unwrap();
            all
        };
        let (forwarded, all) = tokio::join!(sent, read);
        assert_eq!(
            (forwarded, all.as_slice()),
            (Forwarded::All, &b"hello \x1dworld"[..])
        );
    }

    #[tokio::test]
    async fn c19_a_command_that_does_not_read_is_no_failure() {
        let (near, far) = tokio::io::duplex(4);
        drop(far);
        assert_eq!(
            input(&[b"more than fits"])
                .forward_pipe(Box::pin(near), || panic!("nobody took over"))
                .await,
            Forwarded::All
        );
    }

    #[tokio::test]
    async fn the_detach_key_is_not_sent_and_what_came_before_it_is() {
        for key in [&b"ab\x1dcd"[..], b"ab\x1b[93;5ucd"] {
            let (near, mut far) = tokio::io::duplex(64);
            assert_eq!(
                input(&[key])
                    .forward_terminal(Box::pin(near), DetachKeys::default(), || panic!(
                        "nobody took over"
                    ))
                    .await,
                Forwarded::Detach
            );
            let mut all = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut far, &mut all)
                .await
                .unwrap();
            assert_eq!(all, b"ab");
        }
    }

    #[tokio::test]
    async fn a_terminal_that_is_gone_does_not_close_the_input_and_one_taken_over_can_detach() {
        let (near, far) = tokio::io::duplex(64);
        assert_eq!(
            input(&[b"a"])
                .forward_terminal(Box::pin(near), DetachKeys::default(), || panic!(
                    "nobody took over"
                ))
                .await,
            Forwarded::Gone
        );
        drop(far);
        let (near, far) = tokio::io::duplex(1);
        drop(far);
        assert_eq!(
            input(&[b"aa", b"\x1d"])
                .forward_terminal(Box::pin(near), DetachKeys::default(), || panic!(
                    "nobody took over"
                ))
                .await,
            Forwarded::Detach
        );
    }

    /// A writer whose place is taken as soon as it is asked.
    struct Taken;

    impl AsyncWrite for Taken {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            let why = Error::new(ErrorKind::Conflict, "another writer took over");
            Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, why)))
        }

        fn poll_flush(
            self: Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(
            self: Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn an_earlier_writer_is_told_without_a_key_and_can_still_leave() {
        let (sender, receiver) = mpsc::channel(1);
        let (told, heard) = tokio::sync::oneshot::channel();
        let forwarding =
            Input(receiver).forward_terminal(Box::pin(Taken), DetachKeys::default(), || {
                told.send(()).unwrap();
            });
        let press = async {
            heard.await.unwrap();
            sender.send(Bytes::from_static(b"x\x1d")).await.unwrap();
        };
        assert_eq!(tokio::join!(forwarding, press).0, Forwarded::Detach);
        let mut told = false;
        input(&[b"x"])
            .forward_pipe(Box::pin(Taken), || told = true)
            .await;
        assert!(told);
    }
}

//! Our standard input, read by a thread of its own so that a read which never returns holds nobody up.

use std::{io, pin::Pin, thread};

use bytes::Bytes;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
};

/// The key that detaches, Ctrl-].
const DETACH_KEY: u8 = 0x1d;
/// The same key from a terminal that reports keys in the extended way.
const DETACH_KEY_EXTENDED: &[u8] = b"\x1b[93;5u";

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

    /// Forwards everything to its end, then closes the process's standard input.
    pub(crate) async fn forward_pipe(mut self, mut writer: Writer) -> Forwarded {
        while let Some(bytes) = self.0.recv().await {
            // A process that does not read its input to the end is no failure.
            if writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err() {
                return Forwarded::All;
            }
        }
        drop(writer.shutdown().await);
        Forwarded::All
    }

    /// Forwards keys until the detach key is pressed or the terminal is gone.
    ///
    /// * A writer that took over from us leaves us watching; the detach key still works.
    pub(crate) async fn forward_terminal(mut self, writer: Writer) -> Forwarded {
        let mut writer = Some(writer);
        while let Some(bytes) = self.0.recv().await {
            let key = detach_key(&bytes);
            if let Some(open) = &mut writer {
                let keys = &bytes[..key.unwrap_or(bytes.len())];
                if open.write_all(keys).await.is_err() || open.flush().await.is_err() {
                    writer = None;
                }
            }
            if key.is_some() {
                return Forwarded::Detach;
            }
        }
        Forwarded::Gone
    }
}

/// Returns where the detach key was pressed.
fn detach_key(keys: &[u8]) -> Option<usize> {
    let plain = keys.iter().position(|key| *key == DETACH_KEY);
    let extended = keys
        .windows(DETACH_KEY_EXTENDED.len())
        .position(|window| window == DETACH_KEY_EXTENDED);
    plain.into_iter().chain(extended).min()
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
        let sent = input(&[b"hello ", b"\x1dworld"]).forward_pipe(Box::pin(near));
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
                .forward_pipe(Box::pin(near))
                .await,
            Forwarded::All
        );
    }

    #[tokio::test]
    async fn the_detach_key_is_not_sent_and_what_came_before_it_is() {
        for key in [&b"ab\x1dcd"[..], b"ab\x1b[93;5ucd"] {
            let (near, mut far) = tokio::io::duplex(64);
            assert_eq!(
                input(&[key]).forward_terminal(Box::pin(near)).await,
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
            input(&[b"a"]).forward_terminal(Box::pin(near)).await,
            Forwarded::Gone
        );
        drop(far);
        let (near, far) = tokio::io::duplex(1);
        drop(far);
        assert_eq!(
            input(&[b"aa", b"\x1d"])
                .forward_terminal(Box::pin(near))
                .await,
            Forwarded::Detach
        );
    }
}

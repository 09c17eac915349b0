//! Signals to this process, as one stream of calls.

use std::{io, pin::pin};

use futures_util::future::{Either, pending, select_all};
use groundcrew_core::process::Signal as SignalNumber;
use rustix::process::Signal as Native;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Interrupt, as by Ctrl-C.
    Interrupt,
    /// Quit, as by Ctrl-\.
    Quit,
    /// Please end.
    Terminate,
    /// The terminal is gone.
    Hangup,
    /// The terminal has another size.
    Resized,
    /// We were stopped and go on.
    Continued,
}

impl Call {
    const ALL: [Self; 6] = [
        Self::Interrupt,
        Self::Quit,
        Self::Terminate,
        Self::Hangup,
        Self::Resized,
        Self::Continued,
    ];

    const fn native(self) -> Native {
        match self {
            Self::Interrupt => Native::INT,
            Self::Quit => Native::QUIT,
            Self::Terminate => Native::TERM,
            Self::Hangup => Native::HUP,
            Self::Resized => Native::WINCH,
            Self::Continued => Native::CONT,
        }
    }

    /// Returns the signal that asked.
    pub(crate) const fn number(self) -> SignalNumber {
        SignalNumber(self.native().as_raw())
    }
}

/// Receives signals; those that were ignored when we were started, as by `nohup`, stay ignored.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Call, Signal)>);

impl Signals {
    /// Begins to receive.
    ///
    /// # Errors
    ///
    /// When the operating system does not let us.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        Call::ALL
            .into_iter()
            .filter(|call| ignored >> (call.number().0 - 1) & 1 == 0)
            .map(|call| Ok((call, signal(SignalKind::from_raw(call.number().0))?)))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// Returns the next call.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Call {
        let receiving = self.0.iter_mut().map(|(call, signal)| {
            Box::pin(async move {
                match signal.recv().await {
                    Some(()) => *call,
                    None => pending().await,
                }
            })
        });
        let receiving: Vec<_> = receiving.collect();
        if receiving.is_empty() {
            return pending().await;
        }
        select_all(receiving).await.0
    }
}

/// Returns which signals are ignored, bit `n - 1` for signal `n`.
fn ignored() -> u64 {
    // The one way to ask without changing anything; where there is none, nothing counts as ignored.
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| mask(&status))
        .unwrap_or(0)
}

fn mask(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Returns whether a call asks to leave.
pub(crate) const fn leaves(call: Call) -> bool {
    !matches!(call, Call::Resized | Call::Continued)
}

/// Waits for something, unless a call comes first that ends the wait.
pub(crate) async fn unless_called<T>(
    signals: &mut Signals,
    ends: impl Fn(Call) -> bool,
    work: impl Future<Output = T>,
) -> Result<T, Call> {
    let mut work = pin!(work);
    loop {
        let call = pin!(signals.next());
        match futures_util::future::select(work.as_mut(), call).await {
            Either::Left((done, _)) => return Ok(done),
            Either::Right((call, _)) if ends(call) => return Err(call),
            Either::Right(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_ignored_is_read_from_the_kernel() {
        assert_eq!(mask("Name:\tx\nSigIgn:\t0000000000000001\n"), Some(1));
        assert_eq!(mask("Name:\tx\n"), None);
    }

    #[test]
    fn calls_have_the_numbers_of_the_kernel() {
        assert_eq!(Call::Interrupt.number(), SignalNumber::INT);
        assert_eq!(Call::Terminate.number(), SignalNumber::TERM);
        assert_eq!(Call::Hangup.number(), SignalNumber::HUP);
    }
}

//! The terminal we were started at: its size, and raw mode that ends however we end.

use std::io::{self, IsTerminal as _};

use groundcrew_core::process::TerminalSize;
use rustix::termios::{self, OptionalActions, Termios};

/// Which of our streams are terminals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terminals {
    /// Standard input.
    pub input: bool,
    /// Standard output.
    pub output: bool,
    /// Standard error.
    pub error: bool,
}

impl Terminals {
    /// Asks the operating system.
    pub(crate) fn ask() -> Self {
        Self {
            input: io::stdin().is_terminal(),
            output: io::stdout().is_terminal(),
            error: io::stderr().is_terminal(),
        }
    }

    /// Returns whether a person can work here with a program that wants a terminal.
    pub(crate) const fn interactive(self) -> bool {
        self.input && self.output
    }
}

/// What a terminal has if nobody says how large it is.
pub(crate) const DEFAULT_SIZE: TerminalSize = TerminalSize {
    rows: 24,
    columns: 80,
};

/// Returns the size of our terminal.
pub(crate) fn size() -> TerminalSize {
    let sizes = [
        termios::tcgetwinsize(io::stdout()),
        termios::tcgetwinsize(io::stdin()),
    ];
    sizes
        .into_iter()
        .flatten()
        .find(|size| size.ws_row > 0 && size.ws_col > 0)
        .map_or(DEFAULT_SIZE, |size| TerminalSize {
            rows: size.ws_row,
            columns: size.ws_col,
        })
}

/// Keeps standard input's terminal raw until dropped; then it is as it was, also after a panic.
#[derive(Debug)]
#[must_use]
pub(crate) struct RawMode {
    saved: Termios,
}

impl RawMode {
    /// Makes the terminal raw: every key is a byte, nothing is echoed or changed.
    ///
    /// # Errors
    ///
    /// When standard input is no terminal.
    pub(crate) fn enter() -> io::Result<Self> {
        let saved = termios::tcgetattr(io::stdin())?;
        let mode = Self { saved };
        mode.again()?;
        Ok(mode)
    }

    /// Makes it raw again, after a shell has changed it while we were stopped.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub(crate) fn again(&self) -> io::Result<()> {
        let mut raw = self.saved.clone();
        raw.make_raw();
        termios::tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(())
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &self.saved);
    }
}

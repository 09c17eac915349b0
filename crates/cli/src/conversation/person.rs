//! The person at the terminal, who is asked what the agent asks for: one line answers one request, the oldest first.

use std::{collections::BTreeMap, io::BufRead as _, thread};

use groundcrew_session::request::{Decision, InteractiveRequest, Question};
use rustix::termios::{self, QueueSelector};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::console::Console;

/// The person.
#[derive(Debug)]
pub(crate) struct Person {
    lines: UnboundedReceiver<String>,
}

impl Person {
    /// Begins to read lines of the terminal, in a thread of its own: a read cannot be given up.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub(crate) fn listen() -> std::io::Result<Self> {
        // What was typed before anything was asked answers nothing; what is no terminal has no such queue.
        let _flushed = termios::tcflush(std::io::stdin(), QueueSelector::IFlush);
        let (sender, lines) = unbounded_channel();
        thread::Builder::new()
            .name("person".to_owned())
            .spawn(move || {
                for line in std::io::stdin().lock().lines() {
                    let Ok(line) = line else { return };
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self { lines })
    }

    /// Returns the next line; none once there is nobody.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub(crate) async fn line(&mut self) -> Option<String> {
        self.lines.recv().await
    }
}

/// Says how a request is answered.
pub(crate) fn explain(console: &Console, request: &InteractiveRequest) {
    let how = match &request.question {
        Question::Input { .. } => "a line is the answer",
        _ => "y approves, a for the whole session, n declines, q also ends the turn",
    };
    console.note(&format!("{}: {how}", request.id));
}

/// Reads an answer; none if it is none.
pub(crate) fn decision(request: &InteractiveRequest, line: &str) -> Option<Decision> {
    if let Question::Input { questions } = &request.question {
        let answers: BTreeMap<_, _> = questions
            .iter()
            .map(|question| (question.id.clone(), vec![line.to_owned()]))
            .collect();
        return Some(Decision::Input { answers });
    }
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(Decision::Approve),
        "a" | "always" => Some(Decision::ApproveForSession),
        "n" | "no" => Some(Decision::deny()),
        "q" | "quit" => Some(Decision::Abort),
        _ => None,
    }
}

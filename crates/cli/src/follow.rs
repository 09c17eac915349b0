//! Follows the command of a run: its output to ours, our input and signals to it, until it ends or we leave.

use std::{future::pending, pin::pin, time::Duration};

use futures_util::{
    StreamExt as _,
    future::{BoxFuture, FutureExt as _},
    stream::FuturesUnordered,
};
use groundcrew_core::{
    Launcher,
    error::{Chain, Error, ErrorKind},
    id::ProcessId,
    instance::{SharedInstance, Stdio},
    process::{ExitStatus, Offset, Role, Signal, StopOrder, TerminalSize},
    redact::{HOLD_FOR_PIPE, HOLD_FOR_TERMINAL, Redactor},
    store::RunRecord,
};

use crate::{
    console::Console,
    detaching::DetachKeys,
    failing::Failing,
    masking::Masking,
    output::{Output, Shape},
    signals::{Call, Signals, leaves, unless_called},
    stdin::{Forwarded, Input},
    terminal::{self, RawMode},
};

/// How far we are with ending the command: it was asked to stop.
const STOPPED: u8 = 2;
/// How far we are with ending the command: it was killed.
const KILLED: u8 = 3;

/// How long a program gets to notice one change of its terminal's size before the next.
const BETWEEN_SIZES: Duration = Duration::from_millis(100);

/// How long we wait for a reader when we leave.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What goes to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inward {
    /// Nothing.
    Nothing,
    /// Standard input, to its end.
    Pipe,
    /// Keys of our terminal, and its size.
    Terminal,
}

/// What a signal to us means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It is for the command.
    Command,
    /// It ends the watching only.
    Watching,
}

/// How following ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The command ended.
    Ended(ExitStatus),
    /// It is gone, and nobody knows how it ended.
    Lost(Error),
    /// We left, by the detach key or by a signal; it runs on.
    Detached(Option<Call>),
    /// We left, by a signal, though not everything was written; it was ended before.
    Left(Call),
}

/// Which process is followed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject<'a> {
    /// The run's command: ending it ends the run.
    Agent,
    /// Another process of the run, which goes on without it.
    Process(&'a ProcessId),
}

impl<'a> Subject<'a> {
    /// Returns the process of that name; the command if none is named.
    pub(crate) fn of(name: Option<&'a ProcessId>) -> Self {
        name.map_or(Self::Agent, Self::Process)
    }
}

/// What to follow, and how.
#[derive(Debug)]
pub(crate) struct Follow<'a> {
    /// The launcher.
    pub launcher: &'a Launcher,
    /// The run.
    pub record: &'a RunRecord,
    /// Which of its processes.
    pub subject: Subject<'a>,
    /// The keys that leave a terminal.
    pub detach_keys: &'a DetachKeys,
    /// What hides its secrets.
    pub redactor: &'a Redactor,
    /// Where we talk.
    pub console: &'a Console,
    /// Where output begins.
    pub from: Offset,
    /// What goes to the command.
    pub inward: Inward,
    /// What a signal to us means.
    pub meaning: Meaning,
    /// A signal that came too late to cancel the launch.
    pub(crate) called: Option<Call>,
}

/// What is done to the run besides reading: each ends with what a person should know.
type Actions<'a> = FuturesUnordered<BoxFuture<'a, Result<(), Error>>>;

impl Follow<'_> {
    /// Follows.
    ///
    /// # Errors
    ///
    /// When the run cannot be reached, or standard output cannot be written though somebody wants it.
    pub(crate) async fn follow(&self, signals: &mut Signals) -> Result<Ending, Failing> {
        if self.called == Some(Call::Hangup) {
            return Ok(Ending::Detached(self.called));
        }
        let agent = match self.subject {
            Subject::Agent => self.record.agent_process()?,
            Subject::Process(id) => id.clone(),
        };
        let (instance, mut stdio) = self.attach(&agent).await?;
        let raw = match self.inward {
            Inward::Terminal => Some(RawMode::enter()?),
            Inward::Nothing | Inward::Pipe => None,
        };
        let hold_from = match self.inward {
            Inward::Terminal => HOLD_FOR_TERMINAL,
            Inward::Nothing | Inward::Pipe => HOLD_FOR_PIPE,
        };
        let masking = Masking::new(self.redactor, hold_from);
        let mut output = Output::start(Shape::of(self.console.format), self.from, masking)?;
        if raw.is_some() {
            output.follow_screen();
        }
        let mut forwarding = self.forwarding(&mut stdio)?;
        let mut actions = Actions::new();
        if raw.is_some() {
            actions.push(match self.meaning {
                Meaning::Command => resize(&instance, &agent),
                Meaning::Watching => redraw(&instance, &agent),
            });
        }
        let mut stops = Actions::new();
        let mut level = 0;
        if let Some(call) = self.called {
            // An end was asked for already.
            level = escalate(level, Call::Terminate);
            stops.push(self.act(level, call, &instance, &agent));
        }
        let ending = {
            let mut at_rest = false;
            let mut pump = pin!(self.pump(&agent, stdio, &mut output));
            loop {
                tokio::select! {
                    biased;
                    call = signals.next() => match call {
                        Call::Resized | Call::Continued => {
                            if let Some(raw) = &raw {
                                // A terminal that is gone is told by a hang-up.
                                drop(raw.again());
                                actions.push(resize(&instance, &agent));
                            }
                        }
                        call if self.meaning == Meaning::Watching => break Ending::Detached(Some(call)),
                        Call::Hangup => break Ending::Detached(Some(call)),
                        // Whoever does not read what we write must not keep us.
                        call if at_rest || level >= KILLED => break Ending::Left(call),
                        call => {
                            level = escalate(level, call);
                            let action = self.act(level, call, &instance, &agent);
                            if level >= STOPPED { stops.push(action) } else { actions.push(action) }
                        }
                    },
                    forwarded = &mut forwarding => {
                        forwarding = pending().boxed();
                        match forwarded {
                            Forwarded::All => {}
                            Forwarded::Detach => break Ending::Detached(None),
                            Forwarded::Gone => break Ending::Detached(Some(Call::Hangup)),
                        }
                    }
                    Some(done) = actions.next() => self.tell(done, raw.is_some()),
                    Some(done) = stops.next() => {
                        at_rest |= done.is_ok();
                        self.tell(done, raw.is_some());
                    }
                    ended = &mut pump => break match ended {
                        Ok(status) => Ending::Ended(status),
                        Err(error) => Ending::Lost(error),
                    },
                }
            }
        };
        let ended = matches!(ending, Ending::Ended(_) | Ending::Lost(_));
        if !ended {
            // What was printed last is shown, but nobody who wants to leave waits for a reader.
            drop(tokio::time::timeout(LAST_WORDS, output.finish()).await);
            return Ok(ending);
        }
        let written = unless_called(signals, leaves, output.finish()).await;
        drop(raw);
        // A stop that is under way brings the run to rest; it must not be left half-way.
        let resting = stops.for_each(async |done| self.tell(done, false));
        _ = unless_called(signals, leaves, resting).await;
        match written {
            Ok(Err(error)) => Err(Error::io("standard output cannot be written", error)
                .with("run", &self.record.run)
                .into()),
            _ => Ok(ending),
        }
    }

    /// Attaches; where there is no input to be written any more, as a viewer.
    async fn attach(&self, agent: &ProcessId) -> Result<(SharedInstance, Stdio), Error> {
        let instance = self.launcher.instance(self.record).await?;
        if self.inward != Inward::Nothing
            && let Ok(stdio) = instance.attach(agent, self.from, Role::Writer).await
        {
            return Ok((instance, stdio));
        }
        // One that ended meanwhile is reached by what it left.
        let instance = self.launcher.instance(self.record).await?;
        let stdio = instance.attach(agent, self.from, Role::Viewer).await?;
        Ok((instance, stdio))
    }

    fn forwarding(&self, stdio: &mut Stdio) -> Result<BoxFuture<'static, Forwarded>, Error> {
        let Some(writer) = stdio.input.take() else {
            return Ok(pending().boxed());
        };
        let input = || Input::start().map_err(|e| Error::io("standard input cannot be read", e));
        Ok(match self.inward {
            Inward::Nothing => pending().boxed(),
            Inward::Pipe => {
                let console = self.console.clone();
                let taken = move || console.note("another writer took over the input");
                input()?.forward_pipe(writer, taken).boxed()
            }
            Inward::Terminal => {
                let (console, keys) = (self.console.clone(), self.detach_keys);
                // The terminal is raw: a new line alone does not go back to its beginning.
                let text = format!(
                    "\r\ngroundcrew: another writer took over; this terminal only watches now, {keys} leaves\r"
                );
                let taken = move || console.plain(&text);
                input()?
                    .forward_terminal(writer, self.detach_keys.clone(), taken)
                    .boxed()
            }
        })
    }

    /// Copies output until the command ends; a connection that breaks is made again where it broke off.
    async fn pump(
        &self,
        agent: &ProcessId,
        mut stdio: Stdio,
        output: &mut Output,
    ) -> Result<ExitStatus, Error> {
        let mut broke_at = None;
        loop {
            let error = match output.copy(&mut stdio, None).await {
                Ok(Some(status)) => return Ok(status),
                Ok(None) => Error::new(
                    ErrorKind::Unavailable,
                    "the output ended without word of the end",
                ),
                Err(error) => error,
            };
            // Once for each piece that came through: what breaks at once again stays broken.
            if broke_at.replace(output.at()) == Some(output.at()) {
                return Err(error);
            }
            let instance = self.launcher.instance(self.record).await?;
            stdio = instance.attach(agent, output.at(), Role::Viewer).await?;
        }
    }

    /// Does what a signal asks for: the first is forwarded, the second stops with grace, the third kills.
    fn act<'a>(
        &'a self,
        level: u8,
        call: Call,
        instance: &SharedInstance,
        agent: &ProcessId,
    ) -> BoxFuture<'a, Result<(), Error>> {
        match level {
            ..STOPPED => signal(instance, agent, call.number()),
            STOPPED => {
                self.say("stopping; once more kills");
                if let Subject::Process(process) = self.subject {
                    return end(instance, process);
                }
                let run = &self.record.run;
                async move { self.launcher.stop(run, None).await.map(drop) }.boxed()
            }
            _ => {
                self.say("killing");
                let killing = signal(instance, agent, Signal::KILL);
                if matches!(self.subject, Subject::Process(_)) {
                    return killing;
                }
                let run = &self.record.run;
                async move {
                    killing.await?;
                    self.launcher
                        .stop(run, Some(Duration::ZERO))
                        .await
                        .map(drop)
                }
                .boxed()
            }
        }
    }

    fn say(&self, text: &str) {
        if self.inward != Inward::Terminal {
            self.console.note(text);
        }
    }

    fn tell(&self, done: Result<(), Error>, raw: bool) {
        if let Err(error) = done
            && !raw
        {
            self.console.warn(&Chain(&error).to_string());
        }
    }
}

/// Returns how far we are with ending the command.
const fn escalate(level: u8, call: Call) -> u8 {
    match call {
        // What is not an end is forwarded and does not count.
        Call::Quit => 0,
        Call::Terminate if level < STOPPED => STOPPED,
        _ => level.saturating_add(1),
    }
}

fn signal<'a>(
    instance: &SharedInstance,
    agent: &ProcessId,
    signal: Signal,
) -> BoxFuture<'a, Result<(), Error>> {
    let (instance, agent) = (SharedInstance::clone(instance), agent.clone());
    async move { instance.signal(&agent, signal).await }.boxed()
}

fn resize<'a>(instance: &SharedInstance, agent: &ProcessId) -> BoxFuture<'a, Result<(), Error>> {
    let (instance, agent) = (SharedInstance::clone(instance), agent.clone());
    async move { instance.resize(&agent, terminal::size()).await }.boxed()
}

/// Makes a program draw its screen anew: it does when its terminal changes its size, and only then.
fn redraw<'a>(instance: &SharedInstance, process: &ProcessId) -> BoxFuture<'a, Result<(), Error>> {
    let (instance, process) = (SharedInstance::clone(instance), process.clone());
    async move {
        let size = terminal::size();
        let other = TerminalSize {
            columns: size.columns.saturating_sub(1).max(1),
            ..size
        };
        instance.resize(&process, other).await?;
        // One change at a time, or a program sees only the second and finds its size unchanged; it tells nobody that it saw.
        tokio::time::sleep(BETWEEN_SIZES).await;
        instance.resize(&process, terminal::size()).await
    }
    .boxed()
}

/// Ends one process and its tree: asked first, killed after a grace.
fn end<'a>(instance: &SharedInstance, process: &ProcessId) -> BoxFuture<'a, Result<(), Error>> {
    let (instance, process) = (SharedInstance::clone(instance), process.clone());
    async move {
        instance.signal(&process, Signal::TERM).await?;
        match tokio::time::timeout(StopOrder::default().grace, instance.wait(&process)).await {
            Ok(ended) => ended.map(drop),
            Err(_) => instance.signal(&process, Signal::KILL).await,
        }
    }
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_escalate_and_terminate_stops_at_once() {
        assert_eq!(escalate(0, Call::Interrupt), 1);
        assert_eq!(escalate(1, Call::Interrupt), 2);
        assert_eq!(escalate(2, Call::Interrupt), 3);
        assert_eq!(escalate(0, Call::Terminate), 2);
        assert_eq!(escalate(1, Call::Terminate), 2);
        assert_eq!(escalate(2, Call::Terminate), 3);
        assert_eq!(escalate(u8::MAX, Call::Interrupt), u8::MAX);
    }
}

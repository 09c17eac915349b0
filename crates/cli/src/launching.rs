//! Carries a plan out while its steps are shown; a signal cancels it, a second one leaves at once.

use groundcrew_core::{
    Launched, Launcher, Plan,
    event::{Event, EventKind},
};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::{
    console::Console,
    exit,
    failing::Failing,
    progress::Progress,
    signals::{Call, Signals},
};

/// Launches; returns the signal that came too late to cancel, if one did.
///
/// # Errors
///
/// The launch failed, was cancelled, or was left at once; what it made is taken back, or owned.
pub(crate) async fn launch(
    launcher: &Launcher,
    plan: Plan,
    events: &mut UnboundedReceiver<Event>,
    console: &Console,
    signals: &mut Signals,
) -> Result<(Launched, Option<Call>), Failing> {
    let mut progress = Progress::new(console);
    let ticket = launcher.launch(plan);
    let mut cancelled = None;
    let result = loop {
        tokio::select! {
            biased;
            call = signals.next() => match call {
                Call::Resized | Call::Continued => {}
                call if cancelled.is_some() => {
                    return Err(Failing::called(
                        "left before everything was taken back; the rest is owned: see `groundcrew recover`",
                        exit::signalled(call.number().0),
                    ));
                }
                call => {
                    cancelled = Some(call);
                    ticket.cancel();
                    progress.note("cancelling; once more leaves at once");
                }
            },
            Some(event) = events.recv() => progress.show(&event),
            result = ticket.wait() => break result,
        }
    };
    // Everything that was told before the answer is here already.
    while let Ok(event) = events.try_recv() {
        progress.show(&event);
        if matches!(
            event.kind,
            EventKind::Launched | EventKind::RolledBack { .. }
        ) {
            break;
        }
    }
    progress.finish();
    match (result, cancelled) {
        (Ok(done), late) => Ok((done, late)),
        (Err(error), None) => Err(error.into()),
        (Err(error), Some(call)) => {
            Err(Failing::cancelled(error, exit::signalled(call.number().0)))
        }
    }
}

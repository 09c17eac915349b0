//! What is being ensured at present: requests that are equal share one answer.

use std::{
    collections::HashMap,
    error::Error as StdError,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

use crate::{
    error::{Error, ErrorKind},
    id::SessionId,
    plan::PlanError,
    request::LaunchRequest,
    ticket::{LaunchError, Launched},
};

/// Why a session has no workspace.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EnsureError {
    /// The request cannot be carried out.
    Plan(Arc<PlanError>),
    /// The launch failed and was rolled back.
    Launch(LaunchError),
    /// What the session has could not be found out.
    Look(Arc<Error>),
}

impl EnsureError {
    /// Returns the kind of what went wrong first.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Plan(error) => error.kind(),
            Self::Launch(error) => error.error.kind(),
            Self::Look(error) => error.kind(),
        }
    }

    /// Tells whether what was planned with had changed, so that a new plan may do.
    pub(crate) fn is_outdated(&self) -> bool {
        let outdated = |kind| matches!(kind, ErrorKind::Conflict | ErrorKind::SessionBusy);
        match self {
            Self::Plan(error) => outdated(error.kind()),
            Self::Launch(error) => outdated(error.error.kind()),
            Self::Look(_) => false,
        }
    }
}

impl fmt::Display for EnsureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(_) => f.write_str("the workspace cannot be planned"),
            Self::Launch(_) => f.write_str("the workspace could not be brought up"),
            Self::Look(_) => f.write_str("what the session has could not be found out"),
        }
    }
}

impl StdError for EnsureError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Plan(error) => Some(&**error),
            Self::Launch(error) => Some(error),
            Self::Look(error) => Some(&**error),
        }
    }
}

pub(crate) type Answer = Option<Result<Launched, EnsureError>>;

/// What is being ensured, by session; equal requests wait for one answer.
#[derive(Debug, Default)]
pub(crate) struct Flights(Mutex<HashMap<SessionId, Vec<Flight>>>);

#[derive(Debug)]
struct Flight {
    request: LaunchRequest,
    answer: watch::Receiver<Answer>,
}

impl Flights {
    /// Joins a flight with an equal request; else begins one, and returns where its answer goes.
    pub(crate) fn join(
        &self,
        session: &SessionId,
        request: &LaunchRequest,
    ) -> (watch::Receiver<Answer>, Option<watch::Sender<Answer>>) {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        flights.retain(|_, of_one| {
            of_one.retain(|flight| flight.answer.has_changed().is_ok());
            !of_one.is_empty()
        });
        let of_one = flights.entry(session.clone()).or_default();
        if let Some(flight) = of_one.iter().find(|flight| flight.request == *request) {
            return (flight.answer.clone(), None);
        }
        let (sender, answer) = watch::channel(None);
        of_one.push(Flight {
            request: request.clone(),
            answer: answer.clone(),
        });
        (answer, Some(sender))
    }
}

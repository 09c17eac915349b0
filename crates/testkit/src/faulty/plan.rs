//! What goes wrong at which checkpoint, as text: so that a real program can be driven by an argument.

use std::{fmt, str::FromStr, time::Duration};

use groundcrew_core::error::{Error, ErrorKind};

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// The step fails with that kind.
    Error(ErrorKind),
    /// The step panics.
    Panic,
    /// The step never goes on; it ends when it is broken off.
    Hang,
    /// The step takes that much longer.
    Delay(Duration),
    /// The process kills itself with SIGKILL.
    Kill9,
    /// Somebody cancels the launch; the step itself goes on.
    Cancel,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(kind) => write!(f, "error({kind})"),
            Self::Panic => f.write_str("panic"),
            Self::Hang => f.write_str("hang"),
            Self::Delay(time) => write!(f, "delay({})", time.as_millis()),
            Self::Kill9 => f.write_str("kill9"),
            Self::Cancel => f.write_str("cancel"),
        }
    }
}

const KINDS: [ErrorKind; 11] = [
    ErrorKind::InvalidInput,
    ErrorKind::NotFound,
    ErrorKind::AlreadyExists,
    ErrorKind::PermissionDenied,
    ErrorKind::Unavailable,
    ErrorKind::TimedOut,
    ErrorKind::ResourceExhausted,
    ErrorKind::Protocol,
    ErrorKind::Conflict,
    ErrorKind::SessionEnded,
    ErrorKind::Unexpected,
];

impl FromStr for Action {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, argument) = match text.split_once('(') {
            Some((name, rest)) => (name, rest.strip_suffix(')')),
            None => (text, Some("")),
        };
        let wrong = || {
            Error::new(
                ErrorKind::InvalidInput,
                "no such fault; use error, error(KIND), panic, hang, delay(MILLISECONDS), kill9 or cancel",
            )
            .with("fault", text)
        };
        match (name, argument.ok_or_else(wrong)?) {
            ("error", "") => Ok(Self::Error(ErrorKind::Unexpected)),
            ("error", kind) => KINDS
                .into_iter()
                .find(|known| known.as_str() == kind)
                .map(Self::Error)
                .ok_or_else(wrong),
            ("panic", "") => Ok(Self::Panic),
            ("hang", "") => Ok(Self::Hang),
            ("delay", millis) => millis
                .parse()
                .map(|n| Self::Delay(Duration::from_millis(n)))
                .map_err(|_| wrong()),
            ("kill9", "") => Ok(Self::Kill9),
            ("cancel", "") => Ok(Self::Cancel),
            _ => Err(wrong()),
        }
    }
}

/// One fault at one checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedFault {
    /// The checkpoint as its `Display` writes it, such as `prepare:worktree.branch-made`.
    pub point: String,
    /// At which pass of it, counted from 1.
    pub pass: u32,
    /// What goes wrong.
    pub action: Action,
}

impl fmt::Display for PlannedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.point)?;
        if self.pass != 1 {
            write!(f, "#{}", self.pass)?;
        }
        write!(f, "={}", self.action)
    }
}

impl FromStr for PlannedFault {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::new(
                ErrorKind::InvalidInput,
                "a fault is written POINT=ACTION or POINT#PASS=ACTION",
            )
            .with("fault", text)
        };
        let (place, action) = text.split_once('=').ok_or_else(wrong)?;
        let (point, pass) = match place.split_once('#') {
            Some((point, pass)) => (point, pass.parse().map_err(|_| wrong())?),
            None => (place, 1),
        };
        if !point.contains('.') || pass == 0 {
            return Err(wrong());
        }
        Ok(Self {
            point: point.to_owned(),
            pass,
            action: action.parse()?,
        })
    }
}

/// Faults at checkpoints; as text they are joined by commas.
///
/// ```
/// # use groundcrew_testkit::faulty::FaultPlan;
/// let text = "create.before=kill9,prepare:worktree.branch-made#2=error(unavailable)";
/// let plan: FaultPlan = text.parse()?;
/// assert_eq!(plan.to_string(), text);
/// # Ok::<_, groundcrew_core::error::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan(pub Vec<PlannedFault>);

impl FaultPlan {
    /// Plans one fault at the first pass of a checkpoint.
    pub fn at(point: impl fmt::Display, action: Action) -> Self {
        Self(vec![PlannedFault {
            point: point.to_string(),
            pass: 1,
            action,
        }])
    }
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl FromStr for FaultPlan {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let faults = text.split(',').filter(|part| !part.is_empty());
        faults.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_survive_text() {
        for text in [
            "",
            "create.before=kill9",
            "start.after#3=delay(250)",
            "prepare:w.branch-made=error(conflict),admit_again.before=cancel,setup.after=hang,commit.before=panic",
        ] {
            assert_eq!(text.parse::<FaultPlan>().unwrap().to_string(), text);
        }
        let plain: FaultPlan = "create.before=error".parse().unwrap();
        assert_eq!(plain.0[0].action, Action::Error(ErrorKind::Unexpected));
    }

    #[test]
    fn what_is_no_fault_is_refused() {
        for bad in [
            "create.before",
            "create=panic",
            "create.before=explode",
            "create.before#0=panic",
            "create.before#x=panic",
            "create.before=delay()",
            "create.before=error(nonsense)",
            "create.before=panic(",
        ] {
            let error = bad.parse::<FaultPlan>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad}");
            assert!(error.get("fault").is_some(), "{bad}");
        }
    }
}

//! The labels on every object that we make in an engine: who made it, and for which attempt.
//!
//! Objects are found by exact labels, never by a part of their name: another installation's are never touched.

use std::collections::HashMap;

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::{InstallId, InstanceId, RunId, SessionId},
};

/// The label that holds the installation.
pub const INSTALL: &str = "dev.groundcrew.install";
/// The label that holds the attempt: the id of the instance that it makes.
pub const ATTEMPT: &str = "dev.groundcrew.attempt";
/// The label that holds the run.
pub const RUN: &str = "dev.groundcrew.run";
/// The label that holds the session.
pub const SESSION: &str = "dev.groundcrew.session";

/// The label that tells what a container of an instance is, where it is not the instance itself.
pub(crate) const ROLE: &str = "dev.groundcrew.role";
/// The role of a container that is never started: volumes are filled and read through it.
pub(crate) const CARRIER: &str = "carrier";

/// The role of a volume that the image of a container wants.
pub(crate) const OF_IMAGE: &str = "image";

/// Who made an object, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// The installation.
    pub install: InstallId,
    /// The instance, called after the attempt that makes it.
    pub attempt: InstanceId,
    /// The run.
    pub run: RunId,
    /// The session.
    pub session: SessionId,
}

impl Labels {
    /// Returns them as an engine takes them.
    pub fn to_map(&self) -> HashMap<String, String> {
        let pairs = [
            (INSTALL, self.install.to_string()),
            (ATTEMPT, self.attempt.to_string()),
            (RUN, self.run.to_string()),
            (SESSION, self.session.to_string()),
        ];
        pairs
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    }

    /// Reads what an engine returned.
    ///
    /// # Errors
    ///
    /// `NotFound`, naming the label, when one is missing; `InvalidInput` when one is no id: the object is not ours.
    pub fn from_map(map: &HashMap<String, String>) -> Result<Self, Error> {
        let get = |key: &'static str| {
            map.get(key).cloned().ok_or_else(|| {
                Error::new(ErrorKind::NotFound, "the object lacks one of our labels")
                    .with("label", key)
            })
        };
        Ok(Self {
            install: InstallId::new(get(INSTALL)?)?,
            attempt: InstanceId::new(get(ATTEMPT)?)?,
            run: RunId::new(get(RUN)?)?,
            session: SessionId::new(get(SESSION)?)?,
        })
    }

    /// Returns the filter that finds every object of an installation, and nobody else's.
    pub fn filter(install: &InstallId) -> String {
        format!("{INSTALL}={install}")
    }
}

#[cfg(test)]
mod tests {
    use groundcrew_core::id::AttemptId;

    use super::*;

    #[test]
    fn c39_only_what_has_all_our_labels_is_ours() {
        let labels = Labels {
            install: InstallId::generate().unwrap(),
            attempt: AttemptId::generate().unwrap().instance(),
            run: RunId::generate().unwrap(),
            session: SessionId::new("s").unwrap(),
        };
        let map = labels.to_map();
        assert_eq!(Labels::from_map(&map).unwrap(), labels);
        for key in [INSTALL, ATTEMPT, RUN, SESSION] {
            let mut less = map.clone();
            less.remove(key);
            assert_eq!(Labels::from_map(&less).unwrap_err().get("label"), Some(key));
        }
        let mut forged = map;
        forged.insert(ATTEMPT.to_owned(), "../x".to_owned());
        assert_eq!(
            Labels::from_map(&forged).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }
}

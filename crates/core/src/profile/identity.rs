//! Who an agent is and how it is run: the stable profile and the concrete one, and a route that may choose between them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    env::Key,
    error::{Error, ErrorKind},
    id::ProfileName,
    profile::{agent::AgentProfile, directory::ProfileDirectory, variable::Variable},
};

/// What a router decided for one launch.
///
/// * With a concrete profile, that profile owns everything: flags, variables and model of the route are ignored.
/// * Without one, its flags follow the profile's, and its variables and model join the request's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Route {
    /// The concrete profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileName>,
    /// Arguments; each text is split once, when a command is built.
    pub flags: Vec<String>,
    /// Variables.
    pub environment: BTreeMap<Key, Variable>,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl Route {
    /// Returns the route if it may say something about flags, variables and model.
    pub fn overlay(&self) -> Option<&Self> {
        self.profile.is_none().then_some(self)
    }
}

/// The two profiles of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileUse {
    /// Who the agent is, for as long as anybody asks.
    pub agent: ProfileName,
    /// How it is run this time.
    pub execution: ProfileName,
}

impl ProfileUse {
    /// Decides both: a route's profile beats an explicit one, and an explicit one the agent's own.
    pub fn new(agent: ProfileName, execution: Option<ProfileName>, route: Option<&Route>) -> Self {
        let execution = route
            .and_then(|route| route.profile.clone())
            .or(execution)
            .unwrap_or_else(|| agent.clone());
        Self { agent, execution }
    }

    /// Returns the profile to run with: the snapshot, else what the directory knows by the *execution* name.
    ///
    /// # Errors
    ///
    /// * `NotFound`, with the names that are known, when there is no such profile.
    /// * `InvalidInput` when the snapshot is of another profile.
    /// * Those of the directory.
    ///
    /// # Cancel safety
    ///
    /// It holds nothing.
    pub async fn profile(
        &self,
        snapshot: Option<AgentProfile>,
        directory: &dyn ProfileDirectory,
    ) -> Result<AgentProfile, Error> {
        if let Some(snapshot) = snapshot {
            if snapshot.name == self.execution {
                return Ok(snapshot);
            }
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "the profile that was handed in is not the one that the run is to use",
            )
            .with("profile", &snapshot.name)
            .with("execution profile", &self.execution));
        }
        if let Some(profile) = directory.profile(&self.execution).await? {
            return Ok(profile);
        }
        let known = directory.list().await?;
        let known: Vec<_> = known.iter().map(ProfileName::as_str).collect();
        Err(
            Error::new(ErrorKind::NotFound, "there is no such agent profile")
                .with("profile", &self.execution)
                .with("known", known.join(", ")),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::MemoryProfiles;

    fn name(text: &str) -> ProfileName {
        ProfileName::new(text).unwrap()
    }

    #[test]
    fn k15_the_execution_profile_is_the_agent_profile_unless_it_is_said() {
        let alone = ProfileUse::new(name("office-cto"), None, None);
        assert_eq!(alone.execution, name("office-cto"));
        let both = ProfileUse::new(name("office-cto"), Some(name("claude")), None);
        assert_eq!(
            (both.agent, both.execution),
            (name("office-cto"), name("claude"))
        );
    }

    #[test]
    fn k16_a_concrete_route_decides_the_execution_profile_and_never_who_the_agent_is() {
        let route = Route {
            profile: Some(name("codex")),
            ..Route::default()
        };
        let used = ProfileUse::new(name("office-cto"), Some(name("claude")), Some(&route));
        assert_eq!(
            (used.agent, used.execution),
            (name("office-cto"), name("codex"))
        );
        assert!(route.overlay().is_none());
        let open = Route::default();
        let used = ProfileUse::new(name("office-cto"), Some(name("claude")), Some(&open));
        assert_eq!(used.execution, name("claude"));
        assert!(open.overlay().is_some());
    }

    #[tokio::test]
    async fn k14_without_a_snapshot_the_directory_is_asked_for_the_execution_profile() {
        let directory = MemoryProfiles::from_iter([
            AgentProfile::new(name("office-cto"), ["wrong"]),
            AgentProfile::new(name("claude"), ["claude"]),
        ]);
        let used = ProfileUse::new(name("office-cto"), Some(name("claude")), None);
        let found = used.profile(None, &directory).await.unwrap();
        assert_eq!(found.command, ["claude".into()]);
        let snapshot = AgentProfile::new(name("claude"), ["older"]);
        let found = used.profile(Some(snapshot), &directory).await.unwrap();
        assert_eq!(
            found.command,
            ["older".into()],
            "a snapshot is used as it is"
        );
        let other = AgentProfile::new(name("office-cto"), ["x"]);
        let error = used.profile(Some(other), &directory).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }

    #[tokio::test]
    async fn an_unknown_profile_lists_the_known_ones() {
        let directory = MemoryProfiles::from_iter([
            AgentProfile::new(name("b"), ["x"]),
            AgentProfile::new(name("a"), ["x"]),
        ]);
        let used = ProfileUse::new(name("c"), None, None);
        let error = used.profile(None, &directory).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.get("known")),
            (ErrorKind::NotFound, Some("a, b"))
        );
        assert_eq!(error.get("profile"), Some("c"));
    }
}

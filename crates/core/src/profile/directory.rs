//! Where profiles come from.

use std::{collections::BTreeMap, fmt};

use async_trait::async_trait;

use crate::{error::Error, id::ProfileName, profile::agent::AgentProfile};

/// Knows profiles by name.
#[async_trait]
pub trait ProfileDirectory: fmt::Debug + Send + Sync + 'static {
    /// Returns the profile of that name.
    ///
    /// * One that is not there is `None`; one that is there and damaged is an error, and no other is returned for it.
    /// * Repeatable, and without effect.
    async fn profile(&self, name: &ProfileName) -> Result<Option<AgentProfile>, Error>;

    /// Returns the names of all profiles, sorted, damaged ones included.
    async fn list(&self) -> Result<Vec<ProfileName>, Error>;
}

/// Profiles in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryProfiles(BTreeMap<ProfileName, AgentProfile>);

impl MemoryProfiles {
    /// Adds a profile; one of the same name is replaced as a whole.
    pub fn insert(&mut self, profile: AgentProfile) {
        self.0.insert(profile.name.clone(), profile);
    }
}

impl FromIterator<AgentProfile> for MemoryProfiles {
    fn from_iter<T: IntoIterator<Item = AgentProfile>>(profiles: T) -> Self {
        let mut all = Self::default();
        profiles.into_iter().for_each(|profile| all.insert(profile));
        all
    }
}

#[async_trait]
impl ProfileDirectory for MemoryProfiles {
    async fn profile(&self, name: &ProfileName) -> Result<Option<AgentProfile>, Error> {
        Ok(self.0.get(name).cloned())
    }

    async fn list(&self) -> Result<Vec<ProfileName>, Error> {
        Ok(self.0.keys().cloned().collect())
    }
}

//! The user's settings and profiles, each read once, when something first asks for it: most verbs need neither.
//!
//! A file that is wrong stops what needs it and nothing else: `ls`, `stop` and `recover` work beside it.

use std::sync::{Arc, OnceLock};

use groundcrew_core::{
    async_trait,
    error::Error,
    id::ProfileName,
    profile::{AgentProfile, ProfileDirectory},
    secret::{SecretRef, SecretScope, SecretStore, SecretValue},
};
use groundcrew_secrets::{EnvironmentSecrets, HelperConfig, HelperSecrets, SecretChain};

use crate::{config::Config, profiles::Profiles, surroundings::Surroundings};

/// What the user wrote down.
#[derive(Debug)]
pub(crate) struct Settings {
    surroundings: Surroundings,
    config: OnceLock<Config>,
    profiles: OnceLock<Profiles>,
    secrets: OnceLock<SecretChain>,
}

impl Settings {
    /// Makes one; reads nothing yet.
    pub(crate) fn new(surroundings: Surroundings) -> Self {
        Self {
            surroundings,
            config: OnceLock::new(),
            profiles: OnceLock::new(),
            secrets: OnceLock::new(),
        }
    }

    /// Returns what `config.toml` says.
    ///
    /// # Errors
    ///
    /// Those of [`Config::read`].
    pub(crate) fn config(&self) -> Result<&Config, Error> {
        once(&self.config, || Config::read(&self.surroundings))
    }

    /// Returns the profiles.
    ///
    /// # Errors
    ///
    /// Those of [`Profiles::read`].
    pub(crate) fn profiles(&self) -> Result<&Profiles, Error> {
        once(&self.profiles, || Profiles::read(&self.surroundings))
    }

    /// Returns the places of secrets that the settings name: variables of ours, then a helper.
    fn secrets(&self) -> Result<&SecretChain, Error> {
        once(&self.secrets, || {
            let config = self.config()?;
            let mut stores: Vec<Arc<dyn SecretStore>> = Vec::new();
            let variables = || self.surroundings.environment.iter().cloned();
            if !config.secret_variables.is_empty() {
                let table = config.secret_variables.clone();
                let store = EnvironmentSecrets::with_table(table, variables())?;
                stores.push(Arc::new(store));
            }
            if let Some(helper) = &config.secret_helper {
                let helper = HelperSecrets::new(HelperConfig {
                    argv: helper.argv.clone(),
                    environment: variables().collect(),
                    limit: helper.limit,
                })?;
                stores.push(Arc::new(helper));
            }
            Ok(SecretChain::new(stores))
        })
    }
}

/// Returns what is in a cell, made first if it is empty; what fails is tried anew.
fn once<T>(cell: &OnceLock<T>, make: impl FnOnce() -> Result<T, Error>) -> Result<&T, Error> {
    match cell.get() {
        Some(value) => Ok(value),
        None => make().map(|value| cell.get_or_init(|| value)),
    }
}

#[async_trait]
impl SecretStore for Settings {
    async fn reveal(
        &self,
        name: &SecretRef,
        scope: &SecretScope,
    ) -> Result<Option<SecretValue>, Error> {
        self.secrets()?.reveal(name, scope).await
    }
}

#[async_trait]
impl ProfileDirectory for Settings {
    async fn profile(&self, name: &ProfileName) -> Result<Option<AgentProfile>, Error> {
        self.profiles()?.profile(name).await
    }

    async fn list(&self) -> Result<Vec<ProfileName>, Error> {
        self.profiles()?.list().await
    }
}

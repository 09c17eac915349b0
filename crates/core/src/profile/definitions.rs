//! The variables of a profile, as definitions for the composer; nothing is decided and nothing revealed here.

use std::{collections::BTreeSet, path::Path};

use crate::{
    env::{Definition, Key, Tier},
    error::{Error, ErrorKind},
    profile::{
        agent::{AgentProfile, Credential},
        command::{CommandWishes, chosen_model},
        reserved::reserved,
    },
    request::ManagedCache,
    secret::SecretId,
};

/// How strong values are that we add late: model, approval, credentials.
const MANAGED: Tier = Tier::Managed;

/// What variables depend on, besides the profile.
#[derive(Clone, Copy, Debug)]
pub struct DefinitionInputs<'a> {
    /// What was asked for.
    pub wishes: &'a CommandWishes,
    /// Which variables the program is started with and hands on; a default does not replace one.
    pub inherited: &'a BTreeSet<Key>,
    /// Which of the secrets that [`AgentProfile::candidates`] names exist.
    pub known_secrets: &'a BTreeSet<SecretId>,
}

impl AgentProfile {
    /// Returns the secrets that could hold its credentials: whoever calls [`definitions`](Self::definitions) finds out
    /// which exist. A store that cannot say is an error of its own, never "none".
    pub fn candidates(&self) -> Vec<SecretId> {
        let all = self.credentials.iter();
        all.flat_map(Credential::candidates).collect()
    }

    /// Returns the definitions of its variables and of a route's without a concrete profile.
    ///
    /// Reserved variables are not left out: [`check`](Self::check) refuses them, and for a profile that nobody checked the
    /// composer decides.
    ///
    /// # Errors
    ///
    /// All paths that are not absolute.
    pub fn definitions(&self, inputs: DefinitionInputs<'_>) -> Result<Vec<Definition>, Vec<Error>> {
        let DefinitionInputs {
            wishes,
            inherited,
            known_secrets,
        } = inputs;
        let own = format!("profile {}", self.name);
        let mut found = Vec::new();
        found.extend(
            self.environment
                .iter()
                .map(|(key, value)| value.define(key, Tier::Profile, own.clone())),
        );
        let weak = format!("defaults of {own}");
        found.extend(
            self.defaults
                .iter()
                .filter(|(key, _)| !inherited.contains(key))
                .map(|(key, value)| value.define(key, Tier::Fallback, weak.clone())),
        );
        if let Some(route) = wishes.route.as_ref().and_then(|route| route.overlay()) {
            found.extend(
                route
                    .environment
                    .iter()
                    .map(|(key, value)| value.define(key, Tier::Request, "route".to_owned())),
            );
        }
        if let (Some(key), Some(model)) = (&self.model.variable, chosen_model(self, wishes)) {
            found.push(Ok(Definition::literal(
                key.clone(),
                model,
                MANAGED,
                format!("model of {own}"),
            )));
        }
        if let (Some(key), Some(home)) = (&self.home, &wishes.home) {
            found.push(Ok(Definition::literal(
                key.clone(),
                home.clone(),
                MANAGED,
                format!("home of {own}"),
            )));
        }
        if let (Some(approval), true) = (&self.approval, wishes.auto_approve) {
            let origin = format!("approval of {own}");
            found.extend(
                approval
                    .variables
                    .iter()
                    .map(|(key, value)| value.define(key, MANAGED, origin.clone())),
            );
        }
        found.extend(self.credentials.iter().filter_map(|credential| {
            let secret = credential
                .candidates()
                .find(|secret| known_secrets.contains(secret))?;
            let origin = format!("credentials of {own}");
            Some(Ok(Definition::secret(
                credential.variable.clone(),
                secret,
                MANAGED,
                origin,
            )))
        }));
        let (good, bad): (Vec<_>, Vec<_>) = found.into_iter().partition(Result::is_ok);
        if bad.is_empty() {
            Ok(good.into_iter().filter_map(Result::ok).collect())
        } else {
            Err(bad
                .into_iter()
                .filter_map(Result::err)
                .map(|error| error.with("profile", &self.name))
                .collect())
        }
    }

    /// Returns its cache directories below ours; the engine defines their variables, where the instance sees this machine.
    pub fn managed_caches(&self, root: &Path) -> Vec<ManagedCache> {
        let caches = self.caches.iter().map(|cache| ManagedCache {
            variable: cache.variable.clone(),
            directory: root.join(&cache.directory),
        });
        caches.collect()
    }

    /// Returns an error for each credential that the agent needs and nobody defines.
    pub fn missing_credentials(&self, defined: impl Fn(&Key) -> bool) -> Vec<Error> {
        let missing = self
            .credentials
            .iter()
            .filter(|credential| credential.required && !defined(&credential.variable));
        missing
            .map(|credential| {
                let secrets: Vec<_> = credential.secrets.iter().map(ToString::to_string).collect();
                let error = Error::new(
                    ErrorKind::SecretUnavailable,
                    "the agent needs a credential that nobody gives; set the variable or one of the secrets",
                )
                .with("profile", &self.name)
                .with("variable", &credential.variable)
                .with("secrets", secrets.join(", "));
                if credential.hint.is_empty() { error } else { error.with("hint", &credential.hint) }
            })
            .collect()
    }

    /// Returns the variables that the profile may define in any way, with the part of the profile that does.
    pub(super) fn defined(&self) -> Vec<(&'static str, &Key)> {
        let mut all: Vec<(&'static str, &Key)> = Vec::new();
        all.extend(self.environment.keys().map(|key| ("environment", key)));
        all.extend(self.defaults.keys().map(|key| ("defaults", key)));
        all.extend(self.model.variable.iter().map(|key| ("model", key)));
        all.extend(self.home.iter().map(|key| ("home", key)));
        let approval = self.approval.iter();
        all.extend(approval.flat_map(|rule| rule.variables.keys().map(|key| ("approval", key))));
        all.extend(
            self.credentials
                .iter()
                .map(|one| ("credentials", &one.variable)),
        );
        all.extend(self.caches.iter().map(|one| ("caches", &one.variable)));
        all
    }

    /// Returns an error for each variable that no profile may define.
    pub(super) fn reserved_problems(&self) -> Vec<Error> {
        let found = self.defined().into_iter().filter_map(|(part, key)| {
            let why = reserved(key)?;
            Some(
                Error::new(
                    ErrorKind::InvalidInput,
                    format!("a profile must not define {key}: it {why}"),
                )
                .with("variable", key)
                .with("in", part),
            )
        });
        found.collect()
    }
}

#[cfg(test)]
mod tests;

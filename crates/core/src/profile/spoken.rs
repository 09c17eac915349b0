//! How an agent is spoken to in its protocol, beside the interface that it has for people.

use crate::{
    error::{Error, ErrorKind},
    profile::agent::{AgentProfile, ApprovalRule, ModelRule, ResumeRule},
    wire::OsText,
};

impl AgentProfile {
    /// Returns the profile by which the agent is run for a conversation: the same agent with the command that speaks.
    ///
    /// * Its flags, its prompt, its approval and its way to resume are those of its own interface, and are left out: the
    ///   protocol has its own words for them.
    ///
    /// # Errors
    ///
    /// `Unsupported` when the profile says no protocol.
    pub fn spoken(&self) -> Result<Self, Error> {
        let rule = self.session.clone().ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                "the profile does not say how the agent is spoken to; see [session]",
            )
            .with("profile", &self.name)
        })?;
        let mut spoken = self.clone();
        let mut of_profile = self.package.iter().filter(|package| {
            rule.command.first().map(OsText::as_bytes) == Some(package.program.as_bytes())
        });
        spoken.package = rule.package.or_else(|| of_profile.next().cloned());
        spoken.command = rule.command;
        spoken.continue_command = None;
        spoken.flags = Vec::new();
        spoken.model = ModelRule {
            arguments: rule.model,
            variable: self.model.variable.clone(),
            default: self.model.default.clone(),
        };
        spoken.approval = Some(ApprovalRule::default());
        spoken.resume = ResumeRule::default();
        spoken.prompt = None;
        spoken.handshake = rule.handshake;
        spoken.environment.extend(rule.environment);
        spoken.stop = rule.stop.unwrap_or(self.stop);
        Ok(spoken)
    }

    /// Returns what is wrong with the way in which the agent is spoken to.
    pub(super) fn session_problems(&self) -> Vec<Error> {
        let Some(rule) = &self.session else {
            return Vec::new();
        };
        let mut problems = Vec::new();
        if rule.protocol.is_empty() {
            problems.push(Error::new(
                ErrorKind::InvalidInput,
                "a session needs the name of its protocol, such as codex or acp",
            ));
        }
        // What is run is checked as every profile is; it has no session of its own.
        if let Ok(mut spoken) = self.spoken() {
            spoken.session = None;
            if spoken.command.is_empty() {
                problems.push(Error::new(
                    ErrorKind::InvalidInput,
                    "a session needs a command that speaks its protocol",
                ));
            }
            let own = |error: &Error| {
                matches!(
                    error.get("in"),
                    Some("command" | "model.arguments" | "package" | "handshake" | "stop")
                )
            };
            problems.extend(spoken.check().into_iter().filter(own));
        }
        problems
            .into_iter()
            .map(|error| error.with("table", "session"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{id::ProfileName, profile::package::ManagedPackage};

    fn profile(session: &str) -> AgentProfile {
        let mut profile = AgentProfile::new(ProfileName::new("it").unwrap(), ["it"]);
        profile.session = Some(serde_json::from_str(session).unwrap());
        profile.resume.arguments = vec!["--resume={token}".into()];
        profile.package = Some(ManagedPackage {
            name: "it".to_owned(),
            version: "1.2.3".to_owned(),
            program: "it".to_owned(),
            prefer_native: true,
            native: Vec::new(),
        });
        profile
    }

    #[test]
    fn what_speaks_is_the_same_agent_with_another_command() {
        let it = profile(
            r#"{"protocol": "acp", "command": "it --acp", "model": ["-m={model}"],
                "environment": {"LOG": "json"}, "stop": {"grace_seconds": 1}}"#,
        );
        assert_eq!(it.check().len(), 0, "{:?}", it.check());
        let spoken = it.spoken().unwrap();
        assert_eq!(spoken.command, ["it".into(), OsText::from("--acp")]);
        assert_eq!(spoken.package, it.package);
        assert_eq!(spoken.stop.grace_seconds, 1);
        assert_eq!(spoken.environment.len(), 1);
        assert!(spoken.resume.arguments.is_empty() && spoken.prompt.is_none());
        // Another program is none of the package's.
        let other = profile(r#"{"protocol": "acp", "command": "bridge"}"#);
        assert_eq!(other.spoken().unwrap().package, None);
        let mut silent = it;
        silent.session = None;
        let error = silent.spoken().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn what_is_wrong_with_it_is_told_with_its_table() {
        for (session, words) in [
            (
                r#"{"protocol": "", "command": "it"}"#,
                "name of its protocol",
            ),
            (r#"{"protocol": "acp", "command": []}"#, "needs a command"),
            (r#"{"protocol": "acp", "command": "-x"}"#, "option"),
            (
                r#"{"protocol": "acp", "command": "it", "model": ["-m"]}"#,
                "placeholder",
            ),
        ] {
            let problems = profile(session).check();
            assert!(
                problems
                    .iter()
                    .any(|error| error.get("table") == Some("session")
                        && error.to_string().contains(words)),
                "{session}: {problems:?}"
            );
        }
    }
}

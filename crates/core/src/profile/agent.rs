//! The data of a profile; what is made of it stands in the files beside this one.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{
    env::Key,
    error::{Error, ErrorKind},
    handshake::Handshake,
    id::{ExecutorName, ProfileName, TenantId},
    process::{Signal, StopOrder},
    profile::{
        package::ManagedPackage,
        variable::Variable,
        words::{self, Prefix},
    },
    secret::{SecretId, SecretRef, SecretScope},
    wire::OsText,
};

/// How one kind of agent is run.
///
/// Text that is written wrongly is kept as it is; [`AgentProfile::check`] names it, and who builds a command of it is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AgentProfile {
    /// Its name.
    pub name: ProfileName,
    /// What people call the agent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The program and its first arguments; empty where the request names the whole command.
    #[serde(deserialize_with = "words::list_or_line")]
    pub command: Vec<OsText>,
    /// The command of a follow-up, for agents that need another one than [`command`](Self::command).
    #[serde(
        default,
        deserialize_with = "some_list_or_line",
        skip_serializing_if = "Option::is_none"
    )]
    pub continue_command: Option<Vec<OsText>>,
    /// The package that supplies the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<ManagedPackage>,
    /// What every command of the agent is wrapped in: its sandbox.
    #[serde(default, skip_serializing_if = "Prefix::is_empty")]
    pub prefix: Prefix,
    /// Arguments that are switched on and off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<Flag>,
    /// How a model is chosen.
    #[serde(default, skip_serializing_if = "is_default")]
    pub model: ModelRule,
    /// How the agent is told to ask nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalRule>,
    /// How it goes on with an earlier conversation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub resume: ResumeRule,
    /// How it gets its first prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptRule>,
    /// What it must answer before it counts as started, where it speaks a protocol; a program without one runs as it likes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake: Option<Handshake>,
    /// How it is spoken to in its protocol, where it has one beside its own interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionRule>,
    /// The variable that names the directory in which it keeps what it knows, such as its login and its conversations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<Key>,
    /// Variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<Key, Variable>,
    /// Variables that hold where nobody says anything.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub defaults: BTreeMap<Key, Variable>,
    /// What it logs in with, where that is a variable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<Credential>,
    /// Inherited variables that must not reach it; a final `*` stands for any ending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strip: Vec<String>,
    /// Variables that name a cache directory, where we keep one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<CacheRule>,
    /// How it is ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stop: StopRule,
    /// The executor that it runs in and in no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<ExecutorName>,
}

impl AgentProfile {
    /// Makes one of a name and a command; everything else says nothing.
    pub fn new<T: Into<OsText>>(name: ProfileName, command: impl IntoIterator<Item = T>) -> Self {
        Self {
            name,
            title: String::new(),
            description: String::new(),
            command: command.into_iter().map(Into::into).collect(),
            continue_command: None,
            package: None,
            prefix: Prefix::default(),
            flags: Vec::new(),
            model: ModelRule::default(),
            approval: None,
            resume: ResumeRule::default(),
            prompt: None,
            handshake: None,
            session: None,
            home: None,
            environment: BTreeMap::new(),
            defaults: BTreeMap::new(),
            credentials: Vec::new(),
            strip: Vec::new(),
            caches: Vec::new(),
            stop: StopRule::default(),
            executor: None,
        }
    }

    /// Returns whether an inherited variable must not reach the agent.
    pub fn strips(&self, key: &Key) -> bool {
        self.strip
            .iter()
            .any(|pattern| match pattern.strip_suffix('*') {
                Some(start) => key.as_bytes().starts_with(start.as_bytes()),
                None => key.as_bytes() == pattern.as_bytes(),
            })
    }

    /// Decides the executor: the one that the profile demands, else the one that was asked for, if any.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when another one was asked for than the profile demands; isolation is never weakened.
    pub fn executor_for<'a>(
        &'a self,
        asked: Option<&'a ExecutorName>,
    ) -> Result<Option<&'a ExecutorName>, Error> {
        match (&self.executor, asked) {
            (Some(demanded), Some(asked)) if demanded != asked => Err(Error::new(
                ErrorKind::InvalidInput,
                "the profile runs in its own executor and in no other; leave the executor out, or choose another profile",
            )
            .with("profile", &self.name)
            .with("demanded", demanded)
            .with("requested", asked)),
            (Some(demanded), _) => Ok(Some(demanded)),
            (None, asked) => Ok(asked),
        }
    }
}

/// Arguments that are switched on and off; `text` is split once, when a command is built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flag {
    /// One or more arguments.
    pub text: String,
    /// Whether they are used.
    #[serde(default = "yes")]
    pub enabled: bool,
}

impl Flag {
    /// Makes one that is on.
    pub fn on(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            enabled: true,
        }
    }
}

/// How a model is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelRule {
    /// Arguments with `{model}`.
    pub arguments: Vec<OsText>,
    /// The variable that names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<Key>,
    /// The model if none is asked for; without one the agent chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// What is added where the agent is to ask nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalRule {
    /// Arguments.
    pub arguments: Vec<OsText>,
    /// Variables.
    pub variables: BTreeMap<Key, Variable>,
}

/// How an agent goes on with an earlier conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResumeRule {
    /// Whether it can; what is not said is yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supported: Option<bool>,
    /// Arguments with `{token}`; they stand right behind the command, for some agents take them as a verb.
    pub arguments: Vec<OsText>,
}

impl ResumeRule {
    /// Returns whether a conversation of that token is gone on with.
    pub fn takes(&self, token: &str) -> bool {
        !token.is_empty() && self.supported != Some(false) && !self.arguments.is_empty()
    }
}

/// How an agent gets a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PromptRule {
    /// Arguments with `{prompt}`: behind `--`, or in one word with its option, so that no prompt is taken for an option.
    Argument(Vec<OsText>),
    /// On standard input.
    Stdin,
}

/// A variable that an agent logs in with, and the secrets that may hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The variable.
    pub variable: Key,
    /// Names of secrets; the first that exists is used.
    #[serde(default)]
    pub secrets: Vec<SecretRef>,
    /// Whose secrets those are; none is the installation's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Whether the agent is of no use without it; many can log in in another way.
    #[serde(default)]
    pub required: bool,
    /// Where people get one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

impl Credential {
    /// Returns the secrets that may hold it, best first.
    pub fn candidates(&self) -> impl Iterator<Item = SecretId> {
        self.secrets.iter().map(|name| SecretId {
            name: name.clone(),
            scope: SecretScope {
                tenant: self.tenant.clone(),
            },
        })
    }
}

/// A variable that names a cache directory, where we keep one for all runs on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheRule {
    /// The variable, such as `GOCACHE`.
    pub variable: Key,
    /// The name of the directory among ours.
    pub directory: String,
}

/// How an agent is run where it holds a conversation with a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SessionRule {
    /// The protocol that it speaks, such as `codex` or `acp`.
    pub protocol: String,
    /// The program and its first arguments.
    #[serde(deserialize_with = "words::list_or_line")]
    pub command: Vec<OsText>,
    /// The package that supplies the program, where it is another one than the profile's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<ManagedPackage>,
    /// Arguments with `{model}`; without them the protocol says the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub model: Vec<OsText>,
    /// The agent's own names of the ways to log in that need no person, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub login: Vec<String>,
    /// Variables beside those of the profile, such as what it logs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<Key, Variable>,
    /// What it must answer before it counts as started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake: Option<Handshake>,
    /// How it is ended, where that is not as the profile says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopRule>,
}

/// How an agent is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StopRule {
    /// Whether its standard input is closed first.
    pub close_stdin: bool,
    /// The signal that asks for an end, by name.
    #[serde(serialize_with = "signal_name", deserialize_with = "named_signal")]
    pub signal: Signal,
    /// How many seconds it may take before it is killed.
    pub grace_seconds: u32,
}

impl Default for StopRule {
    fn default() -> Self {
        let order = StopOrder::default();
        Self {
            close_stdin: order.close_stdin,
            signal: order.signal,
            grace_seconds: u32::try_from(order.grace.as_secs()).unwrap_or(u32::MAX),
        }
    }
}

impl From<StopRule> for StopOrder {
    fn from(rule: StopRule) -> Self {
        Self {
            close_stdin: rule.close_stdin,
            signal: rule.signal,
            grace: Duration::from_secs(rule.grace_seconds.into()),
        }
    }
}

fn yes() -> bool {
    true
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn some_list_or_line<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<OsText>>, D::Error> {
    words::list_or_line(deserializer).map(Some)
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is the serialiser's"
)]
fn signal_name<S: Serializer>(signal: &Signal, serializer: S) -> Result<S::Ok, S::Error> {
    // A signal without a name is told, and read again, by its number.
    let name = signal.to_string();
    serializer.serialize_str(name.strip_prefix("signal ").unwrap_or(&name))
}

fn named_signal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Signal, D::Error> {
    let name = String::deserialize(deserializer)?;
    name.parse().map_err(|error: Error| D::Error::custom(error))
}

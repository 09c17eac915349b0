//! Secrets that a program reveals: the front of a keychain, a vault, a password manager.
//!
//! * Never a shell, and never a value in an argument.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        process::ExitStatusExt as _,
    },
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use async_trait::async_trait;
use groundcrew_core::{
    error::{Error, ErrorKind},
    redact::Redactor,
    secret::{SecretRef, SecretScope, SecretStore, SecretValue},
};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, Command},
};
use zeroize::Zeroizing;

use crate::{
    value::{self, Ending, ValueBuffer},
    words,
};

/// The exit code by which a helper says that it knows no secret of that name.
pub const NOT_KNOWN: i32 = 3;

const NAME: &[u8] = b"{name}";
const TENANT: &[u8] = b"{tenant}";
/// How much of a helper's words is read, in bytes.
const WORDS: usize = 4096;

/// A program that reveals secrets.
///
/// * In each argument `{name}` stands for the secret's name, and `{tenant}` for the tenant: both begin with a letter or a
///   digit, so neither can become an option.
/// * A helper with `{tenant}` in an argument holds secrets of tenants only; one without holds the installation's only.
///   So no tenant is ever answered with a secret that is not its own. A program that serves both is two helpers.
/// * It is started in `/`, with exactly the given environment, with nothing at its standard input, as the leader of a
///   process group of its own, which is ended when time is up or nobody waits any more.
/// * Exit code 0: standard output is the value, less one newline at its end. Exit code [`NOT_KNOWN`]: it knows no such
///   secret. Anything else is an error; it tells what the helper said on standard error, shortened, and without what looks
///   like a secret; nothing of that if the helper also printed to standard output.
#[derive(Clone)]
pub struct HelperConfig {
    /// The program, by an absolute path, and its arguments.
    pub argv: Vec<OsString>,
    /// All variables that it gets.
    pub environment: Vec<(OsString, OsString)>,
    /// How long it may take.
    pub limit: Duration,
}

impl fmt::Debug for HelperConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.environment.iter().map(|(name, _)| name).collect();
        f.debug_struct("HelperConfig")
            .field("argv", &self.argv)
            .field("environment", &names)
            .field("limit", &self.limit)
            .finish()
    }
}

/// Asks a program for secrets.
///
/// # Cancel safety
///
/// Dropping a question ends the program and everything in its process group.
#[derive(Clone, Debug)]
pub struct HelperSecrets {
    program: PathBuf,
    arguments: Vec<OsString>,
    config: HelperConfig,
    of_tenants: bool,
    /// Hides the helper's own secrets, such as the token by which it opens a vault.
    redactor: Redactor,
}

impl HelperSecrets {
    /// Checks a helper, without starting it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when the program is not an absolute path, an argument or variable cannot be handed over, or no
    /// argument holds `{name}`. `TooLarge` when its variables hold more secrets than can be hidden.
    pub fn new(config: HelperConfig) -> Result<Self, Error> {
        let refuse = |why: &'static str| {
            Err(Error::new(ErrorKind::InvalidInput, why)
                .with("helper", format!("{:?}", config.argv)))
        };
        let Some((program, arguments)) = config.argv.split_first() else {
            return refuse("a secret helper needs a program");
        };
        let nul = |text: &OsString| text.as_bytes().contains(&0);
        let bad_variable =
            |name: &OsString| name.is_empty() || nul(name) || name.as_bytes().contains(&b'=');
        if !Path::new(program).is_absolute() {
            return refuse("a secret helper is named by an absolute path");
        }
        if config.argv.iter().any(nul) {
            return refuse("an argument of a secret helper holds a NUL byte");
        }
        if config
            .environment
            .iter()
            .any(|(name, value)| bad_variable(name) || nul(value))
        {
            return refuse("a variable of a secret helper has no name, or holds '=' or a NUL byte");
        }
        let holds = |what: &[u8]| {
            let within = |word: &OsString| word.as_bytes().windows(what.len()).any(|w| w == what);
            arguments.iter().any(within)
        };
        if !holds(NAME) {
            return refuse("no argument of the secret helper holds {name}");
        }
        let own = config
            .environment
            .iter()
            .filter(|(name, _)| words::tells(&name.to_string_lossy()))
            .map(|(_, value)| SecretValue::new(value.as_bytes()));
        Ok(Self {
            redactor: Redactor::new(own)?,
            program: program.into(),
            arguments: arguments.to_vec(),
            of_tenants: holds(TENANT),
            config,
        })
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that starts a process: fixed directory, exact environment, own group"
    )]
    fn command(&self, name: &SecretRef, scope: &SecretScope) -> Command {
        let tenant = scope.tenant.as_ref().map_or("", |tenant| tenant.as_str());
        let mut command = Command::new(&self.program);
        command
            .args(
                self.arguments
                    .iter()
                    .map(|word| filled(word, name.as_str(), tenant)),
            )
            .current_dir("/")
            .env_clear()
            .envs(self.config.environment.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command
    }

    async fn ask(
        &self,
        name: &SecretRef,
        scope: &SecretScope,
    ) -> Result<Option<SecretValue>, Error> {
        let mut child = self.command(name, scope).spawn().map_err(unstartable)?;
        let mut group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
        let answer = match tokio::time::timeout(self.config.limit, collect(&mut child)).await {
            Ok(answer) => answer?,
            Err(_) => {
                return Err(Error::new(
                    ErrorKind::TimedOut,
                    "a secret helper did not answer in time",
                )
                .with("limit", format!("{:?}", self.config.limit)));
            }
        };
        // It was waited for: its number may be somebody else's from now on.
        group.0 = None;
        answer.read(&self.redactor)
    }
}

#[async_trait]
impl SecretStore for HelperSecrets {
    async fn reveal(
        &self,
        name: &SecretRef,
        scope: &SecretScope,
    ) -> Result<Option<SecretValue>, Error> {
        if self.of_tenants != scope.tenant.is_some() || name.is_runtime() {
            return Ok(None);
        }
        self.ask(name, scope).await.map_err(|error| {
            error
                .with("helper", self.program.display())
                .with("secret", name)
        })
    }
}

/// Puts name and tenant into an argument, in one pass: what was put in is not looked at again.
fn filled(word: &OsStr, name: &str, tenant: &str) -> OsString {
    let mut rest = word.as_bytes();
    let mut filled = Vec::with_capacity(rest.len());
    while let Some((first, behind)) = rest.split_first() {
        let (put, skip) = if rest.starts_with(NAME) {
            (name.as_bytes(), NAME.len())
        } else if rest.starts_with(TENANT) {
            (tenant.as_bytes(), TENANT.len())
        } else {
            filled.push(*first);
            rest = behind;
            continue;
        };
        filled.extend_from_slice(put);
        rest = &rest[skip..];
    }
    OsString::from_vec(filled)
}

fn unstartable(error: std::io::Error) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::NotFound => ErrorKind::ProgramNotFound,
        std::io::ErrorKind::PermissionDenied => ErrorKind::NotExecutable,
        _ => return Error::io("a secret helper cannot be started", error),
    };
    Error::new(kind, "a secret helper cannot be started").with_source(error)
}

/// What a helper printed, and how it ended.
struct Answer {
    value: ValueBuffer,
    words: Zeroizing<Vec<u8>>,
    status: ExitStatus,
}

impl Answer {
    fn read(self, redactor: &Redactor) -> Result<Option<SecretValue>, Error> {
        match self.status.code() {
            Some(0) => self
                .value
                .finish(Ending::DropNewline)
                .map(Some)
                .map_err(|error| {
                    if error.kind() == ErrorKind::InvalidInput {
                        Error::new(ErrorKind::Protocol, "a secret helper printed no value")
                    } else {
                        error
                    }
                }),
            Some(NOT_KNOWN) => Ok(None),
            code => {
                let error = Error::new(ErrorKind::SecretUnavailable, "a secret helper failed");
                let error = match (code, self.status.signal()) {
                    (Some(code), _) => error.with("code", code),
                    (None, signal) => error.with("signal", signal.unwrap_or(0)),
                };
                Err(if !self.value.is_empty() {
                    error.with("words", "withheld, because it also printed a value")
                } else if self.words.is_empty() {
                    error
                } else {
                    error.with_source(words::fit(&redactor.redact(&self.words)))
                })
            }
        }
    }
}

async fn collect(child: &mut Child) -> Result<Answer, Error> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // The leader is not waited for before both are at their end: until then its number cannot be another's.
    let (value, words) = tokio::try_join!(read_value(stdout), read_words(stderr))?;
    let status = child.wait().await.map_err(unreadable)?;
    Ok(Answer {
        value,
        words,
        status,
    })
}

async fn read_value(stream: Option<impl AsyncRead + Unpin>) -> Result<ValueBuffer, Error> {
    let mut value = ValueBuffer::new();
    let Some(mut stream) = stream else {
        return Ok(value);
    };
    let mut buffer = Zeroizing::new([0; 4096]);
    loop {
        match stream.read(&mut *buffer).await.map_err(unreadable)? {
            0 => return Ok(value),
            count => value
                .push(buffer.get(..count).unwrap_or_default())
                .map_err(|_| value::too_large())?,
        }
    }
}

/// Reads to the end, and keeps the beginning.
async fn read_words(stream: Option<impl AsyncRead + Unpin>) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut words = Zeroizing::new(Vec::with_capacity(WORDS));
    let Some(mut stream) = stream else {
        return Ok(words);
    };
    let mut buffer = Zeroizing::new([0; 1024]);
    loop {
        let count = stream.read(&mut *buffer).await.map_err(unreadable)?;
        if count == 0 {
            return Ok(words);
        }
        let room = (WORDS - words.len()).min(count);
        words.extend_from_slice(buffer.get(..room).unwrap_or_default());
    }
}

fn unreadable(error: std::io::Error) -> Error {
    Error::io("failed to hear a secret helper", error)
}

/// The process group of a helper; ended when dropped.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // It may be gone already, which is what is wanted.
            let _gone = kill_process_group(leader, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_put_in_once_and_anywhere() {
        let fill = |word: &str| filled(OsStr::new(word), "a/b", "t1");
        assert_eq!(fill("{name}"), "a/b");
        assert_eq!(fill("op://{tenant}/{name}/x"), "op://t1/a/b/x");
        assert_eq!(fill("{{name}}{nam}{"), "{a/b}{nam}{");
        assert_eq!(filled(OsStr::new("{name}"), "{tenant}", "t"), "{tenant}");
    }
}

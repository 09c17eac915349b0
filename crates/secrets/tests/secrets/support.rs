//! Stores to ask, names to ask for, and processes that write.

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use groundcrew_core::{
    error::{Chain, Error, ErrorKind, ErrorReport},
    id::TenantId,
    secret::{SecretId, SecretRef, SecretScope, SecretStore, SecretValue},
};
use groundcrew_secrets::{SealedConfig, SealedSecrets};

/// A name.
pub(crate) fn name(text: &str) -> SecretRef {
    SecretRef::new(text).unwrap()
}

/// A tenant's scope.
pub(crate) fn scope(tenant: &str) -> SecretScope {
    SecretScope {
        tenant: Some(TenantId::new(tenant).unwrap()),
    }
}

/// A secret of the installation, or of a tenant as `name@tenant`.
pub(crate) fn id(text: &str) -> SecretId {
    match text.split_once('@') {
        Some((text, tenant)) => SecretId::of_tenant(name(text), TenantId::new(tenant).unwrap()),
        None => name(text).into(),
    }
}

/// A store in a directory of its own that is there already.
pub(crate) struct Home {
    root: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.root.path().join("secrets")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }

    pub(crate) fn store(&self) -> SealedSecrets {
        SealedSecrets::open(SealedConfig::new(self.directory())).unwrap()
    }

    /// The bytes of every file, by name, sorted.
    pub(crate) fn files(&self) -> Vec<(String, Vec<u8>)> {
        let mut files: Vec<_> = std::fs::read_dir(self.directory())
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let bytes = std::fs::read(entry.path()).unwrap_or_default();
                (entry.file_name().into_string().unwrap(), bytes)
            })
            .collect();
        files.sort();
        files
    }
}

/// Sets the mode of a file.
pub(crate) fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Asks a store; an answer is given as text.
pub(crate) async fn ask(store: &dyn SecretStore, id: &SecretId) -> Result<Option<String>, Error> {
    let found = store.reveal(&id.name, &id.scope).await?;
    Ok(found.map(|value| String::from_utf8_lossy(value.expose()).into_owned()))
}

/// Asks a store for what must be there.
pub(crate) async fn shown(store: &dyn SecretStore, text: &str) -> String {
    ask(store, &id(text)).await.unwrap().expect(text)
}

/// Asks a store for what must fail.
pub(crate) async fn fails(store: &dyn SecretStore, text: &str) -> ErrorKind {
    ask(store, &id(text)).await.unwrap_err().kind()
}

/// Stores a value.
pub(crate) async fn set(store: &SealedSecrets, text: &str, value: &str) {
    store.set(&id(text), SecretValue::new(value)).await.unwrap();
}

/// Everything that an error can show.
pub(crate) fn told(error: &Error) -> String {
    let report = ErrorReport::from(error);
    format!("{error} {error:?} {} {report:?}", Chain(error))
}

/// Plain, base64, hexadecimal and percent forms of a value, in which it would be found again.
pub(crate) fn forms(value: &[u8]) -> Vec<Vec<u8>> {
    let hex = |upper: bool| {
        value.iter().fold(String::new(), |mut text, byte| {
            if upper {
                write!(text, "{byte:02X}").unwrap();
            } else {
                write!(text, "{byte:02x}").unwrap();
            }
            text
        })
    };
    let percent = value.iter().fold(String::new(), |mut text, byte| {
        write!(text, "%{byte:02X}").unwrap();
        text
    });
    let mut forms = vec![value.to_vec()];
    forms.extend([hex(false), hex(true), percent].map(String::into_bytes));
    // Base64 looks different for each of the three places in a group where a value may begin; its inner part is the same.
    for skip in 0..3 {
        let whole = &value[skip..][..(value.len() - skip) / 3 * 3];
        forms.push(base64(whole).into_bytes());
    }
    forms
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks_exact(3) {
        let bits = u32::from(group[0]) << 16 | u32::from(group[1]) << 8 | u32::from(group[2]);
        for shift in [18, 12, 6, 0] {
            text.push(char::from(DIGITS[(bits >> shift & 63) as usize]));
        }
    }
    text
}

/// Demands that a value is in none of its forms in some bytes.
#[track_caller]
pub(crate) fn hidden(value: &str, bytes: &[u8], place: &str) {
    for form in forms(value.as_bytes()) {
        let found = bytes.windows(form.len()).any(|window| window == form);
        assert!(!found, "{place} holds {:?}", String::from_utf8_lossy(&form));
    }
}

/// A store that hands out what a test says.
#[derive(Debug)]
pub(crate) struct Fixed(pub(crate) fn() -> Result<Option<SecretValue>, Error>);

#[groundcrew_core::async_trait]
impl SecretStore for Fixed {
    async fn reveal(&self, _: &SecretRef, _: &SecretScope) -> Result<Option<SecretValue>, Error> {
        (self.0)()
    }
}

pub(crate) fn fixed(answer: fn() -> Result<Option<SecretValue>, Error>) -> Arc<dyn SecretStore> {
    Arc::new(Fixed(answer))
}

/// A process of a test; killed if the test ends first.
pub(crate) struct Worker {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

/// Starts this program again, in one of the roles that `processes` knows.
pub(crate) fn spawn(role: &str, directory: &Path, tag: &str, user: Option<u32>) -> Worker {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where these tests start workers"
    )]
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "processes::worker", "--nocapture"])
        .arg(format!("role={role}"))
        .arg(format!("directory={}", directory.display()))
        .arg(format!("tag={tag}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(user) = user {
        std::os::unix::process::CommandExt::uid(&mut command, user);
        command.current_dir("/");
    }
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    Worker { child, lines }
}

impl Worker {
    /// Waits for the next line that a worker says on purpose.
    pub(crate) fn say(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // The test runner may have begun the line; a killed worker may not have ended it.
            if let (Some(at), true) = (line.find("@@"), line.ends_with('\n')) {
                return Some(line[at + 2..].trim_end().to_owned());
            }
        }
    }

    /// Kills it, and returns what it said until then.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        let said = std::iter::from_fn(|| self.say()).collect();
        self.child.wait().unwrap();
        said
    }

    /// Waits for its end by a signal of its own; returns what it said.
    pub(crate) fn dies(mut self) -> Vec<String> {
        let said = std::iter::from_fn(|| self.say()).collect();
        let status = self.child.wait().unwrap();
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(signal, Some(9), "{status}: {said:?}");
        said
    }

    /// Waits for its end, which must be a good one; returns what it said.
    pub(crate) fn finish(mut self) -> Vec<String> {
        let said: Vec<String> = std::iter::from_fn(|| self.say()).collect();
        let status = self.child.wait().unwrap();
        if !status.success() {
            let mut text = String::new();
            let mut errors = self.child.stderr.take().unwrap();
            std::io::Read::read_to_string(&mut errors, &mut text).unwrap();
            panic!("{status}: {said:?}\n{text}");
        }
        said
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _dead = self.child.kill();
        let _reaped = self.child.wait();
    }
}

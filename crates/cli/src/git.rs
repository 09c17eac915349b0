//! Asks the git program who it is; nothing else here runs git.

use std::process::Stdio;

use groundcrew_core::error::{Error, ErrorKind};
use tokio::process::Command;

use crate::surroundings::Surroundings;

/// The oldest git that makes worktrees as we need them.
const OLDEST: (u32, u32) = (2, 39);

/// Returns the version of the git program, as a fact for people.
///
/// # Errors
///
/// `ProgramNotFound` when there is none, `Unsupported` when it is too old.
pub(crate) async fn version(surroundings: &Surroundings) -> Result<Vec<(String, String)>, Error> {
    let output = command(surroundings).output().await.map_err(|e| {
        Error::new(
            ErrorKind::ProgramNotFound,
            "git cannot be run; install it, or put it on PATH",
        )
        .with_source(e)
    })?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match parse(&text) {
        Some(version) if version >= OLDEST => Ok(vec![("version".to_owned(), text)]),
        Some(_) => Err(Error::new(
            ErrorKind::Unsupported,
            "git is too old; install 2.39 or later",
        )
        .with("version", text)),
        None => Err(
            Error::new(ErrorKind::Protocol, "git does not say its version").with("answer", text),
        ),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place of this crate that starts a program"
)]
fn command(surroundings: &Surroundings) -> Command {
    let mut command = Command::new("git");
    command
        .arg("--version")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    if let Some(path) = surroundings.variable("PATH") {
        command.env("PATH", path);
    }
    command
}

/// Reads `git version 2.39.5 (…)`.
fn parse(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("git version ")?.split(['.', ' ', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_git_writes_them() {
        assert_eq!(parse("git version 2.39.5"), Some((2, 39)));
        assert_eq!(parse("git version 2.50.1 (Apple Git-155)"), Some((2, 50)));
        assert_eq!(parse("git version 3.0-rc1"), Some((3, 0)));
        assert_eq!(parse("hub"), None);
        assert!((2, 38) < OLDEST && (3, 0) > OLDEST);
    }
}

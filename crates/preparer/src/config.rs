//! What the program that uses this crate decides: directories, the git program, the user's git configuration.

use std::{ffi::OsString, path::PathBuf};

use groundcrew_core::id::InstallId;

/// Which git program is run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GitProgram {
    /// This one, an absolute path.
    Path(PathBuf),
    /// The first `git` in these directories, written like the value of `PATH`.
    Search(OsString),
}

/// The user's own git configuration files, from the weakest to the strongest; read, never executed.
///
/// They tell how line ends are written and who the user is. Files that do not exist are fine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserGitConfig {
    /// The machine's, such as `/etc/gitconfig`.
    pub system: Option<PathBuf>,
    /// The one below `$XDG_CONFIG_HOME`, such as `~/.config/git/config`.
    pub xdg: Option<PathBuf>,
    /// The one in the home directory, such as `~/.gitconfig`.
    pub global: Option<PathBuf>,
}

/// What the user has for reaching remotes; used for fetching a start point, and for nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transport {
    /// Variables such as `HOME`, `SSH_AUTH_SOCK` and those of proxies; none of git's own.
    pub variables: Vec<(OsString, OsString)>,
}

/// Where worktrees and private clones are made, and with what.
#[derive(Clone, Debug)]
pub struct WorktreeConfig {
    /// The directory of all task directories; made with mode 0700 when it is missing.
    pub worktrees: PathBuf,
    /// Where removed trees go first; on the same filesystem as `worktrees`.
    pub trash: PathBuf,
    /// The directory of lock files; those of repositories are in `repository` below it.
    pub locks: PathBuf,
    /// The installation: the mark on what is made.
    pub install: InstallId,
    /// The git program.
    pub git: GitProgram,
    /// The user's git configuration.
    pub user: UserGitConfig,
    /// How branches are named if a request does not say; `groundcrew/{title}-{suffix}` if nothing is said here either.
    pub template: Option<String>,
    /// How remotes are reached.
    pub transport: Transport,
    /// Whether commands do not see the user's configuration, as in a container: who commits is then told in variables.
    pub separate: bool,
}

/// Where directories of tasks are made.
#[derive(Clone, Debug)]
pub struct ScratchConfig {
    /// The directory of all tenants' directories; made with mode 0700 when it is missing.
    pub tasks: PathBuf,
    /// Where removed directories go first; on the same filesystem as `tasks`.
    pub trash: PathBuf,
    /// The installation: the mark on what is made.
    pub install: InstallId,
    /// The user's git configuration.
    pub user: UserGitConfig,
}

/// Where directories of sessions are made.
#[derive(Clone, Debug)]
pub struct EphemeralConfig {
    /// The directory of all sessions' directories; made with mode 0700 when it is missing.
    pub sessions: PathBuf,
    /// Where removed directories go first; on the same filesystem as `sessions`.
    pub trash: PathBuf,
    /// The installation: the mark on what is made.
    pub install: InstallId,
    /// The user's git configuration.
    pub user: UserGitConfig,
}

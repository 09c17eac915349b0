//! A git repository of a test, made and looked at with plain git.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The permissions and the content of each file; a link's content is its target.
pub(crate) type Tree = BTreeMap<PathBuf, (u32, Vec<u8>)>;

/// A repository.
#[derive(Clone, Debug)]
pub(crate) struct Repository {
    path: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

impl Repository {
    /// Names a directory that is, or will be, a repository.
    pub(super) fn at(mut environment: Vec<(OsString, OsString)>, path: &Path) -> Self {
        for (name, value) in [
            ("GIT_AUTHOR_NAME", "tester"),
            ("GIT_AUTHOR_EMAIL", "tester@example.invalid"),
            ("GIT_COMMITTER_NAME", "tester"),
            ("GIT_COMMITTER_EMAIL", "tester@example.invalid"),
            // Looking must not write the index.
            ("GIT_OPTIONAL_LOCKS", "0"),
        ] {
            environment.push((name.into(), value.into()));
        }
        Self {
            path: path.to_owned(),
            environment,
        }
    }

    /// Makes it, without a commit.
    pub(super) fn init(&self) {
        fs::create_dir_all(&self.path).unwrap();
        self.git(["init", "-q", "-b", "main"]);
    }

    /// Returns where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its git directory.
    pub(crate) fn git_dir(&self) -> PathBuf {
        let inner = self.path.join(".git");
        if inner.is_dir() {
            inner
        } else {
            self.path.clone()
        }
    }

    /// Runs git in it, which must succeed; returns what it printed, without the last line end.
    #[track_caller]
    pub(crate) fn git<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> String {
        let output = self.try_git(words);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    /// Runs git in it.
    pub(crate) fn try_git<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Output {
        self.try_git_in(&self.path, words)
    }

    /// Runs git in another directory, which must succeed.
    #[track_caller]
    pub(crate) fn git_in<S: AsRef<OsStr>>(
        &self,
        directory: &Path,
        words: impl IntoIterator<Item = S>,
    ) -> String {
        let output = self.try_git_in(directory, words);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    fn try_git_in<S: AsRef<OsStr>>(
        &self,
        directory: &Path,
        words: impl IntoIterator<Item = S>,
    ) -> Output {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that starts git for a test; cwd and environment are set"
        )]
        let mut command = Command::new("git");
        command
            .args(words)
            .current_dir(directory)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .output()
            .unwrap()
    }

    /// Writes a file in the work tree.
    pub(crate) fn write(&self, name: impl AsRef<OsStr>, text: &str) {
        let path = self.path.join(name.as_ref());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Commits everything in the work tree and returns the commit.
    pub(crate) fn commit_all(&self, message: &str) -> String {
        self.git(["add", "-A"]);
        self.git(["commit", "-q", "--allow-empty", "-m", message]);
        self.commit("HEAD")
    }

    /// Returns the commit that something names.
    #[track_caller]
    pub(crate) fn commit(&self, name: &str) -> String {
        self.git(["rev-parse", "--verify", &format!("{name}^{{commit}}")])
    }

    /// Returns every ref with what it points to.
    pub(crate) fn refs(&self) -> Vec<String> {
        let format = "--format=%(refname) %(objectname)";
        self.git(["for-each-ref", format])
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// Returns the local branches.
    pub(crate) fn branches(&self) -> Vec<String> {
        self.git(["for-each-ref", "--format=%(refname:short)", "refs/heads"])
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// Returns the raw entries of linked work trees, which are there even when git cannot list them.
    pub(crate) fn worktree_entries(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.git_dir().join("worktrees")) else {
            return Vec::new();
        };
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().display().to_string())
            .collect();
        names.sort();
        names
    }

    /// Returns lock files in the git directory.
    pub(crate) fn locks(&self) -> Vec<PathBuf> {
        let all = tree(&self.git_dir(), &|_| true);
        all.into_keys()
            .filter(|path| path.extension().is_some_and(|end| end == "lock"))
            .collect()
    }

    /// Reads everything that belongs to the user: work tree, index, configuration, hooks and refs, ours and objects aside.
    pub(crate) fn fingerprint(&self) -> Tree {
        let git = self.git_dir();
        let git = git.strip_prefix(&self.path).unwrap().to_owned();
        let ours = [
            "objects",
            "worktrees",
            "refs/heads/groundcrew",
            "refs/groundcrew",
            "logs/refs/heads/groundcrew",
            "logs/refs/groundcrew",
        ];
        let ours = ours.map(|name| git.join(name));
        tree(&self.path, &|path| !ours.iter().any(|our| our == path))
    }
}

/// Reads all files below a directory, by their path in it; `wanted` is asked for each path, directories included.
pub(crate) fn tree(root: &Path, wanted: &dyn Fn(&Path) -> bool) -> Tree {
    let mut files = Tree::new();
    let mut open = vec![PathBuf::new()];
    while let Some(directory) = open.pop() {
        let Ok(entries) = fs::read_dir(root.join(&directory)) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = directory.join(entry.file_name());
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if !wanted(&path) {
                continue;
            }
            if metadata.is_dir() {
                open.push(path);
            } else if metadata.is_symlink() {
                let target = fs::read_link(entry.path()).unwrap_or_default();
                files.insert(
                    path,
                    (metadata.mode(), target.as_os_str().as_bytes().to_vec()),
                );
            } else if metadata.is_file() {
                let content = fs::read(entry.path()).unwrap_or_default();
                files.insert(path, (metadata.mode(), content));
            }
        }
    }
    files
}

//! The real agents that the tests named `needs_agents` run, from npm, in a cache outside the checkout.
//!
//! The lock file of the repository says which, to the last byte; what is in the cache under its name is whole. Scripts of the
//! packages are never run.

use std::fs::{self, File};
use std::hash::Hasher as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use fnv::FnvHasher;

use crate::console;
use crate::process::{self, Cmd};

const PACKAGE: &str = include_str!("../../agents/package.json");
const LOCK: &str = include_str!("../../agents/package-lock.json");

/// Where Codex is, below `node_modules`.
pub(crate) const CODEX: &str = "codex-native/vendor/x86_64-unknown-linux-musl/bin/codex";

/// What must be there, below `node_modules`.
const PROGRAMS: [&str; 4] = [
    CODEX,
    "opencode-linux-x64/bin/opencode",
    "@zed-industries/codex-acp-linux-x64/bin/codex-acp",
    "@google/gemini-cli/bundle/gemini.js",
];

/// The oldest Node that they run on.
const OLDEST_NODE: u32 = 20;

/// What has begun and is not whole has this in its name.
const PART: &str = "part-";

/// What the tests are told of them.
pub(super) const VARIABLE: &str = "GROUNDCREW_TEST_AGENTS";

/// Says what is missing to get and to run them.
pub(super) fn lacks() -> Option<String> {
    if std::env::consts::ARCH != "x86_64" {
        return Some("the agents under test are programs for x86-64".to_owned());
    }
    if let Some(program) = ["node", "npm"]
        .into_iter()
        .find(|program| !process::is_installed(program))
    {
        return Some(format!("there is no `{program}`"));
    }
    let said = match Cmd::new("node").arg("--version").read() {
        Ok(said) => String::from_utf8_lossy(&said).trim().to_owned(),
        Err(error) => return Some(format!("{error:#}")),
    };
    match node_version(&said) {
        Some(version) if version >= OLDEST_NODE => None,
        _ => Some(format!(
            "node {OLDEST_NODE} or newer is needed, not `{said}`"
        )),
    }
}

/// Names the `node_modules` that somebody put Claude's bridge and its program into.
const CLAUDE: &str = "GROUNDCREW_TEST_CLAUDE";

/// What is put there; the program itself is not free, and not in the lock file.
const CLAUDE_PACKAGES: [&str; 2] = [
    "@agentclientprotocol/claude-agent-acp",
    "@anthropic-ai/claude-agent-sdk-linux-x64",
];

/// Says what is missing to run Claude's bridge.
pub(super) fn lacks_claude() -> Option<String> {
    let advice = format!(
        "its program is under the terms of its maker; to agree to them, install {} in a directory, and name its `node_modules` in {CLAUDE}",
        CLAUDE_PACKAGES.join(" and "),
    );
    let Some(modules) = process::variable(CLAUDE).map(PathBuf::from) else {
        return Some(advice);
    };
    let absent = CLAUDE_PACKAGES
        .iter()
        .any(|package| !modules.join(package).is_dir());
    absent.then_some(advice)
}

/// Gets them, unless the cache has them.
///
/// # Errors
///
/// Fails when they cannot be had, or are not what the lock file says; the cache holds nothing in their place then.
pub(super) fn fetch() -> Result<()> {
    fetch_into(&cache(), "npm".as_ref())
}

/// Returns where they are, or will be.
pub(crate) fn directory() -> PathBuf {
    whole(&cache()).join("node_modules")
}

fn cache() -> PathBuf {
    let below = |name: &str| process::variable(name).map(PathBuf::from);
    let base = below("XDG_CACHE_HOME")
        .or_else(|| below("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(std::env::temp_dir);
    base.join("groundcrew-tests").join("agents")
}

/// Names the place of exactly these packages.
fn whole(cache: &Path) -> PathBuf {
    // One that is the same with every compiler.
    let mut hash = FnvHasher::default();
    hash.write(LOCK.as_bytes());
    cache.join(format!("{:016x}", hash.finish()))
}

fn fetch_into(cache: &Path, npm: &Path) -> Result<()> {
    let whole = whole(cache);
    if whole.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let lock = File::create(cache.join("lock")).context("cannot make the lock of the cache")?;
    // Several runs at once fetch one after the other, and all but the first find it done.
    lock.lock().context("cannot lock the cache")?;
    if whole.is_dir() {
        return Ok(());
    }
    remove_parts(cache)?;
    console::remark("fetching the agents under test (about 300 MB, 1 GB on disk)");
    let part = tempfile::Builder::new()
        .prefix(PART)
        .tempdir_in(cache)
        .context("cannot make a directory in the cache")?;
    let at = part.path();
    fs::write(at.join("package.json"), PACKAGE).context("cannot write into the cache")?;
    fs::write(at.join("package-lock.json"), LOCK).context("cannot write into the cache")?;
    // `ci` takes what the lock file says and nothing else, and compares the digest of each package.
    Cmd::new(npm)
        .args(["ci", "--ignore-scripts", "--omit=optional", "--no-audit"])
        .args(["--no-fund", "--no-update-notifier", "--loglevel=error"])
        .directory(at)
        .check()?;
    for program in PROGRAMS {
        let path = at.join("node_modules").join(program);
        ensure!(path.is_file(), "the packages hold no {program}");
    }
    let opened = File::open(at).context("cannot open the cache")?;
    rustix::fs::syncfs(&opened).context("cannot write the cache to disk")?;
    let kept = part.keep();
    if let Err(error) = fs::rename(&kept, &whole) {
        drop(fs::remove_dir_all(&kept));
        bail!("cannot name {}: {error}", whole.display());
    }
    Ok(())
}

/// Takes away what died in the middle; the lock is held, so that nobody is at work on it.
fn remove_parts(cache: &Path) -> Result<()> {
    let entries = fs::read_dir(cache).context("cannot read the cache")?;
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PART) {
            let path = entry.path();
            fs::remove_dir_all(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

fn node_version(said: &str) -> Option<u32> {
    said.strip_prefix('v')?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::thread;

    use super::*;

    /// Writes a program that stands for npm: it notes each call beside itself, then does this.
    fn npm(place: &Path, body: &str) -> PathBuf {
        let path = place.join("npm");
        let text = format!(
            "#!/bin/sh\necho call >> {}/calls\n{body}\n",
            place.display()
        );
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn making(programs: &[&str]) -> String {
        let each = programs.iter().map(|program| {
            format!("mkdir -p $(dirname node_modules/{program}); echo x > node_modules/{program}\n")
        });
        each.collect()
    }

    fn calls(place: &Path) -> usize {
        fs::read_to_string(place.join("calls")).map_or(0, |text| text.lines().count())
    }

    #[test]
    fn what_is_not_whole_is_never_taken_for_whole() {
        let place = tempfile::tempdir().unwrap();
        let cache = place.path().join("cache");
        let fails = npm(place.path(), &format!("{}exit 1", making(&PROGRAMS)));
        assert!(fetch_into(&cache, &fails).is_err());
        let lacks_one = npm(place.path(), &making(&PROGRAMS[1..]));
        let error = fetch_into(&cache, &lacks_one).unwrap_err().to_string();
        assert!(error.contains("codex-native"), "{error}");
        assert!(!whole(&cache).exists());
        // What a killed run left is taken away by the next.
        fs::create_dir_all(cache.join("part-of-a-dead-run/node_modules")).unwrap();
        let works = npm(place.path(), &making(&PROGRAMS));
        fetch_into(&cache, &works).unwrap();
        assert_eq!(calls(place.path()), 3);
        let mut left: Vec<_> = fs::read_dir(&cache)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let name = whole(&cache)
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        assert_eq!(left, [name, "lock".to_owned()]);
    }

    #[test]
    fn runs_at_the_same_time_fetch_once() {
        let place = tempfile::tempdir().unwrap();
        let cache = place.path().join("cache");
        let works = npm(place.path(), &making(&PROGRAMS));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| fetch_into(&cache, &works).unwrap());
            }
        });
        assert_eq!(calls(place.path()), 1);
    }

    #[test]
    fn versions_of_node_are_compared_as_numbers() {
        assert_eq!(node_version("v20.20.2"), Some(20));
        assert_eq!(node_version("v8.1"), Some(8));
        assert_eq!(node_version("20"), None);
    }

    #[test]
    fn the_lock_file_holds_a_digest_of_every_package() {
        let lock: serde_json::Value = serde_json::from_str(LOCK).unwrap();
        let packages = lock["packages"].as_object().unwrap();
        for (name, package) in packages.iter().filter(|(name, _)| !name.is_empty()) {
            let digest = package["integrity"].as_str().unwrap_or_default();
            assert!(digest.starts_with("sha512-"), "{name}");
        }
        assert!(packages.len() > PROGRAMS.len());
    }
}

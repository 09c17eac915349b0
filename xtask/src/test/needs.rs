//! What the tests need of the machine, in one table.
//!
//! A test that needs a program which a machine may lack says so in its name: `needs_tmux`. Without the program such tests
//! are skipped, loudly; nothing else is ever skipped.

use anyhow::{Result, bail};

use crate::console;
use crate::process::{self, Cmd};

use super::agents;

/// The oldest git that the tests are made for.
const OLDEST_GIT: (u32, u32) = (2, 39);

/// The need for which an engine is kept.
pub(super) const ENGINE: &str = "docker";

/// A program, where Debian has it, and who needs it.
#[derive(Debug)]
pub(super) struct Need {
    pub(super) name: &'static str,
    /// Debian packages that bring it.
    packages: &'static [&'static str],
    /// Whether nothing works without it.
    always: bool,
    /// A package, or one test binary as nextest names it, all of whose tests need it, if there is one.
    whole: Option<&'static str>,
    /// Says what is wrong with what the machine has.
    lacks: fn() -> Option<String>,
    /// Gets what no package of Debian's brings, once nothing lacks.
    fetch: fn() -> Result<()>,
}

const NEEDS: [Need; 10] = [
    Need {
        name: "git",
        packages: &["git"],
        always: true,
        whole: None,
        lacks: lacks_git,
        fetch: nothing,
    },
    Need {
        name: "cc",
        packages: &["gcc", "libc6-dev"],
        always: true,
        whole: None,
        lacks: || lacks_program("cc"),
        fetch: nothing,
    },
    Need {
        name: "tmux",
        packages: &["tmux"],
        always: false,
        whole: None,
        lacks: || lacks_program("tmux"),
        fetch: nothing,
    },
    Need {
        name: "strace",
        packages: &["strace"],
        always: false,
        whole: None,
        lacks: || lacks_program("strace"),
        fetch: nothing,
    },
    Need {
        name: "git_lfs",
        packages: &["git-lfs"],
        always: false,
        whole: None,
        lacks: || lacks_program("git-lfs"),
        fetch: nothing,
    },
    // An engine of our own is started for these; see `engine`.
    Need {
        name: ENGINE,
        packages: &["docker.io", "iptables", "busybox-static"],
        always: false,
        whole: Some("groundcrew-executor-docker::conformance"),
        lacks: lacks_docker,
        fetch: nothing,
    },
    Need {
        name: "agents",
        packages: &["nodejs", "npm"],
        always: false,
        whole: None,
        lacks: agents::lacks,
        fetch: agents::fetch,
    },
    // Nobody is made to agree to the terms of its maker: it is run where somebody put it.
    Need {
        name: "claude",
        packages: &["nodejs", "npm"],
        always: false,
        whole: None,
        lacks: agents::lacks_claude,
        fetch: nothing,
    },
    Need {
        name: "bwrap",
        packages: &["bubblewrap"],
        always: false,
        whole: Some("example-executor-bwrap"),
        lacks: || lacks_program("bwrap"),
        fetch: nothing,
    },
    Need {
        name: "python3",
        packages: &["python3"],
        always: false,
        whole: Some("groundcrew-executor-exec"),
        lacks: || lacks_program("python3"),
        fetch: nothing,
    },
];

impl Need {
    /// Returns what the name of a test that needs it contains.
    pub(super) fn marker(&self) -> String {
        format!("needs_{}", self.name)
    }

    /// Returns what nextest does not run for want of it.
    pub(super) fn expression(&self) -> String {
        match self.whole {
            Some(whole) => {
                let set = if whole.contains("::") {
                    "binary_id"
                } else {
                    "package"
                };
                format!("(test(/{}/) | {set}(={whole}))", self.marker())
            }
            None => format!("test(/{}/)", self.marker()),
        }
    }

    /// Returns the package that plain `cargo test` leaves out for want of it: it knows no smaller piece.
    pub(super) fn package(&self) -> Option<&'static str> {
        self.whole?.split("::").next()
    }

    /// Says which tests need it.
    pub(super) fn dependents(&self) -> String {
        match self.whole {
            Some(whole) => format!("all of {whole} and every test named {}", self.marker()),
            None => format!("every test named {}", self.marker()),
        }
    }

    /// Whether any of these tests needs it.
    fn is_needed(&self, tests: &[String]) -> bool {
        let of_whole = |test: &String| {
            let binary = test.split(' ').next().unwrap_or(test);
            self.whole.is_some_and(|whole| {
                let rest = binary.strip_prefix(whole);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
            })
        };
        tests
            .iter()
            .any(|test| test.contains(&self.marker()) || of_whole(test))
    }
}

/// The one that nobody is made to have: it is under terms that somebody has to agree to.
const BY_CHOICE: &str = "claude";

/// Lists what a run of everything requires.
pub(super) fn of_all() -> Vec<String> {
    let mut all = names();
    all.retain(|name| name != BY_CHOICE);
    all
}

/// Lists the names for `--require`.
pub(super) fn names() -> Vec<String> {
    NEEDS.iter().map(|need| need.name.to_owned()).collect()
}

/// Refuses names that are not in the table.
///
/// # Errors
///
/// Fails on the first unknown name, and lists the known ones.
pub(super) fn check_names(require: &[String]) -> Result<()> {
    for name in require {
        if !NEEDS.iter().any(|need| need.name == name) {
            bail!(
                "unknown requirement `{name}`; known are {}",
                names().join(", ")
            );
        }
    }
    Ok(())
}

/// Makes sure of what everything needs, before anything is built.
///
/// # Errors
///
/// Fails when it is missing and cannot be installed.
pub(super) fn settle_always() -> Result<()> {
    for need in NEEDS.iter().filter(|need| need.always) {
        if let Some(why) = provide(need) {
            bail!("{why}; install {}", need.packages.join(" "));
        }
    }
    Ok(())
}

/// Makes sure of what some of these tests need; returns what is still lacking.
///
/// # Errors
///
/// Fails when something lacking is required.
pub(super) fn settle(tests: &[String], require: &[String]) -> Result<Vec<&'static Need>> {
    let mut lacking = Vec::new();
    let needed = NEEDS.iter().filter(|need| !need.always);
    for need in needed.filter(|need| need.is_needed(tests)) {
        let Some(why) = provide(need) else { continue };
        let advice = format!("{why}; install {}", need.packages.join(" "));
        if require.iter().any(|name| name == need.name) {
            bail!("{advice}");
        }
        console::remark(format!("SKIPPING {}: {advice}", need.dependents()));
        lacking.push(need);
    }
    Ok(lacking)
}

/// Whether any of these tests needs the engine that is kept for them.
pub(super) fn an_engine_is_needed(tests: &[String]) -> bool {
    let docker = NEEDS.iter().find(|need| need.name == ENGINE);
    docker.is_some_and(|need| need.is_needed(tests))
}

/// Installs and fetches what is lacking where that is possible; says what still is.
fn provide(need: &Need) -> Option<String> {
    install(need).or_else(|| {
        let fetched = (need.fetch)();
        fetched.err().map(|error| format!("{error:#}"))
    })
}

#[expect(clippy::unnecessary_wraps, reason = "the signature is the table's")]
fn nothing() -> Result<()> {
    Ok(())
}

/// Installs what is lacking where that is possible; says what still is.
fn install(need: &Need) -> Option<String> {
    let why = (need.lacks)()?;
    if !rustix::process::geteuid().is_root() || !process::is_installed("apt-get") {
        return Some(why);
    }
    console::remark(format!("{why}; installing {}", need.packages.join(" ")));
    let install = Cmd::new("apt-get")
        .args(["install", "--yes", "--quiet", "--no-install-recommends"])
        .args(need.packages)
        .variable("DEBIAN_FRONTEND", "noninteractive");
    let done = install.check().or_else(|_| {
        Cmd::new("apt-get")
            .args(["update", "--quiet"])
            .check()
            .and_then(|()| install.check())
    });
    if let Err(error) = done {
        console::remark(format!("{error:#}"));
    }
    (need.lacks)()
}

fn lacks_program(name: &str) -> Option<String> {
    (!process::is_installed(name)).then(|| format!("there is no `{name}`"))
}

/// Says what is missing for an engine of our own.
fn lacks_docker() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can start an engine for containers".to_owned());
    }
    ["dockerd", "docker", "busybox"]
        .into_iter()
        .find_map(lacks_program)
}

fn lacks_git() -> Option<String> {
    if let Some(why) = lacks_program("git") {
        return Some(why);
    }
    let (major, minor) = OLDEST_GIT;
    let said = match Cmd::new("git").arg("--version").read() {
        Ok(said) => String::from_utf8_lossy(&said).trim().to_owned(),
        Err(error) => return Some(format!("{error:#}")),
    };
    match git_version(&said) {
        Some(version) if version >= OLDEST_GIT => None,
        _ => Some(format!(
            "git {major}.{minor} or newer is needed, not `{said}`"
        )),
    }
}

fn git_version(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.strip_prefix("git version ")?.split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?.parse().ok()?;
    Some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_git_are_compared_as_numbers() {
        assert_eq!(git_version("git version 2.47.3"), Some((2, 47)));
        assert_eq!(
            git_version("git version 2.39.5 (Apple Git-154)"),
            Some((2, 39))
        );
        assert_eq!(git_version("git 2"), None);
        assert!(git_version("git version 2.9.1").unwrap() < OLDEST_GIT);
        assert!(git_version("git version 10.0").unwrap() > OLDEST_GIT);
    }

    #[test]
    fn an_unknown_requirement_lists_the_known() {
        assert!(check_names(&["git".into(), "tmux".into()]).is_ok());
        let error = check_names(&["podman".into()]).unwrap_err().to_string();
        assert!(
            error.contains("`podman`") && error.contains("git, cc, tmux"),
            "{error}"
        );
    }

    #[test]
    fn only_what_a_test_names_is_needed() {
        let needs = |name: &str, test: &str| {
            let need = NEEDS.iter().find(|need| need.name == name).unwrap();
            need.is_needed(&[test.to_owned()])
        };
        assert!(needs("tmux", "a::it m::needs_tmux_detach"));
        assert!(!needs("tmux", "a::it m::tmux_detach"));
        assert!(needs(
            "bwrap",
            "example-executor-bwrap::conformance making::x"
        ));
        assert!(needs("bwrap", "example-executor-bwrap x"));
        assert!(!needs("bwrap", "example-executor-bwraps::it x"));
        // Of one package only one binary.
        let docker = "groundcrew-executor-docker";
        assert!(needs(ENGINE, &format!("{docker}::conformance making::x")));
        assert!(!needs(ENGINE, &format!("{docker} labels::x")));
        assert!(!needs(ENGINE, &format!("{docker}::docker labels::x")));
        assert!(an_engine_is_needed(&[format!(
            "{docker}::docker m::needs_docker_x"
        )]));
        assert!(
            settle(&["a::it m::plain".into()], &["tmux".into()])
                .unwrap()
                .is_empty()
        );
    }
}

//! The leak oracle at work: everything that a launch could leave behind must be as it was before.

use std::time::Duration;

use groundcrew_testkit::oracle::{Allowed, Oracle, Snapshot};

use super::{place::Ground, repository::Repository, waiting};

/// What was there before.
#[derive(Debug)]
pub(crate) struct Leaks<'a> {
    ground: &'a Ground,
    oracle: Oracle,
    allowed: Allowed,
    before: Snapshot,
    runs: Vec<String>,
}

impl<'a> Leaks<'a> {
    /// Looks for the first time, at a state directory that has been used.
    pub(crate) fn watch(ground: &'a Ground, repositories: &[&Repository]) -> Self {
        ground.use_once();
        let mut oracle = Oracle::new().mark(ground.root().display().to_string());
        for name in ["home", "tmp"] {
            oracle = oracle.root(ground.root().join(name));
        }
        oracle = oracle.root(ground.state());
        for repository in repositories {
            oracle = oracle.repository(repository.path());
        }
        let allowed = ["state.db", "locks/repository"]
            .into_iter()
            .fold(Allowed::nothing(), |allowed, name| {
                allowed.path(ground.state().join(name))
            });
        Self {
            ground,
            before: oracle.snapshot().unwrap(),
            runs: rows(ground),
            oracle,
            allowed,
        }
    }

    /// Lets the logs of scripts stay: they are what a failed setup is looked into by, and go with their time.
    pub(crate) fn except_logs(mut self) -> Self {
        self.allowed = self.allowed.path(self.ground.state().join("logs"));
        self
    }

    /// Demands that everything is as it was; what is on its way out gets some time.
    #[track_caller]
    pub(crate) fn none(&self, when: &str) {
        let mut changed = String::new();
        let same = waiting::until_within(Duration::from_secs(20), || {
            let after = self.oracle.snapshot().unwrap();
            let difference = self.before.difference(&after, &self.allowed);
            changed = difference.to_string();
            difference.is_empty()
        });
        assert!(same, "{when}: something was left or taken\n{changed}");
        assert_eq!(
            rows(self.ground),
            self.runs,
            "{when}: rows were left or taken"
        );
    }
}

/// Returns every row that the store shows.
fn rows(ground: &Ground) -> Vec<String> {
    ground
        .runs(true)
        .iter()
        .map(|run| format!("{} {}", run["id"], run["state"]))
        .collect()
}

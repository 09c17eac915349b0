//! The suite for executors against the one of containers, on the engine that `cargo xtask test` keeps.
#![expect(
    clippy::disallowed_methods,
    reason = "the suite starts the engine's own client, and reads what `cargo xtask test` tells it"
)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what is shared with the other tests is part of the tests"
)]

mod engine;

use std::{process::ExitCode, sync::Arc, time::Duration};

use groundcrew_core::{
    error::Error,
    id::{ExecutorName, InstallId},
    wire::OsText,
};
use groundcrew_executor_docker::{DockerConfig, DockerExecutor, INSTALL};
use groundcrew_testkit::conformance::{self, ExecutorFixture, Ground, Program, posix};

/// A launch at each step makes a container each time; on a busy machine that takes its time.
const PATIENCE: Duration = Duration::from_mins(3);

/// What no engine is asked for: the cases have to be listed on a machine without one as well.
const NO_ENGINE: &str = "unix:///no-engine";

fn main() -> ExitCode {
    let listing = std::env::args().any(|argument| argument == "--list");
    let endpoint = if listing {
        NO_ENGINE.to_owned()
    } else {
        engine::told("GROUNDCREW_TEST_ENGINE")
    };
    let supervisor = if listing {
        String::new()
    } else {
        engine::images(&endpoint);
        engine::told("GROUNDCREW_TEST_SUPERVISOR")
    };
    conformance::main(move |ground| fixture(ground, &endpoint, &supervisor))
}

fn fixture(ground: &Ground, endpoint: &str, supervisor: &str) -> Result<ExecutorFixture, Error> {
    let (endpoint, install) = (endpoint.to_owned(), ground.install().clone());
    let name = ExecutorName::new("docker")?;
    let mut config = DockerConfig::new(name, ground.directory(), install.clone());
    config.endpoint.clone_from(&endpoint);
    config.supervisor = vec![supervisor.into()];
    let leftovers = move || {
        let found = left_in_the_engine(&endpoint, &install);
        Box::pin(async move { Ok(found) }) as _
    };
    Ok(ExecutorFixture::new(Arc::new(DockerExecutor::new(config)))
        .with_commands(command)
        .with_option("image", engine::BASE)
        .with_option("network", "none")
        .with_patience(PATIENCE)
        .with_leftovers(leftovers))
}

/// Writes commands for the tools that the image has.
fn command(program: &Program<'_>) -> Vec<OsText> {
    match program {
        Program::Variable(name) => {
            let script = format!("printf %s \"${{{name}}}\"");
            vec!["sh".into(), "-c".into(), script.as_str().into()]
        }
        program => posix(program),
    }
}

/// Names the containers and volumes of an installation, as the engine's own client tells of them.
fn left_in_the_engine(endpoint: &str, install: &InstallId) -> Vec<String> {
    let label = format!("label={INSTALL}={install}");
    let list = |what: &str, words: &[&str]| {
        let told = engine::docker(endpoint, &[words, &["--filter", &label]].concat());
        told.lines()
            .map(|name| format!("{what} {name}"))
            .collect::<Vec<_>>()
    };
    let mut left = list("container", &["ps", "-aq", "--no-trunc"]);
    left.extend(list("volume", &["volume", "ls", "-q"]));
    left
}

//! The suite for executors against the one in memory: it lives as long as its process, so nothing of it is detached.
#![expect(clippy::unwrap_used, reason = "a test program with its own `main`")]

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex},
};

use groundcrew_core::{executor::Capabilities, id::ExecutorName};
use groundcrew_testkit::{
    conformance::{self, ExecutorFixture, Need},
    memory::{MemoryExecutor, MemoryWorld, commands},
};

/// Every ground has its world, and keeps it when the executor is made again.
static WORLDS: Mutex<BTreeMap<PathBuf, MemoryWorld>> = Mutex::new(BTreeMap::new());

fn main() -> ExitCode {
    conformance::main(|ground| {
        let key = ground.directory().join(ground.install().as_str());
        let world = WORLDS
            .lock()
            .unwrap()
            .entry(key)
            .or_insert_with(|| MemoryWorld::of(ground.install().clone()))
            .clone();
        let mut capabilities = Capabilities::host();
        capabilities.terminal = false;
        capabilities.detached = false;
        capabilities.limits = false;
        let executor = MemoryExecutor::new(&world, ExecutorName::new("memory")?);
        let leftovers = move || {
            let left = world.leftovers();
            Box::pin(async move { Ok(left) }) as _
        };
        Ok(
            ExecutorFixture::new(Arc::new(executor.with_capabilities(capabilities)))
                .with_commands(commands)
                .in_directory("/memory")
                .with_leftovers(leftovers)
                .without(Need::Files, "nothing in memory is a file")
                .without(Need::Trees, "a process in memory starts no other"),
        )
    })
}

//! How much of the engine's machine a container may use: what the engine holds it to, and what its supervisor does.

use groundcrew_core::{
    error::{Error, ErrorKind},
    executor::Limits,
};

use crate::engine::Engine;

/// The least memory that engines accept, in bytes.
const LEAST_MEMORY: u64 = 6 << 20;

/// How many processes a container may have if nothing is said: enough for builds, too few for a fork bomb.
const DEFAULT_PROCESSES: i64 = 4096;

/// How many threads the supervisor has at most, which count as well.
const OWN_THREADS: i64 = 4;

/// What an engine holds a container to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EngineLimits {
    /// In bytes, swap included.
    pub(crate) memory: Option<i64>,
    /// In billionths of a processor.
    pub(crate) nano_cpus: Option<i64>,
    /// Processes and threads, the supervisor's included.
    pub(crate) processes: i64,
}

impl EngineLimits {
    /// Takes its part of what was asked for.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, naming the limit, for one that no engine accepts.
    pub(crate) fn of(limits: &Limits) -> Result<Self, Error> {
        let wrong = |limit: &'static str, asked: u64, why: &'static str| {
            Error::new(ErrorKind::InvalidInput, why)
                .with("limit", limit)
                .with("asked", asked)
        };
        limits.check()?;
        let memory = limits.memory.map(|asked| {
            i64::try_from(asked)
                .ok()
                .filter(|_| asked >= LEAST_MEMORY)
                .ok_or_else(|| {
                    wrong("memory", asked, "engines accept no such size")
                        .with("least", LEAST_MEMORY)
                })
        });
        let cpus = limits.milli_cpus.map(|asked| {
            let nano = asked.checked_mul(1_000_000);
            nano.and_then(|nano| i64::try_from(nano).ok())
                .ok_or_else(|| wrong("milli_cpus", asked, "there are not that many processors"))
        });
        let processes = limits.processes.map(|asked| {
            let count = i64::try_from(asked).ok();
            count
                .and_then(|count| count.checked_add(OWN_THREADS))
                .ok_or_else(|| wrong("processes", asked, "there are not that many processes"))
        });
        Ok(Self {
            memory: memory.transpose()?,
            nano_cpus: cpus.transpose()?,
            processes: processes.transpose()?.unwrap_or(DEFAULT_PROCESSES),
        })
    }
}

/// Returns what the supervisor holds each of its processes to; the engine has the rest.
pub(crate) fn of_each_process(limits: &Limits) -> Limits {
    Limits {
        memory: None,
        milli_cpus: None,
        processes: None,
        ..*limits
    }
}

/// Checks that the engine can enforce the limits that were asked for; one that nobody asked for gives way.
///
/// # Errors
///
/// `Unsupported`, naming the limit: one that is not kept is worse than none.
pub(crate) async fn check(engine: &Engine, limits: &Limits) -> Result<(), Error> {
    if of_each_process(limits) == *limits {
        return Ok(());
    }
    let info = engine.info().await?;
    for (name, asked, can) in [
        ("memory", limits.memory, info.memory_limit),
        ("cpus", limits.milli_cpus, info.cpu_cfs_quota),
        ("pids", limits.processes, info.pids_limit),
    ] {
        if asked.is_some() && can != Some(true) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the engine's machine cannot enforce this limit; leave it out",
            )
            .with("limit", name)
            .with("engine", engine.endpoint()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(change: impl FnOnce(&mut Limits)) -> Result<EngineLimits, Error> {
        let mut limits = Limits::default();
        change(&mut limits);
        EngineLimits::of(&limits)
    }

    #[test]
    fn limits_are_the_engine_s_in_its_own_units() {
        let none = of(|_| ()).unwrap();
        assert_eq!((none.memory, none.nano_cpus), (None, None));
        assert_eq!(none.processes, DEFAULT_PROCESSES);
        let some = of(|limits| {
            limits.memory = Some(512 << 20);
            limits.milli_cpus = Some(1500);
            limits.processes = Some(100);
        });
        let some = some.unwrap();
        assert_eq!(some.memory, Some(512 << 20));
        assert_eq!(some.nano_cpus, Some(1_500_000_000));
        assert_eq!(some.processes, 100 + OWN_THREADS);
    }

    #[test]
    fn a_limit_that_no_engine_accepts_is_named() {
        for (name, wrong) in [
            ("memory", of(|limits| limits.memory = Some(5 << 20))),
            ("memory", of(|limits| limits.memory = Some(u64::MAX))),
            (
                "milli_cpus",
                of(|limits| limits.milli_cpus = Some(u64::MAX)),
            ),
            ("processes", of(|limits| limits.processes = Some(u64::MAX))),
        ] {
            assert_eq!(wrong.unwrap_err().get("limit"), Some(name));
        }
    }

    #[test]
    fn what_the_engine_holds_is_not_asked_of_the_supervisor() {
        let limits = Limits {
            memory: Some(512 << 20),
            open_files: Some(64),
            ..Limits::default()
        };
        let each = of_each_process(&limits);
        assert_eq!((each.memory, each.open_files), (None, Some(64)));
    }
}

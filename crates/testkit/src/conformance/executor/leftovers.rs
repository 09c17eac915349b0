//! What is left of instances that are gone, asked around their executor: processes of this machine, and files.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use groundcrew_core::{error::Chain, id::InstanceId};

use super::fixture::Look;
use crate::conformance::place::Ground;

/// The variable by which a process of an instance is known, wherever it went.
pub(super) const MARK: &str = "GROUNDCREW_CONFORMANCE_GROUND";

/// How long what was told to end may take to vanish.
const VANISH: Duration = Duration::from_secs(10);

/// Returns the mark of a ground.
pub(super) fn mark(ground: &Ground) -> String {
    ground.install().to_string()
}

/// Names what is left; what ends within moments is not.
pub(super) async fn after(
    ground: &Ground,
    made: &[InstanceId],
    look: Option<&Look>,
) -> Vec<String> {
    let until = tokio::time::Instant::now() + VANISH;
    loop {
        let mut left = processes(ground);
        left.extend(files(ground, made));
        if let Some(look) = look {
            match look().await {
                Ok(found) => left.extend(found),
                Err(error) => left.push(format!("what cannot be looked at: {}", Chain(&error))),
            }
        }
        if left.is_empty() || tokio::time::Instant::now() >= until {
            return left;
        }
        // Nothing tells when a process of somebody else has gone.
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

/// Names the processes that carry the mark of a ground, or were started on something below it.
pub(super) fn processes(ground: &Ground) -> Vec<String> {
    let Ok(all) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let own = std::process::id();
    let mark = format!("{MARK}={}", mark(ground)).into_bytes();
    let below = ground.directory().as_os_str().as_encoded_bytes().to_vec();
    all.filter_map(|entry| {
        let entry = entry.ok()?;
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        if pid == own {
            return None;
        }
        let carries = |file: &str, bytes: &[u8]| {
            std::fs::read(entry.path().join(file)).is_ok_and(|found| holds(&found, bytes))
        };
        if !carries("environ", &mark) && !carries("cmdline", &below) {
            return None;
        }
        let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        Some(format!("process {pid} ({})", name.trim_end()))
    })
    .collect()
}

fn holds(text: &[u8], wanted: &[u8]) -> bool {
    text.windows(wanted.len()).any(|window| window == wanted)
}

/// Names the files below a ground that are called after an instance; logs are kept on purpose.
fn files(ground: &Ground, made: &[InstanceId]) -> Vec<String> {
    let (mut found, mut below) = (Vec::new(), vec![ground.directory().to_owned()]);
    let apart: [PathBuf; 2] = [ground.workspace(), ground.directory().join("logs")];
    while let Some(directory) = below.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else {
            continue;
        };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if apart.contains(&path) {
                continue;
            }
            if is_called_after(&path, made) {
                found.push(path.display().to_string());
            } else if path.is_dir() && !path.is_symlink() {
                below.push(path);
            }
        }
    }
    found
}

fn is_called_after(path: &Path, made: &[InstanceId]) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    made.iter().any(|id| name.contains(id.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use groundcrew_core::id::AttemptId;

    #[tokio::test]
    async fn what_is_called_after_an_instance_is_left_and_logs_are_not() {
        let land = crate::conformance::place::Land::new().unwrap();
        let id = AttemptId::generate().unwrap().instance();
        let place = |name: &str| land.ground().directory().join(name);
        for directory in ["logs", "instances"] {
            std::fs::create_dir(place(directory)).unwrap();
            std::fs::write(place(directory).join(format!(".trash-{id}")), "").unwrap();
        }
        let left = files(land.ground(), std::slice::from_ref(&id));
        assert_eq!(left.len(), 1);
        assert!(left[0].contains("instances"), "{left:?}");
        assert!(processes(land.ground()).is_empty());
    }
}

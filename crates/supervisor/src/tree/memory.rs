//! Whether the kernel ended something because its memory had run out: a count that each memory group keeps.
//!
//! It is raised before the signal is sent, so that whoever sees the end sees the count.

use std::path::Path;

/// The memory group of a container, as it sees it, in both versions of cgroups.
const OWN: [&str; 2] = [
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/memory/memory.oom_control",
];

/// Reads how often it did so in a group, or in the one that this program is in; none where nobody counts.
pub(super) fn kills(leaf: Option<&Path>) -> Option<u64> {
    let leaf = leaf.map(|leaf| leaf.join("memory.events"));
    let own = OWN.iter().map(Path::new);
    let files = leaf.as_deref().into_iter().chain(own);
    files
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .find_map(|text| count(&text))
}

fn count(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    line?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f114_the_count_is_read_in_both_versions() {
        let v1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        let v2 = "low 0\nhigh 0\nmax 12\noom 4\noom_kill 2\noom_group_kill 0\n";
        assert_eq!((count(v1), count(v2)), (Some(3), Some(2)));
        // Older kernels of the first version do not count.
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\n"), None);
    }
}

//! Variables that no profile may define: who a run is, and where git finds a repository.

use crate::env::Key;

/// The beginning of all variables of ours.
const OURS: &[u8] = b"GROUNDCREW_";

/// Variables that send git to another repository than the one in its directory.
const REPOSITORY: [&str; 17] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_ATTR_SOURCE",
    "GIT_CEILING_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_QUARANTINE_PATH",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
];

/// Returns why a profile may not define a variable, if it may not.
pub fn reserved(key: &Key) -> Option<&'static str> {
    let name = key.as_bytes();
    if name.starts_with(OURS) {
        Some("says who the run is, or steers groundcrew itself")
    } else if REPOSITORY.iter().any(|known| known.as_bytes() == name) {
        Some("would send git to another repository")
    } else {
        None
    }
}

//! Which boot of the machine this is: process numbers mean something within one only.

use std::sync::OnceLock;

use groundcrew_core::error::Error;

/// Reads which boot of the machine this is.
///
/// * Once: no process lives through another boot, and each start of a process writes it down.
///
/// # Errors
///
/// Those of the file that tells it.
pub fn boot_id() -> Result<String, Error> {
    static KNOWN: OnceLock<String> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known.clone());
    }
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_err(|e| Error::io("failed to read which boot this is", e))?;
    Ok(KNOWN.get_or_init(|| text.trim().to_owned()).clone())
}

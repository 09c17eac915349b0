//! Processes that have to do with a root or a mark, whoever started them; read from `/proc`.

use std::{
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use groundcrew_core::error::Error;

use super::{
    files::failed,
    snapshot::{Kind, Snapshot},
};

/// What makes a process ours.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) paths: Vec<PathBuf>,
    pub(super) marks: Vec<String>,
}

/// Notes every process that has to do with what is wanted, except this one.
pub(super) fn look(wanted: &Wanted, snapshot: &mut Snapshot) -> Result<(), Error> {
    let proc = Path::new("/proc");
    for entry in fs::read_dir(proc).map_err(|e| failed(proc, e))? {
        let entry = entry.map_err(|e| failed(proc, e))?;
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if pid == std::process::id() {
            continue;
        }
        // What cannot be read belongs to another user, or has ended.
        let Some((command, started)) = stat(&entry.path()) else {
            continue;
        };
        if let Some(reason) = reason(&entry.path(), wanted) {
            snapshot.see(
                Kind::Process,
                format!("{pid} {command} (started at tick {started})"),
                reason,
            );
        }
    }
    Ok(())
}

/// Returns name and start time; a zombie has ended and runs nothing.
fn stat(directory: &Path) -> Option<(String, String)> {
    let text = fs::read(directory.join("stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let (head, tail) = text.rsplit_once(')')?;
    let command = head.split_once('(')?.1.to_owned();
    let fields: Vec<_> = tail.split_whitespace().collect();
    let (state, started) = (*fields.first()?, *fields.get(19)?);
    (!matches!(state, "Z" | "X")).then(|| (command, started.to_owned()))
}

fn reason(directory: &Path, wanted: &Wanted) -> Option<&'static str> {
    let below = |link: &Path| {
        fs::read_link(link).is_ok_and(|target| {
            let target = undeleted(&target);
            wanted.paths.iter().any(|root| target.starts_with(root))
        })
    };
    for link in ["cwd", "exe", "root"] {
        if below(&directory.join(link)) {
            return Some(match link {
                "cwd" => "its directory",
                "exe" => "its program",
                _ => "its root directory",
            });
        }
    }
    let names = |file: &str| {
        let Ok(content) = fs::read(directory.join(file)) else {
            return false;
        };
        let paths = wanted.paths.iter().map(|path| path.as_os_str().as_bytes());
        let marks = wanted.marks.iter().map(String::as_bytes);
        paths.chain(marks).any(|word| holds(&content, word))
    };
    if names("cmdline") {
        return Some("its arguments");
    }
    if names("environ") {
        return Some("its environment");
    }
    if names("cgroup") {
        return Some("its control group");
    }
    let open = fs::read_dir(directory.join("fd")).ok()?;
    let mut open = open.flatten();
    open.any(|file| below(&file.path()))
        .then_some("an open file")
}

/// Returns a link's target as it was called before it was deleted.
fn undeleted(target: &Path) -> PathBuf {
    let bytes = target.as_os_str().as_bytes();
    let bytes = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    Path::new(std::ffi::OsStr::from_bytes(bytes)).to_owned()
}

fn holds(content: &[u8], word: &[u8]) -> bool {
    !word.is_empty() && content.windows(word.len()).any(|window| window == word)
}

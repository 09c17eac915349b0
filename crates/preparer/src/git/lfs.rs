//! Files that git-lfs keeps outside of git: their pointers, their store, and the program.
//!
//! The program runs only where it was asked for, as it was found on the search path, and never with another program that the
//! configuration of a repository names. Everything else here only reads, or copies what has the name of its contents.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use groundcrew_core::{
    cancel::CancelToken,
    error::{Error, ErrorKind},
};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};
use sha2::{Digest as _, Sha256};

use super::command::Git;
use crate::{files::beneath, text::lossy};

/// The name of the program.
const PROGRAM: &str = "git-lfs";
/// What a pointer begins with.
const VERSION: &[u8] = b"version https://git-lfs.github.com/spec/v1\n";
/// The longest pointer.
pub(crate) const MAX_POINTER: usize = 1024;

/// Finds the program in the directories where git is searched.
///
/// # Errors
///
/// `ProgramNotFound` when it is not there.
pub(crate) fn find(git: &Git) -> Result<PathBuf, Error> {
    std::env::split_paths(git.search())
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(PROGRAM))
        .find(|path| {
            rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file()
        })
        .ok_or_else(|| {
            Error::new(
                ErrorKind::ProgramNotFound,
                "files of git-lfs are asked for, and there is no git-lfs program in the search path; \
                 install git-lfs, or do without these files",
            )
            .with("program", PROGRAM)
            .with("PATH", git.search().display())
        })
}

/// Where a repository keeps such files.
pub(crate) fn store(common: &Path) -> PathBuf {
    common.join("lfs/objects")
}

/// Settings that let git write such files; stronger than what the repository says about them.
pub(crate) fn settings(program: &Path, common: &Path) -> Vec<(OsString, OsString)> {
    let command = |words: &str| {
        let mut text = quoted(program.as_os_str());
        text.push(words);
        text
    };
    vec![
        ("filter.lfs.process".into(), command(" filter-process")),
        ("filter.lfs.smudge".into(), command(" smudge -- %f")),
        ("filter.lfs.clean".into(), command(" clean -- %f")),
        ("filter.lfs.required".into(), "true".into()),
        ("lfs.storage".into(), common.join("lfs").into_os_string()),
    ]
}

/// Quotes a word for the shell that git runs a filter with.
fn quoted(word: &OsStr) -> OsString {
    use std::os::unix::ffi::OsStringExt as _;
    let mut text = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => text.extend_from_slice(b"'\\''"),
            byte => text.push(*byte),
        }
    }
    text.push(b'\'');
    OsString::from_vec(text)
}

/// Refuses a repository whose own configuration names programs that git-lfs would run.
///
/// # Errors
///
/// `Unsupported` with the name of the setting.
pub(crate) async fn check(git: &Git, git_dir: &Path, cancel: &CancelToken) -> Result<(), Error> {
    let keys = git
        .configuration(
            git_dir,
            &["--includes", "-z", "--name-only", "--get-regexp", "^lfs\\."],
            "failed to read what the repository says about git-lfs",
            cancel,
        )
        .await?;
    let named = keys.split(|byte| *byte == 0).find(|key| names_program(key));
    match named {
        None => Ok(()),
        Some(key) => Err(Error::new(
            ErrorKind::Unsupported,
            "the configuration of the repository names a program that git-lfs would run; \
             move the setting to your own configuration, or do without files of git-lfs",
        )
        .with("setting", lossy(key))),
    }
}

fn names_program(key: &[u8]) -> bool {
    let key = key.to_ascii_lowercase();
    key.starts_with(b"lfs.extension.")
        || key.starts_with(b"lfs.customtransfer.")
        || key.ends_with(b".standalonetransferagent")
}

/// What a pointer says of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    /// The SHA-256 of its contents, in lower-case hexadecimal.
    id: String,
    size: u64,
}

impl Pointer {
    /// Reads a pointer; `None` if the bytes are none.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX_POINTER {
            return None;
        }
        let text = std::str::from_utf8(bytes.strip_prefix(VERSION)?).ok()?;
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let id = value("oid sha256:").filter(|id| is_id(id))?.to_owned();
        Some(Self {
            id,
            size: value("size ")?.parse().ok()?,
        })
    }

    /// Tells whether a file has the contents.
    pub(crate) fn is(&self, file: &mut File) -> io::Result<bool> {
        Ok(file.metadata()?.len() == self.size && hash(file)? == self.id)
    }

    /// Tells whether a store holds the contents; links are not followed.
    pub(crate) fn is_in(&self, store: &Path) -> bool {
        let inside = place(Path::new(""), &self.id);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        beneath::open_root(store)
            .and_then(|store| beneath::open(&store, inside.as_os_str(), flags, Mode::empty()))
            .is_ok_and(|file| {
                let mut file = File::from(file);
                file.metadata().is_ok_and(|metadata| metadata.is_file())
                    && self.is(&mut file).unwrap_or(false)
            })
    }
}

fn is_id(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn place(store: &Path, id: &str) -> PathBuf {
    let part = |range| id.get(range).unwrap_or_default();
    store.join(part(0..2)).join(part(2..4)).join(id)
}

fn hash(file: &mut File) -> io::Result<String> {
    let mut sum = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        sum.update(buffer.get(..count).unwrap_or_default());
    }
    Ok(sum
        .finalize()
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect())
}

/// Copies what a store has and another lacks; only what has the name of its contents. Links are not followed.
///
/// # Errors
///
/// That of the first file that cannot be copied, or is not what its name says.
pub(crate) fn bring(from: &Path, into: &Path) -> Result<(), Error> {
    for first in directories(from)? {
        for second in directories(&first)? {
            for path in entries(&second)? {
                let name = path
                    .file_name()
                    .and_then(OsStr::to_str)
                    .unwrap_or_default()
                    .to_owned();
                if is_id(&name) && path == place(from, &name) {
                    let target = place(into, &name);
                    if !target.is_file() {
                        copy(&path, &target, &name).map_err(|error| {
                            Error::io("failed to keep a file of git-lfs", error)
                                .with("path", path.display())
                        })?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn copy(from: &Path, target: &Path, id: &str) -> io::Result<()> {
    let flags = i32::try_from(OFlags::NOFOLLOW.bits() | OFlags::NONBLOCK.bits());
    let mut source = OpenOptions::new()
        .read(true)
        .custom_flags(flags.unwrap_or_default())
        .open(from)?;
    if !source.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let directory = target.parent().unwrap_or(target);
    fs::create_dir_all(directory)?;
    // Another process may bring the same one: each has its own until it is whole.
    let half = directory.join(format!("{id}.groundcrew-{}", std::process::id()));
    let written = write(&mut source, &half, id);
    if let Err(error) = written {
        drop(fs::remove_file(&half));
        return Err(error);
    }
    match renameat_with(CWD, &half, CWD, target, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(errno) => {
            fs::remove_file(&half)?;
            if errno == rustix::io::Errno::EXIST {
                Ok(())
            } else {
                Err(errno.into())
            }
        }
    }
}

fn write(source: &mut File, half: &Path, id: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .open(half)?;
    io::copy(source, &mut file)?;
    file.flush()?;
    let mut again = File::open(half)?;
    if hash(&mut again)? != id {
        return Err(io::Error::other("its contents are not what its name says"));
    }
    file.sync_all()
}

fn directories(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = entries(path)?;
    found.retain(|path| {
        path.symlink_metadata()
            .is_ok_and(|metadata| metadata.is_dir())
    });
    Ok(found)
}

fn entries(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |error| {
        Error::io("failed to list the files of git-lfs", error).with("path", path.display())
    };
    match fs::read_dir(path) {
        Ok(entries) => entries
            .map(|entry| entry.map(|entry| entry.path()).map_err(failed))
            .collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The SHA-256 of `x`.
    const X: &str = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";

    #[test]
    fn f093_a_pointer_is_read_and_compared_with_contents() {
        let text = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{X}\nsize 1\n");
        let pointer = Pointer::read(text.as_bytes()).unwrap();
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("f");
        for (contents, same) in [("x", true), ("y", false), ("xx", false), ("", false)] {
            fs::write(&file, contents).unwrap();
            assert_eq!(pointer.is(&mut File::open(&file).unwrap()).unwrap(), same);
        }
        for wrong in [
            "oid sha256:00\nsize 1\n".to_owned(),
            text.replace("sha256:2d", "sha256:2D"),
            text.replace("size 1", "size one"),
            format!("{text}{}", "x".repeat(MAX_POINTER)),
        ] {
            assert_eq!(Pointer::read(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn c02_a_store_takes_only_what_has_the_name_of_its_contents() {
        let root = tempfile::tempdir().unwrap();
        let (from, into) = (root.path().join("from"), root.path().join("into"));
        let put = |contents: &str| {
            fs::create_dir_all(place(&from, X).parent().unwrap()).unwrap();
            fs::write(place(&from, X), contents).unwrap();
        };
        put("forged");
        assert!(bring(&from, &into).is_err());
        let left = directories(&into).unwrap();
        let left: Vec<_> = left
            .iter()
            .flat_map(|path| directories(path).unwrap())
            .collect();
        assert!(
            left.iter().all(|path| entries(path).unwrap().is_empty()),
            "{left:?}"
        );
        put("x");
        bring(&from, &into).unwrap();
        bring(&from, &into).unwrap();
        assert_eq!(fs::read(place(&into, X)).unwrap(), b"x");
        // A link is no object, wherever it leads.
        fs::remove_file(place(&into, X)).unwrap();
        let secret = root.path().join("secret");
        fs::write(&secret, "x").unwrap();
        fs::remove_file(place(&from, X)).unwrap();
        std::os::unix::fs::symlink(&secret, place(&from, X)).unwrap();
        assert!(bring(&from, &into).is_err());
        assert!(!place(&into, X).exists());
    }

    #[test]
    fn f093_settings_that_name_programs_are_told_from_others() {
        for key in [
            "lfs.extension.x.smudge",
            "lfs.customtransfer.a.path",
            "lfs.standalonetransferagent",
            "lfs.https://example.org/.standalonetransferagent",
        ] {
            assert!(names_program(key.as_bytes()), "{key}");
        }
        for key in [
            "lfs.url",
            "lfs.repositoryformatversion",
            "lfs.https://example.org/.access",
        ] {
            assert!(!names_program(key.as_bytes()), "{key}");
        }
        assert_eq!(quoted(OsStr::new("/a'b c")), OsString::from("'/a'\\''b c'"));
    }
}

//! Paths as people write them: a leading `~`, and places relative to the current directory.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Component, Path, PathBuf},
};

use groundcrew_core::error::{Error, ErrorKind};

/// Checks that a directory that an option names is there.
///
/// # Errors
///
/// When it cannot be looked at, or is something else.
pub(crate) fn readable(option: &str, path: &Path) -> Result<(), Error> {
    let found = std::fs::metadata(path).map_err(|e| {
        Error::io(format!("the directory named by {option} cannot be read"), e)
            .with("path", path.display())
    })?;
    if found.is_dir() {
        return Ok(());
    }
    let why = format!("{option} names a file, not a directory");
    Err(Error::new(ErrorKind::InvalidInput, why).with("path", path.display()))
}

/// Makes a path absolute; `~` and `~/…` are the home directory, `~name` is refused.
///
/// # Errors
///
/// `InvalidInput` when it is empty, begins with `~name`, or needs a home directory that is not known.
pub(crate) fn absolute(
    written: &OsStr,
    directory: &Path,
    home: Option<&Path>,
) -> Result<PathBuf, Error> {
    let bytes = written.as_bytes();
    let wrong = |message: &'static str| {
        Error::new(ErrorKind::InvalidInput, message).with("path", written.display())
    };
    if bytes.is_empty() {
        return Err(wrong("the path is empty"));
    }
    if bytes.contains(&0) {
        return Err(wrong("the path holds a NUL byte"));
    }
    let path = match bytes.strip_prefix(b"~") {
        Some(rest) if rest.is_empty() || rest.starts_with(b"/") => {
            let home = home.ok_or_else(|| wrong("the path needs $HOME, which is not set"))?;
            let rest = rest
                .iter()
                .position(|b| *b != b'/')
                .map_or(&b""[..], |at| &rest[at..]);
            home.join(OsStr::from_bytes(rest))
        }
        Some(_) => {
            return Err(wrong(
                "another user's `~` is not expanded; write `./~…` for a file of that name",
            ));
        }
        None => directory.join(written),
    };
    Ok(tidy(&path))
}

/// Drops `.` and doubled separators; `..` stays, for it may follow a link.
fn tidy(path: &Path) -> PathBuf {
    path.components()
        .filter(|part| *part != Component::CurDir)
        .collect()
}

/// Resolves links in the part of a path that exists.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (ancestor.canonicalize(), path.strip_prefix(ancestor)) {
            return tidy(&real.join(rest));
        }
    }
    path.to_owned()
}

/// Returns the nearest directory, from `directory` upwards, that looks like the top of a repository.
pub(crate) fn repository_of(directory: &Path) -> Option<&Path> {
    directory.ancestors().find(|place| {
        let bare = || {
            place.join("HEAD").is_file()
                && place.join("objects").is_dir()
                && place.join("refs").is_dir()
        };
        place.join(".git").symlink_metadata().is_ok() || bare()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c17_a_leading_tilde_is_home_and_nothing_else_is() {
        let at = |text: &str| absolute(OsStr::new(text), Path::new("/w"), Some(Path::new("/h")));
        assert_eq!(at("~/ws").unwrap(), Path::new("/h/ws"));
        assert_eq!(at("~//ws/").unwrap(), Path::new("/h/ws"));
        assert_eq!(at("~").unwrap(), Path::new("/h"));
        assert_eq!(at("/tmp/a~b").unwrap(), Path::new("/tmp/a~b"));
        assert_eq!(at("./a/.").unwrap(), Path::new("/w/a"));
        assert_eq!(at(".").unwrap(), Path::new("/w"));
        assert_eq!(at("../x").unwrap(), Path::new("/w/../x"));
        for bad in ["", "~nobody-here/ws", "a\0b"] {
            assert_eq!(
                at(bad).unwrap_err().kind(),
                ErrorKind::InvalidInput,
                "{bad:?}"
            );
        }
        assert!(absolute(OsStr::new("~/x"), Path::new("/w"), None).is_err());
    }

    #[test]
    fn repositories_are_found_upwards() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("r/a/b");
        std::fs::create_dir_all(&inner).unwrap();
        assert_eq!(repository_of(&inner), None);
        std::fs::write(root.path().join("r/.git"), "gitdir: x").unwrap();
        assert_eq!(repository_of(&inner), Some(root.path().join("r").as_path()));
    }

    #[test]
    fn links_in_the_part_that_exists_are_resolved() {
        let root = tempfile::tempdir().unwrap();
        let real = root.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("d")).unwrap();
        std::os::unix::fs::symlink(real.join("d"), real.join("l")).unwrap();
        assert_eq!(resolved(&real.join("l/new/er")), real.join("d/new/er"));
    }
}

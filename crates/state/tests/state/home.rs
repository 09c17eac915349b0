//! Which directory may be a state directory, and what is made in it.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
};

use groundcrew_core::error::{Error, ErrorKind};
use groundcrew_state::{StateDirectory, check_home};

fn advised(error: &Error, kind: ErrorKind, path: &Path) {
    assert_eq!(error.kind(), kind, "{error:?}");
    assert_eq!(error.get("path"), path.to_str(), "{error:?}");
    let hint = error.get("hint").expect("no advice");
    assert!(hint.contains("GROUNDCREW_HOME"), "{hint}");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn f062_the_root_the_home_and_what_holds_it_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let user = root.path().join("user");
    fs::create_dir(&user).unwrap();
    symlink(&user, root.path().join("alias")).unwrap();
    let refused = |home: &Path| {
        advised(
            &check_home(home, Some(&user)).unwrap_err(),
            ErrorKind::InvalidInput,
            home,
        );
    };
    refused(Path::new("/"));
    refused(Path::new("/tmp/.."));
    refused(Path::new("relative/path"));
    refused(Path::new(""));
    refused(&user);
    refused(&user.join("."));
    refused(&user.join("x/.."));
    refused(&root.path().join("alias"));
    refused(root.path());
    for good in [".local/state/groundcrew", "state"] {
        check_home(&user.join(good), Some(&user)).unwrap();
        check_home(&root.path().join(good), Some(&user)).unwrap();
    }
    check_home(&root.path().join("user-2"), Some(&user)).unwrap();
    check_home(&user, None).unwrap();
    for bad in ["/", "relative/path", ""] {
        let error = StateDirectory::open(Path::new(bad)).unwrap_err();
        advised(&error, ErrorKind::InvalidInput, Path::new(bad));
    }
}

#[test]
fn everything_that_is_made_is_for_the_owner_only() {
    let root = tempfile::tempdir().unwrap();
    let home = root.path().join("a/b/home");
    let state = StateDirectory::open(&home).unwrap();
    for path in [
        state.home().to_owned(),
        state.instances(),
        state.locks_path(),
        state.locks_path().join("session"),
        state.locks_path().join("attempt"),
        state.worktrees(),
        state.tasks(),
        state.quick_chat(),
        state.trash(),
        state.secrets(),
        state.logs(),
    ] {
        assert_eq!(mode(&path), 0o700, "{}", path.display());
    }
    let mut files = 0;
    for entry in fs::read_dir(&home).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            files += 1;
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
    assert!(files >= 4, "{files}");
    let text = fs::read_to_string(home.join("install-id")).unwrap();
    assert_eq!(text, format!("{}\n", state.install()));
}

#[test]
fn an_open_directory_is_closed_unless_it_holds_what_is_not_ours() {
    let root = tempfile::tempdir().unwrap();
    let home = root.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
    StateDirectory::open(&home).unwrap();
    assert_eq!(mode(&home), 0o700);
    fs::set_permissions(&home, fs::Permissions::from_mode(0o770)).unwrap();
    StateDirectory::open(&home).unwrap();
    assert_eq!(mode(&home), 0o700);

    let shared = root.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::write(shared.join("letter.txt"), "dear").unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    let error = StateDirectory::open(&shared).unwrap_err();
    advised(&error, ErrorKind::PermissionDenied, &shared);
    assert_eq!(error.get("file"), Some("letter.txt"));
    assert_eq!(mode(&shared), 0o777);
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 1);
}

#[test]
fn a_file_in_the_way_is_named() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "x").unwrap();
    let error = StateDirectory::open(&file).unwrap_err();
    advised(&error, ErrorKind::InvalidInput, &file);
    let below = file.join("home");
    let error = StateDirectory::open(&below).unwrap_err();
    advised(&error, ErrorKind::InvalidInput, &below);
    let home = root.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(home.join("trash"), "x").unwrap();
    let error = StateDirectory::open(&home).unwrap_err();
    advised(&error, ErrorKind::InvalidInput, &home.join("trash"));
    assert_eq!(fs::read_to_string(home.join("trash")).unwrap(), "x");
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let home = root.path().join("home");
    fs::create_dir(&home).unwrap();
    if std::os::unix::fs::chown(&home, Some(12345), None).is_err() {
        #[expect(clippy::print_stderr, reason = "a skip must be heard")]
        {
            eprintln!("skipped: needs root to give a directory away");
        }
        return;
    }
    let error = StateDirectory::open(&home).unwrap_err();
    advised(&error, ErrorKind::PermissionDenied, &home);
    assert_eq!(fs::read_dir(&home).unwrap().count(), 0);
}

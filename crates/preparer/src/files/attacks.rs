//! Attacks on deletion: a neighbour who swaps what is being deleted against links, mounts and other directories.
//!
//! Whatever it does, not a byte outside the tree is changed, and what cannot be deleted stays in the trash, owned.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::fs::{MetadataExt as _, symlink},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use groundcrew_core::{
    error::ErrorKind,
    id::{AttemptId, InstallId, RunId},
};
use rustix::{
    fs::{CWD, RenameFlags, renameat, renameat_with, symlinkat},
    mount::{UnmountFlags, mount_bind, unmount},
};

use super::{
    beneath,
    id::FileId,
    marker::{self, Layout, MARKER, Marker},
    origin::Origin,
    removal,
    trash::{Owner, Trash},
};

/// How many attacks that took effect a deletion goes on through.
const ATTACKS: usize = 10_000;
/// How many trees are deleted under attack at least.
const TREES: usize = 300;
/// The most, where a neighbour hardly comes to its turn.
const MOST_TREES: usize = 3_000;
/// How often a directory and a link change places before the neighbour looks around again.
const FLIPS: usize = 500;
/// Every how many trees something is mounted in one.
const MOUNT_EVERY: usize = 10;
/// How many files a wide tree has; 100,000 is the full size.
const FILES: usize = 5_000;

/// The content, the inode and the time of everything below a directory.
type Print = BTreeMap<PathBuf, (Vec<u8>, u64, i64, i64)>;

fn print(root: &Path) -> Print {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        let metadata = path.symlink_metadata().unwrap();
        let content = if metadata.is_file() {
            fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        if metadata.is_dir() {
            open.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        let seen = (
            content,
            metadata.ino(),
            metadata.mtime(),
            metadata.mtime_nsec(),
        );
        found.insert(path, seen);
    }
    found
}

struct Ground {
    _root: tempfile::TempDir,
    root: PathBuf,
    trash: Trash,
}

impl Ground {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        for name in ["outside/e/deep/er", "outside/a/b", "work"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        for name in ["outside/a/1", "outside/e/deep/2", "outside/e/deep/er/3"] {
            fs::write(root.join(name), name).unwrap();
        }
        Self {
            trash: Trash::new(root.join("trash")),
            _root: place,
            root,
        }
    }

    /// Makes a tree where no neighbour looks, and puts it in its place.
    fn tree(&self) -> PathBuf {
        let made = self.root.join("made");
        for name in ["a/b/c", "a/d", "e/deep/er", "f"] {
            fs::create_dir_all(made.join(name)).unwrap();
            for file in ["1", "2", "3"] {
                fs::write(made.join(name).join(file), "x").unwrap();
            }
        }
        let tree = self.root.join("work/tree");
        while renameat_with(CWD, &made, CWD, &tree, RenameFlags::NOREPLACE).is_err() {
            clear(self);
        }
        tree
    }

    /// Deletes the tree as an undo does.
    fn delete(&self, id: FileId, owner: &Owner) -> Result<(), groundcrew_core::error::Error> {
        let parent = beneath::open_root(&self.root.join("work")).unwrap();
        self.trash
            .take(&parent, OsStr::new("tree"), id, owner, None)?;
        self.trash.empty(owner).map(drop)
    }
}

fn owner() -> Owner {
    Owner {
        attempt: AttemptId::generate().unwrap(),
        key: "worktree".to_owned(),
    }
}

/// A race that may be lost; how often it was won.
fn tried(done: rustix::io::Result<()>) -> usize {
    usize::from(done.is_ok())
}

/// Tells whether something can be mounted here.
fn may_mount(ground: &Ground) -> bool {
    let (outside, at) = (ground.root.join("outside"), ground.root.join("at"));
    fs::create_dir(&at).unwrap();
    let able = mount_bind(&outside, &at).is_ok();
    unmount_below(&ground.root);
    fs::remove_dir(&at).unwrap();
    able
}

/// Takes away every mount below a directory, wherever an attack moved it.
fn unmount_below(root: &Path) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    for line in mounts.lines().rev() {
        let place = Path::new(line.split(' ').nth(4).unwrap_or_default());
        if place.starts_with(root) {
            tried(unmount(
                place,
                UnmountFlags::DETACH | UnmountFlags::NOFOLLOW,
            ));
        }
    }
}

/// Opens the directory that `name` of a tree is in. A neighbour's own hand must not slip through a link.
fn within(place: &Path, name: &str) -> Option<(OwnedFd, String)> {
    let root = beneath::open_root(place).ok()?;
    let (directory, name) = name.rsplit_once('/').unwrap_or(("", name));
    let directory = beneath::open_directory(&root, OsStr::new(directory)).ok()?;
    Some((directory, name.to_owned()))
}

/// Turns a directory of a tree in the trash into a link and back, as fast as that goes.
fn flip(root: &Path) {
    let link = root.join("work/flip");
    drop(symlink(root.join("outside"), &link));
    let trash = fs::read_dir(root.join("trash"));
    for entry in trash.into_iter().flatten().flatten() {
        let Some((directory, name)) = within(&entry.path(), "a") else {
            continue;
        };
        for _ in 0..FLIPS {
            let flipped = renameat_with(&directory, &*name, CWD, &link, RenameFlags::EXCHANGE);
            if flipped.is_err() {
                break;
            }
        }
    }
}

/// What a neighbour does once, wherever the tree is now; losing a race is part of the game. How much of it took effect.
fn attack(root: &Path, place: &Path, round: usize, mounts: bool) -> usize {
    let (outside, link) = (root.join("outside"), root.join("work/link"));
    drop(symlink(&outside, &link));
    let swap = |directory: &OwnedFd, name: &str| {
        tried(renameat_with(
            directory,
            name,
            CWD,
            &link,
            RenameFlags::EXCHANGE,
        ))
    };
    let mut hits = 0;
    match round % if mounts { 6 } else { 5 } {
        // A directory against a link, there and back.
        0 => {
            for name in ["a", "e/deep", "a/b/c", "f"] {
                if let Some((directory, name)) = within(place, name) {
                    hits += swap(&directory, &name);
                    hits += swap(&directory, &name);
                }
            }
        }
        // A directory moved away from below the walk, and back under another name.
        1 => {
            let away = root.join("work/away");
            for name in ["a/b", "e", "a"] {
                if let Some((directory, name)) = within(place, name) {
                    hits += tried(renameat(&directory, &*name, CWD, &away));
                    hits += tried(renameat(CWD, &away, &directory, "back"));
                }
            }
        }
        // Links to outside, made while it is emptied.
        2 => {
            for name in ["a/l", "e/l", "l"] {
                if let Some((directory, name)) = within(place, name) {
                    hits += tried(symlinkat(&outside, &directory, &*name));
                }
            }
        }
        // A forged marker, that of somebody else's workspace.
        3 => {
            if let Ok(directory) = beneath::open_root(place) {
                let forged = Marker {
                    layout: Layout::Worktree,
                    directory: "outside".to_owned(),
                    task: None,
                    tenant: None,
                    run: RunId::generate().unwrap(),
                    install: InstallId::new("other").unwrap(),
                    attempt: AttemptId::generate().unwrap(),
                    created_ms: marker::now_ms(),
                    ready: true,
                };
                hits += usize::from(forged.write(&directory, place).is_ok());
                hits += tried(symlinkat(&outside, &directory, "marker"));
                hits += tried(renameat(&directory, "marker", &directory, MARKER));
            }
        }
        // The tree itself against a link.
        4 => {
            hits += tried(renameat_with(CWD, place, CWD, &link, RenameFlags::EXCHANGE));
            hits += tried(renameat_with(CWD, place, CWD, &link, RenameFlags::EXCHANGE));
        }
        // What is outside, mounted in it.
        _ => {
            for name in ["a/b/c", "e/deep", "f"] {
                if let Some((directory, name)) = within(place, name)
                    && let Ok(directory) = beneath::open_directory(&directory, OsStr::new(&name))
                {
                    let at = format!("/proc/self/fd/{}", directory.as_raw_fd());
                    hits += tried(mount_bind(&outside, &at));
                }
            }
        }
    }
    drop(fs::remove_file(&link));
    hits
}

#[test]
fn c18_f051_f052_f053_f054_f059_g17_a_neighbour_changes_nothing_outside_what_is_deleted() {
    let ground = Ground::new();
    let before = print(&ground.root.join("outside"));
    // Without the right to mount, the others have all the turns.
    let mounts = may_mount(&ground);
    let (stop, hits) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (mut refused, mut deleted) = (0, 0);
    std::thread::scope(|scope| {
        let (root, work) = (&ground.root, ground.root.join("work/tree"));
        let (stop, hits) = (&stop, &hits);
        scope.spawn(move || {
            for round in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let trash = fs::read_dir(root.join("trash")).into_iter().flatten();
                let places = trash.flatten().map(|entry| entry.path());
                for place in std::iter::once(work.clone()).chain(places) {
                    hits.fetch_add(attack(root, &place, round, mounts), Ordering::Relaxed);
                }
            }
        });
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                flip(root);
            }
        });
        for number in 0..MOST_TREES {
            if number >= TREES && hits.load(Ordering::Relaxed) >= ATTACKS {
                break;
            }
            let tree = ground.tree();
            let Some(id) = FileId::of(&tree).ok().flatten() else {
                continue;
            };
            match ground.delete(id, &owner()) {
                Ok(()) => deleted += 1,
                Err(error) => {
                    // Each refusal says what it could not do.
                    assert_ne!(error.kind(), ErrorKind::Panicked, "{error:?}");
                    refused += 1;
                }
            }
            clear(&ground);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(print(&ground.root.join("outside")) == before);
    assert!(deleted > 0, "{deleted} deleted, {refused} refused");
    let hits = hits.load(Ordering::Relaxed);
    assert!(
        hits >= ATTACKS,
        "{hits} attacks, {deleted} deleted, {refused} refused"
    );
}

/// Removes what an attack left, by the same deletion.
fn clear(ground: &Ground) {
    unmount_below(&ground.root);
    for directory in ["work", "trash"] {
        let path = ground.root.join(directory);
        let Ok(parent) = beneath::open_root(&path) else {
            continue;
        };
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            drop(removal::remove(&parent, &entry.file_name(), &entry.path()));
        }
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "what a test skips must be seen")]
fn c18_f054_what_is_mounted_in_a_tree_meanwhile_is_not_touched() {
    let ground = Ground::new();
    let outside = ground.root.join("outside");
    let before = print(&outside);
    for number in 0..TREES / MOUNT_EVERY {
        let tree = ground.tree();
        let at = ["a/b/c", "e", "f"][number % 3];
        let id = FileId::of(&tree).unwrap().unwrap();
        let owner = owner();
        let parent = beneath::open_root(&ground.root.join("work")).unwrap();
        if !run(
            "mount",
            &["--bind".as_ref(), outside.as_ref(), tree.join(at).as_ref()],
        ) {
            eprintln!("skipped: this user may not mount");
            return;
        }
        // A directory with a mount below it is moved with it; its deletion stops there, and says so.
        let taken = ground
            .trash
            .take(&parent, OsStr::new("tree"), id, &owner, None);
        let error = match taken {
            Ok(()) => ground.trash.empty(&owner).unwrap_err(),
            Err(error) => error,
        };
        let place = if tree.exists() {
            tree.clone()
        } else {
            ground
                .root
                .join("trash")
                .join(format!("{}-worktree-discard", owner.attempt))
        };
        assert!(run("umount", &[place.join(at).as_ref()]));
        assert!(error.message().contains("mount point"), "{error}");
        assert!(error.get("path").unwrap().ends_with(at), "{error}");
        // It is still owned, and goes once the mount is gone.
        assert!(ground.trash.holds_discarded(&owner).unwrap());
        assert!(ground.trash.empty(&owner).unwrap());
    }
    assert!(print(&outside) == before);
}

#[test]
#[expect(clippy::print_stderr, reason = "what a test skips must be seen")]
fn f050_what_an_immutable_file_stops_stays_owned_and_goes_later() {
    let ground = Ground::new();
    let tree = ground.tree();
    let id = FileId::of(&tree).unwrap().unwrap();
    let owner = owner();
    let file = tree.join("a/d/2");
    if !run("chattr", &["+i".as_ref(), file.as_ref()]) {
        eprintln!("skipped: this user or filesystem has no immutable files");
        return;
    }
    let error = ground.delete(id, &owner).unwrap_err();
    let place = ground
        .root
        .join("trash")
        .join(format!("{}-worktree-discard", owner.attempt));
    assert!(run(
        "chattr",
        &["-i".as_ref(), place.join("a/d/2").as_ref()]
    ));
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.get("path").unwrap().ends_with("a/d/2"), "{error}");
    let listed = ground.trash.list().unwrap();
    assert!(listed.len() == 1 && listed[0].discarded && listed[0].owner == owner);
    assert!(ground.trash.empty(&owner).unwrap());
    assert_eq!(ground.trash.list().unwrap().len(), 0);
}

#[test]
fn f056_a_wide_tree_needs_no_more_descriptors_than_a_small_one() {
    let ground = Ground::new();
    let tree = ground.tree();
    for number in 0..FILES {
        fs::write(tree.join("f").join(format!("file-{number}")), "").unwrap();
    }
    for number in 0..64 {
        fs::create_dir(tree.join(format!("directory-{number}"))).unwrap();
    }
    let id = FileId::of(&tree).unwrap().unwrap();
    let open = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let few = rustix::process::Rlimit {
        current: Some(open + 6),
        maximum: rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum,
    };
    let before = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
    let result = ground.delete(id, &owner());
    rustix::process::setrlimit(rustix::process::Resource::Nofile, before).unwrap();
    result.unwrap();
    assert!(!tree.exists());
    assert_eq!(ground.trash.list().unwrap().len(), 0);
}

#[test]
fn c01_a_record_that_cannot_be_written_leaves_the_tree_where_it_is() {
    let ground = Ground::new();
    let tree = ground.tree();
    let id = FileId::of(&tree).unwrap().unwrap();
    let (run, install) = (RunId::generate().unwrap(), InstallId::new("i").unwrap());
    let owner = owner();
    let origin = Origin {
        key: owner.key.clone(),
        path: tree.clone(),
        ..Origin::new(&run, owner.attempt, &install, id)
    };
    let record = ground
        .root
        .join("trash")
        .join(format!("{}-worktree-origin", owner.attempt));
    // A directory in its place: the rename onto it fails.
    fs::create_dir_all(record.join("x")).unwrap();
    let parent = beneath::open_root(&ground.root.join("work")).unwrap();
    let take = || {
        ground
            .trash
            .take(&parent, OsStr::new("tree"), id, &owner, Some(&origin))
    };
    take().unwrap_err();
    assert!(tree.join("a/d/2").is_file());
    fs::remove_dir_all(&record).unwrap();
    take().unwrap();
    let listed = ground.trash.list().unwrap();
    let read = listed[0].origin.as_ref().unwrap().as_ref().unwrap();
    assert_eq!(*read, origin);
    // One that says nothing that can be understood keeps the tree.
    fs::write(&record, "{}").unwrap();
    let listed = ground.trash.list().unwrap();
    assert!(listed[0].stays(&ground.trash).is_some());
    assert_eq!(ground.trash.expire(std::time::Duration::ZERO).unwrap(), 0);
}

#[expect(
    clippy::disallowed_methods,
    reason = "tools of the machine that prepare a test"
)]
fn run(program: &str, args: &[&OsStr]) -> bool {
    std::process::Command::new(program)
        .args(args)
        .output()
        .is_ok_and(|output| output.status.success())
}

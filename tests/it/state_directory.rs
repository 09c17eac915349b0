//! The state directory: where it may be, what it survives.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use rustix::process::Signal;

use crate::ground::{Ground, Leaks, text};

#[test]
fn c17_dangerous_places_are_refused_with_a_reason() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let home = ground.root().join("home");
    let above = ground.root().to_owned();
    for place in [
        Path::new("/"),
        &home,
        &above,
        repository.path(),
        Path::new("~"),
        Path::new("relative"),
    ] {
        let before = repository.fingerprint();
        let outcome = ground
            .run_shell(&repository, &["--format", "json"], "touch ran")
            .env("GROUNDCREW_HOME", place)
            .run()
            .code(125);
        let error = outcome.error();
        assert_eq!(error["kind"], "invalid_input", "{place:?}: {outcome:?}");
        assert!(error.to_string().contains("GROUNDCREW_HOME"), "{outcome:?}");
        assert!(repository.fingerprint() == before);
        assert_eq!(fs::read_dir(&home).unwrap().count(), 0, "{place:?}");
    }
    assert!(!home.join("~").exists());
}

#[test]
fn c17_a_leading_tilde_is_the_home_directory() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let call = ground.run_in(&repository, &["--keep"], ["true"]);
    call.env("GROUNDCREW_HOME", "~/ws").run().ok();
    assert!(ground.root().join("home/ws/state.db").exists());
    assert!(!repository.path().join("~").exists());
}

#[test]
fn without_settings_the_state_is_where_the_machine_keeps_it() {
    let ground = Ground::new();
    ground
        .call(["ls"])
        .without_env("GROUNDCREW_HOME")
        .run()
        .ok();
    let state = ground.root().join("home/.local/state/groundcrew");
    assert!(state.join("state.db").exists());
    let mode = fs::metadata(&state).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn f048_a_place_that_cannot_be_written_is_named() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    // Nobody, not even root, can write there.
    let outcome = ground
        .run_shell(&repository, &["--format", "json"], "touch ran")
        .env("GROUNDCREW_HOME", "/proc/groundcrew")
        .run();
    assert_eq!(outcome.code, Some(125), "{outcome:?}");
    assert!(
        outcome.error().to_string().contains("/proc/groundcrew"),
        "{outcome:?}"
    );
    assert_eq!(repository.branches(), ["main"]);
}

/// Returns the words with which `unshare` lets this user mount filesystems, if it does.
fn mounting(ground: &Ground) -> Option<&'static str> {
    ["-m", "-Urm"].into_iter().find(|flags| {
        let call = ground.call(["--version"]).through("unshare", [flags, "--"]);
        call.run().code == Some(0)
    })
}

#[test]
fn c16_f046_files_that_cannot_grow_lose_no_record_and_leave_nothing() {
    nothing_can_grow(&Ground::new());
}

/// Every file is as large as it may become: what cannot be written is refused, and what was written stays.
fn nothing_can_grow(ground: &Ground) {
    let repository = ground.repository("r");
    let run = ground.ran(&repository, &["--keep"], "true");
    let leaks = Leaks::watch(ground, &[&repository]);
    let words = ["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh"];
    let call = ground.run_shell(&repository, &[], "touch ran");
    let outcome = call.through("/bin/sh", words).run();
    assert_eq!(outcome.code, Some(125), "{outcome:?}");
    ground.recover();
    leaks.none("files that cannot grow");
    assert_eq!(ground.show(text(&run["id"]))["id"], run["id"]);
    ground.ran(&repository, &[], "true");
}

#[test]
fn c16_f046_a_full_disk_loses_no_record_and_leaves_nothing() {
    let ground = Ground::new();
    let Some(flags) = mounting(&ground) else {
        // Where nothing can be mounted, the limit of a process stands in for that of a disk.
        return nothing_can_grow(&ground);
    };
    let repository = ground.repository("r");
    let before = repository.fingerprint();
    fs::create_dir(ground.state()).unwrap();
    let script = "mount -t tmpfs -o size=24m,mode=700 tmpfs \"$GROUNDCREW_HOME\" || exit 90; cd \"$REPO\" || exit 91
        \"$0\" run --keep -- true || exit 92
        \"$0\" run --keep -- true || exit 93
        \"$0\" --format json ls >\"$OUT/first\" || exit 94
        head -c 32M /dev/zero >\"$GROUNDCREW_HOME/fill\" 2>/dev/null
        \"$0\" --format json run --keep -- true >\"$OUT/third\"; echo $? >\"$OUT/code\"
        \"$0\" --format json ls >\"$OUT/full\" || exit 95
        rm \"$GROUNDCREW_HOME/fill\"
        \"$0\" recover || exit 96
        \"$0\" --format json ls >\"$OUT/last\" || exit 97
        \"$0\" run --keep -- true || exit 98";
    let words = [flags, "--", "sh", "-c", script];
    let outcome = ground
        .call([""; 0])
        .through("unshare", words)
        .env("REPO", repository.path())
        .env("OUT", ground.root().join("out"))
        .run()
        .ok();
    let read = |name: &str| fs::read_to_string(ground.path(name)).unwrap();
    let ids = |name: &str| -> Vec<String> {
        let document: serde_json::Value = serde_json::from_str(&read(name)).unwrap();
        let runs = document["runs"].as_array().unwrap();
        runs.iter().map(|run| text(&run["id"]).to_owned()).collect()
    };
    assert_eq!(ids("first").len(), 2);
    assert_ne!(
        read("code").trim(),
        "0",
        "a launch on a full disk succeeded: {outcome:?}"
    );
    let error: serde_json::Value = serde_json::from_str(&read("third")).unwrap();
    assert_eq!(error["error"]["kind"], "resource_exhausted", "{error:#}");
    assert_eq!(ids("full")[..2], ids("first")[..]);
    assert_eq!(ids("last"), ids("first"));
    assert!(repository.fingerprint() == before);
    assert_eq!(repository.branches().len(), 4);
}

#[test]
fn f047_a_disk_without_inodes_loses_no_record_and_leaves_nothing() {
    let ground = Ground::new();
    let Some(flags) = mounting(&ground) else {
        return nothing_can_grow(&ground);
    };
    let repository = ground.repository("r");
    for number in 0..40 {
        repository.write(format!("many/{number}"), "x\n");
    }
    repository.commit_all("many");
    let before = repository.fingerprint();
    fs::create_dir(ground.state()).unwrap();
    // Each time another place of the launch is the one that gets none: from the first directory to the last file.
    let script = "mount -t tmpfs -o size=64m,nr_inodes=400,mode=700 tmpfs \"$GROUNDCREW_HOME\" || exit 90
        cd \"$REPO\" || exit 91
        \"$0\" run --keep -- true || exit 92
        \"$0\" --format json ls >\"$OUT/first\" || exit 94
        mkdir \"$GROUNDCREW_HOME/fill\" || exit 93
        n=0; while true >\"$GROUNDCREW_HOME/fill/$n\"; do n=$((n + 1)); done 2>/dev/null
        for free in 0 2 4 8 16 32; do
            k=0; while [ $k -lt $free ]; do n=$((n - 1)); rm \"$GROUNDCREW_HOME/fill/$n\"; k=$((k + 1)); done
            \"$0\" --format json run --keep -- true >\"$OUT/failed-$free\" && exit 95
            \"$0\" --format json ls >\"$OUT/ls-$free\" || exit 96
            while true >\"$GROUNDCREW_HOME/fill/$n\"; do n=$((n + 1)); done 2>/dev/null
        done
        rm -r \"$GROUNDCREW_HOME/fill\"
        \"$0\" recover || exit 97
        \"$0\" --format json ls >\"$OUT/last\" || exit 98
        find \"$GROUNDCREW_HOME/worktrees\" -mindepth 1 -maxdepth 1 | wc -l >\"$OUT/trees\"
        \"$0\" run --keep -- true || exit 99";
    let words = [flags, "--", "sh", "-c", script];
    let outcome = ground
        .call([""; 0])
        .through("unshare", words)
        .env("REPO", repository.path())
        .env("OUT", ground.root().join("out"))
        .within(std::time::Duration::from_mins(2))
        .run()
        .ok();
    let read = |name: &str| fs::read_to_string(ground.path(name)).unwrap();
    let ids = |name: &str| -> Vec<String> {
        let document: serde_json::Value = serde_json::from_str(&read(name)).unwrap();
        let runs = document["runs"].as_array().unwrap();
        runs.iter().map(|run| text(&run["id"]).to_owned()).collect()
    };
    for free in [0, 2, 4, 8, 16, 32] {
        let error: serde_json::Value =
            serde_json::from_str(&read(&format!("failed-{free}"))).unwrap();
        assert_eq!(
            error["error"]["kind"], "resource_exhausted",
            "{free}: {error:#} {outcome:?}"
        );
        assert_eq!(ids(&format!("ls-{free}"))[..1], ids("first")[..], "{free}");
    }
    assert_eq!(ids("last"), ids("first"));
    assert_eq!(read("trees").trim(), "1");
    assert!(repository.fingerprint() == before);
    assert_eq!(repository.branches().len(), 3);
}

#[test]
fn f064_a_neighbour_in_a_directory_that_everybody_writes_in_gains_nothing() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let ground = Ground::below("sticky/home");
    let sticky = ground.state().parent().unwrap().to_owned();
    fs::create_dir_all(&sticky).unwrap();
    fs::set_permissions(&sticky, fs::Permissions::from_mode(0o1777)).unwrap();
    let victim = ground.path("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("precious"), "mine\n").unwrap();
    let repository = ground.repository("r");
    let (stop, home) = (AtomicBool::new(false), ground.state().to_owned());
    let codes: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            // A link to the victim, or nothing, where the state directory is about to be made.
            let link = sticky.join("link");
            while !stop.load(Ordering::Relaxed) {
                drop(std::os::unix::fs::symlink(&victim, &link));
                let flags = rustix::fs::RenameFlags::NOREPLACE;
                let _lost = rustix::fs::renameat_with(
                    rustix::fs::CWD,
                    &link,
                    rustix::fs::CWD,
                    &home,
                    flags,
                );
                if home.is_symlink() {
                    drop(fs::remove_file(&home));
                }
            }
        });
        let codes = (0..20)
            .map(|_| {
                let outcome = ground.run_shell(&repository, &[], "echo x >w").run();
                // What was made for one call is taken away for the next one, so that it is made again.
                if home.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                    drop(fs::remove_dir_all(&home));
                }
                outcome.code
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        codes
    });
    let names: Vec<_> = fs::read_dir(&victim)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["precious"], "{codes:?}");
    assert_eq!(
        fs::read_to_string(victim.join("precious")).unwrap(),
        "mine\n"
    );
    let mode = victim.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755, "{codes:?}");
    // A link that stays is refused every time: for what it leads to, or, even if that is our own, for who made it.
    std::os::unix::fs::symlink(&victim, &home).unwrap();
    ground.run_shell(&repository, &[], "true").run().code(125);
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 1);
    if rustix::process::geteuid().is_root() {
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::lchown(&home, Some(1234), None).unwrap();
        let outcome = ground.run_shell(&repository, &[], "true").run().code(125);
        assert!(outcome.err().contains("another user made"), "{outcome:?}");
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 1);
    }
    fs::remove_file(&home).unwrap();
}

#[test]
fn c16_f127_fifty_kills_at_any_moment_lose_nothing_that_was_there() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let first = ground.ran(&repository, &["--keep"], "true");
    for round in 0..50_u64 {
        let job = ground.run_shell(&repository, &["--keep"], "true").spawn();
        // A moment that differs from round to round, by what has come to pass and not by a clock.
        let state = ground.state().to_owned();
        let goal = round * 20;
        let mut looks = 0;
        while looks < goal && !job.has_ended() {
            looks += 1;
            drop(fs::read_dir(state.join("worktrees")).map(Iterator::count));
            drop(fs::read("/proc/self/maps"));
        }
        job.signal_if_alive(Signal::KILL);
        drop(job.wait());
        let listed = ground.runs(true);
        assert!(
            listed.iter().any(|run| run["id"] == first["id"]),
            "round {round}"
        );
    }
    let recovered = ground.recover();
    assert_eq!(recovered["stuck"], serde_json::json!([]), "{recovered:#}");
    assert!(repository.locks().is_empty());
    let runs = ground.runs(false);
    assert_eq!(repository.worktree_entries().len(), runs.len());
    assert_eq!(repository.branches().len(), runs.len() + 1);
    ground.ran(&repository, &[], "true");
}

#[test]
fn f132_a_damaged_store_is_refused_and_kept() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = ground.ran(&repository, &["--keep"], "true");
    let db = ground.state().join("state.db");
    for name in ["state.db-wal", "state.db-shm"] {
        drop(fs::remove_file(ground.state().join(name)));
    }
    for damage in [
        &b""[..],
        b"no database at all, but long enough to be looked at",
    ] {
        let sound = fs::read(&db).unwrap();
        fs::write(&db, damage).unwrap();
        let outcome = ground.call(["--format", "json", "recover"]).run();
        if damage.is_empty() {
            // A store that was emptied has forgotten all; what carries our mark is left alone.
            assert!(Path::new(text(&run["workspace"])).exists(), "{outcome:?}");
        } else {
            assert_ne!(outcome.code, Some(0), "{outcome:?}");
            assert_eq!(outcome.error()["kind"], "corrupt", "{outcome:?}");
            assert_eq!(fs::read(&db).unwrap(), damage, "the evidence was destroyed");
        }
        assert!(Path::new(text(&run["workspace"])).exists());
        for name in ["state.db-wal", "state.db-shm"] {
            drop(fs::remove_file(ground.state().join(name)));
        }
        fs::write(&db, sound).unwrap();
    }
}

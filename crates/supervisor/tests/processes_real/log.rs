//! The log on disk: every offset, the cap, a torn tail, a full disk.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use groundcrew_core::{
    error::ErrorKind,
    process::{Frame, FrameKind, Offset, ProcessPhase},
};
use groundcrew_supervisor::log::{LogReader, list, status};

use crate::support::{BOTH, Ground, id, lines, until};

/// Reads all there is, without a supervisor.
fn frames(log: &Path, from: u64) -> (Vec<Frame>, bool) {
    let mut reader = LogReader::open(log, &id("agent"), Offset(from)).unwrap();
    let mut all = Vec::new();
    while let Some(frame) = reader.next().unwrap() {
        all.push(frame);
    }
    (all, reader.is_finished())
}

fn bytes(frames: &[Frame]) -> Vec<u8> {
    let mut all = Vec::new();
    for frame in frames {
        match &frame.kind {
            FrameKind::Stdout(bytes) | FrameKind::Stderr(bytes) => all.extend_from_slice(bytes),
            _ => {}
        }
    }
    all
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn segments(log: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = std::fs::read_dir(log.join("agent"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "frames"))
        .collect();
    all.sort();
    all
}

alone! {
    async fn every_offset_gives_the_rest_of_the_whole() {
        let ground = Ground::new(BOTH[0]);
        let mut spec = ground.shell("for i in 1 2 3 4 5 6 7 8 9; do echo out $i; sleep 0.01; echo error $i >&2; sleep 0.01; done; head -c 9000 /dev/zero | tr '\\0' z");
        // Small segments, so that offsets fall on and between many of them.
        spec.log_limit = 32 * 1024;
        ground.run("agent", &spec).await;
        let log = ground.path().join("log");
        let (all, finished) = frames(&log, 0);
        let whole = bytes(&all);
        assert!(finished && all.len() > 10 && whole.len() > 9000, "{}", whole.len());
        assert_eq!(all[0].offset, Offset(0));
        for from in 0..=whole.len() {
            let (rest, finished) = frames(&log, from as u64);
            assert!(finished && bytes(&rest) == whole[from..], "from {from}");
            let mut position = from as u64;
            for frame in &rest {
                assert_eq!(frame.offset.0, position, "from {from}");
                if let FrameKind::Stdout(bytes) | FrameKind::Stderr(bytes) = &frame.kind {
                    assert!(!bytes.is_empty());
                    position += bytes.len() as u64;
                }
            }
        }
        // The attached stream is the same reader.
        let output = ground.output("agent", 5).await;
        assert_eq!(output.stdout.len() + output.stderr.len(), whole.len() - 5);
        ground.nothing_left().await;
    }

    async fn the_oldest_goes_at_the_cap_and_the_newest_stays() {
        let ground = Ground::new(BOTH[0]);
        let mut spec = ground.shell("i=100000; while [ $i -lt 140000 ]; do echo line $i; i=$((i+1)); done");
        spec.log_limit = 200_000;
        let live = async {
            ground.start("agent", &spec).await;
            ground.output("agent", 0).await
        }.await;
        // A reader that keeps up misses little or nothing; whatever it gets is right.
        assert_eq!(live.stdout.len() as u64 + live.truncated, 480_000);
        let state = ground.processes.list().remove(0);
        assert_eq!(state.log_end, Offset(480_000));
        let kept = state.log_end.0 - state.log_start.0;
        assert!(kept <= 200_000 && kept > 120_000, "{kept}");
        let output = ground.output("agent", 0).await;
        assert_eq!(output.truncated, state.log_start.0);
        let whole = lines(100_000..140_000);
        let start = usize::try_from(state.log_start.0).unwrap();
        assert!(output.text() == &whole[start..]);
        let on_disk: u64 = segments(&ground.path().join("log")).iter().map(|path| path.metadata().unwrap().len()).sum();
        assert!(on_disk < 800_000, "{on_disk}");
        ground.nothing_left().await;
    }

    async fn a_torn_tail_is_no_frame() {
        let ground = Ground::new(BOTH[0]);
        ground.start("agent", &ground.shell("for i in 1 2 3 4 5; do echo line $i; sleep 0.02; done; sleep 1000")).await;
        until(|| (ground.processes.list()[0].log_end.0 == 35).then_some(())).await;
        let live = ground.path().join("log");
        let (all, finished) = frames(&live, 0);
        assert!(!finished && bytes(&all) == b"line 1\nline 2\nline 3\nline 4\nline 5\n");
        assert!(matches!(list(&live, true).unwrap()[0].phase, ProcessPhase::Running(_)));
        // As a supervisor that was killed at any point of its writing would leave it.
        let segment = std::fs::read(&segments(&live)[0]).unwrap();
        for keep in 0..=segment.len() {
            let log = ground.path().join("torn");
            copy(&live.join("agent"), &log.join("agent"));
            std::fs::write(&segments(&log)[0], &segment[..keep]).unwrap();
            let (left, finished) = frames(&log, 0);
            assert!(!finished && all.starts_with(&left), "{keep}");
            assert_eq!(left.len() == all.len(), keep == segment.len());
            let state = list(&log, false).unwrap().remove(0);
            assert_eq!((state.phase, state.log_end.0), (ProcessPhase::Lost, bytes(&left).len() as u64));
            // Neither are zeros that a crash of the machine leaves behind.
            let mut zeros = segment[..keep].to_vec();
            zeros.resize(keep + 100, 0);
            std::fs::write(&segments(&log)[0], zeros).unwrap();
            let count = frames(&log, 0).0.len();
            assert!(count == left.len() || count == left.len() + 1, "{keep}");
        }
        ground.nothing_left().await;
    }

    async fn a_log_is_read_after_its_end_without_its_supervisor() {
        let ground = Ground::new(BOTH[0]);
        let log = ground.path().join("log");
        ground.run("agent", &ground.shell("echo hi; exit 5")).await;
        let mut other = ground.shell("sleep 1000");
        other.main = false;
        ground.start("other", &other).await;
        let states = list(&log, true).unwrap();
        let names: Vec<_> = states.iter().map(|state| (state.id.as_str(), state.main)).collect();
        assert_eq!(names, [("agent", true), ("other", false)]);
        assert_eq!(states, ground.processes.list());
        assert_eq!(status(&log, &id("agent")).unwrap().unwrap().code, Some(5));
        assert_eq!(status(&log, &id("other")).unwrap(), None);
        assert_eq!(status(&log, &id("nobody")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(LogReader::open(&log, &id("nobody"), Offset(0)).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(list(&log, false).unwrap()[1].phase, ProcessPhase::Lost);
        assert!(list(&ground.path().join("missing"), false).unwrap().is_empty());
        ground.nothing_left().await;
    }

    async fn f144_nobody_else_reads_a_log_and_no_value_is_in_it() {
        let ground = Ground::new(BOTH[0]);
        let mut spec = ground.shell("echo hi");
        spec.environment = groundcrew_core::process::EnvironmentSource::Exact(crate::support::environment(&[("PATH", "/usr/bin:/bin"), ("TOKEN", "hunter2")]));
        ground.run("agent", &spec).await;
        let directory = ground.path().join("log/agent");
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&ground.path().join("log")), mode(&directory)), (0o700, 0o700));
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path), 0o600, "{path:?}");
            let content = std::fs::read(&path).unwrap();
            assert!(!content.windows(7).any(|part| part == b"hunter2"), "{path:?}");
        }
        ground.nothing_left().await;
    }
}

alone! { mounts:
    async fn f052_a_full_disk_loses_output_aloud_and_never_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("small");
        std::fs::create_dir(&log).unwrap();
        mount(&log);
        let ground = Ground::with_log(BOTH[0], directory, log.clone());
        let script = "head -c 3000000 /dev/zero | tr '\\0' a; echo full >full; while ! [ -e go ]; do sleep 0.02; done; echo last words; exit 6";
        let filler = log.join("filler");
        std::fs::write(&filler, vec![0; 300_000]).unwrap();
        ground.start("agent", &ground.shell(script)).await;
        // It goes on although its log takes nothing any more.
        ground.words("full").await;
        until(|| (ground.processes.list()[0].log_end.0 == 3_000_000).then_some(())).await;
        std::fs::remove_file(&filler).unwrap();
        std::fs::write(ground.path().join("go"), "").unwrap();
        let output = ground.output("agent", 0).await;
        assert_eq!(output.status().code, Some(6));
        assert!(output.text().ends_with("last words\n"));
        assert_eq!(output.stdout.len() as u64 + output.truncated, 3_000_011);
        assert!(output.truncated > 1_000_000);
        // The exit frame is in its own room, and there is none left for anything else.
        let _partly = std::fs::write(&filler, vec![0; 2 << 20]);
        assert_eq!(status(&log, &id("agent")).unwrap().unwrap().code, Some(6));
        ground.nothing_left().await;
    }

    async fn f052_the_end_is_recorded_on_a_disk_without_any_room() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("small");
        std::fs::create_dir(&log).unwrap();
        mount(&log);
        let ground = Ground::with_log(BOTH[0], directory, log.clone());
        ground.start("agent", &ground.shell("while ! [ -e go ]; do sleep 0.02; done; echo lost; exit 8")).await;
        let _partly = std::fs::write(log.join("filler"), vec![0; 2 << 20]);
        std::fs::write(ground.path().join("go"), "").unwrap();
        let output = ground.output("agent", 0).await;
        assert_eq!((output.status().code, output.truncated), (Some(8), 5));
        let (all, finished) = frames(&log, 0);
        assert!(finished && matches!(all[0].kind, FrameKind::Truncated(5)));
        ground.nothing_left().await;
    }
}

#[expect(clippy::disallowed_methods, reason = "a disk that is full on purpose")]
fn mount(at: &Path) {
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1M", "none"])
        .arg(at)
        .status()
        .unwrap();
    assert!(mounted.success());
}

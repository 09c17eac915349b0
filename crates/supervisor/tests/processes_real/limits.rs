//! Limits of time and of the machine, by what they really do.

use std::time::{Duration, Instant};

use bytes::Bytes;
use groundcrew_core::{
    error::ErrorKind,
    executor::Limits,
    process::{EndCause, Milliseconds, Signal, StdinPolicy},
};
use groundcrew_supervisor::check_limits;

use crate::support::{BOTH, Ground, children, id, order};

/// Long enough that a busy machine does not make a process idle that is not.
const IDLE: Duration = Duration::from_millis(1500);

alone! {
    async fn a_process_that_is_idle_ends_with_its_tree_and_says_which_limit_it_was() {
        for policy in BOTH {
            let ground = Ground::new(policy);
            let mut spec = ground.shell("echo begun; trap '' TERM; sleep 1000 & while :; do sleep 1000; done");
            spec.idle_limit = Some(Milliseconds(Duration::from_millis(200)));
            spec.time_limit = Some(Milliseconds(Duration::from_secs(1000)));
            spec.stop = order(Duration::from_millis(200));
            let output = ground.run("agent", &spec).await;
            assert_eq!(output.text(), "begun\n");
            let status = output.status();
            assert_eq!((status.signal, status.cause), (Some(Signal::KILL), EndCause::Idle));
            assert!(status.to_string().contains("idle limit"), "{status}");
            ground.processes.main_ended().await;
            assert_eq!(children(), "");
            ground.nothing_left().await;
        }
    }

    async fn output_keeps_a_process_from_being_idle() {
        let ground = Ground::new(BOTH[0]);
        // Twice as long as it may be idle, and on both streams.
        let mut spec = ground.shell("for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.15; echo $i >&2; sleep 0.15; echo $i; done; exit 6");
        spec.idle_limit = Some(Milliseconds(IDLE));
        let status = ground.run("agent", &spec).await.status();
        assert_eq!((status.code, status.cause), (Some(6), EndCause::Itself));
        ground.nothing_left().await;
    }

    async fn input_keeps_a_process_from_being_idle() {
        let ground = Ground::new(BOTH[0]);
        let mut spec = ground.shell("cat >all; exit 6");
        spec.stdin = StdinPolicy::Open;
        spec.idle_limit = Some(Milliseconds(IDLE));
        ground.start("agent", &spec).await;
        let begun = Instant::now();
        while begun.elapsed() < IDLE * 2 {
            ground.processes.write(&id("agent"), Bytes::from_static(b"x")).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        ground.processes.close_stdin(&id("agent")).unwrap();
        let status = ground.processes.wait(&id("agent")).await.unwrap();
        assert_eq!((status.code, status.cause), (Some(6), EndCause::Itself));
        ground.nothing_left().await;
    }

    async fn a_time_limit_that_comes_first_is_the_one_that_is_told() {
        let ground = Ground::new(BOTH[0]);
        let mut spec = ground.shell("while :; do sleep 0.05; echo busy; done");
        spec.idle_limit = Some(Milliseconds(Duration::from_secs(30)));
        spec.time_limit = Some(Milliseconds(Duration::from_millis(300)));
        assert_eq!(ground.run("agent", &spec).await.status().cause, EndCause::TimedOut);
        ground.nothing_left().await;
    }

    async fn the_limits_of_each_process_have_their_effect() {
        let limits = Limits {
            open_files: Some(32),
            file_size: Some(8192),
            core_size: Some(4096),
            ..Limits::default()
        };
        for policy in BOTH {
            let ground = Ground::limited(policy, limits).unwrap();
            // No shell can set them higher again, and no second process gets others.
            let script = "echo $(ulimit -Sn) $(ulimit -Hn) $(ulimit -Hf) $(ulimit -Sc); ulimit -n 33 2>/dev/null && id -u";
            let output = ground.run("told", &ground.shell(script)).await;
            // As 512 byte blocks.
            let mut lines = output.text().lines();
            assert_eq!(lines.next(), Some("32 32 16 8"));
            let rest: Vec<_> = lines.collect();
            assert!(rest.is_empty() || rest == ["0"], "only root may: {rest:?}");
            let script = "i=3; while [ $i -lt 40 ]; do eval \"exec $i</dev/null\" || exit 9; i=$((i+1)); done";
            let status = ground.run("files", &ground.spec(&["bash", "-c", script])).await.status();
            assert_ne!(status.code, Some(0), "more descriptors than allowed");
            // With the signal ignored, the write itself fails.
            let status = ground.run("size", &ground.spec(&["dd", "if=/dev/zero", "of=big", "bs=4096", "count=4"])).await.status();
            assert_eq!(status.signal, Some(Signal(25)), "{status}");
            assert_eq!(std::fs::metadata(ground.path().join("big")).unwrap().len(), 8192);
            ground.nothing_left().await;
        }
    }

    async fn without_a_word_there_is_no_core_file_and_all_else_is_as_it_was() {
        let ground = Ground::limited(BOTH[0], Limits::default()).unwrap();
        let own = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let output = ground.run("told", &ground.shell("echo $(ulimit -Sn) $(ulimit -Sc)")).await;
        assert_eq!(output.text().trim(), format!("{} 0", own.map_or("unlimited".into(), |n| n.to_string())));
        ground.nothing_left().await;
    }

    async fn f007_a_fork_bomb_is_held_or_its_limit_is_refused() {
        let limits = Limits {
            processes: Some(20),
            ..Limits::default()
        };
        // Without any cgroup, never silently without the limit.
        let refused = Ground::limited(BOTH[1], limits).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        let planned = check_limits(&limits);
        match Ground::limited(BOTH[0], limits) {
            Err(error) => {
                // What the plan would have said, and nothing is left of the try.
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(error.to_string().contains("`pids`"), "{error}");
                assert_eq!(planned.unwrap_err().to_string(), error.to_string());
            }
            Ok(ground) => {
                planned.unwrap();
                let script = "i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i+1)); done; exec sleep 1000";
                let status = ground.run("agent", &ground.shell(script)).await.status();
                assert_ne!(status.code, Some(0), "more processes than allowed");
                ground.nothing_left().await;
            }
        }
    }
}

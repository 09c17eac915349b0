//! Trees of processes end whole, with a cgroup and without one.

use std::time::{Duration, Instant};

use crate::support::{BOTH, Ground, alive, children, id, order, until};
use groundcrew_core::process::{EndCause, Milliseconds, Signal};
use groundcrew_supervisor::processes::CgroupPolicy;

const SOON: Duration = Duration::from_secs(20);

alone! {
    async fn f001_a_process_is_in_its_cgroup_whichever_way_it_came_there() {
        for policy in [CgroupPolicy::Automatic, CgroupPolicy::Entered] {
            let ground = Ground::new(policy);
            let pid = ground.start("agent", &ground.spec(&["sleep", "1000"])).await;
            // Without such a hierarchy there is no place to be in, and nothing to look at.
            if let Some(group) = ground.processes.cgroup() {
                let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
                let name = group.file_name().unwrap().to_str().unwrap();
                let end = format!("/{name}/p-agent");
                assert!(groups.lines().any(|line| line.starts_with("0::") && line.ends_with(&end)), "{policy:?} {groups}");
            }
            ground.stop("agent", Duration::ZERO).await;
            ground.nothing_left().await;
        }
    }

    async fn f001_f002_a_daemon_with_a_cleared_environment_ends_with_its_process() {
        for policy in BOTH {
            let ground = Ground::new(policy);
            // Twice forked, in a session of its own, no environment, its parents gone.
            let script = "(setsid sh -c 'env -i sh -c \"echo \\$\\$ >daemon; exec sleep 1000\" & ' &) ; exec sleep 1000";
            ground.start("agent", &ground.shell(script)).await;
            let daemon = ground.words("daemon").await.remove(0);
            assert!(alive(&daemon));
            ground.stop("agent", Duration::from_millis(200)).await;
            assert!(!alive(&daemon), "{policy:?}");
            assert_eq!(children(), "");
            ground.nothing_left().await;
        }
    }

    async fn f001_a_daemon_ends_when_its_process_ends_by_itself() {
        for policy in BOTH {
            let ground = Ground::new(policy);
            let script = "setsid sh -c 'echo $$ >daemon; exec sleep 1000' & while ! [ -s daemon ]; do sleep 0.01; done; exit 3";
            ground.start("agent", &ground.shell(script)).await;
            let status = ground.processes.main_ended().await;
            assert_eq!((status.code, status.cause), (Some(3), EndCause::Itself));
            let daemon = ground.words("daemon").await.remove(0);
            assert!(!alive(&daemon), "{policy:?}");
            assert_eq!(children(), "");
            ground.nothing_left().await;
        }
    }

    async fn f003_a_process_that_ignores_every_polite_signal_ends_after_the_grace() {
        for policy in BOTH {
            let ground = Ground::new(policy);
            let script = "trap '' TERM INT HUP QUIT; echo up >up; while :; do sleep 1000; done";
            ground.start("agent", &ground.shell(script)).await;
            ground.words("up").await;
            let begun = Instant::now();
            ground.stop("agent", Duration::from_millis(500)).await;
            let took = begun.elapsed();
            assert!(took >= Duration::from_millis(500) && took < SOON, "{took:?}");
            let status = ground.processes.wait(&id("agent")).await.unwrap();
            assert_eq!((status.signal, status.cause), (Some(Signal::KILL), EndCause::Stopped));
            ground.nothing_left().await;
        }
    }

    async fn f004_a_stopped_process_hears_the_signal_that_asks_it_to_end() {
        for policy in BOTH {
            let ground = Ground::new(policy);
            let script = "trap 'echo heard >heard; exit 5' TERM; echo up >up; kill -STOP $$; while :; do sleep 0.05; done";
            let pid = ground.start("agent", &ground.shell(script)).await;
            ground.words("up").await;
            until(|| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ").then_some(())).await;
            ground.stop("agent", Duration::from_secs(30)).await;
            assert_eq!(ground.words("heard").await, ["heard"]);
            assert_eq!(ground.processes.wait(&id("agent")).await.unwrap().code, Some(5));
            ground.nothing_left().await;
        }
    }

    async fn f006_a_tree_that_forks_without_end_is_outrun() {
        for policy in BOTH {
            let ground = Ground::new(policy);
            // Forty chains, each of which replaces itself by a new process all the time.
            let script = "trap '' TERM; cat >chain <<'E'\ntrap '' TERM\nsh chain &\nE\n\
                for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sh chain & done; echo up >up; exec sleep 1000";
            ground.start("agent", &ground.shell(script)).await;
            ground.words("up").await;
            let begun = Instant::now();
            ground.stop("agent", Duration::ZERO).await;
            assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
            assert_eq!(children(), "", "{policy:?}");
            ground.nothing_left().await;
        }
    }

    async fn f008_a_process_that_closes_its_streams_still_lives() {
        for policy in BOTH {
            let ground = Ground::new(policy);
            let script = "exec >&- 2>&- <&-; echo up >up; while ! [ -e go ]; do sleep 0.02; done; exit 9";
            ground.start("agent", &ground.shell(script)).await;
            ground.words("up").await;
            let early = tokio::time::timeout(Duration::from_millis(300), ground.processes.wait(&id("agent"))).await;
            assert!(early.is_err(), "the end of its streams was taken for its end");
            std::fs::write(ground.path().join("go"), "").unwrap();
            assert_eq!(ground.processes.wait(&id("agent")).await.unwrap().code, Some(9));
            ground.nothing_left().await;
        }
    }

    async fn f009_c09_a_grandchild_that_holds_stdout_does_not_hold_up_the_end() {
        for policy in BOTH {
            let ground = Ground::new(policy);
            let begun = Instant::now();
            // Not only held, but filled without end.
            let script = "(trap '' TERM; exec yes noise) & (trap '' TERM; exec yes noise) & (trap '' TERM; exec sleep 1000) & echo done; exit 4";
            let output = ground.run("agent", &ground.shell(script)).await;
            assert_eq!(output.status().code, Some(4));
            assert!(output.text().contains("done\n"));
            assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
            ground.processes.main_ended().await;
            assert_eq!(children(), "", "{policy:?}");
            ground.nothing_left().await;
        }
    }

    async fn f021_a_thousand_orphans_leave_no_zombie() {
        for policy in BOTH {
            let ground = Ground::new(policy);
            let script = "i=0; while [ $i -lt 200 ]; do (true & true & true & true & true &); i=$((i+1)); done; echo up >up; exec sleep 1000";
            let pid = ground.start("agent", &ground.shell(script)).await;
            ground.words("up").await;
            until(|| (children().trim() == pid.to_string()).then_some(())).await;
            ground.stop("agent", Duration::ZERO).await;
            ground.nothing_left().await;
        }
    }

    async fn f022_the_whole_tree_gets_a_signal() {
        for policy in BOTH {
            let ground = Ground::new(policy);
            let script = "trap 'echo one >one' USR1; setsid sh -c 'trap \"echo two >two\" USR1; echo up >up; while :; do sleep 0.02; done' & \
                while :; do sleep 0.02; done";
            ground.start("agent", &ground.shell(script)).await;
            ground.words("up").await;
            ground.processes.signal(&id("agent"), Signal(10)).unwrap();
            assert_eq!(ground.words("one").await, ["one"]);
            assert_eq!(ground.words("two").await, ["two"]);
            ground.stop("agent", Duration::ZERO).await;
            // A process that has ended is success.
            ground.processes.signal(&id("agent"), Signal::TERM).unwrap();
            ground.nothing_left().await;
        }
    }

    async fn one_process_ends_and_its_siblings_stay() {
        for policy in BOTH {
            let ground = Ground::new(policy);
            let mut spec = ground.shell("setsid sh -c 'echo $$ >$0; exec sleep 1000' $F & exec sleep 1000");
            for name in ["one", "two"] {
                spec.main = name == "one";
                spec.environment = groundcrew_core::process::EnvironmentSource::Exact(crate::support::environment(&[
                    ("PATH", "/usr/bin:/bin"),
                    ("F", name),
                ]));
                ground.start(name, &spec).await;
                ground.words(name).await;
            }
            let (one, two) = (ground.words("one").await.remove(0), ground.words("two").await.remove(0));
            ground.stop("two", Duration::from_secs(20)).await;
            assert!(alive(&one) && !alive(&two), "{policy:?}");
            ground.stop("one", Duration::from_secs(20)).await;
            assert!(!alive(&one));
            ground.nothing_left().await;
        }
    }

    async fn a_time_limit_ends_the_tree_and_says_so() {
        for policy in BOTH {
            let ground = Ground::new(policy);
            let mut spec = ground.shell("trap '' TERM; sleep 1000 & while :; do sleep 1000; done");
            spec.time_limit = Some(Milliseconds(Duration::from_millis(200)));
            spec.stop = order(Duration::from_millis(200));
            let status = ground.run("agent", &spec).await.status();
            assert_eq!((status.signal, status.cause), (Some(Signal::KILL), EndCause::TimedOut));
            ground.processes.main_ended().await;
            assert_eq!(children(), "");
            ground.nothing_left().await;
        }
    }

    async fn everything_ends_at_once_for_its_cause_and_nothing_starts_any_more() {
        for policy in BOTH {
            let ground = Ground::new(policy);
            let spec = ground.shell("trap '' TERM; while :; do sleep 1000; done");
            for name in ["a", "b", "c"] {
                ground.start(name, &spec).await;
            }
            let begun = Instant::now();
            ground.processes.stop_all(Some(Duration::from_millis(300)), EndCause::LeaseLapsed).await.unwrap();
            assert!(begun.elapsed() < SOON);
            for name in ["a", "b", "c"] {
                assert_eq!(ground.processes.wait(&id(name)).await.unwrap().cause, EndCause::LeaseLapsed);
            }
            let error = ground.processes.start(&id("d"), &spec).await.unwrap_err();
            assert_eq!(error.kind(), groundcrew_core::error::ErrorKind::Unavailable);
            ground.nothing_left().await;
        }
    }

    async fn stop_is_repeatable_and_the_first_cause_counts() {
        let ground = Ground::new(BOTH[0]);
        let spec = ground.shell("trap '' TERM; echo up >up; while :; do sleep 1000; done");
        ground.start("agent", &spec).await;
        ground.words("up").await;
        let (agent, long, short) = (id("agent"), order(Duration::from_secs(1000)), order(Duration::ZERO));
        let (first, second) = tokio::join!(
            ground.processes.stop(&agent, &long, EndCause::Stopped),
            ground.processes.stop(&agent, &short, EndCause::LeaseLapsed),
        );
        first.unwrap();
        second.unwrap();
        ground.processes.stop(&agent, &short, EndCause::Stopped).await.unwrap();
        assert_eq!(ground.processes.wait(&agent).await.unwrap().cause, EndCause::Stopped);
        ground.nothing_left().await;
    }
}

alone! {
    pids:

    async fn f001_a_supervisor_whose_session_has_its_leader_outside_ends_trees_all_the_same() {
        let own = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert_eq!(own.rsplit(") ").next().unwrap().split(' ').nth(3), Some("0"), "{own}");
        for policy in BOTH {
            let ground = Ground::new(policy);
            let script = "setsid sh -c 'echo $$ >daemon; exec sleep 1000' & (exec sleep 0.01 &); echo up >up; exec sleep 1000";
            ground.start("agent", &ground.shell(script)).await;
            let daemon = ground.words("daemon").await.remove(0);
            ground.processes.signal(&id("agent"), Signal(18)).unwrap();
            ground.stop("agent", Duration::from_millis(200)).await;
            assert!(!alive(&daemon), "{policy:?}");
            ground.nothing_left().await;
        }
    }
}

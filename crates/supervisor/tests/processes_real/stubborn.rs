//! Processes that stand in the way of their own end, and a system that has no room for one more.

use std::{
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

use groundcrew_core::error::ErrorKind;
use groundcrew_supervisor::processes::CgroupPolicy;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::{BOTH, Ground, alive, children, until};

/// Compiles a helper program and returns its path.
async fn helper(ground: &Ground, name: &str) -> String {
    let source = format!(
        "{}/tests/processes_real/helpers/{name}.c",
        env!("CARGO_MANIFEST_DIR")
    );
    let program = ground.path().join(name).display().to_string();
    let mut spec = ground.spec(&["cc", "-Wall", "-o", &program, &source]);
    spec.main = false;
    let output = ground.run(&format!("cc-{name}"), &spec).await;
    assert_eq!(
        output.status().code,
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

/// Waits for the first line that a process prints, and returns its words.
async fn first_line(ground: &Ground, name: &str) -> Vec<String> {
    use futures_util::StreamExt as _;
    use groundcrew_core::process::{FrameKind, Offset};
    let mut frames = ground
        .processes
        .attach(&crate::support::id(name), Offset(0))
        .unwrap();
    let mut text = String::new();
    while !text.contains('\n') {
        match frames.next().await.unwrap().unwrap().kind {
            FrameKind::Stdout(bytes) => text.push_str(std::str::from_utf8(&bytes).unwrap()),
            other => panic!("{other:?} before a line"),
        }
    }
    text.split_whitespace().map(str::to_owned).collect()
}

#[expect(clippy::print_stdout, reason = "a figure is worth knowing")]
fn tell(text: std::fmt::Arguments<'_>) {
    println!("{text}");
}

alone! {
    async fn f024_a_process_that_another_one_traces_ends_with_it() {
        for policy in BOTH {
            let ground = Ground::new(policy);
            let traced = helper(&ground, "traced").await;
            ground.start("agent", &ground.spec(&[&traced])).await;
            let pids = first_line(&ground, "agent").await;
            until(|| std::fs::read_to_string(format!("/proc/{}/stat", pids[1])).unwrap().contains(") t ").then_some(())).await;
            let begun = Instant::now();
            ground.stop("agent", Duration::from_millis(300)).await;
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
            assert!(pids.iter().all(|pid| !alive(pid)), "{policy:?}");
            assert_eq!(children(), "");
            ground.nothing_left().await;
        }
    }

    async fn f026_what_a_daemon_holds_of_the_system_goes_with_it() {
        for policy in BOTH {
            let ground = Ground::new(policy);
            let listener = helper(&ground, "listener").await;
            ground.start("agent", &ground.spec(&[&listener])).await;
            let words = first_line(&ground, "agent").await;
            let port: u16 = words[0].parse().unwrap();
            let segment = || {
                let all = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
                all.lines().any(|line| line.split_ascii_whitespace().nth(1) == Some(words[1].as_str()))
            };
            assert!(segment());
            assert!(TcpListener::bind(("127.0.0.1", port)).is_err(), "it holds the port");
            ground.stop("agent", Duration::from_millis(100)).await;
            TcpListener::bind(("127.0.0.1", port)).unwrap();
            assert!(!segment());
            ground.nothing_left().await;
        }
    }

    async fn f023_a_process_that_moved_out_of_its_cgroup_ends_all_the_same() {
        for policy in [CgroupPolicy::Automatic, CgroupPolicy::Entered] {
            let ground = Ground::new(policy);
            let Some(group) = ground.processes.cgroup() else {
                // There is nothing to move out of here; the subreaper's own tests say the rest.
                return;
            };
            let outside = group.parent().unwrap().join("cgroup.procs");
            let script = format!(
                "setsid sh -c 'trap \"\" TERM; echo $$ >{0} && echo $$ >daemon; while :; do sleep 1000; done' & \
                 trap '' TERM; echo $$ >{0} && echo $$ >leader; while :; do sleep 1000; done",
                outside.display()
            );
            ground.start("agent", &ground.shell(&script)).await;
            for who in ["leader", "daemon"] {
                let pid = ground.words(who).await.remove(0);
                let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
                assert!(!groups.contains("p-agent"), "{who} moved: {groups}");
            }
            let (leader, daemon) = (ground.words("leader").await.remove(0), ground.words("daemon").await.remove(0));
            ground.stop("agent", Duration::from_millis(200)).await;
            assert!(!alive(&leader) && !alive(&daemon), "{policy:?}");
            ground.nothing_left().await;
        }
    }

    async fn f034_no_room_for_another_process_is_said_and_leaves_nothing() {
        let ground = Ground::new(CgroupPolicy::Never);
        for directory in [ground.path().to_owned(), ground.path().join("log")] {
            std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777)).unwrap();
        }
        if rustix::process::geteuid().is_root() {
            // Root is bound by no count of processes; this thread, which alone starts any, is somebody else from here on.
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        }
        let before = getrlimit(Resource::Nproc);
        setrlimit(Resource::Nproc, Rlimit { current: Some(1), maximum: before.maximum }).unwrap();
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let descriptors = open();
        let error = ground.fails(&ground.spec(&["true"])).await;
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::ResourceExhausted, true), "{error}");
        assert_eq!(open(), descriptors);
        assert_eq!(children(), "");
        // And as soon as there is room, it is taken.
        setrlimit(Resource::Nproc, before).unwrap();
        assert_eq!(ground.run("agent", &ground.spec(&["true"])).await.status().code, Some(0));
    }

    async fn f036_a_machine_without_room_for_another_cgroup_ends_trees_all_the_same() {
        let ground = Ground::new(CgroupPolicy::Automatic);
        let Some(group) = ground.processes.cgroup() else {
            // There is none to run out of; the subreaper's own tests say the rest.
            return;
        };
        std::fs::write(group.join("cgroup.max.descendants"), "0").unwrap();
        let script = "setsid sh -c 'trap \"\" TERM; echo $$ >daemon; while :; do sleep 1000; done' & \
                      while [ ! -s daemon ]; do sleep 0.01; done; echo up; exec sleep 1000";
        ground.start("agent", &ground.shell(script)).await;
        assert_eq!(first_line(&ground, "agent").await, ["up"]);
        let daemon = ground.words("daemon").await.remove(0);
        let groups = std::fs::read_to_string(format!("/proc/{daemon}/cgroup")).unwrap();
        assert!(!groups.contains("p-agent"), "there was room: {groups}");
        ground.stop("agent", Duration::from_millis(200)).await;
        assert!(!alive(&daemon));
        // With room again, the next one is where it belongs.
        std::fs::write(group.join("cgroup.max.descendants"), "max").unwrap();
        let output = ground.run("next", &ground.shell("cat /proc/self/cgroup")).await;
        assert!(output.text().contains("p-next"), "{}", output.text());
        ground.nothing_left().await;
    }

    async fn c06_g12_a_tree_of_four_hundred_ends_soon_after_the_kill() {
        for policy in BOTH {
            let ground = Ground::new(policy);
            let script = "trap '' TERM; i=0; while [ $i -lt 400 ]; do (trap '' TERM; exec sleep 1000) & i=$((i+1)); done; echo up >up; exec sleep 1000";
            ground.start("agent", &ground.shell(script)).await;
            ground.words("up").await;
            let grace = Duration::from_millis(300);
            let begun = Instant::now();
            ground.stop("agent", grace).await;
            let late = begun.elapsed().saturating_sub(grace);
            tell(format_args!("400 processes, {policy:?}: gone {late:?} after the grace"));
            // The target is 150 ms on a machine that does nothing else.
            assert!(late < Duration::from_secs(3), "{late:?}");
            assert_eq!(children(), "");
            ground.nothing_left().await;
        }
    }
}

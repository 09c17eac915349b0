//! A supervisor that is killed: its processes die with it, and what is left is found through its cgroup.

use std::{path::PathBuf, time::Duration};

use groundcrew_core::{error::ErrorKind, id::InstanceId};
use groundcrew_supervisor::tree::end_remains;

use crate::support::{BOTH, Ground, Own, again, alive, argument, until};

alone! {
    async fn f025_a_killed_supervisor_takes_its_processes_along_and_leaves_the_rest_to_be_found() {
        if let Some(directory) = argument("victim=") {
            return victim(PathBuf::from(directory)).await;
        }
        for policy in ["0", "1"] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path();
            let name = concat!(module_path!(), "::f025_a_killed_supervisor_takes_its_processes_along_and_leaves_the_rest_to_be_found");
            let mut supervisor = again(name, Own::Process, &[&format!("victim={policy}{}", path.display())]).spawn().unwrap();
            let read = |file: &str| until({
                let path = path.join(file);
                move || std::fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'))
            });
            let (agent, daemon, told) = (read("agent").await, read("daemon").await, read("told").await);
            let (agent, daemon) = (agent.trim(), daemon.trim());
            assert!(alive(agent) && alive(daemon));
            supervisor.kill().unwrap();
            supervisor.wait().unwrap();
            until(|| (!alive(agent)).then_some(())).await;
            let (instance, cgroup) = told.trim_end_matches('\n').split_once(' ').unwrap();
            let instance = InstanceId::new(instance).unwrap();
            if cgroup.is_empty() {
                // Nothing but its pid tells of it here.
                let pid = rustix::process::Pid::from_raw(daemon.parse().unwrap()).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            } else {
                let cgroup = PathBuf::from(cgroup);
                let other = InstanceId::new("another").unwrap();
                let refused = end_remains(&cgroup, &other, Duration::from_secs(20)).await.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::InvalidInput);
                assert!(alive(daemon), "the daemon of another instance was ended");
                end_remains(&cgroup, &instance, Duration::from_secs(20)).await.unwrap();
                assert!(!cgroup.exists());
                end_remains(&cgroup, &instance, Duration::from_secs(20)).await.unwrap();
            }
            until(|| (!alive(daemon)).then_some(())).await;
        }
    }
}

/// Starts a process with a daemon, tells about it, and waits for the kill.
async fn victim(argument: PathBuf) {
    let text = argument.to_str().unwrap();
    let (policy, path) = text.split_at(1);
    let ground = Ground::new(BOTH[usize::from(policy == "1")]);
    let script = format!(
        "setsid sh -c 'echo $$ >{path}/daemon; exec sleep 1000' & echo $$ >{path}/agent; exec sleep 1000"
    );
    ground.start("agent", &ground.shell(&script)).await;
    let cgroup = ground.processes.cgroup().unwrap_or_default();
    let instance = ground.instance.as_str();
    std::fs::write(
        format!("{path}/told"),
        format!("{instance} {}\n", cgroup.display()),
    )
    .unwrap();
    std::future::pending::<()>().await;
}

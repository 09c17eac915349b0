//! Ending whole trees.

use std::time::{Duration, Instant};

use groundcrew_core::{
    executor::Executor as _,
    id::InstanceId,
    process::{EndCause, Lease, Offset, Role, Signal, StdinPolicy},
};

use crate::place::{LONG, Place, collect, fresh, process, runs, shell, until};

crate::runner::tests![
    the_lease_ends_the_whole_tree,
    c06_shutdown_ends_the_whole_tree,
    c06_a_viewer_that_does_not_read_does_not_hold_up_the_end
];

/// A tree of which each member cut another tie; prints their pids.
const TREE: &str = "trap '' TERM INT HUP\n\
    echo $$\n\
    (trap '' TERM; exec sleep 1000) &\n\
    echo $!\n\
    setsid sh -c 'trap \"\" TERM; echo $$; setsid sleep 1000 & echo $!; wait'\n";

async fn tree(place: &Place, id: &InstanceId, lease: Lease) -> Vec<u32> {
    let instance = place.instance(id, lease).await;
    let mut spec = shell(TREE);
    spec.stdin = StdinPolicy::Empty;
    instance.start(&process("agent"), &spec).await.unwrap();
    let stdio = instance
        .attach(&process("agent"), Offset(0), Role::Viewer)
        .await
        .unwrap();
    let lines = |bytes: &[u8]| bytes.split(|b| *b == b'\n').count() - 1;
    let seen = collect(stdio.output, Offset(0), |seen| lines(&seen.stdout) == 4)
        .await
        .unwrap();
    let pids: Vec<u32> = String::from_utf8(seen.stdout)
        .unwrap()
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert!(
        pids.len() == 4 && pids.iter().all(|pid| runs(*pid)),
        "{pids:?}"
    );
    pids
}

async fn the_lease_ends_the_whole_tree() {
    let (place, id) = (Place::new(), fresh());
    // The connection of `tree` is dropped when it returns; that is when the lease starts.
    let pids = tree(&place, &id, Lease::After(Duration::from_millis(300))).await;
    until("the tree ended", || !pids.iter().any(|pid| runs(*pid))).await;
    until("the supervisor ended", || {
        place.supervisor_pid(&id).is_none()
    })
    .await;
    let instance = place.executor.connect(&id).await.unwrap();
    let status = instance.wait(&process("agent")).await.unwrap();
    assert_eq!(status.cause, EndCause::LeaseLapsed);
}

async fn c06_shutdown_ends_the_whole_tree() {
    let (place, id) = (Place::new(), fresh());
    let pids = tree(&place, &id, Lease::Unlimited).await;
    let instance = place.executor.connect(&id).await.unwrap();
    instance.shutdown(Duration::from_millis(200)).await.unwrap();
    assert!(
        !pids.iter().any(|pid| runs(*pid)),
        "it answered before all was ended"
    );
    let status = instance.wait(&process("agent")).await.unwrap();
    assert_eq!(
        (status.cause, status.signal),
        (EndCause::Stopped, Some(Signal::KILL))
    );
}

async fn c06_a_viewer_that_does_not_read_does_not_hold_up_the_end() {
    let (place, id) = (Place::new(), fresh());
    let instance = place.instance(&id, Lease::Unlimited).await;
    let agent = process("agent");
    let mut spec = shell("yes | head -c 60000000; exec sleep 1000");
    spec.stdin = StdinPolicy::Empty;
    instance.start(&agent, &spec).await.unwrap();
    let viewer = place.executor.connect(&id).await.unwrap();
    let stdio = viewer
        .attach(&agent, Offset(0), Role::Viewer)
        .await
        .unwrap();
    // More than all buffers on the way hold.
    let deadline = Instant::now() + LONG;
    while instance.processes().await.unwrap()[0].log_end < Offset(60_000_000) {
        assert!(Instant::now() < deadline, "it has not written all");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let asked = Instant::now();
    place.executor.delete(&id, None).await.unwrap();
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
    let seen = collect(stdio.output, Offset(0), |_| false).await.unwrap();
    assert_eq!(seen.stdout.len(), 60_000_000);
    assert!(seen.stdout.chunks(2).all(|line| line == b"y\n"));
    assert_eq!(seen.exit.unwrap().signal, Some(Signal::TERM));
}

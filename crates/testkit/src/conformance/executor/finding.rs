//! Cases of finding: lists, connections, other controllers, other installations.

use std::time::Duration;

use futures_util::StreamExt as _;
use groundcrew_core::{
    error::ErrorKind,
    id::ProcessId,
    identity::Presence,
    process::{FrameKind, Offset, ProcessPhase, Role},
    undo::Undone,
};
use tokio::io::AsyncWriteExt as _;

use super::{bench::Bench, controller::Controller, leftovers};
use crate::conformance::{
    bench::refused,
    broken::{Broken, broken, hold},
    programs::Program,
};

pub(super) async fn a_list_holds_what_is_there(it: &Bench) -> Result<(), Broken> {
    let before = it.executor().list().await?;
    hold!(
        before.is_empty(),
        "before anything is made there is {before:?}"
    );
    let mut made = vec![it.fresh()?, it.fresh()?];
    for id in &made {
        drop(it.create(id).await?);
    }
    let mut listed = it.executor().list().await?;
    listed.sort();
    made.sort();
    hold!(
        listed == made,
        "{made:?} were made, and {listed:?} are listed"
    );
    it.executor().delete(&made[0], None).await?;
    let listed = it.executor().list().await?;
    hold!(listed == made[1..], "after a deletion there is {listed:?}");
    Ok(())
}

pub(super) async fn another_executor_finds_the_same(it: &Bench) -> Result<(), Broken> {
    let (id, instance) = it.ready().await?;
    let said = it.process(&Program::Out("0123456789"))?;
    it.run(&*instance, "p", &said).await?;
    let other = it.reopened()?;
    let listed = other.list().await?;
    hold!(listed == [id.clone()], "it lists {listed:?}");
    let states = [it.executor().state(&id).await?, other.state(&id).await?];
    hold!(
        states[0] == states[1],
        "one says {:?}, the other {:?}",
        states[0],
        states[1]
    );
    let reached = other.connect(&id).await?;
    let read = crate::conformance::bench::stdout_of(&*reached, &ProcessId::new("p")?).await?;
    hold!(
        read == b"0123456789\n",
        "it reads {:?}",
        String::from_utf8_lossy(&read)
    );
    Ok(())
}

pub(super) async fn what_never_was_is_not_found(it: &Bench) -> Result<(), Broken> {
    let (_, _other) = it.ready().await?;
    let id = it.fresh()?;
    let reached = it.executor().connect(&id).await;
    refused(reached.map(|_| "an instance"), ErrorKind::NotFound)?;
    let state = it.executor().state(&id).await?;
    hold!(state == Presence::Absent, "it is {state:?}");
    Ok(())
}

pub(super) async fn two_connections_see_one_instance(it: &Bench) -> Result<(), Broken> {
    let (id, one) = it.ready().await?;
    let other = it.executor().connect(&id).await?;
    let (p, spec) = (ProcessId::new("p")?, it.process(&Program::Copy)?);
    let first = one.start(&p, &spec).await?;
    let again = other.start(&p, &spec).await?;
    hold!(first == again, "{first:?} and through the other {again:?}");
    other.close_stdin(&p).await?;
    let ends = [one.wait(&p).await?, other.wait(&p).await?];
    hold!(
        ends[0] == ends[1],
        "it ends as {} and as {}",
        ends[0],
        ends[1]
    );
    Ok(())
}

pub(super) async fn an_instance_that_has_ended_is_still_there(it: &Bench) -> Result<(), Broken> {
    let (id, instance) = it.ready().await?;
    let there = it.executor().state(&id).await?;
    let mut spec = it.process(&Program::Exit(7))?;
    spec.main = true;
    let main = ProcessId::new("main")?;
    instance.start(&main, &spec).await?;
    let status = instance.wait(&main).await?;
    hold!(
        status.code == Some(7),
        "its main process ended with {status}"
    );
    let after = it.executor().state(&id).await?;
    hold!(there == after, "it was {there:?} and is {after:?}");
    let listed = it.executor().list().await?;
    hold!(listed == [id.clone()], "it lists {listed:?}");
    let reached = it.executor().connect(&id).await?;
    let end = reached.wait(&main).await?;
    hold!(end == status, "reached again, its end is {end}");
    Ok(())
}

/// Between listening no more and being gone lies a moment; whoever comes then must not be told that nobody is there.
pub(super) async fn an_instance_that_is_ending_is_reached(it: &Bench) -> Result<(), Broken> {
    for _ in 0..8 {
        let (id, instance) = it.ready().await?;
        let mut spec = it.process(&Program::Exit(7))?;
        spec.main = true;
        let main = ProcessId::new("main")?;
        instance.start(&main, &spec).await?;
        // Whoever launched it holds no connection that keeps it up a little longer.
        drop(instance);
        let reached = it.executor().connect(&id).await?;
        let status = reached.wait(&main).await?;
        hold!(status.code == Some(7), "it ended with {status}");
    }
    Ok(())
}

pub(super) async fn installations_leave_each_other_alone(it: &Bench) -> Result<(), Broken> {
    let (id, instance) = it.ready().await?;
    let there = it.executor().state(&id).await?;
    let other = it.of_another_installation()?;
    let listed = other.list().await?;
    hold!(listed.is_empty(), "another installation lists {listed:?}");
    let undone = other.delete(&id, None).await;
    hold!(
        !matches!(undone, Ok(Undone::Removed { .. })),
        "another installation removed it"
    );
    let after = it.executor().state(&id).await?;
    hold!(there == after, "it was {there:?} and is {after:?}");
    let said = it.process(&Program::Out("here"))?;
    it.run(&*instance, "p", &said).await?;
    Ok(())
}

pub(super) async fn a_controller_that_is_killed_is_taken_over_from(
    it: &Bench,
) -> Result<(), Broken> {
    let id = it.fresh()?;
    let mut controller = Controller::create(it, &id, None)?;
    controller.until("started").await?;
    controller.kill().await;
    let instance = it.executor().connect(&id).await?;
    let p = ProcessId::new("p")?;
    let known = instance.processes().await?;
    hold!(
        matches!(known.as_slice(), [state] if state.id == p && matches!(state.phase, ProcessPhase::Running(_))),
        "it knows {known:?}"
    );
    let mut stdio = instance.attach(&p, Offset(0), Role::Writer).await?;
    let Some(input) = stdio.input.as_mut() else {
        broken!("a writer was given no input");
    };
    input.write_all(b" after").await?;
    input.shutdown().await?;
    let mut said = Vec::new();
    while let Some(frame) = stdio.output.next().await {
        if let FrameKind::Stdout(bytes) = frame?.kind {
            said.extend_from_slice(&bytes);
        }
    }
    hold!(
        said == b"before after",
        "its output is {:?}",
        String::from_utf8_lossy(&said)
    );
    let status = instance.wait(&p).await?;
    hold!(status.code == Some(0), "it ended with {status}");
    Ok(())
}

pub(super) async fn a_lapsed_lease_ends_what_runs(it: &Bench) -> Result<(), Broken> {
    let id = it.fresh()?;
    // Long enough for the way to the first connection, on a machine that does much else.
    let lease = Duration::from_secs(5);
    let mut controller = Controller::create(it, &id, Some(lease))?;
    controller.until("started").await?;
    controller.kill().await;
    let lapsed = tokio::time::Instant::now() + lease;
    // Nobody may connect meanwhile, so they are looked for from outside.
    let left = loop {
        let late = tokio::time::Instant::now() >= lapsed;
        let left = leftovers::after(it.ground(), &[], None).await;
        if late || left.is_empty() {
            break left;
        }
    };
    hold!(
        left.is_empty(),
        "after its lease there is still {}",
        left.join("; ")
    );
    let state = it.executor().state(&id).await?;
    hold!(
        matches!(state, Presence::Present(_)),
        "the instance itself is {state:?}: it is owned until it is deleted"
    );
    Ok(())
}

//! Cases of removing: what goes, what stays, and that it can be said twice.

use futures_util::StreamExt as _;
use groundcrew_core::{
    id::{InstanceId, ProcessId},
    identity::{Identity, Presence},
    process::{FrameKind, Offset, Role},
    undo::Undone,
};

use super::{
    bench::{Bench, Unheard},
    leftovers,
};
use crate::conformance::{
    broken::{Broken, hold},
    programs::Program,
};

fn is_removed(undone: &Undone) -> bool {
    matches!(undone, Undone::Removed { .. })
}

pub(super) async fn a_deleted_instance_is_gone(it: &Bench) -> Result<(), Broken> {
    let (id, instance) = it.ready().await?;
    let p = ProcessId::new("p")?;
    instance.start(&p, &it.process(&Program::Sleep)?).await?;
    let there = it.executor().state(&id).await?;
    let Presence::Present(identity) = &there else {
        crate::conformance::broken::broken!("it is {there:?}");
    };
    let undone = it.executor().delete(&id, Some(identity)).await?;
    hold!(is_removed(&undone), "it was {undone:?}");
    let state = it.executor().state(&id).await?;
    hold!(state == Presence::Absent, "then it is {state:?}");
    let listed = it.executor().list().await?;
    hold!(listed.is_empty(), "it still lists {listed:?}");
    Ok(())
}

pub(super) async fn what_is_gone_already_is_success(it: &Bench) -> Result<(), Broken> {
    let never = it.fresh()?;
    let undone = it.executor().delete(&never, None).await?;
    hold!(
        undone == Undone::AlreadyGone,
        "what never was is {undone:?}"
    );
    let id = it.fresh()?;
    let identity = it.create(&id).await?.identity;
    it.executor().delete(&id, None).await?;
    for known in [None, Some(&identity)] {
        let undone = it.executor().delete(&id, known).await?;
        hold!(
            undone == Undone::AlreadyGone,
            "the second time it is {undone:?}"
        );
    }
    Ok(())
}

pub(super) async fn another_identity_is_left_alone(it: &Bench) -> Result<(), Broken> {
    let (id, instance) = it.ready().await?;
    let other = Identity("of-something-else".to_owned());
    let undone = it.executor().delete(&id, Some(&other)).await?;
    hold!(matches!(undone, Undone::NotOurs(_)), "it is {undone:?}");
    let said = it.process(&Program::Out("here"))?;
    it.run(&*instance, "p", &said).await?;
    Ok(())
}

pub(super) async fn namesakes_are_left_alone(it: &Bench) -> Result<(), Broken> {
    let id = it.fresh()?;
    let longer = InstanceId::new(format!("{id}-2"))?;
    let shorter = InstanceId::new(&id.as_str()[..id.as_str().len() - 1])?;
    for namesake in [&longer, &shorter] {
        it.adopt(namesake);
        it.executor()
            .create(namesake, &it.spec()?, &Unheard)
            .await?;
    }
    drop(it.create(&id).await?);
    let undone = it.executor().delete(&id, None).await?;
    hold!(is_removed(&undone), "it was {undone:?}");
    for namesake in [&longer, &shorter] {
        let state = it.executor().state(namesake).await?;
        hold!(
            matches!(state, Presence::Present(_)),
            "{namesake} is {state:?}, and {id} was deleted"
        );
    }
    Ok(())
}

pub(super) async fn everything_that_runs_goes_with_it(it: &Bench) -> Result<(), Broken> {
    let (id, instance) = it.ready().await?;
    let p = ProcessId::new("p")?;
    instance.start(&p, &it.process(&Program::Escapes)?).await?;
    let mut output = instance.attach(&p, Offset(0), Role::Viewer).await?.output;
    while let Some(frame) = output.next().await {
        if matches!(frame?.kind, FrameKind::Stdout(_)) {
            break;
        }
    }
    let running = leftovers::processes(it.ground());
    hold!(
        !running.is_empty(),
        "what was started is not seen on this machine"
    );
    let undone = it.executor().delete(&id, None).await?;
    hold!(is_removed(&undone), "it was {undone:?}");
    let left = leftovers::after(it.ground(), &[id], None).await;
    hold!(left.is_empty(), "there is still {}", left.join("; "));
    Ok(())
}

pub(super) async fn an_instance_that_has_ended_is_deleted(it: &Bench) -> Result<(), Broken> {
    let (id, instance) = it.ready().await?;
    let mut spec = it.process(&Program::Exit(0))?;
    spec.main = true;
    let main = ProcessId::new("main")?;
    instance.start(&main, &spec).await?;
    instance.wait(&main).await?;
    let undone = it.executor().delete(&id, None).await?;
    hold!(is_removed(&undone), "it was {undone:?}");
    let state = it.executor().state(&id).await?;
    hold!(state == Presence::Absent, "then it is {state:?}");
    Ok(())
}

pub(super) async fn two_deletions_at_once_succeed(it: &Bench) -> Result<(), Broken> {
    let (id, instance) = it.ready().await?;
    let p = ProcessId::new("p")?;
    instance.start(&p, &it.process(&Program::Sleep)?).await?;
    let other = it.reopened()?;
    let both = futures_util::future::join(it.executor().delete(&id, None), other.delete(&id, None));
    let (one, two) = both.await;
    for undone in [one?, two?] {
        hold!(
            is_removed(&undone) || undone == Undone::AlreadyGone,
            "one of two was {undone:?}"
        );
    }
    let state = it.executor().state(&id).await?;
    hold!(state == Presence::Absent, "then it is {state:?}");
    Ok(())
}

pub(super) async fn logs_are_kept(it: &Bench) -> Result<(), Broken> {
    let (id, instance) = it.ready().await?;
    let said = it.process(&Program::Out("remember me"))?;
    it.run(&*instance, "p", &said).await?;
    it.executor().delete(&id, None).await?;
    let logged = it.executor().connect(&id).await?;
    let p = ProcessId::new("p")?;
    let read = crate::conformance::bench::stdout_of(&*logged, &p).await?;
    hold!(
        read == b"remember me\n",
        "its log says {:?}",
        String::from_utf8_lossy(&read)
    );
    let status = logged.wait(&p).await?;
    hold!(status.code == Some(0), "its end is {status}");
    Ok(())
}

pub(super) async fn an_id_is_free_or_taken_but_never_half(it: &Bench) -> Result<(), Broken> {
    let (id, instance) = it.ready().await?;
    let p = ProcessId::new("p")?;
    instance.start(&p, &it.process(&Program::Sleep)?).await?;
    it.executor().delete(&id, None).await?;
    match it.executor().create(&id, &it.spec()?, &Unheard).await {
        Err(error) if error.kind() == groundcrew_core::error::ErrorKind::AlreadyExists => {
            let state = it.executor().state(&id).await?;
            hold!(state == Presence::Absent, "it is taken, and {state:?}");
        }
        Err(error) => return Err(error.into()),
        Ok(_) => {
            let again = it.executor().connect(&id).await?;
            let running = again.processes().await?;
            let alive = running.iter().any(|state| {
                matches!(
                    state.phase,
                    groundcrew_core::process::ProcessPhase::Running(_)
                )
            });
            hold!(!alive, "the new one runs {running:?}");
        }
    }
    Ok(())
}

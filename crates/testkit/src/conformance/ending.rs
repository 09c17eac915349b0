//! Cases of ending: by itself, by a signal, by a limit, with its instance.

use std::time::Duration;

use groundcrew_core::{
    error::ErrorKind,
    process::{EndCause, Milliseconds, Offset, ProcessPhase, Role, Signal},
};

use super::{
    bench::{Bench, Reader, id, refused},
    broken::{Broken, hold},
    programs::Program,
};

pub(super) async fn any_number_of_callers_get_the_same_end(it: Bench<'_>) -> Result<(), Broken> {
    let p = it.start("p", &Program::Copy).await?;
    let on = &it.instance;
    let all =
        futures_util::future::join4(on.wait(&p), on.wait(&p), on.wait(&p), on.close_stdin(&p));
    let (a, b, c, closed) = all.await;
    closed?;
    let (a, b, c, later) = (a?, b?, c?, on.wait(&p).await?);
    hold!(
        [b, c, later] == [a; 3],
        "the ends are {a}, {b}, {c} and {later}"
    );
    let seven = it.start("q", &Program::Exit(7)).await?;
    let status = on.wait(&seven).await?;
    hold!(
        status.code == Some(7) && status.cause == EndCause::Itself,
        "code 7 is {status:?}"
    );
    Ok(())
}

pub(super) async fn a_signal_ends_with_its_number(it: Bench<'_>) -> Result<(), Broken> {
    for (name, signal) in [("p", Signal::TERM), ("q", Signal::KILL)] {
        let p = it.start(name, &Program::Sleep).await?;
        it.instance.signal(&p, signal).await?;
        let status = it.instance.wait(&p).await?;
        hold!(
            status.signal == Some(signal)
                && status.code.is_none()
                && status.cause == EndCause::Itself,
            "after {signal} it is {status:?}"
        );
    }
    Ok(())
}

pub(super) async fn a_signal_to_what_has_ended_is_success(it: Bench<'_>) -> Result<(), Broken> {
    let p = it.start("p", &Program::Exit(3)).await?;
    let before = it.instance.wait(&p).await?;
    it.instance.signal(&p, Signal::TERM).await?;
    let after = it.instance.wait(&p).await?;
    hold!(before == after, "its end was {before} and is now {after}");
    Ok(())
}

pub(super) async fn a_signal_reaches_what_a_process_started(it: Bench<'_>) -> Result<(), Broken> {
    let p = it.start("p", &Program::Family).await?;
    let attached = it.instance.attach(&p, Offset(0), Role::Viewer).await?;
    let mut output = Reader::new(attached.output, Offset(0));
    output.until(b"up\n").await?;
    it.instance.signal(&p, Signal::TERM).await?;
    while output.next().await? {}
    hold!(
        output.seen.stdout == b"up\nheard\n",
        "the child did not hear it"
    );
    Ok(())
}

pub(super) async fn the_end_is_the_end_of_the_process_itself(it: Bench<'_>) -> Result<(), Broken> {
    let p = it.start("p", &Program::Leaves(5)).await?;
    let status = it.instance.wait(&p).await?;
    hold!(status.code == Some(5), "it is {status}");
    it.read(&p, Offset(0)).await?;
    Ok(())
}

pub(super) async fn limits_of_time_end_with_their_cause(it: Bench<'_>) -> Result<(), Broken> {
    let limit = Some(Milliseconds(Duration::from_millis(300)));
    let mut spec = it.spec(&Program::Stubborn)?;
    spec.time_limit = limit;
    let seen = it.run("p", &spec).await?;
    let cause = seen.exit.map(|exit| exit.cause);
    hold!(
        cause == Some(EndCause::TimedOut),
        "behind its time limit: {cause:?}"
    );
    let mut spec = it.spec(&Program::Sleep)?;
    spec.idle_limit = limit;
    let seen = it.run("q", &spec).await?;
    let cause = seen.exit.map(|exit| exit.cause);
    hold!(
        cause == Some(EndCause::Idle),
        "behind its idle limit: {cause:?}"
    );
    Ok(())
}

pub(super) async fn the_main_process_takes_its_instance_along(it: Bench<'_>) -> Result<(), Broken> {
    let (p, on) = (id("agent")?, &it.instance);
    let mut spec = it.spec(&Program::Out("last words"))?;
    spec.main = true;
    on.start(&p, &spec).await?;
    let status = on.wait(&p).await?;
    // It ends what it has; from then on nothing is started.
    let other = it.spec(&Program::Sleep)?;
    let mut tries = 0;
    let error = loop {
        match on.start(&id(&format!("late-{tries}"))?, &other).await {
            Err(error) => break error,
            Ok(_) => tries += 1,
        }
        hold!(
            tries < 2000,
            "the instance goes on without its main process"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    hold!(
        error.kind() == ErrorKind::Unavailable && !error.is_retryable(),
        "a start in an ended instance is {}: {error}",
        error.kind()
    );
    let seen = it.read(&p, Offset(0)).await?;
    hold!(
        seen.stdout == b"last words\n",
        "its output is now {:?}",
        seen.stdout
    );
    hold!(on.wait(&p).await? == status, "its end changed");
    let listed = on.processes().await?;
    let phase = listed
        .iter()
        .find(|state| state.id == p)
        .map(|state| &state.phase);
    hold!(
        phase == Some(&ProcessPhase::Ended(status)),
        "it is listed as {phase:?}"
    );
    Ok(())
}

pub(super) async fn shutdown_ends_all_within_the_grace(it: Bench<'_>) -> Result<(), Broken> {
    let (on, grace) = (&it.instance, Duration::from_millis(400));
    let polite = it.start("polite", &Program::Copy).await?;
    let stubborn = it.start("stubborn", &Program::Stubborn).await?;
    let ended = it.start("ended", &Program::Exit(9)).await?;
    on.wait(&ended).await?;
    on.shutdown(grace).await?;
    let status = on.wait(&polite).await?;
    hold!(
        status.cause == EndCause::Stopped,
        "the polite one is {status:?}"
    );
    let status = on.wait(&stubborn).await?;
    hold!(
        status.signal == Some(Signal::KILL) && status.cause == EndCause::Stopped,
        "the stubborn one is {status:?}"
    );
    let status = on.wait(&ended).await?;
    hold!(
        status.code == Some(9) && status.cause == EndCause::Itself,
        "one that had ended is {status:?}"
    );
    let spec = it.spec(&Program::Exit(0))?;
    let error = refused(on.start(&id("late")?, &spec).await, ErrorKind::Unavailable)?;
    hold!(
        !error.is_retryable(),
        "an ended instance is worth another try"
    );
    let listed = on.processes().await?;
    hold!(listed.len() == 3, "{} of three are listed", listed.len());
    Ok(())
}

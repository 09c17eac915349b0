//! Cases of starting: what a process gets, and what a start says.

use groundcrew_core::{
    error::ErrorKind,
    process::{EnvironmentSource, Offset, ProcessPhase, Role, Signal, TerminalSize},
};

use super::{
    bench::{Bench, id, refused},
    broken::{Broken, hold},
    programs::Program,
};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .trim_end_matches('\n')
        .to_owned()
}

pub(super) async fn the_environment_of_the_run_and_what_lies_over_it(
    it: Bench<'_>,
) -> Result<(), Broken> {
    let read = Program::Variable("GREETING");
    let seen = it.run("run", &it.spec(&read)?).await?;
    hold!(
        text(&seen.stdout) == "hello",
        "the run's variable is {:?}",
        text(&seen.stdout)
    );
    let mut spec = it.spec(&read)?;
    spec.environment = EnvironmentSource::Run(it.environment(&[("GREETING", "over")])?);
    let seen = it.run("overlay", &spec).await?;
    hold!(
        text(&seen.stdout) == "over",
        "the overlay is {:?}",
        text(&seen.stdout)
    );
    spec.environment = EnvironmentSource::Exact(it.environment(&[("OTHER", "x")])?);
    let seen = it.run("exact", &spec).await?;
    hold!(
        seen.stdout.is_empty(),
        "an exact environment holds {:?}",
        text(&seen.stdout)
    );
    it.instance
        .set_environment(&it.environment(&[("GREETING", "later")])?)
        .await?;
    let seen = it.run("later", &it.spec(&read)?).await?;
    hold!(
        text(&seen.stdout) == "later",
        "the later snapshot is {:?}",
        text(&seen.stdout)
    );
    Ok(())
}

pub(super) async fn the_same_start_again_gives_the_first_answer(
    it: Bench<'_>,
) -> Result<(), Broken> {
    let (p, spec) = (id("p")?, it.spec(&Program::Copy)?);
    let first = it.instance.start(&p, &spec).await?;
    let again = it.instance.start(&p, &spec).await?;
    hold!(first == again, "{first:?} and then {again:?}");
    it.instance.close_stdin(&p).await?;
    it.instance.wait(&p).await?;
    let later = it.instance.start(&p, &spec).await?;
    hold!(first == later, "{first:?} and after its end {later:?}");
    let known = it.instance.processes().await?.len();
    hold!(known == 1, "{known} processes of one id");
    Ok(())
}

pub(super) async fn another_start_under_the_same_id_is_refused(
    it: Bench<'_>,
) -> Result<(), Broken> {
    let p = it.start("p", &Program::Copy).await?;
    let other = it.spec(&Program::Sleep)?;
    refused(
        it.instance.start(&p, &other).await,
        ErrorKind::AlreadyExists,
    )?;
    Ok(())
}

pub(super) async fn a_missing_program_is_told_and_leaves_nothing(
    it: Bench<'_>,
) -> Result<(), Broken> {
    let (p, spec) = (id("p")?, it.spec(&Program::Missing)?);
    refused(
        it.instance.start(&p, &spec).await,
        ErrorKind::ProgramNotFound,
    )?;
    let known = it.instance.processes().await?;
    hold!(
        known.is_empty(),
        "a process that never was is listed: {known:?}"
    );
    Ok(())
}

pub(super) async fn a_missing_directory_is_told(it: Bench<'_>) -> Result<(), Broken> {
    let mut spec = it.spec(&Program::Exit(0))?;
    spec.directory.push("no-such-directory");
    refused(
        it.instance.start(&id("p")?, &spec).await,
        ErrorKind::DirectoryNotFound,
    )?;
    Ok(())
}

pub(super) async fn a_process_runs_in_its_directory(it: Bench<'_>) -> Result<(), Broken> {
    let seen = it.run("p", &it.spec(&Program::Directory)?).await?;
    let found = text(&seen.stdout);
    let wanted = it.fixture.directory();
    hold!(wanted.as_os_str() == found.as_str(), "it runs in {found:?}");
    Ok(())
}

pub(super) async fn what_was_never_started_is_not_found(it: Bench<'_>) -> Result<(), Broken> {
    let (p, on) = (id("never")?, &it.instance);
    let size = TerminalSize {
        rows: 24,
        columns: 80,
    };
    for role in [Role::Viewer, Role::Writer] {
        refused(on.attach(&p, Offset(0), role).await, ErrorKind::NotFound)?;
    }
    refused(on.wait(&p).await, ErrorKind::NotFound)?;
    refused(on.signal(&p, Signal::TERM).await, ErrorKind::NotFound)?;
    refused(on.close_stdin(&p).await, ErrorKind::NotFound)?;
    refused(on.resize(&p, size).await, ErrorKind::NotFound)?;
    Ok(())
}

pub(super) async fn processes_are_listed_in_the_order_of_their_start(
    it: Bench<'_>,
) -> Result<(), Broken> {
    for name in ["z", "a", "m"] {
        it.run(name, &it.spec(&Program::Out("12345"))?).await?;
    }
    let running = it.start("b", &Program::Copy).await?;
    let listed = it.instance.processes().await?;
    let names: Vec<_> = listed.iter().map(|state| state.id.to_string()).collect();
    hold!(names == ["z", "a", "m", "b"], "the order is {names:?}");
    hold!(
        listed.iter().all(|state| !state.main),
        "one is the main process: {listed:?}"
    );
    for state in &listed {
        let ended = matches!(state.phase, ProcessPhase::Ended(_));
        hold!(ended != (state.id == running), "its phase is {state:?}");
        let end = if ended { 6 } else { 0 };
        hold!(
            state.log_start == Offset(0) && state.log_end == Offset(end),
            "its log is {state:?}"
        );
    }
    Ok(())
}

//! Cases of making: what is refused, what is made, and what a new instance is.

use std::time::Duration;

use groundcrew_core::{error::ErrorKind, executor::Limits, identity::Presence, process::Lease};

use super::bench::{Bench, Unheard};
use crate::conformance::{
    bench::refused,
    broken::{Broken, broken, hold},
    programs::Program,
};

const UNKNOWN: &str = "no_such_option_of_any_executor";

pub(super) async fn an_executor_is_always_the_same(it: &Bench) -> Result<(), Broken> {
    let (one, other) = (it.executor(), it.reopened()?);
    hold!(
        one.name() == other.name(),
        "its name is {} and then {}",
        one.name(),
        other.name()
    );
    let capabilities = [one, one, &other].map(|executor| executor.capabilities());
    hold!(
        capabilities.iter().all(|found| *found == capabilities[0]),
        "its capabilities change: {capabilities:?}"
    );
    Ok(())
}

pub(super) async fn a_probe_answers_and_makes_nothing(it: &Bench) -> Result<(), Broken> {
    let Ok(answer) = tokio::time::timeout(Duration::from_secs(30), it.executor().probe()).await
    else {
        broken!("it does not answer within half a minute");
    };
    answer?;
    let made = it.executor().list().await?;
    hold!(made.is_empty(), "it made {made:?}");
    Ok(())
}

pub(super) async fn an_unknown_option_is_refused_by_name(it: &Bench) -> Result<(), Broken> {
    it.executor().check(&it.spec()?)?;
    let mut spec = it.spec()?;
    spec.options.insert(UNKNOWN.to_owned(), true.into());
    let error = refused(it.executor().check(&spec), ErrorKind::InvalidInput)?;
    let told = format!("{error} {error:?}");
    hold!(
        told.contains(UNKNOWN),
        "it does not name the option: {told}"
    );
    Ok(())
}

pub(super) async fn what_a_check_refuses_is_not_made(it: &Bench) -> Result<(), Broken> {
    let mut spec = it.spec()?;
    spec.options.insert(UNKNOWN.to_owned(), true.into());
    let id = it.fresh()?;
    let made = it.executor().create(&id, &spec, &Unheard).await;
    refused(made.map(|made| made.identity), ErrorKind::InvalidInput)?;
    let found = it.executor().state(&id).await?;
    hold!(found == Presence::Absent, "it is {found:?}");
    Ok(())
}

/// A limit that nothing can mean to hold is refused by all; one of a kind that it lacks, by those that lack it.
pub(super) async fn limits_that_it_cannot_hold_are_refused(it: &Bench) -> Result<(), Broken> {
    let capable = it.executor().capabilities().limits;
    let mut spec = it.spec()?;
    spec.limits = Limits {
        open_files: Some(if capable { 1 } else { 64 }),
        ..Limits::default()
    };
    let Err(error) = it.executor().check(&spec) else {
        broken!(
            "it takes {:?} and cannot hold an instance to it",
            spec.limits
        );
    };
    hold!(
        matches!(
            error.kind(),
            ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::Unavailable
        ),
        "it is refused as {}",
        error.kind()
    );
    Ok(())
}

pub(super) async fn limits_hold(it: &Bench) -> Result<(), Broken> {
    let mut spec = it.spec()?;
    spec.limits.open_files = Some(77);
    it.executor().check(&spec)?;
    let id = it.fresh()?;
    drop(it.executor().create(&id, &spec, &Unheard).await?);
    let instance = it.executor().connect(&id).await?;
    instance.set_environment(&it.environment(&[])?).await?;
    let process = it.process(&Program::OpenFiles)?;
    let found = it.run(&*instance, "p", &process).await?;
    hold!(
        found == b"77\n",
        "a process may open {:?} files, not 77",
        String::from_utf8_lossy(&found)
    );
    Ok(())
}

pub(super) async fn what_was_made_is_what_is_there(it: &Bench) -> Result<(), Broken> {
    let id = it.fresh()?;
    let before = it.executor().state(&id).await?;
    hold!(
        before == Presence::Absent,
        "before it was made it is {before:?}"
    );
    let made = it.create(&id).await?.identity;
    let there = it.executor().state(&id).await?;
    hold!(
        there == Presence::Present(made.clone()),
        "{made} was made, and it is {there:?}"
    );
    Ok(())
}

pub(super) async fn a_new_instance_runs_nothing(it: &Bench) -> Result<(), Broken> {
    let id = it.fresh()?;
    drop(it.create(&id).await?);
    let instance = it.executor().connect(&id).await?;
    let running = instance.processes().await?;
    hold!(running.is_empty(), "it runs {running:?}");
    instance.set_lease(Lease::Unlimited).await?;
    instance.set_mcp_servers(&[]).await?;
    Ok(())
}

pub(super) async fn a_taken_id_is_refused_and_what_has_it_is_left_alone(
    it: &Bench,
) -> Result<(), Broken> {
    let (id, instance) = it.ready().await?;
    let there = it.executor().state(&id).await?;
    let again = it.executor().create(&id, &it.spec()?, &Unheard).await;
    refused(again.map(|made| made.identity), ErrorKind::AlreadyExists)?;
    let after = it.executor().state(&id).await?;
    hold!(there == after, "it was {there:?} and is {after:?}");
    let said = it
        .run(&*instance, "p", &it.process(&Program::Out("here"))?)
        .await?;
    hold!(said == b"here\n", "its processes write {said:?}");
    Ok(())
}

pub(super) async fn two_instances_are_two(it: &Bench) -> Result<(), Broken> {
    let (one_id, one) = it.ready().await?;
    let (other_id, other) = it.ready().await?;
    let states = [
        it.executor().state(&one_id).await?,
        it.executor().state(&other_id).await?,
    ];
    hold!(states[0] != states[1], "both are {:?}", states[0]);
    one.set_environment(&it.environment(&[("WHICH", b"one")])?)
        .await?;
    other
        .set_environment(&it.environment(&[("WHICH", b"other")])?)
        .await?;
    let spec = it.process(&Program::Variable("WHICH"))?;
    for (instance, said) in [(&one, "one"), (&other, "other")] {
        let found = it.run(&**instance, "p", &spec).await?;
        let found = String::from_utf8_lossy(&found);
        hold!(found.trim_end() == said, "{said} says {found:?}");
        let known = instance.processes().await?.len();
        hold!(known == 1, "{said} knows {known} processes");
    }
    Ok(())
}

pub(super) async fn secrets_are_returned_only_by_those_that_say_so(
    it: &Bench,
) -> Result<(), Broken> {
    let id = it.fresh()?;
    let secrets = it.create(&id).await?.secrets;
    let names: Vec<&str> = secrets.iter().map(|(name, _)| name.as_str()).collect();
    if !it.executor().capabilities().runtime_secrets {
        hold!(
            names.is_empty(),
            "it returns {names:?} and does not say that it does"
        );
    }
    let distinct: std::collections::BTreeSet<&&str> = names.iter().collect();
    hold!(distinct.len() == names.len(), "two of one name: {names:?}");
    Ok(())
}

pub(super) async fn private_directories_are_of_one_instance_each(it: &Bench) -> Result<(), Broken> {
    let (one, other) = (it.fresh()?, it.fresh()?);
    let directory = it.executor().private_directory(&one);
    hold!(
        directory.is_absolute(),
        "{} is not absolute",
        directory.display()
    );
    hold!(
        !directory.starts_with(it.ground().workspace()),
        "{} is in the workspace",
        directory.display()
    );
    // Separated instances may well call their own by one name.
    if it.executor().capabilities().host_paths
        && it.executor().capabilities().isolation == groundcrew_core::executor::Isolation::Process
    {
        let second = it.executor().private_directory(&other);
        hold!(
            directory != second,
            "two instances have {}",
            directory.display()
        );
    }
    hold!(
        directory == it.executor().private_directory(&one),
        "it changes"
    );
    Ok(())
}

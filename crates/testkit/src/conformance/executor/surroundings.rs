//! Cases of what a process finds around it: variables, arguments, files.

use groundcrew_core::{env::Environment, process::EnvironmentSource};

use super::{
    bench::Bench,
    controller::{CANARY, Controller},
};
use crate::conformance::{
    broken::{Broken, hold},
    fixture::Need,
    programs::Program,
};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .trim_end_matches('\n')
        .to_owned()
}

pub(super) async fn nothing_of_the_controller_is_inherited(it: &Bench) -> Result<(), Broken> {
    let canary = it.process(&Program::Variable(CANARY))?;
    let (_, instance) = it.ready().await?;
    let found = it.run(&*instance, "p", &canary).await?;
    hold!(found.is_empty(), "{CANARY} of ours is {:?}", text(&found));
    if !crate::conformance::fixture::Fixture::has(it, Need::Detached) {
        return Ok(());
    }
    // Made by a program in whose environment it certainly is.
    let id = it.fresh()?;
    let mut controller = Controller::create(it, &id, None)?;
    controller.until("created").await?;
    let instance = it.executor().connect(&id).await?;
    instance.set_environment(&it.environment(&[])?).await?;
    let found = it.run(&*instance, "q", &canary).await?;
    hold!(
        found.is_empty(),
        "{CANARY} of the program that made the instance is {:?}",
        text(&found)
    );
    Ok(())
}

pub(super) async fn an_exact_environment_is_exact(it: &Bench) -> Result<(), Broken> {
    let (_, instance) = it.ready().await?;
    instance
        .set_environment(&it.environment(&[("OF_THE_RUN", b"x")])?)
        .await?;
    let exact = it.environment(&[("ONE", b"1"), ("EMPTY", b"")])?;
    let mut spec = it.process(&Program::Variable("OF_THE_RUN"))?;
    spec.environment = EnvironmentSource::Exact(exact.clone());
    let found = it.run(&*instance, "p", &spec).await?;
    hold!(
        found.is_empty(),
        "the run's variable is there: {:?}",
        text(&found)
    );
    if !crate::conformance::fixture::Fixture::has(it, Need::Files) {
        return Ok(());
    }
    spec.command = it.process(&Program::Environment)?.command;
    let found = it.run(&*instance, "q", &spec).await?;
    let mut found: Vec<String> = text(&found).lines().map(str::to_owned).collect();
    let mut wanted: Vec<String> = exact
        .iter()
        .map(|(key, value)| format!("{key}={}", String::from_utf8_lossy(value)))
        .collect();
    found.sort();
    wanted.sort();
    hold!(found == wanted, "it is {found:?}, not {wanted:?}");
    Ok(())
}

pub(super) async fn values_arrive_byte_for_byte(it: &Bench) -> Result<(), Broken> {
    let (_, instance) = it.ready().await?;
    for (index, value) in [
        &b" two  spaces "[..],
        b"a\nline\n\n",
        b"\"quoted\" 'twice' `and` $HOME \\ * ? ~ #",
        b"K=V",
        b"\xff\xfe\x01",
        "\u{e4}\u{1f680}".as_bytes(),
    ]
    .into_iter()
    .enumerate()
    {
        instance
            .set_environment(&it.environment(&[("VALUE", value)])?)
            .await?;
        let spec = it.process(&Program::Variable("VALUE"))?;
        let found = it.run(&*instance, &format!("p{index}"), &spec).await?;
        // The program may end the line.
        let same = found == value || found.strip_suffix(b"\n") == Some(value);
        hold!(
            same,
            "{:?} arrives as {:?}",
            String::from_utf8_lossy(value),
            String::from_utf8_lossy(&found)
        );
    }
    Ok(())
}

pub(super) async fn arguments_arrive_byte_for_byte(it: &Bench) -> Result<(), Broken> {
    let (_, instance) = it.ready().await?;
    for (index, argument) in ["a  b", "$HOME `id` $(id)", "'\"\\", "*", "a\nb", "-n", "--"]
        .into_iter()
        .enumerate()
    {
        let spec = it.process(&Program::Out(argument))?;
        let found = it.run(&*instance, &format!("p{index}"), &spec).await?;
        let wanted = format!("{argument}\n");
        hold!(
            found == wanted.as_bytes(),
            "{argument:?} arrives as {:?}",
            String::from_utf8_lossy(&found)
        );
    }
    Ok(())
}

pub(super) async fn long_values_arrive(it: &Bench) -> Result<(), Broken> {
    let (_, instance) = it.ready().await?;
    let long = vec![b'x'; 100 << 10];
    let mut spec = it.process(&Program::Variable("LONG"))?;
    let overlay: Environment = it.environment(&[("LONG", &long)])?;
    spec.environment = EnvironmentSource::Run(overlay);
    let found = it.run(&*instance, "p", &spec).await?;
    hold!(
        text(&found).len() == long.len(),
        "{} bytes arrive of {}",
        found.len(),
        long.len()
    );
    Ok(())
}

pub(super) async fn the_workspace_is_the_one_of_the_host(it: &Bench) -> Result<(), Broken> {
    let (_, instance) = it.ready().await?;
    let workspace = it.ground().workspace();
    let mut spec = it.process(&Program::File("made-inside"))?;
    spec.directory.clone_from(&workspace);
    it.run(&*instance, "p", &spec).await?;
    let made = workspace.join("made-inside");
    let found = std::fs::read(&made);
    hold!(
        matches!(&found, Ok(content) if content == b"here"),
        "{} is {found:?} on the host",
        made.display()
    );
    Ok(())
}

pub(super) async fn private_files_are_read_inside(it: &Bench) -> Result<(), Broken> {
    let (id, instance) = it.ready().await?;
    let directory = it.executor().private_directory(&id);
    let archive = crate::conformance::files::archive("note", b"for your eyes")?;
    instance.put_archive(&directory, archive).await?;
    let found =
        crate::conformance::files::packed_file(&*instance, &directory.join("note"), "note").await?;
    hold!(found == b"for your eyes", "it is {:?}", text(&found));
    let mut spec = it.process(&Program::Directory)?;
    spec.directory.clone_from(&directory);
    let found = it.run(&*instance, "p", &spec).await?;
    hold!(
        text(&found) == directory.display().to_string(),
        "a process in it is in {:?}",
        text(&found)
    );
    Ok(())
}

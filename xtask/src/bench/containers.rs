//! A launch in a container, against the engine's own client: same engine, same image, same network, same agent.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::metadata::Metadata;
use crate::process::Cmd;
use crate::test::engine::Engine;

use super::place::{Place, id_of};
use super::sample::{Row, Target};

/// The image that both run: the agent and what it is linked to.
const IMAGE: &str = "gc-bench/agent:1";

/// What the engine and the command call the same networks.
const NETWORKS: [(&str, &str); 2] = [("none", "none"), ("default", "bridge")];

/// Measures a launch in a container for each network.
///
/// # Errors
///
/// Fails when the engine does not come up, or a launch fails.
pub(super) fn launches(place: &Place, metadata: &Metadata, iterations: usize) -> Result<Vec<Row>> {
    // With a network of its own: no bridge of another engine is in its namespace.
    let engine = Engine::with(metadata, &["--iptables=false", "--ip-forward=false"])?;
    import(&engine, place.agent())?;
    let stamps = place.path("stamps");
    fs::create_dir(&stamps).context("cannot make a directory")?;
    NETWORKS
        .iter()
        .map(|networks| launch(place, &engine, &stamps, *networks, iterations))
        .collect()
}

fn launch(
    place: &Place,
    engine: &Engine,
    stamps: &Path,
    (network, of_the_client): (&str, &str),
    iterations: usize,
) -> Result<Row> {
    let stamp = stamps.join("stamp");
    let shared = stamps.display();
    Row::measure(
        format!("launch in a container to agent running, network {network}"),
        format!("`docker run --network {of_the_client}` of the same image and argv"),
        Target::Times(1.1),
        iterations,
        || {
            let mut id = None;
            let taken = place.until_stamped(&stamp, |argv| {
                let printed = place
                    .command()
                    .variable("DOCKER_HOST", engine.endpoint())
                    .variable("GROUNDCREW_SUPERVISOR", engine.supervisor())
                    .args(["run", "--executor", "docker", "--image", IMAGE])
                    .args(["--network", network, "--mount", &shared.to_string()])
                    .args(["--format", "json", "--"])
                    .args(argv)
                    .read()?;
                id = Some(id_of(&printed)?);
                Ok(())
            })?;
            id.map_or(Ok(()), |id| place.clear(&id, false))?;
            Ok(taken)
        },
        || {
            place.until_stamped(&stamp, |argv| {
                let run = ["run", "--rm", "--network", of_the_client];
                let volume = format!("{shared}:{shared}");
                let run = engine.docker().args(run).args(["--volume", &volume, IMAGE]);
                run.args(argv).read().map(drop)
            })
        },
    )
}

/// Makes the image of a program and what it is linked to.
fn import(engine: &Engine, program: &Path) -> Result<()> {
    let linked = Cmd::new("ldd").arg(program).read()?;
    let linked = String::from_utf8_lossy(&linked);
    let linked = linked
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    let root = tempfile::tempdir().context("cannot make a temporary directory")?;
    for path in linked.map(Path::new).chain([program]) {
        let inside: PathBuf = path.components().skip(1).collect();
        let to = root.path().join(inside);
        let parent = to.parent().unwrap_or(root.path());
        fs::create_dir_all(parent)
            .and_then(|()| fs::copy(path, &to))
            .with_context(|| format!("cannot copy {}", path.display()))?;
    }
    let archive = root.path().with_extension("tar");
    let packed = Cmd::new("tar").arg("-cf").arg(&archive);
    packed.arg("-C").arg(root.path()).arg(".").read()?;
    let imported = engine
        .docker()
        .arg("import")
        .arg(&archive)
        .arg(IMAGE)
        .output();
    fs::remove_file(&archive).context("cannot remove an archive")?;
    let imported = imported?;
    ensure!(
        imported.status.success(),
        "the engine takes no image: {}",
        String::from_utf8_lossy(&imported.stderr)
    );
    Ok(())
}

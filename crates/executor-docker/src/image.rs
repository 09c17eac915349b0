//! The image of a container: looked for in the engine first, pulled only if the request says so.

use bollard::query_parameters::CreateImageOptions;
use futures_util::StreamExt as _;
use groundcrew_core::{
    error::{Error, ErrorKind},
    executor::Progress,
};
use serde::{Deserialize, Serialize};

use crate::{
    engine::{Engine, said, typed},
    options::{Options, Pull},
    program::Program,
};

/// An image that the engine has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Image {
    pub(crate) id: String,
    /// Where its containers get volumes of their own.
    pub(crate) volumes: Vec<String>,
}

/// Finds the image, or pulls it.
///
/// # Errors
///
/// `NotFound` for one that neither the engine nor its registry has; `Unsupported` for one of another machine.
pub(crate) async fn settle(
    engine: &Engine,
    options: &Options,
    program: &Program,
    progress: &dyn Progress,
) -> Result<Image, Error> {
    let name = &options.image;
    if options.pull == Pull::Always {
        match pull(engine, name, progress).await {
            Ok(()) => {}
            // One that is there is used whatever the registry says.
            Err(error) => match find(engine, name, program).await? {
                Some(image) => {
                    progress.line(&format!(
                        "{name} could not be pulled; the one that is there is used"
                    ));
                    return Ok(image);
                }
                None => return Err(error),
            },
        }
    } else if let Some(image) = find(engine, name, program).await? {
        return Ok(image);
    } else if options.pull == Pull::Missing {
        pull(engine, name, progress).await?;
    }
    find(engine, name, program).await?.ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            "the engine has no image of this name; build or load it, or let it be pulled with --pull missing",
        )
        .with("image", name)
        .with("engine", engine.endpoint())
    })
}

/// Looks for an image in the engine.
async fn find(engine: &Engine, name: &str, program: &Program) -> Result<Option<Image>, Error> {
    let client = engine.client().await?;
    let found = match engine
        .call("looking for the image", client.inspect_image(name))
        .await
    {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.with("image", name)),
    };
    let machine = found.architecture.unwrap_or_default();
    let system = found.os.unwrap_or_default();
    let fits = (machine.is_empty() || machine == program.architecture)
        && (system.is_empty() || system == "linux");
    if !fits {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "the image is for another platform than the supervisor",
        )
        .with("image", name)
        .with("platform", format!("{system}/{machine}"))
        .with("supervisor", format!("linux/{}", program.architecture)));
    }
    match found.id {
        Some(id) => Ok(Some(Image {
            id,
            volumes: found
                .config
                .and_then(|config| config.volumes)
                .unwrap_or_default(),
        })),
        None => Err(Error::new(
            ErrorKind::Protocol,
            "the engine has the image but tells no id of it",
        )
        .with("image", name)),
    }
}

/// Pulls an image; gives up when nothing moves for as long as patience lasts.
async fn pull(engine: &Engine, name: &str, progress: &dyn Progress) -> Result<(), Error> {
    let client = engine.client().await?;
    progress.line(&format!("pulling {name}"));
    // Without a tag the engine would pull every one there is.
    let tagged = name
        .rsplit('/')
        .next()
        .is_some_and(|last| last.contains([':', '@']));
    let options = CreateImageOptions {
        from_image: Some(name.to_owned()),
        tag: (!tagged).then(|| "latest".to_owned()),
        ..CreateImageOptions::default()
    };
    let failed = |error: Error| {
        let kind = match error.kind() {
            ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::TimedOut => error.kind(),
            _ => ErrorKind::Unavailable,
        };
        Error::new(
            kind,
            "the image could not be pulled; see what the engine said: a wrong name, a registry that wants a login, or no network",
        )
        .with("image", name)
        .with_source(error)
    };
    let mut pieces = client.create_image(Some(options), None, None);
    let mut last = String::new();
    loop {
        let next = async { Ok(pieces.next().await) };
        let piece = engine
            .call("pulling the image", next)
            .await
            .map_err(failed)?;
        let Some(piece) = piece else { return Ok(()) };
        let piece = piece.map_err(|e| failed(typed("pulling the image", e)))?;
        if let Some(error) = piece.error_detail.and_then(|detail| detail.message) {
            let told = Error::new(
                ErrorKind::Unavailable,
                "the engine gave up pulling the image",
            );
            return Err(failed(told.with("engine_said", said(&error))));
        }
        // One line for each layer and state, not one for each piece of it.
        let line = format!(
            "{} {}",
            piece.id.unwrap_or_default(),
            piece.status.unwrap_or_default()
        );
        if line != last {
            progress.line(line.trim());
            last = line;
        }
    }
}

//! Takes files along from the checkout that a work tree was made from: named first, then made, then what they are remembered.

use std::{os::fd::OwnedFd, sync::Arc};

use groundcrew_core::error::{Error, ErrorKind};

use super::maker::Maker;
use crate::{
    files::beneath,
    git::repository::discover,
    include::{Manifest, Patterns, Taken, find, take_along},
};

/// How many are made between two words of progress.
const BATCH: usize = 500;

/// What was left out, for people: the first few, and how many there are.
const SHOWN: usize = 5;

/// Takes along what the request and the checkout name; `held` is the directory of the run.
pub(super) async fn include(maker: &Maker<'_>, held: &Arc<OwnedFd>) -> Result<(), Error> {
    if maker.part.include.is_empty() {
        return Ok(());
    }
    maker.go_on()?;
    let progress = maker.cx.progress;
    let place = maker.part.place.clone();
    let (lines, cancel) = (maker.part.include.clone(), maker.cx.cancel.clone());
    let found = maker
        .shared
        .blocking(move |_| {
            let source = discover(&place)?;
            find(&source.repository, &place, &Patterns::new(&lines)?, &cancel)
        })
        .await?;
    let mut skipped = found.skipped;
    if !found.taken.is_empty() {
        let count = found.taken.len();
        progress.line(&format!(
            "taking {count} files along, {} bytes",
            found.bytes
        ));
        // A controller that dies meanwhile leaves copies that nobody worked on: by this list they are known.
        let mut manifest = Manifest::planned(&found.taken);
        manifest = note(maker, held, manifest).await?;
        maker.checkpoint("include-begun").await?;
        for (index, batch) in found.taken.chunks(BATCH).enumerate() {
            maker.go_on()?;
            if index > 0 {
                progress.line(&format!("took {} of {count} files along", index * BATCH));
            }
            let left_out;
            (manifest, left_out) = make(maker, batch.to_vec(), manifest).await?;
            skipped.extend(left_out);
        }
        maker.checkpoint("files-taken").await?;
        note(maker, held, manifest).await?;
        maker.checkpoint("included").await?;
    }
    if !skipped.is_empty() {
        let mut text = skipped.iter().take(SHOWN).cloned().collect::<Vec<_>>();
        if skipped.len() > SHOWN {
            text.push(format!("and {} more", skipped.len() - SHOWN));
        }
        progress.line(&format!("not taken along: {}", text.join("; ")));
    }
    Ok(())
}

async fn note(
    maker: &Maker<'_>,
    held: &Arc<OwnedFd>,
    manifest: Manifest,
) -> Result<Manifest, Error> {
    let (held, tree) = (Arc::clone(held), maker.resource.part.tree.clone());
    maker
        .shared
        .blocking(move |_| manifest.write(&held, &tree).map(|()| manifest))
        .await
}

/// Makes some; returns which were left out, with the reason.
async fn make(
    maker: &Maker<'_>,
    batch: Vec<Taken>,
    mut manifest: Manifest,
) -> Result<(Manifest, Vec<String>), Error> {
    let (place, tree) = (maker.part.place.clone(), maker.resource.part.tree.clone());
    let cancel = maker.cx.cancel.clone();
    let open = |path: &std::path::Path| {
        beneath::open_root(path).map_err(|errno| {
            Error::io("failed to open a work tree", errno.into()).with("path", path.display())
        })
    };
    let work = move || {
        let (from, into) = (open(&place)?, open(&tree)?);
        let mut left_out = Vec::new();
        for taken in batch {
            if cancel.is_cancelled() {
                let why = "cancelled while files were taken along";
                return Err(Error::new(ErrorKind::Cancelled, why));
            }
            match take_along(&from, &place, &into, &taken)? {
                None => manifest.made(&into, &taken.name)?,
                Some(why) => {
                    manifest.not_made(&taken.name);
                    left_out.push(format!("{} {why}", taken.name.display()));
                }
            }
        }
        Ok((manifest, left_out))
    };
    maker.shared.blocking(move |_| work()).await
}

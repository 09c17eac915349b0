//! Cases of files: archives in and out.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use groundcrew_core::{
    error::ErrorKind,
    instance::{ByteStream, Instance},
};

use super::{
    bench::{Bench, refused},
    broken::{Broken, broken, hold},
};

/// An archive of one file, in pieces.
pub(super) fn archive(name: &str, content: &[u8]) -> Result<ByteStream, Broken> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o640);
    header.set_cksum();
    builder.append_data(&mut header, name, content)?;
    let whole = Bytes::from(builder.into_inner()?);
    let pieces: Vec<_> = (0..whole.len())
        .step_by(700)
        .map(|at| Ok(whole.slice(at..whole.len().min(at + 700))))
        .collect();
    Ok(stream::iter(pieces).boxed())
}

/// Returns the content of the file of that name in what an instance packs.
async fn packed(it: &Bench<'_>, at: &Path, name: &str) -> Result<Vec<u8>, Broken> {
    packed_file(&*it.instance, at, name).await
}

/// Returns the content of the file of that name in what an instance packs.
pub(super) async fn packed_file(
    instance: &dyn Instance,
    at: &Path,
    name: &str,
) -> Result<Vec<u8>, Broken> {
    let mut pieces = instance.get_archive(at).await?;
    let mut whole = Vec::new();
    while let Some(piece) = pieces.next().await {
        whole.extend_from_slice(&piece?);
    }
    for entry in tar::Archive::new(whole.as_slice()).entries()? {
        let mut entry = entry?;
        if entry.header().entry_type().is_file() && entry.path()?.ends_with(name) {
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            return Ok(content);
        }
    }
    broken!("the archive holds no {name}")
}

fn place(it: &Bench<'_>, name: &str) -> PathBuf {
    it.fixture.directory().join(format!("conformance-{name}"))
}

pub(super) async fn an_archive_comes_back_as_it_was_put(it: Bench<'_>) -> Result<(), Broken> {
    let content: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let at = place(&it, "round");
    it.instance
        .put_archive(&at, archive("file", &content)?)
        .await?;
    let found = packed(&it, &at, "file").await?;
    hold!(found == content, "{} bytes came back", found.len());
    Ok(())
}

pub(super) async fn an_archive_replaces_files_and_makes_directories(
    it: Bench<'_>,
) -> Result<(), Broken> {
    let at = place(&it, "made").join("below");
    it.instance
        .put_archive(&at, archive("file", b"a longer first one")?)
        .await?;
    it.instance
        .put_archive(&at, archive("other", b"beside")?)
        .await?;
    it.instance
        .put_archive(&at, archive("file", b"second")?)
        .await?;
    for (name, content) in [("file", "second"), ("other", "beside")] {
        let found = packed(&it, &at, name).await?;
        hold!(
            found == content.as_bytes(),
            "{name} is {:?}",
            String::from_utf8_lossy(&found)
        );
        let alone = packed(&it, &at.join(name), name).await?;
        hold!(
            alone == found,
            "{name} alone is {:?}",
            String::from_utf8_lossy(&alone)
        );
    }
    Ok(())
}

pub(super) async fn what_is_not_there_is_not_packed(it: Bench<'_>) -> Result<(), Broken> {
    let packed = it.instance.get_archive(&place(&it, "nothing")).await;
    refused(packed.map(|_| "an archive"), ErrorKind::NotFound)?;
    Ok(())
}

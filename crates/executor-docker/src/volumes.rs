//! Volumes of an engine, and what goes in and out of a container as archives, running or not.

use std::{
    collections::HashMap,
    io,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
};

use bollard::query_parameters::{
    DownloadFromContainerOptions, ListVolumesOptions, RemoveVolumeOptions, UploadToContainerOptions,
};
use futures_util::{StreamExt as _, stream};
use groundcrew_core::{
    error::{Error, ErrorKind},
    id::InstanceId,
    instance::ByteStream,
};
use tokio::sync::watch;

use crate::engine::{Engine, typed};

/// Returns the name of the volume that holds what is ours in a container: program, control directory and logs.
pub(crate) fn own(id: &InstanceId) -> String {
    format!("groundcrew-{id}-own")
}

/// Returns the name of the volume that holds a workspace.
pub(crate) fn work(id: &InstanceId) -> String {
    format!("groundcrew-{id}-work")
}

/// Returns the name of one of the volumes that the image of an instance wants.
pub(crate) fn of_image(id: &InstanceId, index: usize) -> String {
    format!("groundcrew-{id}-image-{index}")
}

/// Returns what the names of all volumes of an instance begin with.
pub(crate) fn prefix(id: &InstanceId) -> String {
    format!("groundcrew-{id}-")
}

/// Whether a name is one of those that an image wants.
pub(crate) fn is_of_image(id: &InstanceId, name: &str) -> bool {
    let rest = name.strip_prefix(&prefix(id));
    let index = rest.and_then(|rest| rest.strip_prefix("image-"));
    // No more than the number: an instance may well be called so.
    index.is_some_and(|index| index.parse::<usize>().is_ok())
}

/// Whether the engine refuses to remove a volume because a container has it.
pub(crate) fn is_in_use(error: &Error) -> bool {
    error.kind() == ErrorKind::Conflict
        && error.get("volume").is_some()
        && error.get("status").is_some()
}

/// A volume, as a list shows it.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) labels: HashMap<String, String>,
}

impl Engine {
    /// Lists the volumes that have all these labels with exactly these values.
    pub(crate) async fn volumes(&self, labels: Vec<String>) -> Result<Vec<Volume>, Error> {
        self.filtered("label", labels).await
    }

    /// Lists the volumes of an instance by their names, whatever labels they have.
    pub(crate) async fn volumes_of(&self, id: &InstanceId) -> Result<Vec<Volume>, Error> {
        let prefix = prefix(id);
        let mut found = self.filtered("name", vec![prefix.clone()]).await?;
        // The engine finds the words anywhere in a name.
        found.retain(|volume| volume.name.starts_with(&prefix));
        Ok(found)
    }

    async fn filtered(&self, by: &str, values: Vec<String>) -> Result<Vec<Volume>, Error> {
        let client = self.client().await?;
        let options = ListVolumesOptions {
            filters: Some(HashMap::from([(by.to_owned(), values)])),
        };
        let found = self
            .call("listing volumes", client.list_volumes(Some(options)))
            .await?;
        let found = found.volumes.unwrap_or_default().into_iter();
        Ok(found
            .map(|volume| Volume {
                name: volume.name,
                labels: volume.labels,
            })
            .collect())
    }

    /// Returns the labels of a volume; none if there is no such volume.
    pub(crate) async fn volume(
        &self,
        name: &str,
    ) -> Result<Option<HashMap<String, String>>, Error> {
        let client = self.client().await?;
        match self
            .call("looking at a volume", client.inspect_volume(name))
            .await
        {
            Ok(found) => Ok(Some(found.labels)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes a volume; one that is gone is success.
    ///
    /// # Errors
    ///
    /// `Conflict` while a container has it.
    pub(crate) async fn remove_volume(&self, name: &str) -> Result<(), Error> {
        let client = self.client().await?;
        let call = client.remove_volume(name, None::<RemoveVolumeOptions>);
        match self.call("removing a volume", call).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|error| error.with("volume", name)),
        }
    }

    /// Unpacks an archive in a container; gives up when nothing moves for as long as patience lasts.
    pub(crate) async fn upload(
        &self,
        container: &str,
        at: &str,
        tar: ByteStream,
    ) -> Result<(), Error> {
        let what = "unpacking in the container";
        let client = self.client().await?;
        let options = UploadToContainerOptions {
            path: at.to_owned(),
            ..UploadToContainerOptions::default()
        };
        let (taken, mut progress) = watch::channel(());
        let broken = Arc::new(Mutex::new(None));
        let pieces = {
            let broken = Arc::clone(&broken);
            tar.map(move |piece| {
                taken.send_replace(());
                piece.map_err(|error| {
                    *broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    io::Error::other("the archive broke off")
                })
            })
        };
        let body = bollard::body_try_stream(pieces);
        let mut sending = pin!(client.upload_to_container(container, Some(options), body));
        let mut all_sent = false;
        let sent = loop {
            tokio::select! {
                sent = &mut sending => break sent.map_err(|e| self.placed(typed(what, e))),
                more = progress.changed(), if !all_sent => all_sent = more.is_err(),
                () = tokio::time::sleep(self.patience()) => break Err(self.too_late(what)),
            }
        };
        // What broke off here is the reason, whatever the engine says of the half that it got.
        match broken.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => sent,
        }
    }

    /// Packs a path of a container; its own name is the first part of every name in the archive.
    pub(crate) async fn download(
        self: &Arc<Self>,
        container: &str,
        path: &str,
    ) -> Result<ByteStream, Error> {
        let what = "packing in the container";
        let client = self.client().await?;
        let options = DownloadFromContainerOptions {
            path: path.to_owned(),
        };
        let pieces = client
            .download_from_container(container, Some(options))
            .boxed();
        let engine = Arc::clone(self);
        let bounded = stream::unfold(Some((engine, pieces)), async move |state| {
            let (engine, mut pieces) = state?;
            match tokio::time::timeout(engine.patience(), pieces.next()).await {
                Ok(Some(Ok(piece))) => Some((Ok(piece), Some((engine, pieces)))),
                Ok(Some(Err(e))) => Some((Err(engine.placed(typed(what, e))), None)),
                Ok(None) => None,
                Err(_) => Some((Err(engine.too_late(what)), None)),
            }
        });
        Ok(bounded.boxed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f105_a_volume_is_found_by_its_whole_name_where_an_engine_lost_its_labels() {
        let id = InstanceId::new("00112233445566778899aabbccddeeff").unwrap();
        assert!(is_of_image(&id, &of_image(&id, 3)));
        for name in [own(&id), work(&id)] {
            assert!(
                name.starts_with(&prefix(&id)) && !is_of_image(&id, &name),
                "{name}"
            );
        }
        assert!(!is_of_image(
            &id,
            "x-groundcrew-00112233445566778899aabbccddeeff-image-0"
        ));
        assert!(!is_of_image(
            &id,
            "groundcrew-00112233445566778899aabbccddee00-image-0"
        ));
    }
}

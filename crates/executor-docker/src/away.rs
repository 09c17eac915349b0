//! What of an instance lies in volumes of the engine, and how it gets there: through a container that is never started.
//!
//! A workspace that was asked to be in a volume is filled from this host before the start and brought back at the end; see
//! `home`. Where the engine does not see the files of this host, our own things are in a volume too: the program, the start
//! file, the control directory and the logs.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
};

use bollard::{
    models::{ContainerCreateBody, HostConfig, Mount, MountType, MountVolumeOptions},
    query_parameters::CreateContainerOptions,
};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use groundcrew_core::{
    error::{Error, ErrorKind},
    executor::InstanceSpec,
    id::InstanceId,
    wire,
};
use groundcrew_supervisor::{START_FILE, StartFile};
use serde::{Deserialize, Serialize};

use crate::{
    engine::{Engine, Listed},
    image::Image,
    inside,
    labels::{ATTEMPT, CARRIER, INSTALL, ROLE},
    options::{Control, Options, Storage},
    place::{Place, Root},
    tree, volumes,
};

/// What is written down about it.
const NOTE: &str = "away";
/// Written down before the container starts: from then on the workspace in the volume is the one that counts.
pub(crate) const LEFT: &str = "left";
/// Written down when the workspace is back.
pub(crate) const HOME: &str = "home";

const VERSION: u32 = 1;

/// Where a carrier has the volumes; no image has anything there.
pub(crate) const OWN: &str = "/.groundcrew-own";
pub(crate) const WORK: &str = "/.groundcrew-work";

/// What of an instance lies in volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Away {
    version: u32,
    /// Whether our own things are in one.
    pub(crate) ours: bool,
    /// The image, of which a carrier is made as well.
    pub(crate) image: Image,
    /// To whom everything belongs there.
    pub(crate) user: (u32, u32),
    /// The workspace, if it is in one.
    #[serde(with = "wire::optional_path")]
    pub(crate) workspace: Option<PathBuf>,
    /// What the workspace of this host looked like when it was taken along.
    pub(crate) print: Option<u64>,
    /// The labels of the volumes.
    pub(crate) labels: HashMap<String, String>,
}

impl Away {
    /// Plans for an engine that sees the files of this host; none if nothing is to be in a volume.
    pub(crate) async fn asked(
        spec: &InstanceSpec,
        options: &Options,
        image: &Image,
        user: (u32, u32),
        labels: HashMap<String, String>,
    ) -> Result<Option<Self>, Error> {
        let Some(workspace) = spec.workspace.as_ref().filter(|_| match options.storage {
            Storage::Volume => true,
            // Another user could not write it where it is, and git would not trust it.
            Storage::Auto => user.0 != rustix::process::geteuid().as_raw(),
            Storage::Bind => false,
        }) else {
            return Ok(None);
        };
        Self::of(false, Some(workspace), image, user, labels)
            .await
            .map(Some)
    }

    async fn of(
        ours: bool,
        workspace: Option<&PathBuf>,
        image: &Image,
        user: (u32, u32),
        labels: HashMap<String, String>,
    ) -> Result<Self, Error> {
        let print = match workspace {
            Some(workspace) => Some(print(workspace).await?),
            None => None,
        };
        Ok(Self {
            version: VERSION,
            ours,
            image: image.clone(),
            user,
            workspace: workspace.cloned(),
            print,
            labels,
        })
    }

    /// Plans for an engine that does not see the files of this host.
    ///
    /// # Errors
    ///
    /// `Unsupported`, saying what to do, when something of this host is asked for that cannot be taken along.
    pub(crate) async fn forced(
        spec: &InstanceSpec,
        options: &Options,
        image: &Image,
        user: (u32, u32),
        labels: HashMap<String, String>,
    ) -> Result<Self, Error> {
        let refused = |why: &'static str| Err(Error::new(ErrorKind::Unsupported, why));
        if options.control == Control::Socket {
            return refused(
                "the engine does not see the files of this host, so no socket can be shared; use --control exec, or leave it out",
            );
        }
        if !spec.shared.is_empty() {
            return refused(
                "the engine does not see the files of this host, and the workspace needs those of its repository; use --workspace volume, without --share-objects",
            );
        }
        if !options.mounts.is_empty() {
            return refused(
                "the engine does not see the files of this host, so none can be mounted; leave --mount out",
            );
        }
        if spec.workspace.is_some() && options.storage == Storage::Bind {
            return refused(
                "the engine does not see the files of this host, so the workspace cannot be used where it is; use --workspace volume",
            );
        }
        Self::of(true, spec.workspace.as_ref(), image, user, labels).await
    }

    /// Reads what is written down of an instance; none if all of it is on this host.
    pub(crate) fn read(place: &Place) -> Result<Option<Self>, Error> {
        let Some(text) = place.read(NOTE)? else {
            return Ok(None);
        };
        let corrupt = || {
            Error::new(
                ErrorKind::Corrupt,
                "what tells which volumes an instance has cannot be understood",
            )
            .with("path", place.path().join(NOTE).display())
        };
        let away: Self = serde_json::from_slice(&text).map_err(|e| corrupt().with_source(e))?;
        if away.version == VERSION {
            Ok(Some(away))
        } else {
            Err(corrupt().with("version", away.version))
        }
    }

    /// Writes it down, before anything of it is made.
    pub(crate) fn write(&self, place: &Place) -> Result<(), Error> {
        let text = serde_json::to_vec(self).map_err(|e| {
            Error::new(ErrorKind::Unexpected, "failed to write down the volumes").with_source(e)
        })?;
        place.note(NOTE, &text)
    }

    /// Makes sure that no other instance has the same workspace in a volume: what it brings back would be lost.
    ///
    /// To be asked once this one is written down, so that of two at least one sees the other.
    ///
    /// # Errors
    ///
    /// `Conflict`, naming the instance.
    pub(crate) fn check_alone(&self, root: &Root, id: &InstanceId) -> Result<(), Error> {
        let Some(workspace) = &self.workspace else {
            return Ok(());
        };
        for other in root.list()?.into_iter().filter(|other| other != id) {
            let Some(place) = root.find(&other)? else {
                continue;
            };
            let there = Self::read(&place)?.and_then(|away| away.workspace);
            if there.as_ref() == Some(workspace) && !place.has(HOME)? {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    "the workspace is in the volume of another instance, and not brought back yet; end that one, or let `groundcrew recover` bring it back",
                )
                .with("workspace", workspace.display())
                .with("instance", other));
            }
        }
        Ok(())
    }

    /// Returns the volumes, each with where it is in the container and in a carrier.
    fn volumes(&self, id: &InstanceId) -> Vec<(String, String, &'static str)> {
        let mut volumes = Vec::new();
        if self.ours {
            volumes.push((volumes::own(id), inside::ROOT.to_owned(), OWN));
        }
        if let Some(workspace) = &self.workspace {
            let target = workspace.to_string_lossy().into_owned();
            volumes.push((volumes::work(id), target, WORK));
        }
        volumes
    }

    /// Returns the mounts of the container; the engine makes the volumes with it.
    pub(crate) fn mounts(&self, id: &InstanceId) -> Vec<Mount> {
        let volumes = self.volumes(id).into_iter();
        volumes
            .map(|(name, target, _)| self.mount(name, &target))
            .collect()
    }

    fn mount(&self, name: String, target: &str) -> Mount {
        Mount {
            typ: Some(MountType::VOLUME),
            source: Some(name),
            target: Some(target.to_owned()),
            volume_options: Some(MountVolumeOptions {
                // What the image has there is not the workspace.
                no_copy: Some(true),
                labels: Some(self.labels.clone()),
                ..MountVolumeOptions::default()
            }),
            ..Mount::default()
        }
    }

    /// Makes sure that the volumes are ours: the engine takes one that exists as it is.
    ///
    /// # Errors
    ///
    /// `Conflict`, naming the volume.
    pub(crate) async fn check_ours(&self, engine: &Engine, id: &InstanceId) -> Result<(), Error> {
        for (name, ..) in self.volumes(id) {
            let labels = engine.volume(&name).await?.unwrap_or_default();
            for key in [INSTALL, ATTEMPT] {
                if labels.get(key) != self.labels.get(key) {
                    return Err(Error::new(
                        ErrorKind::Conflict,
                        "another volume has the name; it is left alone, and the launch may be tried again",
                    )
                    .with("volume", name));
                }
            }
        }
        Ok(())
    }

    /// Makes a container that is never started and has the volumes; to be removed by whoever made it, or with the instance.
    pub(crate) async fn carrier(&self, engine: &Engine, id: &InstanceId) -> Result<String, Error> {
        let name = format!("groundcrew-{id}-carrier");
        let make = async || {
            let mounts = self.carried(id);
            unstarted(engine, &name, &self.image, &self.labels, mounts).await
        };
        match make().await {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                // One that somebody left who died over it.
                for one in self.left(engine).await? {
                    engine.remove(&one.id).await?;
                }
                make().await
            }
            first => first,
        }
    }

    async fn left(&self, engine: &Engine) -> Result<Vec<Listed>, Error> {
        let mut labels = vec![format!("{ROLE}={CARRIER}")];
        for key in [INSTALL, ATTEMPT] {
            let value = self.labels.get(key).map_or("", String::as_str);
            labels.push(format!("{key}={value}"));
        }
        engine.list(labels).await
    }

    fn carried(&self, id: &InstanceId) -> Vec<Mount> {
        let volumes = self.volumes(id).into_iter();
        volumes
            .map(|(name, _, carried)| self.mount(name, carried))
            .collect()
    }

    /// Fills the volumes.
    pub(crate) async fn fill(
        &self,
        engine: &Engine,
        id: &InstanceId,
        program: &Path,
        start: &StartFile,
    ) -> Result<(), Error> {
        let carrier = self.carrier(engine, id).await?;
        let first = self.beginning(program, start)?;
        let whole = stream::iter([Ok(Bytes::from(first))]).boxed();
        engine.upload(&carrier, "/", whole).await?;
        if let Some(workspace) = &self.workspace {
            let files = groundcrew_supervisor::archive::pack_for(workspace, self.user)?;
            engine.upload(&carrier, WORK, files).await?;
        }
        engine.remove(&carrier).await
    }

    /// Packs our own things, and the directory of the workspace itself, which an archive of what is in it does not have.
    fn beginning(&self, program: &Path, start: &StartFile) -> Result<Vec<u8>, Error> {
        let failed = |e: io::Error| Error::io("failed to pack what the container runs on", e);
        let mut archive = tar::Builder::new(Vec::new());
        let mut add = |path: &str, kind, mode, (user, group): (u32, u32), bytes: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_uid(user.into());
            header.set_gid(group.into());
            header.set_size(bytes.len() as u64);
            archive
                .append_data(&mut header, path, bytes)
                .map_err(failed)
        };
        let directory = tar::EntryType::Directory;
        let file = tar::EntryType::Regular;
        if self.workspace.is_some() {
            add(&WORK[1..], directory, 0o755, self.user, b"")?;
        }
        if self.ours {
            let own = &OWN[1..];
            let program = std::fs::read(program).map_err(failed)?;
            let start = serde_json::to_vec_pretty(start).map_err(|e| failed(e.into()))?;
            // Those of the image's own root, which nobody but it may write.
            add(own, directory, 0o755, (0, 0), b"")?;
            add(&format!("{own}/supervisor"), file, 0o755, (0, 0), &program)?;
            add(&format!("{own}/control"), directory, 0o700, self.user, b"")?;
            let path = format!("{own}/control/{START_FILE}");
            add(&path, file, 0o600, self.user, &start)?;
            add(&format!("{own}/logs"), directory, 0o700, self.user, b"")?;
        }
        archive.into_inner().map_err(failed)
    }
}

/// Tells a workspace from one that was changed; see [`tree::print`].
async fn print(workspace: &Path) -> Result<u64, Error> {
    let workspace = workspace.to_owned();
    tokio::task::spawn_blocking(move || tree::print(&workspace))
        .await
        .map_err(|e| {
            Error::new(ErrorKind::Panicked, "looking at the workspace was given up").with_source(e)
        })?
}

/// Makes a container that is not meant to be started.
pub(crate) async fn unstarted(
    engine: &Engine,
    name: &str,
    image: &Image,
    labels: &HashMap<String, String>,
    mut mounts: Vec<Mount>,
) -> Result<String, Error> {
    let mut labels = labels.clone();
    labels.insert(ROLE.to_owned(), CARRIER.to_owned());
    // In place of the volumes that the image wants: nothing is made of these before a start, and an engine that dies leaves none.
    mounts.extend(image.volumes.iter().map(|target| Mount {
        typ: Some(MountType::TMPFS),
        target: Some(target.clone()),
        ..Mount::default()
    }));
    let body = ContainerCreateBody {
        image: Some(image.id.clone()),
        entrypoint: Some(vec![inside::PROGRAM.to_owned()]),
        cmd: Some(vec!["--version".to_owned()]),
        labels: Some(labels),
        host_config: Some(HostConfig {
            network_mode: Some("none".to_owned()),
            mounts: Some(mounts),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let client = engine.client().await?;
    let options = CreateContainerOptions {
        name: Some(name.to_owned()),
        ..CreateContainerOptions::default()
    };
    let made = engine
        .call(
            "making a container for its volumes",
            client.create_container(Some(options), body),
        )
        .await?;
    Ok(made.id)
}

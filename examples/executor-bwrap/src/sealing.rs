//! What an instance sees of the host, as arguments of bubblewrap.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    executor::{InstanceSpec, PathAccess},
};

use crate::place::Place;

/// The network of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    Host,
    None,
}

impl Network {
    /// Reads the options of a request; what is not known is refused by name.
    pub(crate) fn of(spec: &InstanceSpec) -> Result<Self, Error> {
        let mut network = Self::Host;
        for (name, value) in &spec.options {
            network = match (name.as_str(), value.as_str()) {
                ("network", Some("host")) => Self::Host,
                ("network", Some("none")) => Self::None,
                ("network", _) => return Err(refused("the network is `host` or `none`", name)),
                _ => return Err(refused("the only option is `network`", name)),
            };
        }
        Ok(network)
    }
}

fn refused(message: &'static str, option: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, message).with("option", option)
}

/// Returns the command that goes on as the supervisor, once it is sealed off; the start file comes last.
pub(crate) fn command(
    bwrap: &Path,
    supervisor: &Path,
    spec: &InstanceSpec,
    place: &Place,
    network: Network,
) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![bwrap.into()];
    let mut add = |flag: &str, paths: &[&Path]| {
        words.push(flag.into());
        words.extend(paths.iter().map(OsString::from));
    };
    for flag in ["--unshare-pid", "--unshare-ipc"] {
        add(flag, &[]);
    }
    if network == Network::None {
        add("--unshare-net", &[]);
    }
    let root = Path::new("/");
    add("--ro-bind", &[root, root]);
    add("--dev", &[Path::new("/dev")]);
    add("--proc", &[Path::new("/proc")]);
    add("--tmpfs", &[Path::new("/tmp")]);
    if let Some(workspace) = &spec.workspace {
        add("--bind", &[workspace, workspace]);
    }
    for shared in &spec.shared {
        let flag = match shared.access {
            PathAccess::Read => "--ro-bind",
            PathAccess::Write => "--bind",
        };
        add(flag, &[&shared.path, &shared.path]);
    }
    let (control, logs): (PathBuf, &Path) = (place.control(), place.logs());
    add("--bind", &[&control, &control]);
    add("--bind", &[logs, logs]);
    // Under this name it knows that it is to be a supervisor, wherever it came from.
    let program = place.program();
    add("--ro-bind", &[supervisor, &program]);
    words.extend(["--".into(), program.into(), "serve".into()]);
    words
}

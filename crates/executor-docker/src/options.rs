//! What a request may ask of a container: read strictly, so that a typing error never means "no limit".

use std::path::PathBuf;

use groundcrew_core::error::{Error, ErrorKind};
use serde_json::{Map, Value};

use crate::ports::Port;

/// Every option, for the error about an unknown one.
const KNOWN: [&str; 9] = [
    "image",
    "network",
    "user",
    "mounts",
    "read_only",
    "pull",
    "control",
    "storage",
    "publish",
];

/// When an image is pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pull {
    /// Never: what is not there is an error.
    #[default]
    Never,
    /// If it is not there.
    Missing,
    /// Each time.
    Always,
}

/// How the supervisor is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Control {
    /// Through its socket where the engine sees the files of this host, else through the engine.
    #[default]
    Auto,
    /// Through its socket, in a directory that the container and this host share.
    Socket,
    /// Through the engine, by a bridge that is executed in the container.
    Exec,
}

/// Where the workspace is while the container lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Storage {
    /// On this host, seen inside at the same place.
    #[default]
    Bind,
    /// In a volume of the engine, filled from this host before the start and brought back at the end.
    Volume,
    /// On this host where the engine sees its files and the container works as their owner, else in a volume.
    Auto,
}

/// A path of the host that is seen inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bind {
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) read_only: bool,
}

/// What a container is asked to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) image: String,
    /// `none`, `default`, or the name of a network.
    pub(crate) network: String,
    /// User and group as numbers; those of this program if nothing is said.
    pub(crate) user: Option<(u32, u32)>,
    pub(crate) mounts: Vec<Bind>,
    pub(crate) read_only: bool,
    pub(crate) pull: Pull,
    pub(crate) control: Control,
    pub(crate) storage: Storage,
    pub(crate) publish: Vec<Port>,
}

fn wrong(option: &'static str, value: &Value, how: &'static str) -> Error {
    Error::new(
        ErrorKind::InvalidInput,
        format!("the option {option} {how}"),
    )
    .with("value", value)
}

fn text<'a>(option: &'static str, value: &'a Value) -> Result<&'a str, Error> {
    value
        .as_str()
        .filter(|text| !text.is_empty() && !text.contains('\0'))
        .ok_or_else(|| wrong(option, value, "must be a text that is not empty"))
}

impl Options {
    /// Reads them.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, naming the option, when one is unknown, missing or no value of its kind.
    pub(crate) fn read(options: &Map<String, Value>) -> Result<Self, Error> {
        let unknown: Vec<&str> = options
            .keys()
            .map(String::as_str)
            .filter(|key| !KNOWN.contains(key))
            .collect();
        if !unknown.is_empty() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "the docker executor has no such option",
            )
            .with("unknown", unknown.join(", "))
            .with("known", KNOWN.join(", ")));
        }
        let Some(image) = options.get("image") else {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "the docker executor needs an image; name one with --image",
            ));
        };
        let get = |key: &str| options.get(key);
        let publish = get("publish").map_or_else(|| Ok(Vec::new()), ports)?;
        if !publish.is_empty() && get("network").and_then(Value::as_str) == Some("none") {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "without a network no port is reached; leave --publish out, or name a network",
            ));
        }
        Ok(Self {
            publish,
            image: self::image(image)?,
            network: get("network").map_or_else(|| Ok("default".to_owned()), network)?,
            user: get("user").map(user).transpose()?,
            mounts: get("mounts").map_or_else(|| Ok(Vec::new()), mounts)?,
            read_only: get("read_only").map_or(Ok(false), |value| {
                value
                    .as_bool()
                    .ok_or_else(|| wrong("read_only", value, "must be true or false"))
            })?,
            pull: get("pull").map_or(Ok(Pull::default()), pull)?,
            control: get("control").map_or(Ok(Control::default()), control)?,
            storage: get("storage").map_or(Ok(Storage::default()), storage)?,
        })
    }
}

/// Takes only what cannot be anything but the name of an image in the address of a request.
fn image(value: &Value) -> Result<String, Error> {
    let name = text("image", value)?;
    let plain = name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"._-/:@".contains(&b))
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != "..");
    if plain && name.len() <= 512 {
        Ok(name.to_owned())
    } else {
        Err(wrong(
            "image",
            value,
            "must be the name, id or digest of an image, such as debian:12",
        ))
    }
}

fn network(value: &Value) -> Result<String, Error> {
    let name = text("network", value)?;
    let plain = name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if name == "host" || !plain {
        return Err(wrong(
            "network",
            value,
            "must be none, default or the name of a network; the host's own is never given",
        ));
    }
    Ok(name.to_owned())
}

fn user(value: &Value) -> Result<(u32, u32), Error> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => String::new(),
    };
    let (user, group) = text.split_once(':').unwrap_or((&text, &text));
    let number = |text: &str| text.parse::<u32>().ok().filter(|id| *id != u32::MAX);
    match (number(user), number(group)) {
        (Some(user), Some(group)) => Ok((user, group)),
        _ => Err(wrong(
            "user",
            value,
            "must be the numbers of a user and a group, such as 1000:1000",
        )),
    }
}

fn mounts(value: &Value) -> Result<Vec<Bind>, Error> {
    let list = value
        .as_array()
        .ok_or_else(|| wrong("mounts", value, "must be a list"))?;
    list.iter().map(mount).collect()
}

fn mount(value: &Value) -> Result<Bind, Error> {
    let how = "has entries of an absolute source, an absolute target and, if wanted, read_only";
    let fail = || wrong("mounts", value, how);
    let entry = value.as_object().ok_or_else(fail)?;
    if let Some(key) = entry
        .keys()
        .find(|key| !["source", "target", "read_only"].contains(&key.as_str()))
    {
        return Err(fail().with("unknown", key));
    }
    let path = |key: &str| {
        let path = PathBuf::from(entry.get(key)?.as_str()?);
        let plain = path.is_absolute()
            && !path
                .components()
                .any(|part| part == std::path::Component::ParentDir);
        plain.then_some(path)
    };
    let source = path("source").ok_or_else(fail)?;
    let target = match entry.get("target") {
        Some(_) => path("target").ok_or_else(fail)?,
        None => source.clone(),
    };
    if target.parent().is_none() || target.starts_with(crate::inside::ROOT) {
        return Err(wrong(
            "mounts",
            value,
            "may not hide what the container runs on",
        ));
    }
    let read_only = match entry.get("read_only") {
        Some(value) => value.as_bool().ok_or_else(fail)?,
        None => false,
    };
    Ok(Bind {
        source,
        target,
        read_only,
    })
}

fn pull(value: &Value) -> Result<Pull, Error> {
    match value.as_str() {
        Some("never") => Ok(Pull::Never),
        Some("missing") => Ok(Pull::Missing),
        Some("always") => Ok(Pull::Always),
        _ => Err(wrong("pull", value, "must be missing, never or always")),
    }
}

fn ports(value: &Value) -> Result<Vec<Port>, Error> {
    let how = "must be a list of ports, such as 8080:80, 0.0.0.0:8080:80 or 80/udp";
    let list = value
        .as_array()
        .ok_or_else(|| wrong("publish", value, how))?;
    let read = |value: &Value| value.as_str().and_then(Port::read);
    list.iter()
        .map(|one| read(one).ok_or_else(|| wrong("publish", one, how)))
        .collect()
}

fn control(value: &Value) -> Result<Control, Error> {
    match value.as_str() {
        Some("auto") => Ok(Control::Auto),
        Some("socket") => Ok(Control::Socket),
        Some("exec") => Ok(Control::Exec),
        _ => Err(wrong("control", value, "must be auto, socket or exec")),
    }
}

fn storage(value: &Value) -> Result<Storage, Error> {
    match value.as_str() {
        Some("bind") => Ok(Storage::Bind),
        Some("volume") => Ok(Storage::Volume),
        Some("auto") => Ok(Storage::Auto),
        _ => Err(wrong("storage", value, "must be bind, volume or auto")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(options: Value) -> Result<Options, Error> {
        let Value::Object(map) = options else {
            panic!("no object")
        };
        Options::read(&map)
    }

    #[test]
    fn an_unknown_option_is_refused_by_name() {
        let error = read(json!({"image": "a", "privileged": true})).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(error.get("unknown"), Some("privileged"));
    }

    #[test]
    fn c34_the_name_of_an_image_is_nothing_else() {
        for good in ["a", "tc/base:1", "host:5000/a/b@sha256:00", "0123abcd"] {
            assert!(read(json!({"image": good})).is_ok(), "{good}");
        }
        for bad in ["", "../a", "a/../b", "a?b=c", "a b", "-a", "a//b", "a#b"] {
            let error = read(json!({"image": bad})).unwrap_err();
            assert!(error.message().contains("image"), "{bad}");
        }
        assert!(read(json!({})).unwrap_err().message().contains("--image"));
    }

    #[test]
    fn the_hosts_own_namespaces_and_our_own_paths_are_never_given() {
        assert!(read(json!({"image": "a", "network": "host"})).is_err());
        for target in [
            "/",
            "/.groundcrew",
            "/.groundcrew/control",
            "relative",
            "/a/../b",
        ] {
            let mounts = json!([{"source": "/x", "target": target}]);
            assert!(
                read(json!({"image": "a", "mounts": mounts})).is_err(),
                "{target}"
            );
        }
        let read = read(json!({"image": "a", "mounts": [{"source": "/a:b,c"}]})).unwrap();
        assert_eq!(read.mounts[0].target, PathBuf::from("/a:b,c"));
    }
}

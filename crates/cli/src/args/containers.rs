//! The words about containers: what they are made from, and what they may have.

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

/// What a container is made from, and what it may have; for executors that make one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Containers")]
pub(crate) struct ContainerArgs {
    /// Image, by name, id or digest; it needs neither a shell nor git of its own for us.
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Network: `none`, `default` or the name of one [default: `default`].
    #[arg(long, value_name = "NAME")]
    pub network: Option<String>,
    /// User and group, as numbers [default: yours].
    #[arg(long, value_name = "UID[:GID]")]
    pub user: Option<String>,
    /// Path of this host that the container sees: SOURCE[:TARGET][:ro], or an object with `source`, `target` and `read_only`. May be repeated.
    #[arg(long, value_name = "MOUNT", value_parser = mount)]
    pub mount: Vec<Value>,
    /// Let nothing but the workspace, mounts and /tmp be written.
    #[arg(long)]
    pub read_only: bool,
    /// When the image is pulled [default: never].
    #[arg(long, value_enum, value_name = "WHEN")]
    pub pull: Option<Pull>,
    /// Port of the container that is reached from outside: [[IP:]PORT:]PORT[/udp]; the engine chooses where nothing is said, and only its own machine gets there without an IP. May be repeated.
    #[arg(long, value_name = "PORT")]
    pub publish: Vec<String>,
    /// How the container is reached [default: `auto`].
    #[arg(long, value_enum, value_name = "HOW")]
    pub control: Option<Control>,
}

/// How a container is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Control {
    /// Over a socket where the engine sees the files of this host, else through the engine.
    Auto,
    /// Over a socket in a directory that the container and this host share.
    Socket,
    /// Through the engine, by a program that it executes in the container.
    Exec,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pull {
    /// If the engine does not have it.
    Missing,
    /// Never.
    Never,
    /// Each time; the one that is there is used if it cannot be.
    Always,
}

/// Reads a mount; a path with a colon is written as JSON.
fn mount(text: &str) -> Result<Value, String> {
    if text.starts_with('{') {
        return serde_json::from_str(text).map_err(|e| e.to_string());
    }
    let (text, read_only) = match text.strip_suffix(":ro") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let mut parts = text.split(':');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(source), None, _) => Ok(json!({"source": source, "read_only": read_only})),
        (Some(source), Some(target), None) => {
            Ok(json!({"source": source, "target": target, "read_only": read_only}))
        }
        _ => Err("has too many colons; write it as {\"source\":…,\"target\":…}".to_owned()),
    }
}

impl ContainerArgs {
    /// Returns them as the executor takes them, with where the workspace is; nothing for what was not said.
    pub(crate) fn options(&self, storage: Option<&'static str>) -> Map<String, Value> {
        let texts = [
            ("image", &self.image),
            ("network", &self.network),
            ("user", &self.user),
        ];
        let mut options: Map<String, Value> = texts
            .into_iter()
            .filter_map(|(name, text)| Some((name.to_owned(), json!(text.as_ref()?))))
            .collect();
        if !self.mount.is_empty() {
            options.insert("mounts".to_owned(), json!(self.mount));
        }
        if self.read_only {
            options.insert("read_only".to_owned(), json!(true));
        }
        if let Some(pull) = self.pull {
            let word = match pull {
                Pull::Missing => "missing",
                Pull::Never => "never",
                Pull::Always => "always",
            };
            options.insert("pull".to_owned(), json!(word));
        }
        if !self.publish.is_empty() {
            options.insert("publish".to_owned(), json!(self.publish));
        }
        if let Some(control) = self.control {
            let word = match control {
                Control::Auto => "auto",
                Control::Socket => "socket",
                Control::Exec => "exec",
            };
            options.insert("control".to_owned(), json!(word));
        }
        if let Some(storage) = storage {
            options.insert("storage".to_owned(), json!(storage));
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c24_mounts_with_odd_paths_can_be_written() {
        assert_eq!(mount("/a"), Ok(json!({"source": "/a", "read_only": false})));
        assert_eq!(
            mount("/a:/b:ro"),
            Ok(json!({"source": "/a", "target": "/b", "read_only": true}))
        );
        assert_eq!(
            mount(r#"{"source":"/a:b,c"}"#),
            Ok(json!({"source": "/a:b,c"}))
        );
        assert!(mount("/a:b:c:d").unwrap_err().contains("source"));
        assert!(mount("{").is_err());
    }

    #[test]
    fn what_was_not_said_is_no_option() {
        assert!(ContainerArgs::default().options(None).is_empty());
    }
}

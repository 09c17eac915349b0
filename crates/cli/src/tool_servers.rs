//! The file of tool servers that a conversation opens with, in the form that agents and editors share.
//!
//! It may hold secrets: it is read when it is needed, and nothing of it is stored.

use std::{collections::BTreeMap, ffi::OsStr};

use groundcrew_core::{
    error::{Error, ErrorKind},
    instance::McpServer,
};
use groundcrew_session::tool_server::ToolServer;
use serde::Deserialize;
use serde_json::Value;

use crate::{bounded, paths::absolute, surroundings::Surroundings};

/// The largest file that is read.
const MAX_FILE: u64 = 1024 * 1024;

/// What is read of the file; what else stands in it is for others.
#[derive(Deserialize)]
struct File {
    #[serde(rename = "mcpServers")]
    servers: BTreeMap<String, Value>,
}

/// Reads the servers; none where no file is named.
///
/// # Errors
///
/// When the file cannot be read, or a server's definition says no way to reach it.
pub(crate) fn read(
    file: Option<&OsStr>,
    surroundings: &Surroundings,
) -> Result<Vec<McpServer>, Error> {
    let Some(file) = file else {
        return Ok(Vec::new());
    };
    let path = absolute(file, &surroundings.directory, surroundings.home())?;
    let failed = |e| Error::io("failed to read the tool servers", e).with("path", path.display());
    let mut opened = std::fs::File::open(&path).map_err(failed)?;
    let bytes = bounded::read(&mut opened, MAX_FILE).map_err(failed)?;
    let bytes = bytes.ok_or_else(|| {
        Error::new(ErrorKind::TooLarge, "the file of tool servers is too large")
            .with("path", path.display())
    })?;
    let read: File = serde_json::from_slice(&bytes).map_err(|why| {
        Error::new(
            ErrorKind::InvalidInput,
            "the file of tool servers is JSON with an object `mcpServers`",
        )
        .with("path", path.display())
        .with("why", why)
    })?;
    let servers = read.servers.into_iter().map(|(name, definition)| {
        let server = McpServer { name, definition };
        ToolServer::read(&server).map_err(|error| error.with("path", path.display()))?;
        Ok(server)
    });
    servers.collect()
}

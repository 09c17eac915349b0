//! Tool servers in the words of ACP.

use agent_client_protocol_schema::v1::{
    EnvVariable, HttpHeader, McpServer as Told, McpServerHttp, McpServerSse, McpServerStdio,
};

use super::facts::Abilities;
use crate::{
    event::EventKind,
    tool_server::{ToolServer, Way},
};
use groundcrew_core::instance::McpServer;

/// Writes the servers that the agent can reach, and a warning for each that it cannot.
pub(super) fn told(servers: &[McpServer], abilities: &Abilities) -> (Vec<Told>, Vec<EventKind>) {
    let mut told = Vec::new();
    let mut warnings = Vec::new();
    for server in servers {
        match one(server, abilities) {
            Ok(server) => told.push(server),
            Err(why) => warnings.push(EventKind::Warning {
                about: "mcp".to_owned(),
                text: format!("the tool server {} is left out: {why}", server.name),
            }),
        }
    }
    (told, warnings)
}

fn one(server: &McpServer, abilities: &Abilities) -> Result<Told, String> {
    let ToolServer { name, way } = ToolServer::read(server)
        .map_err(|error| groundcrew_core::error::Chain(&error).to_string())?;
    let header = |(name, value): (String, String)| HttpHeader::new(name, value);
    match way {
        Way::Command {
            program,
            arguments,
            environment,
        } => {
            let environment = environment
                .into_iter()
                .map(|(name, value)| EnvVariable::new(name, value));
            let server = McpServerStdio::new(name, program)
                .args(arguments)
                .env(environment.collect());
            Ok(Told::Stdio(server))
        }
        Way::Http { url, headers } if abilities.http => {
            let headers = headers.into_iter().map(header).collect();
            Ok(Told::Http(McpServerHttp::new(name, url).headers(headers)))
        }
        Way::Sse { url, headers } if abilities.sse => {
            let headers = headers.into_iter().map(header).collect();
            Ok(Told::Sse(McpServerSse::new(name, url).headers(headers)))
        }
        Way::Http { .. } => Err("the agent does not reach servers over HTTP".to_owned()),
        Way::Sse { .. } => {
            Err("the agent does not reach servers over server-sent events".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn server(name: &str, definition: Value) -> McpServer {
        McpServer {
            name: name.to_owned(),
            definition,
        }
    }

    #[test]
    fn a_server_that_the_agent_cannot_reach_is_a_warning_and_the_others_are_told() {
        let servers = [
            server(
                "tools",
                json!({ "command": "/bin/tools", "args": ["-x"], "env": { "A": "1" } }),
            ),
            server("far", json!({ "type": "http", "url": "http://x.example/" })),
            server("odd", json!({ "colour": "blue" })),
        ];
        let (seen, warnings) = told(&servers, &Abilities::default());
        assert_eq!(
            serde_json::to_value(&seen).unwrap(),
            json!([{
                "name": "tools", "command": "/bin/tools", "args": ["-x"],
                "env": [{ "name": "A", "value": "1" }],
            }])
        );
        let texts: Vec<_> = warnings
            .iter()
            .map(|warning| match warning {
                EventKind::Warning { text, .. } => text.as_str(),
                _ => "",
            })
            .collect();
        assert!(
            texts.len() == 2 && texts[0].contains("far") && texts[1].contains("odd"),
            "{texts:?}"
        );
        let abilities = Abilities {
            http: true,
            ..Abilities::default()
        };
        let (seen, _) = told(&servers, &abilities);
        assert_eq!(
            serde_json::to_value(&seen[1]).unwrap(),
            json!({ "type": "http", "name": "far", "url": "http://x.example/", "headers": [] })
        );
    }
}

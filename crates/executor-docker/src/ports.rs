//! Ports of a container that are reached from outside: `[[IP:]PORT:]PORT[/udp]`, as the engine's own client takes them.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
};

use bollard::models::{PortBinding, PortMap};

/// A port of a container, and where it is reached on the engine's machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    address: IpAddr,
    /// The engine chooses one if nothing is said.
    outside: Option<u16>,
    inside: u16,
    protocol: &'static str,
}

impl Port {
    /// Reads one; none if it cannot be meant.
    ///
    /// Without an address it is reached from the engine's machine only.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (text, protocol) = match text.rsplit_once('/') {
            Some((text, "tcp")) => (text, "tcp"),
            Some((text, "udp")) => (text, "udp"),
            Some(_) => return None,
            None => (text, "tcp"),
        };
        let number = |text: &str| text.parse::<u16>().ok();
        let (before, inside) = match text.rsplit_once(':') {
            Some((before, inside)) => (Some(before), inside),
            None => (None, text),
        };
        let (address, outside) = match before.map(|before| (before, before.rsplit_once(':'))) {
            None => (None, None),
            Some((outside, None)) => (None, Some(number(outside)?)),
            Some((_, Some((address, outside)))) => {
                let bare = address.strip_prefix('[').and_then(|a| a.strip_suffix(']'));
                let address = bare.unwrap_or(address).parse().ok()?;
                let outside = if outside.is_empty() {
                    None
                } else {
                    Some(number(outside)?)
                };
                (Some(address), outside)
            }
        };
        Some(Self {
            address: address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            // As everywhere, 0 is for whoever does not care.
            outside: outside.filter(|port| *port != 0),
            inside: number(inside).filter(|port| *port != 0)?,
            protocol,
        })
    }

    fn name(&self) -> String {
        format!("{}/{}", self.inside, self.protocol)
    }
}

/// Whether one of them may be taken: those that the engine chooses are not.
pub(crate) fn may_be_taken(ports: &[Port]) -> bool {
    ports.iter().any(|port| port.outside.is_some())
}

/// Returns the names of the ports inside.
pub(crate) fn exposed(ports: &[Port]) -> Option<Vec<String>> {
    let mut names: Vec<String> = ports.iter().map(Port::name).collect();
    names.sort();
    names.dedup();
    (!names.is_empty()).then_some(names)
}

/// Returns where each is to be reached.
pub(crate) fn bindings(ports: &[Port]) -> Option<PortMap> {
    let mut map: PortMap = HashMap::new();
    for port in ports {
        let binding = PortBinding {
            host_ip: Some(port.address.to_string()),
            host_port: Some(
                port.outside
                    .map_or_else(String::new, |port| port.to_string()),
            ),
        };
        map.entry(port.name())
            .or_default()
            .get_or_insert_default()
            .push(binding);
    }
    (!map.is_empty()).then_some(map)
}

/// Tells where the ports of a running container are reached, one line each.
pub(crate) fn told(map: PortMap) -> Vec<String> {
    let mut lines = Vec::new();
    for (inside, bindings) in map {
        for binding in bindings.unwrap_or_default() {
            let address = binding.host_ip.unwrap_or_default();
            let port = binding.host_port.unwrap_or_default();
            lines.push(format!("port {inside} is reached at {address}:{port}"));
        }
    }
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f121_ports_are_read_strictly() {
        let port = |text| {
            Port::read(text).map(|port| {
                let outside = port.outside.unwrap_or(0);
                format!("{} {outside} {}", port.address, port.name())
            })
        };
        for (text, read) in [
            ("80", Some("127.0.0.1 0 80/tcp")),
            ("8080:80", Some("127.0.0.1 8080 80/tcp")),
            ("0:80/udp", Some("127.0.0.1 0 80/udp")),
            ("0.0.0.0:8080:80", Some("0.0.0.0 8080 80/tcp")),
            ("10.0.0.1::80", Some("10.0.0.1 0 80/tcp")),
            ("[::1]:8080:80", Some("::1 8080 80/tcp")),
            ("0", None),
            ("", None),
            ("70000", None),
            ("80:", None),
            ("x:80", None),
            ("host:80:80", None),
            ("80/sctp", None),
            ("1:2:3:4", None),
        ] {
            assert_eq!(port(text).as_deref(), read, "{text}");
        }
    }
}

//! A network of containers on an engine in a network namespace of its own, and a place in it where this process listens.
//!
//! Containers in it reach what listens at its gateway, and nothing else: the engine neither forwards nor translates.

use std::{
    fs::File,
    net::{IpAddr, TcpListener},
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use rustix::{
    net::sockopt::socket_peercred,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use super::engine::Engine;

/// A network that is removed at the end.
#[derive(Debug)]
pub(crate) struct Network {
    name: String,
    removal: std::process::Command,
    gateway: IpAddr,
    /// The namespace in which the engine has its bridges.
    namespace: File,
}

impl Network {
    /// Makes one.
    pub(crate) fn new(engine: &Engine) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("gc-test-{}-{count}", std::process::id());
        engine.docker(&["network", "create", &name]);
        let gateway = ["network", "inspect", "--format"];
        let field = "{{(index .IPAM.Config 0).Gateway}}";
        let gateway = [&gateway[..], &[field, &name]].concat();
        let gateway = engine.docker(&gateway).parse().unwrap();
        // Whoever listens at its socket is the engine.
        let socket = UnixStream::connect(engine.socket()).unwrap();
        let pid = socket_peercred(&socket).unwrap().pid;
        let namespace = format!("/proc/{}/ns/net", pid.as_raw_nonzero());
        Self {
            removal: engine.client(&["network", "rm", &name]),
            namespace: File::open(namespace).unwrap(),
            gateway,
            name,
        }
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Listens on a free port of its gateway.
    pub(crate) fn listen(&self) -> TcpListener {
        let listen = || {
            // This thread alone goes there, and ends; what it opened stays in there.
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(self.namespace.as_fd(), network).unwrap();
            TcpListener::bind((self.gateway, 0)).unwrap()
        };
        thread::scope(|scope| scope.spawn(listen).join().unwrap())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // A container that a failed test left holds it; the engine goes with all of them.
        let removed = self.removal.output();
        let gone = removed.is_ok_and(|output| output.status.success());
        assert!(gone || thread::panicking(), "{} stays", self.name);
    }
}

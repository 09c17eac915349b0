//! An engine of containers: the one that all tests share, or a test's own that sees nothing of the test's files.
#![expect(
    clippy::disallowed_methods,
    reason = "the engine, its own client and tar are started here; they need neither directory nor environment"
)]

use std::{
    fs,
    net::TcpListener,
    os::fd::OwnedFd,
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Call, Ground, Repository, until};

/// An image with a shell and git, made of this machine's own.
pub(crate) const IMAGE: &str = "gc-test/git:2";

/// An engine, by its address.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) endpoint: String,
    own: Option<Own>,
}

/// An engine of one test.
#[derive(Debug)]
struct Own {
    directory: TempDir,
    child: Child,
}

impl Engine {
    /// Takes the engine that `cargo xtask test` started, and makes sure of the image.
    pub(crate) fn shared() -> Self {
        let engine = Self {
            endpoint: Ground::told("GROUNDCREW_TEST_ENGINE"),
            own: None,
        };
        engine.image();
        engine
    }

    /// Starts one that listens on TCP, in namespaces of its own in which there is nothing below `hidden`.
    pub(crate) fn elsewhere(hidden: &Path) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("gc-engine")
            .tempdir()
            .unwrap();
        // Made here, so that it is reached, whatever network the engine has.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let script = "mount -t tmpfs none \"$1\" && export LISTEN_PID=$$ LISTEN_FDS=1 && d=$2 && \
            exec 3<&0 0</dev/null && exec dockerd -H fd:// --bridge=none --iptables=false \
            --ip-forward=false --data-root \"$d/data\" --exec-root \"$d/exec\" --pidfile \"$d/pid\"";
        let child = Command::new("unshare")
            .args(["--net", "--mount", "--", "sh", "-c", script, "engine"])
            .arg(hidden)
            .arg(directory.path())
            .stdin(OwnedFd::from(listener))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let engine = Self {
            endpoint,
            own: Some(Own { directory, child }),
        };
        until("the engine answers", || {
            let output = engine.client(&["version"]).output().unwrap();
            output.status.success()
        });
        engine.image();
        engine
    }

    fn client(&self, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["60", "docker", "--host", &self.endpoint])
            .args(words)
            .stdin(Stdio::null());
        command
    }

    /// Runs the engine's own client, which must succeed.
    #[track_caller]
    pub(crate) fn docker(&self, words: &[&str]) -> String {
        let output = self.client(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Makes the image if the engine lacks it: git, what it is linked to, and a shell.
    fn image(&self) {
        let there = self.client(&["image", "inspect", IMAGE]).output().unwrap();
        if there.status.success() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let put = |from: &Path| {
            let to = root.path().join(from.strip_prefix("/").unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(from, to).unwrap();
        };
        let git = ["/usr/bin/git", "/usr/local/bin/git"].map(Path::new);
        let git = git.into_iter().find(|path| path.exists()).unwrap();
        put(git);
        let linked = Command::new("ldd").arg(git).output().unwrap();
        for word in String::from_utf8(linked.stdout).unwrap().split_whitespace() {
            if word.starts_with('/') {
                put(Path::new(word));
            }
        }
        fs::create_dir_all(root.path().join("bin")).unwrap();
        fs::create_dir_all(root.path().join("tmp")).unwrap();
        fs::copy("/bin/busybox", root.path().join("bin/busybox")).unwrap();
        for name in "sh cat echo sleep id touch env rm mkdir chmod stty kill".split(' ') {
            std::os::unix::fs::symlink("busybox", root.path().join("bin").join(name)).unwrap();
        }
        let mut tar = Command::new("tar")
            .arg("-C")
            .arg(root.path())
            .args(["-c", "."])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut import = self.client(&["import", "-", IMAGE]);
        let imported = import.stdin(tar.stdout.take().unwrap()).output().unwrap();
        assert!(tar.wait().unwrap().success() && imported.status.success());
    }

    /// Tells a call where the engine is, and the supervisor for its containers.
    pub(crate) fn equip(&self, call: Call) -> Call {
        call.env("DOCKER_HOST", &self.endpoint).env(
            "GROUNDCREW_SUPERVISOR",
            Ground::told("GROUNDCREW_TEST_SUPERVISOR"),
        )
    }

    /// A run in a container without a network.
    pub(crate) fn run(
        &self,
        ground: &Ground,
        repository: &Repository,
        options: &[&str],
        script: &str,
    ) -> Call {
        let mut all = vec!["--executor", "docker", "--image", IMAGE];
        all.extend(["--network", "none"]);
        all.extend(options);
        self.equip(ground.run_in(repository, &all, ["sh", "-c", script]))
    }

    /// Another verb.
    pub(crate) fn call(&self, ground: &Ground, words: &[&str]) -> Call {
        self.equip(ground.call(words))
    }

    /// Returns the containers of a ground's installation.
    pub(crate) fn containers(&self, ground: &Ground) -> Vec<String> {
        self.labelled(ground, &["ps", "--all", "--quiet", "--no-trunc"])
    }

    /// Returns the volumes of a ground's installation.
    pub(crate) fn volumes(&self, ground: &Ground) -> Vec<String> {
        self.labelled(ground, &["volume", "ls", "--quiet"])
    }

    fn labelled(&self, ground: &Ground, words: &[&str]) -> Vec<String> {
        let install = fs::read_to_string(ground.state().join("install-id")).unwrap();
        let filter = format!("label=dev.groundcrew.install={}", install.trim());
        let mut words = words.to_vec();
        words.extend(["--filter", &filter]);
        self.docker(&words).lines().map(str::to_owned).collect()
    }

    /// Demands that neither the engine nor this host has anything of a run.
    #[track_caller]
    pub(crate) fn nothing_left(&self, ground: &Ground, what: &str) {
        assert_eq!(self.containers(ground), [""; 0], "{what}");
        assert_eq!(self.volumes(ground), [""; 0], "{what}");
        let places = fs::read_dir(ground.state().join("containers"));
        assert_eq!(places.map_or(0, Iterator::count), 0, "{what}");
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        let _gone = kill_process(pid, Signal::TERM);
        drop(self.child.wait());
        // Its mounts went with its namespace.
        let _left = self.directory.path();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.own.take());
    }
}

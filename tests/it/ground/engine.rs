//! Engines for containers: the one that all tests share, and private ones that may suffer.
//!
//! What is asked of an engine here goes through its own client, around the executor that is under test.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use super::{call::Call, place::Ground, repository::Repository, waiting};

/// An image with a shell and git, made of this machine's own, that brings a volume of its own.
pub(crate) const IMAGE: &str = "gc-test/git:3";

/// How long a private engine may take to come up; one that was killed waits for what it left.
const UP: Duration = Duration::from_mins(2);

/// Starts the keeper in a namespace in which there is nothing below a directory, if one is named.
const HIDE: &str = "[ -z \"$1\" ] || mount -t tmpfs none \"$1\" || exit 1; shift; exec sh \"$@\"";

/// An engine that tests use.
#[derive(Debug)]
pub(crate) struct Engine {
    endpoint: String,
    private: Option<Private>,
}

/// The keeper of an engine of one test.
#[derive(Debug)]
struct Private {
    /// Removed by the keeper, and here if that fails.
    directory: tempfile::TempDir,
    keeper: Child,
    lifeline: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the engine's own client, tar and the keeper are started here; they need neither directory nor environment"
)]
fn program(name: &str) -> Command {
    Command::new(name)
}

/// Carries a connection in both directions until both have ended.
fn relay(caller: TcpStream, engine: UnixStream) {
    let (from_caller, to_engine) = (caller.try_clone().unwrap(), engine.try_clone().unwrap());
    std::thread::spawn(move || {
        let (mut from, mut to) = (from_caller, to_engine);
        drop(io::copy(&mut from, &mut to));
        drop(to.shutdown(Shutdown::Write));
    });
    std::thread::spawn(move || {
        let (mut from, mut to) = (engine, caller);
        drop(io::copy(&mut from, &mut to));
        drop(to.shutdown(Shutdown::Write));
    });
}

impl Engine {
    /// Takes the engine that all tests share, with the image made.
    pub(crate) fn shared() -> Self {
        let engine = Self {
            endpoint: Ground::told("GROUNDCREW_TEST_ENGINE"),
            private: None,
        };
        engine.image();
        engine
    }

    /// Starts an engine of the test's own, with the image made.
    pub(crate) fn private() -> Self {
        Self::private_with(&["--bridge=none", "--iptables=false", "--ip-forward=false"])
    }

    /// The same, with options.
    pub(crate) fn private_with(options: &[&str]) -> Self {
        Self::begin(None, options)
    }

    /// Starts one that is on another machine, as far as it and its callers can tell: it is reached over TCP, and sees nothing
    /// that is below a directory.
    pub(crate) fn elsewhere(hidden: &Path) -> Self {
        let options = ["--bridge=none", "--iptables=false", "--ip-forward=false"];
        let mut engine = Self::begin(Some(hidden), &options);
        let socket = engine.socket().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        engine.endpoint = format!("tcp://{}", listener.local_addr().unwrap());
        // It goes with the process of the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Ok(engine) = UnixStream::connect(&socket) {
                    relay(stream, engine);
                }
            }
        });
        engine
    }

    fn begin(hidden: Option<&Path>, options: &[&str]) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("gc-private")
            .tempdir()
            .unwrap();
        let mut keeper = program("unshare")
            .args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["--", "sh", "-c", HIDE, "sh"])
            .arg(hidden.unwrap_or_else(|| Path::new("")))
            .arg(Ground::told("GROUNDCREW_TEST_ENGINE_KEEPER"))
            .arg(directory.path())
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut engine = Self {
            endpoint: format!("unix://{}/docker.sock", directory.path().display()),
            private: Some(Private {
                directory,
                lifeline: keeper.stdin.take(),
                answers: BufReader::new(keeper.stdout.take().unwrap()),
                keeper,
            }),
        };
        engine.start();
        engine.image();
        engine
    }

    /// Returns where it listens.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Returns its socket.
    pub(crate) fn socket(&self) -> &Path {
        Path::new(self.endpoint.strip_prefix("unix://").unwrap())
    }

    fn tell(&mut self, word: &str) {
        let private = self.private.as_mut().unwrap();
        writeln!(private.lifeline.as_mut().unwrap(), "{word}").unwrap();
        let mut answer = String::new();
        private.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer.trim(), word);
    }

    /// Starts a private engine, also after it was killed; returns when it answers.
    pub(crate) fn start(&mut self) {
        self.tell("start");
        let up = waiting::until_within(UP, || {
            let version = self.client(&["version"]).output().unwrap();
            version.status.success()
        });
        assert!(up, "the engine does not come up: {}", self.log());
    }

    /// Stops it where it is.
    pub(crate) fn freeze(&mut self) {
        self.tell("freeze");
    }

    /// Lets it go on.
    pub(crate) fn thaw(&mut self) {
        self.tell("thaw");
    }

    /// Kills it with SIGKILL; containers that run go on.
    pub(crate) fn kill(&mut self) {
        self.tell("kill");
    }

    /// Returns what a private engine wrote.
    pub(crate) fn log(&self) -> String {
        let private = self.private.as_ref().unwrap();
        let log = fs::read(private.directory.path().join("log")).unwrap();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Returns the files that a private engine keeps of its containers, but for their file systems.
    pub(crate) fn files_of_containers(&self) -> Vec<(PathBuf, String)> {
        let private = self.private.as_ref().unwrap();
        let mut found = Vec::new();
        let mut open = vec![
            private.directory.path().join("data/containers"),
            private.directory.path().join("exec/containerd/daemon"),
        ];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    open.push(entry.path());
                } else if kind.is_file() {
                    let text = fs::read(entry.path()).unwrap_or_default();
                    found.push((entry.path(), String::from_utf8_lossy(&text).into_owned()));
                }
            }
        }
        found
    }

    /// Begins a call of the engine's own client.
    pub(crate) fn client(&self, words: &[&str]) -> Command {
        let mut command = program("timeout");
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
        let found = self.client(&["image", "inspect", IMAGE]).output().unwrap();
        if found.status.success() {
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
        let linked = program("ldd").arg(git).output().unwrap();
        for word in String::from_utf8(linked.stdout).unwrap().split_whitespace() {
            if word.starts_with('/') {
                put(Path::new(word));
            }
        }
        fs::create_dir_all(root.path().join("bin")).unwrap();
        fs::create_dir_all(root.path().join("tmp")).unwrap();
        fs::copy("/bin/busybox", root.path().join("bin/busybox")).unwrap();
        for name in "sh cat echo sleep id touch env grep true rm mkdir chmod stty setsid".split(' ')
        {
            std::os::unix::fs::symlink("busybox", root.path().join("bin").join(name)).unwrap();
        }
        let mut tar = program("tar")
            .arg("-C")
            .arg(root.path())
            .args(["-c", "."])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut import = self.client(&["import", "--change", "VOLUME /volume", "-", IMAGE]);
        let imported = import.stdin(tar.stdout.take().unwrap()).output().unwrap();
        assert!(
            tar.wait().unwrap().success() && imported.status.success(),
            "{imported:?}"
        );
    }

    /// Tells a call of the command where the engine and the supervisor for its containers are.
    pub(crate) fn equip(&self, call: Call) -> Call {
        call.env("DOCKER_HOST", &self.endpoint).env(
            "GROUNDCREW_SUPERVISOR",
            Ground::told("GROUNDCREW_TEST_SUPERVISOR"),
        )
    }

    /// Begins a call of `run` with a script in a container without a network.
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

    /// Begins a call of the command.
    pub(crate) fn call(&self, ground: &Ground, words: &[&str]) -> Call {
        self.equip(ground.call(words))
    }

    /// Runs `recover` and returns its document.
    #[track_caller]
    pub(crate) fn recover(&self, ground: &Ground) -> Value {
        self.call(ground, &["--format", "json", "recover"])
            .run()
            .ok()
            .json()
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

    /// Demands that neither the engine nor this host has anything of an instance.
    #[track_caller]
    pub(crate) fn nothing_left(&self, ground: &Ground, when: &str) {
        assert_eq!(self.containers(ground), [""; 0], "{when}");
        assert_eq!(self.volumes(ground), [""; 0], "{when}");
        let places = fs::read_dir(ground.state().join("containers"));
        assert_eq!(places.map_or(0, Iterator::count), 0, "{when}");
    }

    /// Returns everything that a private engine holds, whosever it is: containers, volumes, networks, mounts, and the
    /// processes that keep containers.
    #[track_caller]
    pub(crate) fn holdings(&self) -> BTreeSet<String> {
        let private = self.private.as_ref().unwrap();
        let mut found = BTreeSet::new();
        for (what, words) in [
            ("container", &["ps", "--all", "--quiet"][..]),
            ("volume", &["volume", "ls", "--quiet"]),
            ("network", &["network", "ls", "--quiet"]),
        ] {
            let listed = self.docker(words);
            found.extend(listed.lines().map(|id| format!("{what} {id}")));
        }
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            let place = private.directory.path().display().to_string();
            if !words.contains("containerd-shim") || !words.contains(&place) {
                continue;
            }
            // One that keeps nothing is what a kill left of the engine itself; nobody can ask it for that.
            let pid = entry.file_name();
            let children = entry.path().join("task").join(pid).join("children");
            if fs::read_to_string(children).is_ok_and(|children| !children.is_empty()) {
                found.insert(format!("process {words}"));
            }
        }
        let containers = private.directory.path().join("data/containers");
        // One without this file is what a kill left before the engine itself knew of it; nobody can ask it for that.
        let known = |entry: &fs::DirEntry| entry.path().join("config.v2.json").exists();
        let kept = fs::read_dir(containers).into_iter().flatten().flatten();
        let kept = kept.filter(known);
        found.extend(
            kept.map(|entry| format!("directory {}", PathBuf::from(entry.file_name()).display())),
        );
        found
    }

    /// Demands that a private engine holds what it held before; what is on its way out gets some time.
    #[track_caller]
    pub(crate) fn holds(&self, before: &BTreeSet<String>, when: &str) {
        let mut now = BTreeSet::new();
        let same = waiting::until_within(Duration::from_secs(20), || {
            now = self.holdings();
            now == *before
        });
        let left: Vec<_> = now.symmetric_difference(before).collect();
        assert!(
            same,
            "{when}: the engine has more or less than before: {left:#?}"
        );
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        drop(self.keeper.wait());
    }
}

//! The engine that `cargo xtask test` keeps for all tests, and the images in it.

use std::{
    path::Path,
    process::{Command, Stdio},
};

/// An image with a shell whose own entrypoint would end at once.
pub(crate) const BASE: &str = "gc-test/base:3";
/// What its shell finds.
const TOOLS: &str = "sh ls cat echo sleep id touch ps env printf head od true dd stty rm ln mkdir chmod mkfifo pwd setsid";

/// An image with nothing but one static program, called `busybox`.
pub(crate) const ONE: &str = "gc-test/one:1";

/// Returns what `cargo xtask test` tells.
#[track_caller]
pub(crate) fn told(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set; run `cargo xtask test`"))
}

/// Begins a call of the engine's own client.
pub(crate) fn client(endpoint: &str, words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["60", "docker", "-H", endpoint])
        .args(words)
        .stdin(Stdio::null());
    command
}

/// Runs the engine's own client, which must succeed.
#[track_caller]
pub(crate) fn docker(endpoint: &str, words: &[&str]) -> String {
    let output = client(endpoint, words).output().unwrap();
    assert!(output.status.success(), "docker {words:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Makes the images of the tests in an engine that lacks them; no registry is asked.
pub(crate) fn images(endpoint: &str) {
    let busybox = Path::new("/bin/busybox");
    assert!(busybox.exists(), "the tests need busybox-static");
    let has = |name: &str| {
        let found = client(endpoint, &["image", "inspect", name]).output();
        found.unwrap().status.success()
    };
    if !has(BASE) {
        let root = tempfile::tempdir().unwrap();
        for name in ["bin", "tmp", "etc"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
        }
        std::fs::copy(busybox, root.path().join("bin/busybox")).unwrap();
        for name in TOOLS.split(' ') {
            std::os::unix::fs::symlink("busybox", root.path().join("bin").join(name)).unwrap();
        }
        let changes = [
            "ENV IMAGE_SAYS=image",
            "ENV BOTH=image",
            "ENTRYPOINT [\"/bin/sh\",\"-c\",\"echo BOOM; exit 42\"]",
            "VOLUME /volume",
        ];
        import(endpoint, root.path(), BASE, &changes);
    }
    if !has(ONE) {
        let root = tempfile::tempdir().unwrap();
        std::fs::copy(busybox, root.path().join("busybox")).unwrap();
        import(endpoint, root.path(), ONE, &[]);
    }
}

fn import(endpoint: &str, root: &Path, name: &str, changes: &[&str]) {
    let mut tar = Command::new("tar")
        .arg("-C")
        .arg(root)
        .args(["-c", "."])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut words = vec!["import"];
    for change in changes {
        words.extend(["--change", change]);
    }
    words.extend(["-", name]);
    let imported = client(endpoint, &words)
        .stdin(tar.stdout.take().unwrap())
        .output()
        .unwrap();
    assert!(
        tar.wait().unwrap().success() && imported.status.success(),
        "{imported:?}"
    );
}

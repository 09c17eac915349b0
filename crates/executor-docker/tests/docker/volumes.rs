//! Workspaces in volumes: filled before the start, brought back at the end, and never lost in between.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use groundcrew_core::{
    error::{Chain, ErrorKind},
    executor::{Executor as _, InstanceSpec},
    identity::Presence,
    undo::Undone,
};
use serde_json::{Value, json};

use crate::ground::{BASE, Ground, Silent, fresh, ran, shell};

/// A workspace of this host.
fn workspace(ground: &Ground) -> PathBuf {
    let path = ground.root.path().join("work space");
    fs::create_dir_all(path.join("src")).unwrap();
    fs::write(path.join("kept"), "kept").unwrap();
    fs::write(path.join("src/old"), "old").unwrap();
    fs::write(path.join("tool"), "#!/bin/sh\necho tool").unwrap();
    fs::set_permissions(path.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("kept", path.join("link")).unwrap();
    path
}

fn spec(ground: &Ground, workspace: &Path, options: Value) -> InstanceSpec {
    let mut options = options;
    options["storage"] = json!("volume");
    InstanceSpec {
        workspace: Some(workspace.to_owned()),
        ..ground.spec(options)
    }
}

fn volumes(ground: &Ground) -> String {
    let filter = format!("label=dev.groundcrew.install={}", ground.install);
    ground.docker(&["volume", "ls", "-q", "--filter", &filter])
}

#[track_caller]
fn nothing_left(ground: &Ground, workspace: &Path) {
    ground.nothing_left();
    assert_eq!(volumes(ground), "");
    let beside: Vec<_> = fs::read_dir(workspace.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert_eq!(beside, [""; 0]);
}

/// What whoever is inside does to the workspace.
const WORK: &str = "./tool && rm src/old && echo new >src/new && ln src/new hard && \
    mkdir ro && echo y >ro/z && chmod 500 ro && mkfifo pipe && ln -s /etc/passwd out && echo done";

fn in_workspace(workspace: &Path) -> String {
    format!("cd '{}' && {WORK}", workspace.display())
}

#[track_caller]
fn came_back(workspace: &Path) {
    let read = |name: &str| fs::read_to_string(workspace.join(name)).unwrap();
    assert_eq!(read("kept"), "kept");
    assert_eq!(read("link"), "kept");
    assert_eq!(read("src/new"), "new\n");
    assert_eq!(read("hard"), "new\n");
    assert_eq!(read("ro/z"), "y\n");
    assert!(!workspace.join("src/old").exists());
    let target = fs::read_link(workspace.join("out")).unwrap();
    assert_eq!(target, Path::new("/etc/passwd"));
    let mode = |name: &str| fs::metadata(workspace.join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("tool"), mode("ro")), (0o755, 0o500));
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_docker_a_workspace_in_a_volume_comes_back_whole() {
    let ground = Ground::new();
    ground.images();
    // Whoever works in it, and whether or not anything but it may be written.
    for options in [json!({}), json!({"user": "1234:1235", "read_only": true})] {
        let workspace = workspace(&ground);
        let inode = fs::metadata(&workspace).unwrap().ino();
        let id = fresh();
        let spec = spec(&ground, &workspace, options);
        let created = ground.executor.create(&id, &spec, &Silent).await.unwrap();
        let instance = ground.executor.connect(&id).await.unwrap();
        let (said, exit) = ran(&*instance, &shell(&in_workspace(&workspace))).await;
        assert_eq!((said.as_str(), exit.code), ("tool\ndone\n", Some(0)));
        // Until its end the files of this host are what they were.
        assert!(workspace.join("src/old").exists());
        let undone = ground.executor.delete(&id, Some(&created.identity)).await;
        assert_eq!(undone.unwrap(), Undone::REMOVED);
        came_back(&workspace);
        let meta = fs::metadata(&workspace).unwrap();
        assert_eq!(meta.ino(), inode, "another directory");
        // Whoever worked in it inside: here they belong to whom the workspace does.
        for name in ["src/new", "ro", "link"] {
            let owner = fs::symlink_metadata(workspace.join(name)).unwrap();
            assert_eq!(owner.uid(), rustix::process::geteuid().as_raw(), "{name}");
        }
        nothing_left(&ground, &workspace);
        fs::set_permissions(workspace.join("ro"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::remove_dir_all(&workspace).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_docker_what_is_in_a_volume_outlives_its_container_and_the_controller() {
    let ground = Ground::new();
    ground.images();
    let workspace = workspace(&ground);
    let id = fresh();
    let spec = spec(&ground, &workspace, json!({}));
    ground.executor.create(&id, &spec, &Silent).await.unwrap();
    let instance = ground.executor.connect(&id).await.unwrap();
    ran(&*instance, &shell(&in_workspace(&workspace))).await;
    drop(instance);
    // Another one of the same workspace would bring back what this one does not know of.
    let other = fresh();
    let error = ground
        .executor
        .create(&other, &spec, &Silent)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(error.get("instance"), Some(id.as_str()));
    ground.executor.delete(&other, None).await.unwrap();
    // Somebody cleans up, and somebody works in the files of this host.
    ground.docker(&["rm", "-f", &ground.containers()[0]]);
    fs::write(workspace.join("mine"), "mine").unwrap();
    let again = ground.again();
    let error = again.delete(&id, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{}", Chain(&error));
    assert!(error.message().contains("elsewhere"), "{error}");
    assert!(!volumes(&ground).is_empty());
    assert!(matches!(
        again.state(&id).await.unwrap(),
        Presence::Present(_)
    ));
    assert_eq!(again.list().await.unwrap(), std::slice::from_ref(&id));
    fs::remove_file(workspace.join("mine")).unwrap();
    let error = again.delete(&id, None).await;
    // Its directory has another time now, which says nothing.
    assert_eq!(error.unwrap(), Undone::REMOVED);
    came_back(&workspace);
    nothing_left(&ground, &workspace);
}

#[tokio::test(flavor = "multi_thread")]
async fn c39_needs_docker_a_volume_of_our_name_and_one_that_nobody_remembers_are_left_alone() {
    let ground = Ground::new();
    ground.images();
    let workspace = workspace(&ground);
    let id = fresh();
    let name = format!("groundcrew-{id}-work");
    ground.docker(&["volume", "create", &name]);
    let spec = spec(&ground, &workspace, json!({}));
    let error = ground
        .executor
        .create(&id, &spec, &Silent)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(error.get("volume"), Some(name.as_str()));
    ground.executor.delete(&id, None).await.unwrap();
    nothing_left(&ground, &workspace);
    ground.docker(&["volume", "rm", &name]);
    // With our labels, but without a word of it on this host.
    let install = format!("dev.groundcrew.install={}", ground.install);
    let attempt = format!("dev.groundcrew.attempt={id}");
    ground.docker(&[
        "volume", "create", "--label", &install, "--label", &attempt, &name,
    ]);
    assert_eq!(
        ground.executor.list().await.unwrap(),
        std::slice::from_ref(&id)
    );
    let error = ground.executor.delete(&id, None).await.unwrap_err();
    assert_eq!(error.get("volume"), Some(name.as_str()), "{error}");
    assert_eq!(volumes(&ground), name);
    ground.docker(&["volume", "rm", &name]);
    assert_eq!(
        ground.executor.delete(&id, None).await.unwrap(),
        Undone::AlreadyGone
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn f122_needs_docker_a_name_that_contains_another_is_not_it() {
    let ground = Ground::new();
    ground.images();
    let id = fresh();
    let install = format!("dev.groundcrew.install={}", ground.install);
    // Their names and their labels have ours in them.
    let mut others = Vec::new();
    for attempt in [format!("{id}0"), format!("x{id}")] {
        let name = format!("groundcrew-{attempt}");
        let attempt = format!("dev.groundcrew.attempt={attempt}");
        let words = [
            "create", "--name", &name, "--label", &install, "--label", &attempt, BASE, "true",
        ];
        others.push(ground.docker(&words));
        let volume = format!("{name}-work");
        ground.docker(&[
            "volume", "create", "--label", &install, "--label", &attempt, &volume,
        ]);
    }
    ground.create(&id, json!({})).await.unwrap();
    assert_eq!(
        ground.executor.delete(&id, None).await.unwrap(),
        Undone::REMOVED
    );
    assert_eq!(ground.executor.state(&id).await.unwrap(), Presence::Absent);
    let mut left = ground.containers();
    left.sort();
    others.sort();
    assert_eq!(left, others);
    assert_eq!(volumes(&ground).lines().count(), 2);
    for name in volumes(&ground).lines() {
        ground.docker(&["volume", "rm", name]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f105_needs_docker_a_volume_of_an_image_whose_container_never_was_is_removed() {
    let ground = Ground::new();
    ground.images();
    let id = fresh();
    let install = format!("dev.groundcrew.install={}", ground.install);
    let attempt = format!("dev.groundcrew.attempt={id}");
    // As an engine leaves them that died between the two, one of them before it knew its labels; and what others made.
    let labels = ["--label", &install, "--label", &attempt];
    let make = |labels: &[&str], name: &[&str]| {
        ground.docker(&[&["volume", "create"], labels, name].concat())
    };
    make(&labels, &[&format!("groundcrew-{id}-image-0")]);
    make(&[], &[&format!("groundcrew-{id}-image-1")]);
    let alike = make(&[], &[&format!("x-groundcrew-{id}-image-0")]);
    let foreign = make(
        &["--label", "of=others"],
        &[&format!("groundcrew-{id}-image-2")],
    );
    let other = make(&labels, &[]);
    assert_eq!(
        ground.executor.list().await.unwrap(),
        std::slice::from_ref(&id)
    );
    assert_eq!(
        ground.executor.delete(&id, None).await.unwrap(),
        Undone::REMOVED
    );
    let all = ground.docker(&["volume", "ls", "--quiet"]);
    for name in [&alike, &foreign] {
        assert!(all.lines().any(|left| left == name), "{name}: {all}");
        ground.docker(&["volume", "rm", name]);
    }
    for gone in [0, 1] {
        let gone = format!("groundcrew-{id}-image-{gone}");
        assert!(all.lines().all(|left| left != gone), "{all}");
    }
    assert_eq!(volumes(&ground), other);
    ground.docker(&["volume", "rm", &other]);
}

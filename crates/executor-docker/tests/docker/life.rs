//! What a container is from its making to its end, and whose it is.

use groundcrew_core::{
    error::ErrorKind, executor::Executor as _, identity::Identity, identity::Presence,
    process::Offset, undo::Undone,
};
use serde_json::json;

use crate::ground::{Ground, environment, fresh, process, ran, read_until, shell};

#[tokio::test(flavor = "multi_thread")]
async fn c12_needs_docker_values_arrive_whole_over_those_of_the_image() {
    let ground = Ground::new();
    ground.images();
    let id = fresh();
    let created = ground.create(&id, json!({})).await.unwrap();
    let instance = ground.executor.connect(&id).await.unwrap();
    let odd = "-----BEGIN X-----\nab+/=\n'\"$HOME `id` # \t\r日本 ";
    let variables = environment(&[("ODD", odd), ("BOTH", "run")]);
    instance.set_environment(&variables).await.unwrap();
    let (said, exit) = ran(
        &*instance,
        &shell("printf '%s|%s|%s|%s' \"$ODD\" \"$BOTH\" \"$IMAGE_SAYS\" \"$PATH\"; exit 7"),
    )
    .await;
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    assert_eq!(said, format!("{odd}|run|image|{path}"));
    assert_eq!(exit.code, Some(7));
    assert_eq!(
        ground.executor.state(&id).await.unwrap(),
        Presence::Present(created.identity.clone())
    );
    assert_eq!(
        ground.executor.list().await.unwrap(),
        std::slice::from_ref(&id)
    );
    let removed = ground.executor.delete(&id, Some(&created.identity)).await;
    assert_eq!(removed.unwrap(), Undone::REMOVED);
    ground.nothing_left();
    // What it said outlives it.
    let after = ground.executor.connect(&id).await.unwrap();
    let (again, exit) = read_until(&*after, &process("agent"), Offset(0), "").await;
    assert_eq!((again, exit.unwrap().code), (said, Some(7)));
    assert_eq!(ground.executor.state(&id).await.unwrap(), Presence::Absent);
    let twice = ground.executor.delete(&id, Some(&created.identity)).await;
    assert_eq!(twice.unwrap(), Undone::AlreadyGone);
}

#[tokio::test(flavor = "multi_thread")]
async fn c33_f108_needs_docker_a_foreign_container_of_our_name_is_left_alone() {
    let ground = Ground::new();
    ground.images();
    let id = fresh();
    let name = format!("groundcrew-{id}");
    let foreign = ground.docker(&["create", "--name", &name, crate::ground::BASE, "true"]);
    let error = ground.create(&id, json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains("left alone"), "{error}");
    assert_eq!(
        ground.executor.delete(&id, None).await.unwrap(),
        Undone::REMOVED
    );
    ground.nothing_left();
    assert_eq!(ground.docker(&["inspect", "-f", "{{.Id}}", &name]), foreign);
    ground.docker(&["rm", "-v", &name]);
    ground.create(&id, json!({})).await.unwrap();
    let error = ground.create(&id, json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    ground.executor.delete(&id, None).await.unwrap();
    ground.nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn c39_f124_needs_docker_two_installations_never_touch_each_others() {
    let (one, other) = (Ground::new(), Ground::new());
    one.images();
    let (a, b) = (fresh(), fresh());
    let created = one.create(&a, json!({})).await.unwrap();
    other.create(&b, json!({})).await.unwrap();
    assert_eq!(one.executor.list().await.unwrap(), std::slice::from_ref(&a));
    assert_eq!(
        other.executor.list().await.unwrap(),
        std::slice::from_ref(&b)
    );
    assert_eq!(other.executor.state(&a).await.unwrap(), Presence::Absent);
    let undone = other.executor.delete(&a, Some(&created.identity)).await;
    assert_eq!(undone.unwrap(), Undone::AlreadyGone);
    assert_eq!(one.containers(), [created.identity.0]);
    one.executor.delete(&a, None).await.unwrap();
    assert_eq!(other.containers().len(), 1);
    other.executor.delete(&b, None).await.unwrap();
    one.nothing_left();
    other.nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn f123_needs_docker_another_container_with_our_labels_is_not_taken_for_ours() {
    let ground = Ground::new();
    ground.images();
    let id = fresh();
    let created = ground.create(&id, json!({})).await.unwrap();
    let install = format!("dev.groundcrew.install={}", ground.install);
    let attempt = format!("dev.groundcrew.attempt={id}");
    let forged = ground.docker(&[
        "create",
        "--label",
        &install,
        "--label",
        &attempt,
        crate::ground::BASE,
        "true",
    ]);
    let wrong = Identity("0".repeat(64));
    let undone = ground.executor.delete(&id, Some(&wrong)).await.unwrap();
    assert!(matches!(undone, Undone::NotOurs(_)), "{undone:?}");
    let undone = ground.executor.delete(&id, None).await.unwrap();
    assert!(matches!(undone, Undone::NotOurs(_)), "{undone:?}");
    let undone = ground
        .executor
        .delete(&id, Some(&created.identity))
        .await
        .unwrap();
    assert_eq!(undone, Undone::REMOVED);
    assert_eq!(ground.containers(), std::slice::from_ref(&forged));
    ground.docker(&["rm", "-v", &forged]);
    ground.nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn f109_f112_f119_needs_docker_removal_takes_all_whoever_else_removes() {
    let ground = Ground::new();
    ground.images();
    let id = fresh();
    let created = ground.create(&id, json!({})).await.unwrap();
    let names = "{{range .Mounts}}{{if eq .Type \"volume\"}}{{.Name}}{{end}}{{end}}";
    let volume = ground.docker(&["inspect", "-f", names, &created.identity.0]);
    // It can be told whose it is, also where an engine dies before it has the container.
    let labels = "{{index .Labels \"dev.groundcrew.attempt\"}}";
    assert_eq!(
        ground.docker(&["volume", "inspect", "-f", labels, &volume]),
        id.as_str()
    );
    let volumes = || ground.docker(&["volume", "ls", "-q"]);
    assert!(!volume.is_empty() && volumes().contains(&volume));
    let others: Vec<_> = (0..4).map(|_| ground.again()).collect();
    let removals = others
        .iter()
        .map(|executor| executor.delete(&id, Some(&created.identity)));
    for undone in futures_util::future::join_all(removals).await {
        let undone = undone.or_else(|error| {
            // The host's side went while this one was at it; the next look says so.
            if error.kind() == ErrorKind::NotFound {
                Ok(Undone::AlreadyGone)
            } else {
                Err(error)
            }
        });
        assert!(
            matches!(undone, Ok(Undone::Removed { .. } | Undone::AlreadyGone)),
            "{undone:?}"
        );
    }
    ground.nothing_left();
    assert!(!volumes().contains(&volume), "a volume of the image stays");
    // One that was made and never started, by a controller that died at once.
    let id = fresh();
    let install = format!("dev.groundcrew.install={}", ground.install);
    let attempt = format!("dev.groundcrew.attempt={id}");
    ground.docker(&[
        "create",
        "--label",
        &install,
        "--label",
        &attempt,
        crate::ground::BASE,
        "true",
    ]);
    assert_eq!(
        ground.executor.list().await.unwrap(),
        std::slice::from_ref(&id)
    );
    assert_eq!(
        ground.executor.delete(&id, None).await.unwrap(),
        Undone::REMOVED
    );
    ground.nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn f116_needs_docker_a_paused_container_is_removed_at_once() {
    let ground = Ground::new();
    ground.images();
    let id = fresh();
    ground.instance(&id, json!({})).await;
    ground.docker(&["pause", &ground.containers()[0]]);
    let began = std::time::Instant::now();
    ground.executor.delete(&id, None).await.unwrap();
    assert!(
        began.elapsed() < std::time::Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    ground.nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_docker_twenty_at_once_leave_nothing() {
    let ground = Ground::new();
    ground.images();
    let runs = (0..20).map(|n| {
        let ground = &ground;
        async move {
            let id = fresh();
            let instance = ground.instance(&id, json!({})).await;
            let (said, exit) = ran(&*instance, &shell(&format!("echo {n}"))).await;
            assert_eq!((said, exit.code), (format!("{n}\n"), Some(0)));
            drop(instance);
            ground.executor.delete(&id, None).await.unwrap();
        }
    });
    futures_util::future::join_all(runs).await;
    ground.nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn f126_needs_docker_a_removal_that_fails_is_told_and_tried_again() {
    let ground = Ground::new();
    ground.images();
    let id = fresh();
    let created = ground.create(&id, json!({})).await.unwrap();
    // A file that nobody can remove, in the directory that the engine keeps of the container.
    let path = ground.docker(&["inspect", "-f", "{{.ResolvConfPath}}", &created.identity.0]);
    let stuck = std::path::Path::new(&path).with_file_name("stuck");
    let stuck = Stuck::new(&stuck);
    let error = ground
        .executor
        .delete(&id, Some(&created.identity))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_retryable());
    assert!(error.get("engine_said").is_some(), "{error:?}");
    // It stays ours, and visible, whoever asks.
    let other = ground.again();
    assert!(matches!(
        other.state(&id).await.unwrap(),
        Presence::Present(_)
    ));
    assert_eq!(other.list().await.unwrap(), std::slice::from_ref(&id));
    assert!(other.delete(&id, Some(&created.identity)).await.is_err());
    drop(stuck);
    assert_eq!(
        other.delete(&id, Some(&created.identity)).await.unwrap(),
        Undone::REMOVED
    );
    ground.nothing_left();
}

/// A file that nobody can remove until this is dropped.
struct Stuck(std::fs::File);

impl Stuck {
    fn new(path: &std::path::Path) -> Self {
        let file = std::fs::File::create(path).unwrap();
        rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::IMMUTABLE).unwrap();
        Self(file)
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        rustix::fs::ioctl_setflags(&self.0, rustix::fs::IFlags::empty()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c25_needs_docker_what_a_container_made_of_our_directories_keeps_none_of_it() {
    let ground = Ground::new();
    ground.images();
    let id = fresh();
    let instance = ground.instance(&id, json!({})).await;
    // Deeper than a call may recurse or hold descriptors, closed, and with links out of it.
    let dig = "for place in control logs; do cd /.groundcrew/$place; i=0; while [ $i -lt 1500 ]; do \
        mkdir d && cd d || exit 1; i=$((i+1)); done; ln -s /etc link; chmod 0 .; done; echo dug";
    let (said, exit) = ran(&*instance, &shell(dig)).await;
    assert_eq!((said.as_str(), exit.code), ("dug\n", Some(0)));
    assert_eq!(
        ground.executor.delete(&id, None).await.unwrap(),
        Undone::REMOVED
    );
    ground.nothing_left();
}

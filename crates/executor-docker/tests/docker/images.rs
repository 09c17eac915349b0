//! Any image, and everything that can be wrong with one.

use groundcrew_core::{
    error::ErrorKind,
    executor::Executor as _,
    process::{EndCause, Signal},
};
use serde_json::{Value, json};

use crate::ground::{BASE, Ground, ONE, fresh, ran, shell, words};

#[tokio::test(flavor = "multi_thread")]
async fn c32_needs_docker_any_image_runs_the_command_and_not_its_own() {
    let ground = Ground::new();
    ground.images();
    let id = fresh();
    let instance = ground.instance(&id, json!({})).await;
    let (said, exit) = ran(&*instance, &shell("echo mine")).await;
    assert_eq!((said.as_str(), exit.code), ("mine\n", Some(0)));
    ground.executor.delete(&id, None).await.unwrap();
    // One with neither shell nor libc nor any directory.
    let id = fresh();
    let instance = ground.instance(&id, json!({"image": ONE})).await;
    let (said, exit) = ran(&*instance, &words(&["/busybox", "echo", "alone"])).await;
    assert_eq!((said.as_str(), exit.code), ("alone\n", Some(0)));
    ground.executor.delete(&id, None).await.unwrap();
    // The same with nothing but a volume that may be written, and reached through the engine.
    let workspace = ground.root.path().join("workspace");
    std::fs::create_dir(&workspace).unwrap();
    let id = fresh();
    let options = json!({"image": ONE, "storage": "volume", "read_only": true, "control": "exec"});
    let mut spec = ground.spec(options);
    spec.workspace = Some(workspace.clone());
    ground
        .executor
        .create(&id, &spec, &crate::ground::Silent)
        .await
        .unwrap();
    let instance = ground.executor.connect(&id).await.unwrap();
    let script = format!("echo alone >'{}/said'", workspace.display());
    let (said, exit) = ran(&*instance, &words(&["/busybox", "sh", "-c", &script])).await;
    assert_eq!((said.as_str(), exit.code), ("", Some(0)));
    ground.executor.delete(&id, None).await.unwrap();
    let said = std::fs::read_to_string(workspace.join("said")).unwrap();
    assert_eq!(said, "alone\n");
    ground.nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_docker_a_container_is_hardened_and_limited() {
    let ground = Ground::new();
    ground.images();
    let id = fresh();
    let limits = json!({"memory": 64 << 20, "milli_cpus": 500, "processes": 28, "open_files": 77});
    let options = json!({"user": "1234:1235", "read_only": true, "limits": limits});
    let instance = ground.instance(&id, options).await;
    let script = "id; touch /x; touch /tmp/y && echo writable; ulimit -n; cat /proc/self/status";
    let (said, _) = ran(&*instance, &shell(script)).await;
    for words in [
        "uid=1234 gid=1235",
        "Read-only file system",
        "writable",
        "\n77\n",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let container = ground.containers().remove(0);
    let told = ground.docker(&["inspect", &container]);
    let told: Value = serde_json::from_str(&told).unwrap();
    let host = &told[0]["HostConfig"];
    assert_eq!(host["Memory"], 64 << 20);
    assert_eq!(host["MemorySwap"], 64 << 20);
    assert_eq!(host["NanoCpus"], 500_000_000);
    assert_eq!(host["PidsLimit"], 32);
    assert_eq!(host["Binds"], Value::Null);
    assert_eq!(host["LogConfig"]["Config"]["max-size"], "1m");
    drop(instance);
    ground.executor.delete(&id, None).await.unwrap();
    ground.nothing_left();
}

/// Demands that no container is made, or that none stays once the failed one is removed.
async fn fails(ground: &Ground, options: Value, kind: ErrorKind, words: &str) {
    let id = fresh();
    let error = ground.create(&id, options).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    let told = groundcrew_core::error::Chain(&error).to_string();
    assert!(told.contains(words), "{words}: {told}");
    ground.executor.delete(&id, None).await.unwrap();
    ground.nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn c34_f110_f118_needs_docker_what_is_missing_is_named_and_nothing_stays() {
    let ground = Ground::new();
    ground.images();
    let absent = json!({"image": "gc-test/absent:9"});
    fails(&ground, absent, ErrorKind::NotFound, "gc-test/absent:9").await;
    let absent = json!({"image": "127.0.0.1:9/absent:9", "pull": "missing"});
    fails(
        &ground,
        absent,
        ErrorKind::Unavailable,
        "127.0.0.1:9/absent:9",
    )
    .await;
    let nowhere = ground.root.path().join("nowhere");
    let mount = json!({"mounts": [{"source": nowhere}]});
    fails(&ground, mount, ErrorKind::InvalidInput, "nowhere").await;
    assert!(!nowhere.exists(), "the engine made it");
    let network = json!({"network": "no-such-network"});
    fails(&ground, network, ErrorKind::NotFound, "no-such-network").await;
    let socket = ground.endpoint.strip_prefix("unix://").unwrap().to_owned();
    let engine = json!({"mounts": [{"source": socket}]});
    fails(&ground, engine, ErrorKind::InvalidInput, "never mounted").await;
    // One that is there is used, by id too, whatever a registry would say.
    let id = ground.docker(&["image", "inspect", "-f", "{{.Id}}", BASE]);
    for (image, pull) in [(id.as_str(), "missing"), (BASE, "missing"), (BASE, "never")] {
        let instance = fresh();
        let options = json!({"image": image, "pull": pull});
        ground.create(&instance, options).await.unwrap();
        ground.executor.delete(&instance, None).await.unwrap();
    }
    ground.nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn f111_f113_needs_docker_endings_are_told_apart() {
    let ground = Ground::new();
    ground.images();
    let id = fresh();
    let instance = ground.instance(&id, json!({})).await;
    let process = crate::ground::process("agent");
    let error = instance
        .start(&process, &words(&["/nope"]))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ProgramNotFound);
    // It ends at once, and the container with it; how and with what is told later too.
    let (said, exit) = ran(&*instance, &shell("echo last; exit 3")).await;
    assert_eq!((said.as_str(), exit.code), ("last\n", Some(3)));
    ground.executor.delete(&id, None).await.unwrap();
    ground.nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn f114_needs_docker_the_end_for_want_of_memory_is_told_as_that() {
    let ground = Ground::new();
    ground.images();
    let id = fresh();
    let instance = ground
        .instance(&id, json!({"limits": {"memory": 24 << 20}}))
        .await;
    // One that was killed by somebody is not.
    let mut other = shell("kill -9 $$");
    other.main = false;
    let process = crate::ground::process("other");
    instance.start(&process, &other).await.unwrap();
    let exit = instance.wait(&process).await.unwrap();
    assert_eq!(
        (exit.signal, exit.cause),
        (Some(Signal::KILL), EndCause::Itself)
    );
    let greedy = "a=0123456789abcdef; while :; do a=$a$a; done";
    let (_, exit) = ran(&*instance, &shell(greedy)).await;
    assert_eq!(
        (exit.signal, exit.cause),
        (Some(Signal::KILL), EndCause::OutOfMemory)
    );
    assert!(exit.to_string().contains("--memory"), "{exit}");
    drop(instance);
    ground.executor.delete(&id, None).await.unwrap();
    ground.nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn c25_needs_docker_files_belong_to_the_caller_whatever_the_image_says() {
    let ground = Ground::new();
    ground.images();
    // An image whose own user is root; one whose user is somebody else.
    for user in ["0:0", "4242:4242"] {
        let image = format!("gc-test/user-{}:1", &user[..1]);
        let container = ground.docker(&["create", BASE, "true"]);
        let change = format!("USER {user}");
        ground.docker(&["commit", "--change", &change, &container, &image]);
        ground.docker(&["rm", "-v", &container]);
        let workspace = ground.root.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        let caller = rustix::process::geteuid().as_raw();
        let id = fresh();
        let mut spec = ground.spec(json!({"image": image}));
        spec.workspace = Some(workspace.clone());
        ground
            .executor
            .create(&id, &spec, &crate::ground::Silent)
            .await
            .unwrap();
        let instance = ground.executor.connect(&id).await.unwrap();
        let script = format!(
            "cd '{}' && id -u; mkdir -p out/d && echo x >out/d/f && mkdir ro && echo y >ro/z && chmod 500 ro",
            workspace.display()
        );
        let (said, _) = ran(&*instance, &shell(&script)).await;
        assert_eq!(said.trim(), caller.to_string(), "{image}");
        drop(instance);
        ground.executor.delete(&id, None).await.unwrap();
        for path in ["out", "out/d", "out/d/f", "ro", "ro/z"] {
            use std::os::unix::fs::MetadataExt as _;
            let meta = std::fs::symlink_metadata(workspace.join(path)).unwrap();
            assert_eq!(meta.uid(), caller, "{image}: {path}");
        }
        ground.nothing_left();
        std::fs::set_permissions(
            workspace.join("ro"),
            std::os::unix::fs::PermissionsExt::from_mode(0o700),
        )
        .unwrap();
        std::fs::remove_dir_all(&workspace).unwrap();
        ground.docker(&["rmi", &image]);
    }
}

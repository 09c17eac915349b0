//! How a container is reached, by whom, and what of a run is never in it.

use std::time::Duration;

use groundcrew_core::{
    error::ErrorKind,
    executor::Executor as _,
    process::{Offset, StdinPolicy, StdioKind, TerminalSize},
};
use serde_json::json;

use crate::ground::{Ground, environment, fresh, process, ran, read_until, shell, until};

#[tokio::test(flavor = "multi_thread")]
async fn needs_docker_a_bridge_through_the_engine_does_what_the_socket_does() {
    let ground = Ground::new();
    ground.images();
    let id = fresh();
    let instance = ground.instance(&id, json!({"control": "exec"})).await;
    let variables = environment(&[("SECRET", "s3cr3t-canary")]);
    instance.set_environment(&variables).await.unwrap();
    let mut main = shell("echo $SECRET; exec sleep 600");
    main.main = false;
    let (agent, other) = (process("agent"), process("other"));
    instance.start(&agent, &main).await.unwrap();
    read_until(&*instance, &agent, Offset(0), "s3cr3t-canary").await;
    // More than any window or buffer holds.
    let mut big = shell("head -c 20000000 /dev/zero; exit 5");
    big.main = false;
    instance.start(&other, &big).await.unwrap();
    let (said, exit) = read_until(&*instance, &other, Offset(0), "").await;
    assert_eq!((said.len(), exit.unwrap().code), (20_000_000, Some(5)));
    // Files go in and come out.
    let file = ground.root.path().join("file");
    std::fs::write(&file, "f".repeat(3_000_000)).unwrap();
    let tar = groundcrew_supervisor::archive::pack(&file).unwrap();
    let inside = std::path::Path::new("/tmp/in");
    instance.put_archive(inside, tar).await.unwrap();
    let back = instance.get_archive(inside).await.unwrap();
    let out = ground.root.path().join("out");
    groundcrew_supervisor::archive::unpack(&out, back)
        .await
        .unwrap();
    assert_eq!(
        std::fs::metadata(out.join("file")).unwrap().len(),
        3_000_000
    );
    // Another controller comes.
    drop(instance);
    let again = ground.again().connect(&id).await.unwrap();
    assert_eq!(again.processes().await.unwrap().len(), 2);
    again.shutdown(Duration::from_millis(200)).await.unwrap();
    until("the container ended", || {
        ground
            .docker(&["ps", "-q", "--no-trunc"])
            .lines()
            .all(|running| !ground.containers().iter().any(|own| own == running))
    })
    .await;
    ground.executor.delete(&id, None).await.unwrap();
    ground.nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn f144_needs_docker_no_value_of_the_run_is_in_the_engine() {
    let ground = Ground::new();
    ground.images();
    let id = fresh();
    let instance = ground.instance(&id, json!({})).await;
    let variables = environment(&[("API_KEY", "canary-9f3c")]);
    instance.set_environment(&variables).await.unwrap();
    let process = process("agent");
    instance
        .start(&process, &shell("echo got ${API_KEY}; exec sleep 600"))
        .await
        .unwrap();
    read_until(&*instance, &process, Offset(0), "got canary-9f3c").await;
    let container = ground.containers().remove(0);
    for words in [
        ["inspect", container.as_str()],
        ["logs", container.as_str()],
        ["top", container.as_str()],
        ["diff", container.as_str()],
    ] {
        assert!(!ground.docker(&words).contains("canary"), "{words:?}");
    }
    let told = ground.docker(&["inspect", "-f", "{{json .Config}}", &container]);
    assert!(!told.contains("API_KEY"), "{told}");
    ground.executor.delete(&id, None).await.unwrap();
    ground.nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn c11_f115_f117_needs_docker_nothing_inside_outlives_the_end() {
    let ground = Ground::new();
    ground.images();
    let id = fresh();
    let instance = ground.instance(&id, json!({})).await;
    let agent = process("agent");
    let script = "trap '' TERM; (trap '' TERM; exec sleep 8001) & echo up; exec sleep 8001";
    instance.start(&agent, &shell(script)).await.unwrap();
    read_until(&*instance, &agent, Offset(0), "up").await;
    // The controller is gone; another one finds it by name, and what it said.
    drop(instance);
    let other = ground.again();
    let again = other.connect(&id).await.unwrap();
    let (said, _) = read_until(&*again, &agent, Offset(1), "p").await;
    assert_eq!(said, "p\n");
    let began = std::time::Instant::now();
    other.delete(&id, None).await.unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    ground.nothing_left();
    let left = std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == b"sleep\x008001\0")
    });
    assert!(!left, "a process outlives its container");
    // Ended by somebody else: its logs answer, and nothing else does.
    let id = fresh();
    let instance = ground.instance(&id, json!({})).await;
    instance
        .start(&agent, &shell("echo x; exec sleep 600"))
        .await
        .unwrap();
    read_until(&*instance, &agent, Offset(0), "x").await;
    ground.docker(&["kill", &ground.containers()[0]]);
    let error = tokio::time::timeout(crate::ground::LONG, instance.wait(&agent)).await;
    assert_eq!(error.unwrap().unwrap_err().get("phase"), Some("lost"));
    let error = instance
        .start(&process("more"), &shell("true"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    ground.executor.delete(&id, None).await.unwrap();
    ground.nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_docker_a_terminal_has_its_size_and_files_go_in() {
    let ground = Ground::new();
    ground.images();
    let id = fresh();
    let instance = ground.instance(&id, json!({})).await;
    let mut spec = shell("stty size");
    spec.stdin = StdinPolicy::Open;
    spec.stdio = StdioKind::Terminal(TerminalSize {
        rows: 33,
        columns: 101,
    });
    let (said, exit) = ran(&*instance, &spec).await;
    assert_eq!((said.trim(), exit.code), ("33 101", Some(0)));
    drop(instance);
    ground.executor.delete(&id, None).await.unwrap();
    ground.nothing_left();
}

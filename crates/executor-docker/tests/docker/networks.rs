//! Networks and ports: what was asked for is there, or is an error; nothing stays in them.

use groundcrew_core::{
    error::{Chain, ErrorKind},
    executor::Executor as _,
    process::{Offset, StdioKind},
};
use serde_json::json;

use crate::ground::{Ground, Told, fresh, ran, shell};

/// A network of one test.
struct Network<'a>(&'a Ground, String);

impl<'a> Network<'a> {
    fn new(ground: &'a Ground) -> Self {
        let name = format!("gc-test-{}", fresh());
        ground.docker(&["network", "create", &name]);
        Self(ground, name)
    }
}

impl Drop for Network<'_> {
    fn drop(&mut self) {
        // Only one without an endpoint can be removed; one that fails by then has told why already.
        if !std::thread::panicking() {
            self.0.docker(&["network", "rm", &self.1]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f120_needs_docker_a_network_is_left_without_an_endpoint() {
    let ground = Ground::new();
    ground.images();
    let network = Network::new(&ground);
    let ids = [fresh(), fresh()];
    for id in &ids {
        let instance = ground.instance(id, json!({"network": network.1})).await;
        let (said, _) = ran(&*instance, &shell("ls /sys/class/net")).await;
        assert!(said.contains("eth0"), "{said}");
    }
    for id in &ids {
        ground.executor.delete(id, None).await.unwrap();
    }
    ground.nothing_left();
    let left = ground.docker(&[
        "network",
        "inspect",
        "-f",
        "{{len .Containers}}",
        &network.1,
    ]);
    assert_eq!(left, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn f121_needs_docker_a_port_that_is_taken_is_told_and_one_that_is_free_is_chosen() {
    let ground = Ground::new();
    ground.images();
    let network = Network::new(&ground);
    let told = Told::default();
    let create = async |id: &_, port: &str, told: &Told| {
        let options = json!({"network": network.1, "publish": [port]});
        ground
            .executor
            .create(id, &ground.spec(options), told)
            .await
    };
    let (first, second, third) = (fresh(), fresh(), fresh());
    create(&first, "0.0.0.0::8080", &told).await.unwrap();
    let lines = told.0.into_inner().unwrap();
    let line = lines.iter().find(|line| line.contains("8080/tcp")).unwrap();
    let port = line.rsplit(':').next().unwrap();
    assert_ne!(port.parse::<u16>().unwrap(), 0);
    let taken = format!("0.0.0.0:{port}:8080");
    let error = create(&second, &taken, &Told::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{}", Chain(&error));
    assert!(error.message().contains("--publish"), "{error}");
    create(&third, "0.0.0.0::8080", &Told::default())
        .await
        .unwrap();
    for id in [&first, &second, &third] {
        ground.executor.delete(id, None).await.unwrap();
    }
    ground.nothing_left();
    let wrong = ground.spec(json!({"network": "none", "publish": ["80"]}));
    let error = ground.executor.check(&wrong).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_docker_a_network_that_the_engine_does_not_give_is_an_error() {
    let ground = Ground::new();
    ground.images();
    // The engine of these tests has no default network, and would start the container without any.
    let id = fresh();
    let error = ground
        .create(&id, json!({"network": "default"}))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{}", Chain(&error));
    assert!(error.message().contains("--network none"), "{error}");
    ground.executor.delete(&id, None).await.unwrap();
    ground.nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn f125_needs_docker_no_output_however_much_fills_the_engine() {
    let ground = Ground::new();
    ground.images();
    let id = fresh();
    let instance = ground.instance(&id, json!({})).await;
    let container = ground.containers().remove(0);
    let told = ground.docker(&[
        "inspect",
        "-f",
        "{{json .HostConfig.LogConfig}}",
        &container,
    ]);
    assert!(
        told.contains("json-file") && told.contains("\"max-size\":\"1m\""),
        "{told}"
    );
    // What the agent writes goes to its own log, which is bounded too, and not to the engine's.
    let mut spec = shell("head -c 50000000 /dev/zero; echo end");
    spec.main = false;
    spec.log_limit = 1 << 20;
    spec.stdio = StdioKind::Pipes;
    let process = crate::ground::process("agent");
    instance.start(&process, &spec).await.unwrap();
    assert_eq!(instance.wait(&process).await.unwrap().code, Some(0));
    let size: u64 = std::fs::read_dir(ground.root.path().join("logs").join(id.as_str()))
        .unwrap()
        .map(|entry| size_of(&entry.unwrap().path()))
        .sum();
    assert!(size < 4 << 20, "{size} bytes");
    let state = instance.processes().await.unwrap();
    assert!(state[0].log_end > Offset(50_000_000));
    assert_eq!(ground.docker(&["logs", &container]).lines().count(), 1);
    ground.executor.delete(&id, None).await.unwrap();
    ground.nothing_left();
}

fn size_of(path: &std::path::Path) -> u64 {
    let meta = std::fs::symlink_metadata(path).unwrap();
    if !meta.is_dir() {
        return meta.len();
    }
    let entries = std::fs::read_dir(path).unwrap();
    entries.map(|entry| size_of(&entry.unwrap().path())).sum()
}

//! Executor and preparer in memory are as strict as their contracts.

use groundcrew_core::{
    error::ErrorKind,
    executor::{Executor as _, Progress},
    id::{AttemptId, ExecutorName, PreparerName},
    identity::{Identity, Presence},
    preparer::Preparer as _,
    undo::{Due, Occasion, UndoOptions, Undone},
};
use groundcrew_testkit::memory::{MemoryExecutor, MemoryPreparer, MemoryWorld};

use crate::support::{id, instance_spec, undo};

struct Silent;

impl Progress for Silent {
    fn line(&self, _: &str) {}
}

const CLOSE: UndoOptions = UndoOptions {
    occasion: Occasion::Close,
    force: false,
};

fn executor(world: &MemoryWorld) -> MemoryExecutor {
    MemoryExecutor::new(world, ExecutorName::new("memory").unwrap())
}

#[tokio::test]
async fn instance_ids_are_used_once_and_deletion_repeats() {
    let world = MemoryWorld::new().unwrap();
    let (executor, spec) = (executor(&world), instance_spec(&world));
    let created = executor.create(&id("i"), &spec, &Silent).await.unwrap();
    assert_eq!(
        executor.state(&id("i")).await.unwrap(),
        Presence::Present(created.identity.clone())
    );
    let taken = executor.create(&id("i"), &spec, &Silent).await.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    assert_eq!(executor.list().await.unwrap(), [id("i")]);

    let other = Identity("other".into());
    let kept = executor.delete(&id("i"), Some(&other)).await.unwrap();
    assert!(matches!(kept, Undone::NotOurs(_)));
    let gone = executor
        .delete(&id("i"), Some(&created.identity))
        .await
        .unwrap();
    assert_eq!(gone, Undone::REMOVED);
    assert_eq!(
        executor.delete(&id("i"), None).await.unwrap(),
        Undone::AlreadyGone
    );
    assert_eq!(
        executor.delete(&id("never"), None).await.unwrap(),
        Undone::AlreadyGone
    );
    assert_eq!(executor.state(&id("i")).await.unwrap(), Presence::Absent);
    executor.connect(&id("i")).await.expect("its logs are kept");
    let never = executor.connect(&id("never")).await.unwrap_err();
    assert_eq!(never.kind(), ErrorKind::NotFound);
    let again = executor.create(&id("i"), &spec, &Silent).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    assert_eq!((world.count("create"), world.count("delete")), (3, 4));
}

#[tokio::test]
async fn unknown_options_are_refused_by_name() {
    let world = MemoryWorld::new().unwrap();
    let mut spec = instance_spec(&world);
    spec.options.insert("colour".into(), "red".into());
    let error = executor(&world).check(&spec).unwrap_err();
    assert_eq!(error.get("option"), Some("colour"));
    assert!(
        executor(&world)
            .create(&id("i"), &spec, &Silent)
            .await
            .is_err()
    );
    assert!(world.leftovers().is_empty());
}

#[tokio::test]
async fn unknown_is_neither_present_nor_absent_and_nothing_is_removed() {
    let world = MemoryWorld::new().unwrap();
    let executor = executor(&world);
    executor
        .create(&id("i"), &instance_spec(&world), &Silent)
        .await
        .unwrap();
    world.set_unknown(Some("the machine does not answer"));
    let presence = executor.state(&id("i")).await.unwrap();
    assert_eq!(
        presence,
        Presence::Unknown("the machine does not answer".into())
    );
    assert!(executor.delete(&id("i"), None).await.is_err());
    assert!(executor.list().await.is_err());
    world.set_unknown(None);
    assert_eq!(world.leftovers(), ["instance i"]);
}

#[tokio::test]
async fn a_namesake_and_a_stranger_are_left_alone() {
    let world = MemoryWorld::new().unwrap();
    let preparer = MemoryPreparer::new(&world, PreparerName::new("things").unwrap());
    world.plant("things/key", "/elsewhere".as_ref());
    let record = undo(AttemptId::generate().unwrap(), "key", Due::Close);
    let undone = preparer.undo(&record, CLOSE).await.unwrap();
    assert!(matches!(undone, Undone::NotOurs(_)));
    assert!(
        preparer.list().await.unwrap().is_empty(),
        "it carries no mark of ours"
    );
    assert_eq!(world.leftovers(), ["thing things/key"]);
    world.remove("things/key").unwrap();
    assert_eq!(
        preparer.undo(&record, CLOSE).await.unwrap(),
        Undone::AlreadyGone
    );
}

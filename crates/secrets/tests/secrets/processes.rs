//! Many processes on one store, some of them killed.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    secret::SecretValue,
};
use groundcrew_secrets::{MasterKey, SealedConfig, SealedSecrets, WritePoints};

use crate::support::{Home, ask, hidden, id, set, shown, spawn};

fn argument(name: &str) -> Option<String> {
    std::env::args().find_map(|arg| Some(arg.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
}

#[expect(clippy::print_stdout, reason = "how a worker speaks to its test")]
fn say(words: &str) {
    // In front, because the runner has begun the line; behind, so that a line is whole or not there.
    println!("@@{words}");
}

/// Dies by kill -9 at the point of that name, the n-th time that it is passed.
#[derive(Debug)]
struct Dies {
    at: String,
    left: AtomicUsize,
}

impl WritePoints for Dies {
    fn pass(&self, point: &'static str) -> Result<(), Error> {
        if point == self.at && self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            let pid = rustix::process::getpid();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        Ok(())
    }
}

/// What is stored in the rounds of the endless writer: long enough that a half of it would be noticed.
fn long(tag: &str, n: u32) -> String {
    format!("CANARY-{tag}-{n} ").repeat(300)
}

/// What the processes do that tests start; in a run of the tests it has no role, and nothing to do.
#[tokio::test]
async fn worker() {
    let Some(role) = argument("role") else { return };
    let (directory, tag) = (argument("directory").unwrap(), argument("tag").unwrap());
    let store = SealedSecrets::open(SealedConfig::new(&directory)).unwrap();
    match role.as_str() {
        "reveal" => match ask(&store, &id(&tag)).await {
            Ok(Some(value)) => say(&format!("value {value}")),
            Ok(None) => say("none"),
            Err(error) => say(&format!("error {}", error.kind())),
        },
        "first" => {
            set(&store, &tag, &tag).await;
            say("done");
        }
        "write" => {
            for n in 0..20 {
                set(&store, &format!("{tag}/{n}"), &format!("{tag} {n}")).await;
            }
            say("done");
        }
        "endless" => {
            for n in 0.. {
                say(&format!("begins {n}"));
                set(&store, "k", &long(&tag, n)).await;
                say(&format!("wrote {n}"));
            }
        }
        "mover" => loop {
            store.rename(&id("m"), &id("m@t")).await.unwrap();
            store.rename(&id("m@t"), &id("m")).await.unwrap();
            say("moved");
        },
        "rotator" => loop {
            store.rotate(&MasterKey::Own).await.unwrap();
            say("rotated");
            // Nobody rotates without a pause; a lock without one is hard to get for those who look now and then.
            std::thread::park_timeout(Duration::from_millis(4));
        },
        dying => dies(dying, &directory, &tag).await,
    }
}

/// `verb:point:count`: dies there; a worker that lives on says so.
async fn dies(role: &str, directory: &str, tag: &str) {
    let mut parts = role.split(':');
    let verb = parts.next().unwrap();
    let points = Dies {
        at: parts.next().unwrap().to_owned(),
        left: AtomicUsize::new(parts.next().unwrap().parse().unwrap()),
    };
    let store = SealedSecrets::open(SealedConfig {
        points: Arc::new(points),
        ..SealedConfig::new(directory)
    })
    .unwrap();
    match verb {
        "set" => set(&store, "k", tag).await,
        "mv" => store.rename(&id("k"), &id("moved@t")).await.unwrap(),
        "rm" => drop(store.remove(&id("k")).await.unwrap()),
        "rotate" => store.rotate(&MasterKey::Own).await.unwrap(),
        other => panic!("no such verb: {other}"),
    }
    say("lives");
}

#[tokio::test]
async fn f129_of_16_processes_that_write_first_all_get_one_key() {
    let home = Home::new();
    let workers: Vec<_> = (0..16)
        .map(|n| spawn("first", &home.directory(), &format!("w{n}"), None))
        .collect();
    for worker in workers {
        assert_eq!(worker.finish(), ["done"]);
    }
    let store = home.store();
    for n in 0..16 {
        assert_eq!(shown(&store, &format!("w{n}")).await, format!("w{n}"));
    }
    let names: Vec<_> = home.files().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["master.key", "sealed"]);
}

#[tokio::test]
async fn f131_8_processes_and_their_readers_lose_nothing() {
    let home = Home::new();
    set(&home.store(), "always", "there").await;
    let workers: Vec<_> = (0..8)
        .map(|n| spawn("write", &home.directory(), &format!("w{n}"), None))
        .collect();
    let store = home.store();
    for _ in 0..50 {
        assert_eq!(shown(&store, "always").await, "there");
    }
    for worker in workers {
        assert_eq!(worker.finish(), ["done"]);
    }
    assert_eq!(store.check().await.unwrap(), 8 * 20 + 1);
    assert_eq!(shown(&store, "w3/7").await, "w3 7");
}

#[tokio::test]
async fn g19_kill_9_of_an_endless_writer_leaves_the_last_acknowledged_value_or_the_next() {
    let home = Home::new();
    let store = home.store();
    set(&store, "k", "first").await;
    let mut last = "first".to_owned();
    let mut rounds = BTreeSet::new();
    for round in 0..30_u64 {
        let tag = format!("r{round}");
        let mut worker = spawn("endless", &home.directory(), &tag, None);
        assert_eq!(worker.say().unwrap(), "begins 0");
        // An arbitrary moment, another one in each round.
        std::thread::park_timeout(Duration::from_micros(round * 7919 % 120_000));
        let said = worker.kill();
        let acknowledged = said
            .iter()
            .filter_map(|words| words.strip_prefix("wrote "))
            .next_back()
            .map(|n| n.parse::<u32>().unwrap());
        let old = acknowledged.map_or(last, |n| long(&tag, n));
        let new = long(&tag, acknowledged.map_or(0, |n| n + 1));
        last = shown(&store, "k").await;
        assert!(last == old || last == new, "round {round}: {said:?}");
        rounds.insert(said.len());
        for (file, bytes) in home.files() {
            hidden(&format!("CANARY-{tag}"), &bytes, &file);
        }
    }
    assert!(
        rounds.len() > 2,
        "always killed at the same place: {rounds:?}"
    );
    set(&store, "k", "after").await;
    assert_eq!(store.check().await.unwrap(), 1);
    assert_eq!(home.files().len(), 2);
}

#[tokio::test]
async fn g19_a_mover_that_is_killed_leaves_the_secret_under_one_of_its_names() {
    let home = Home::new();
    let store = home.store();
    set(&store, "m", "only one").await;
    for round in 0..15_u64 {
        let mut worker = spawn("mover", &home.directory(), "x", None);
        for _ in 0..=round % 3 {
            assert_eq!(worker.say().unwrap(), "moved");
        }
        std::thread::park_timeout(Duration::from_micros(round * 613 % 5_000));
        worker.kill();
        let both = [
            ask(&store, &id("m")).await.unwrap(),
            ask(&store, &id("m@t")).await.unwrap(),
        ];
        let there: Vec<_> = both.into_iter().flatten().collect();
        assert_eq!(there, ["only one"]);
        // The next one begins where this one did, and nobody moves anything before it is there.
        if ask(&store, &id("m")).await.unwrap().is_none() {
            store.rename(&id("m@t"), &id("m")).await.unwrap();
        }
    }
}

#[tokio::test]
async fn w24_a_rotator_that_is_killed_leaves_a_store_that_opens() {
    let home = Home::new();
    let store = home.store();
    set(&store, "a", "1").await;
    for round in 0..15_u64 {
        let mut worker = spawn("rotator", &home.directory(), "x", None);
        worker.say().unwrap();
        // Readers are never met by half a rotation.
        for _ in 0..5 {
            assert_eq!(shown(&store, "a").await, "1");
        }
        std::thread::park_timeout(Duration::from_micros(round * 977 % 15_000));
        worker.kill();
        assert_eq!(shown(&store, "a").await, "1");
    }
    store.rotate(&MasterKey::Own).await.unwrap();
    assert_eq!(store.check().await.unwrap(), 1);
    assert_eq!(home.files().len(), 2);
}

/// What a store may hold after a worker died at a point: the old or the new.
async fn after_death(
    verb: &str,
    point: &str,
    count: usize,
    before: &[(&str, &str)],
    new: &[(&str, &str)],
) {
    let home = Home::new();
    let store = home.store();
    for (text, value) in before {
        set(&store, text, value).await;
    }
    let role = format!("{verb}:{point}:{count}");
    let said = spawn(&role, &home.directory(), "CANARY-new", None).dies();
    assert!(said.is_empty(), "{role}: {said:?}");
    for (file, bytes) in home.files() {
        hidden("CANARY-new", &bytes, &file);
        hidden("CANARY-old", &bytes, &file);
    }
    let names = ["k", "moved@t", "other"];
    let mut found = Vec::new();
    for text in names {
        if let Some(value) = ask(&store, &id(text)).await.unwrap() {
            found.push((text, value));
        }
    }
    let is = |wanted: &[(&str, &str)]| {
        wanted.len() == found.len()
            && wanted
                .iter()
                .zip(&found)
                .all(|(w, f)| w.0 == f.0 && w.1 == f.1)
    };
    let placed = matches!(point, "renamed" | "durable") && count == 1;
    assert!(is(before) || is(new), "{role}: {found:?}");
    if verb != "rotate" {
        assert!(
            if placed { is(new) } else { is(before) },
            "{role}: {found:?}"
        );
    }
    // Whatever was left is swept away, and the store goes on.
    set(&store, "later", "v").await;
    store.check().await.unwrap();
    store.rotate(&MasterKey::Own).await.unwrap();
    assert_eq!(shown(&store, "later").await, "v");
    let names: Vec<_> = home.files().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["master.key", "sealed"], "{role}");
}

#[tokio::test]
async fn g19_kill_9_at_every_point_of_every_verb_leaves_the_old_or_the_new() {
    let old = [("k", "CANARY-old"), ("other", "o")];
    let writes = ["half", "written", "renamed", "durable"];
    for point in writes {
        after_death(
            "set",
            point,
            1,
            &old,
            &[("k", "CANARY-new"), ("other", "o")],
        )
        .await;
        after_death(
            "mv",
            point,
            1,
            &old,
            &[("moved@t", "CANARY-old"), ("other", "o")],
        )
        .await;
        after_death("rm", point, 1, &old, &[("other", "o")]).await;
        for count in [1, 2] {
            after_death("rotate", point, count, &old, &old).await;
        }
    }
    for point in ["next.written", "next.placed"] {
        after_death("rotate", point, 1, &old, &old).await;
    }
    // The first write of all, which makes the key as well.
    for point in ["key.written", "key.linked"].into_iter().chain(writes) {
        after_death("set", point, 1, &[], &[("k", "CANARY-new")]).await;
    }
}

#[tokio::test]
async fn f131_a_store_that_is_kept_locked_is_a_bounded_wait_and_a_typed_error() {
    let home = Home::new();
    set(&home.store(), "a", "1").await;
    let store = SealedSecrets::open(SealedConfig {
        patience: Duration::from_millis(200),
        ..SealedConfig::new(home.directory())
    })
    .unwrap();
    let held = std::fs::File::open(home.directory()).unwrap();
    held.lock_shared().unwrap();
    // Who looks does not wait for who looks.
    assert_eq!(shown(&store, "a").await, "1");
    let error = store
        .set(&id("a"), SecretValue::new("2"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.is_retryable() && error.get("path").is_some());
    held.unlock().unwrap();
    held.lock().unwrap();
    let error = ask(&store, &id("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    drop(held);
    set(&store, "a", "2").await;
    assert_eq!(shown(&store, "a").await, "2");
}

#[tokio::test]
async fn a_change_whose_future_is_dropped_is_finished_whole_or_not_begun() {
    let home = Home::new();
    let store = home.store();
    set(&store, "a", "1").await;
    for n in 0..20 {
        let (name, value) = (id("a"), SecretValue::new(format!("value {n}")));
        let mut change = Box::pin(store.set(&name, value));
        let waker = std::task::Waker::noop();
        let polled = change
            .as_mut()
            .poll(&mut std::task::Context::from_waker(waker));
        drop((polled.is_ready(), change));
    }
    // Whoever comes next waits for what was begun.
    set(&store, "b", "2").await;
    assert!(shown(&store, "a").await.starts_with("value "));
    assert_eq!(store.check().await.unwrap(), 2);
}

#[tokio::test]
async fn f146_a_directory_that_was_taken_away_is_not_written_to() {
    let home = Home::new();
    let store = home.store();
    set(&store, "a", "1").await;
    std::fs::rename(home.directory(), home.root().join("away")).unwrap();
    assert_eq!(ask(&store, &id("a")).await.unwrap(), None);
    set(&store, "a", "2").await;
    assert_eq!(shown(&store, "a").await, "2");
    let away = SealedSecrets::open(SealedConfig::new(Path::new(home.root()).join("away"))).unwrap();
    assert_eq!(shown(&away, "a").await, "1");
}

#[tokio::test]
async fn f146_a_writer_that_waited_does_not_write_to_what_was_taken_away_meanwhile() {
    let home = Home::new();
    let store = home.store();
    set(&store, "a", "1").await;
    let held = std::fs::File::open(home.directory()).unwrap();
    held.lock().unwrap();
    let (wanted, away) = (id("a"), home.root().join("away"));
    let take = async {
        // Time for the writer to begin to wait; one that comes later finds a new directory anyway.
        tokio::time::sleep(Duration::from_millis(150)).await;
        std::fs::rename(home.directory(), &away).unwrap();
        held.unlock().unwrap();
    };
    let (stored, ()) = tokio::join!(store.set(&wanted, SecretValue::new("2")), take);
    stored.unwrap();
    assert_eq!(shown(&store, "a").await, "2");
    let away = SealedSecrets::open(SealedConfig::new(away)).unwrap();
    assert_eq!(shown(&away, "a").await, "1");
}

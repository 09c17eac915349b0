//! What the format keeps apart, and what it refuses.

use groundcrew_core::{id::TenantId, secret::SecretRef};

use super::*;

fn id(name: &str, tenant: Option<&str>) -> SecretId {
    let name = SecretRef::new(name).unwrap();
    match tenant {
        Some(tenant) => SecretId::of_tenant(name, TenantId::new(tenant).unwrap()),
        None => name.into(),
    }
}

fn contents() -> Contents {
    let mut contents = Contents::new().unwrap();
    // One write, as several runtime secrets are: only name and owner tell them apart.
    contents.begin();
    for (name, tenant, value) in [
        ("a", None, "of all"),
        ("a", Some("t"), "of t!!"),
        ("b", None, "anothr"),
    ] {
        contents
            .put(&id(name, tenant), &SecretValue::new(value), 7)
            .unwrap();
    }
    contents
}

fn shown(contents: &Contents, name: &str, tenant: Option<&str>) -> Option<Vec<u8>> {
    let id = id(name, tenant);
    let value = contents.open(&id, &contents.records[&id])?;
    Some(value.expose().to_vec())
}

#[test]
fn what_was_written_is_read_and_by_the_owner_of_each_key() {
    let (one, two, three) = (
        Key::generate().unwrap(),
        Key::generate().unwrap(),
        Key::generate().unwrap(),
    );
    let file = contents().write(&[&one, &two]).unwrap();
    for key in [&one, &two] {
        let read = Contents::read(&file, key).unwrap().unwrap();
        assert!(read.whole);
        assert_eq!(shown(&read, "a", None).unwrap(), b"of all");
        assert_eq!(shown(&read, "a", Some("t")).unwrap(), b"of t!!");
    }
    assert_eq!(
        Contents::read(&file, &three).unwrap().unwrap_err(),
        Fault::OtherKey
    );
}

/// W24: every exchange of two sealed values, and an older value in the place of a newer one, is noticed.
#[test]
fn w24_a_value_opens_only_under_its_own_name_owner_and_generation() {
    let names = [("a", None), ("a", Some("t")), ("b", None)];
    assert!(
        contents()
            .records
            .values()
            .all(|record| record.generation == 1)
    );
    for one in names {
        for other in names {
            let mut all = contents();
            let sealed = all.records[&id(other.0, other.1)].sealed.clone();
            let record = all.records.get_mut(&id(one.0, one.1)).unwrap();
            record.sealed = sealed;
            assert_eq!(shown(&all, one.0, one.1).is_some(), one == other);
        }
    }
    let mut all = contents();
    let old = all.records[&id("a", None)].sealed.clone();
    all.begin();
    all.put(&id("a", None), &SecretValue::new("newest"), 8)
        .unwrap();
    assert_eq!(shown(&all, "a", None).unwrap(), b"newest");
    all.records.get_mut(&id("a", None)).unwrap().sealed = old;
    assert_eq!(shown(&all, "a", None), None);
    // The generation that the index claims is checked as well.
    let mut all = contents();
    all.records.get_mut(&id("a", None)).unwrap().generation += 1;
    assert_eq!(shown(&all, "a", None), None);
}

#[test]
fn w24_a_value_of_another_data_key_or_data_version_does_not_open() {
    let old = contents();
    let mut new = old.renewed().unwrap().unwrap();
    assert_eq!(shown(&new, "b", None).unwrap(), b"anothr");
    assert_ne!(
        new.records[&id("b", None)].sealed,
        old.records[&id("b", None)].sealed
    );
    new.records.get_mut(&id("b", None)).unwrap().sealed =
        old.records[&id("b", None)].sealed.clone();
    assert_eq!(shown(&new, "b", None), None);
    assert_eq!(new.renewed().unwrap().unwrap_err(), id("b", None));
    let mut other = contents();
    other.data_version += 1;
    assert_eq!(shown(&other, "b", None), None);
}

/// Every file that is damaged in one byte, or cut off, is an error or gives the right values: never others, never a panic.
#[test]
fn w24_every_flipped_byte_and_every_length_is_noticed() {
    let master = Key::generate().unwrap();
    let file = contents().write(&[&master]).unwrap();
    let right = |name: &str| match name {
        "a" => b"of all".to_vec(),
        _ => b"anothr".to_vec(),
    };
    let mut noticed = 0;
    let mut look = |damaged: &[u8], what: String| {
        let Ok(all) = Contents::read(damaged, &master).unwrap() else {
            noticed += 1;
            return;
        };
        let values = ["a", "b"].map(|name| (name, shown(&all, name, None)));
        let mut missed = all.whole && shown(&all, "a", Some("t")).is_some();
        for (name, value) in values {
            match value {
                Some(value) => assert_eq!(value, right(name), "{what}"),
                None => missed = false,
            }
        }
        assert!(!missed, "{what} was not noticed");
        noticed += 1;
    };
    for at in 0..file.len() {
        for bit in [1, 0x80] {
            let mut damaged = file.clone();
            damaged[at] ^= bit;
            look(&damaged, format!("byte {at}"));
        }
        look(&file[..at], format!("length {at}"));
    }
    look(&[&file[..], b"\0"].concat(), "one byte more".to_owned());
    assert_eq!(noticed, 3 * file.len() + 1);
}

#[test]
fn an_empty_store_and_a_newer_version_are_told_apart() {
    let master = Key::generate().unwrap();
    let mut file = Contents::new().unwrap().write(&[&master]).unwrap();
    assert!(
        Contents::read(&file, &master)
            .unwrap()
            .unwrap()
            .records
            .is_empty()
    );
    file[8] = 2;
    assert_eq!(
        Contents::read(&file, &master).unwrap().unwrap_err(),
        Fault::Newer
    );
    assert_eq!(
        Contents::read(b"", &master).unwrap().unwrap_err(),
        Fault::Damaged("length")
    );
}

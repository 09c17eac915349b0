//! The file of the stored secrets: what is in it, and how that is written and read.
//!
//! * `magic | version | number of wraps | wraps | data version | length of the index | index | values`.
//! * A wrap is the data key, sealed with a master key. The index and each value are sealed with the data key.
//! * Every sealed piece is bound to the format, the version of the data key and what it is; a value also to its scope, its
//!   name and the generation that the index says it has. Neither names nor values can be read without the master key;
//!   how many and how long they are, can.

use std::collections::BTreeMap;

use groundcrew_core::{
    error::{Error, ErrorKind},
    secret::{SecretId, SecretValue},
};
use serde::{Deserialize, Serialize};

use super::crypto::{Key, KeyId, OVERHEAD};
use crate::value::VALUE_MAX;

const MAGIC: &[u8; 8] = b"GCSECRET";
const VERSION: u8 = 1;
const WRAPPED: usize = 32 + OVERHEAD;
/// Two while a master key is being replaced.
const MOST_WRAPS: u8 = 2;

/// Why a file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is sealed with another master key.
    OtherKey,
    /// It is of a version that we do not know.
    Newer,
    /// It is damaged, in this part of it.
    Damaged(&'static str),
}

/// A stored secret, still sealed.
#[derive(Debug)]
pub(super) struct Record {
    /// Which write it is of.
    pub(super) generation: u64,
    /// When it was first set, in milliseconds since 1970.
    pub(super) created_ms: u64,
    /// When it was last set.
    pub(super) changed_ms: u64,
    /// How long the value is.
    size: usize,
    /// The value, sealed; shorter when the file is.
    sealed: Vec<u8>,
}

/// Everything in the file.
#[derive(Debug)]
pub(super) struct Contents {
    data_key: Key,
    data_version: u32,
    /// The number of writes.
    generation: u64,
    /// The secrets.
    pub(super) records: BTreeMap<SecretId, Record>,
    /// Whether the file is exactly as long as the index says.
    pub(super) whole: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    generation: u64,
    secrets: Vec<Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    #[serde(flatten)]
    id: SecretId,
    generation: u64,
    created_ms: u64,
    changed_ms: u64,
    size: usize,
}

impl Contents {
    /// Makes an empty one.
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self {
            data_key: Key::generate()?,
            data_version: 1,
            generation: 0,
            records: BTreeMap::new(),
            whole: true,
        })
    }

    /// Reads a file.
    pub(super) fn read(file: &[u8], master: &Key) -> Result<Result<Self, Fault>, Error> {
        Ok(Self::parse(file, master, master.id()?))
    }

    fn parse(file: &[u8], master: &Key, id: KeyId) -> Result<Self, Fault> {
        let mut rest = Reader(file);
        if rest.take(MAGIC.len())? != MAGIC {
            return Err(Fault::Damaged("beginning"));
        }
        if rest.byte()? != VERSION {
            return Err(Fault::Newer);
        }
        let count = rest.byte()?;
        if !(1..=MOST_WRAPS).contains(&count) {
            return Err(Fault::Damaged("number of keys"));
        }
        let wraps = (0..count)
            .map(|_| Ok((rest.take(id.len())?, rest.take(WRAPPED)?)))
            .collect::<Result<Vec<_>, Fault>>()?;
        let data_version = rest.number()?;
        let (_, wrap) = wraps
            .into_iter()
            .find(|(with, _)| *with == id)
            .ok_or(Fault::OtherKey)?;
        let data_key = master
            .open(&place_of_key(data_version, id), wrap)
            .and_then(|bytes| Key::from_bytes(&bytes))
            .ok_or(Fault::Damaged("data key"))?;
        let length = rest.number()? as usize;
        let index = data_key
            .open(&place_of_index(data_version), rest.take(length)?)
            .and_then(|text| serde_json::from_slice::<Index>(&text).ok())
            .ok_or(Fault::Damaged("index"))?;
        let mut contents = Self {
            data_key,
            data_version,
            generation: index.generation,
            records: BTreeMap::new(),
            whole: true,
        };
        for entry in index.secrets {
            if entry.size > VALUE_MAX {
                return Err(Fault::Damaged("index"));
            }
            let sealed = rest.take_at_most(entry.size + OVERHEAD);
            contents.whole &= sealed.len() == entry.size + OVERHEAD;
            let record = Record {
                generation: entry.generation,
                created_ms: entry.created_ms,
                changed_ms: entry.changed_ms,
                size: entry.size,
                sealed: sealed.to_vec(),
            };
            if contents.records.insert(entry.id, record).is_some() {
                return Err(Fault::Damaged("index"));
            }
        }
        contents.whole &= rest.0.is_empty();
        Ok(contents)
    }

    /// Writes the file for the owners of these master keys.
    pub(super) fn write(&self, masters: &[&Key]) -> Result<Vec<u8>, Error> {
        let mut file = MAGIC.to_vec();
        file.push(VERSION);
        file.push(u8::try_from(masters.len()).unwrap_or(u8::MAX));
        for master in masters {
            let id = master.id()?;
            let place = place_of_key(self.data_version, id);
            file.extend_from_slice(&id);
            file.extend(master.seal(&place, self.data_key.bytes())?);
        }
        file.extend_from_slice(&self.data_version.to_le_bytes());
        let secrets = self.records.iter().map(|(id, record)| Entry {
            id: id.clone(),
            generation: record.generation,
            created_ms: record.created_ms,
            changed_ms: record.changed_ms,
            size: record.size,
        });
        let index = Index {
            generation: self.generation,
            secrets: secrets.collect(),
        };
        let text = serde_json::to_vec(&index).map_err(|error| too_many().with_source(error))?;
        let sealed = self
            .data_key
            .seal(&place_of_index(self.data_version), &text)?;
        let length = u32::try_from(sealed.len()).map_err(|_| too_many())?;
        file.extend_from_slice(&length.to_le_bytes());
        file.extend(sealed);
        for record in self.records.values() {
            file.extend_from_slice(&record.sealed);
        }
        Ok(file)
    }

    /// Begins a write: everything that it seals is of a new generation.
    pub(super) fn begin(&mut self) {
        self.generation += 1;
    }

    /// Seals a value under a name; returns whether there was one already.
    pub(super) fn put(
        &mut self,
        id: &SecretId,
        value: &SecretValue,
        now_ms: u64,
    ) -> Result<bool, Error> {
        let place = place_of_value(self.data_version, id, self.generation);
        let sealed = self.data_key.seal(&place, value.expose())?;
        let before = self.records.get(id).map(|record| record.created_ms);
        let record = Record {
            generation: self.generation,
            created_ms: before.unwrap_or(now_ms),
            changed_ms: now_ms,
            size: value.expose().len(),
            sealed,
        };
        self.records.insert(id.clone(), record);
        Ok(before.is_some())
    }

    /// Opens a value; `None` when it is damaged or another's.
    pub(super) fn open(&self, id: &SecretId, record: &Record) -> Option<SecretValue> {
        let place = place_of_value(self.data_version, id, record.generation);
        let mut text = self.data_key.open(&place, &record.sealed)?;
        Some(SecretValue::new(std::mem::take(&mut *text)))
    }

    /// Makes one of the same secrets, all sealed anew with a fresh data key; else names the first that cannot be opened.
    pub(super) fn renewed(&self) -> Result<Result<Self, SecretId>, Error> {
        let mut renewed = Self {
            data_version: self.data_version.wrapping_add(1),
            generation: self.generation,
            ..Self::new()?
        };
        for (id, record) in &self.records {
            let Some(value) = self.open(id, record) else {
                return Ok(Err(id.clone()));
            };
            let place = place_of_value(renewed.data_version, id, record.generation);
            let record = Record {
                sealed: renewed.data_key.seal(&place, value.expose())?,
                ..*record
            };
            renewed.records.insert(id.clone(), record);
        }
        Ok(Ok(renewed))
    }
}

fn too_many() -> Error {
    Error::new(ErrorKind::TooLarge, "there are too many secrets")
}

/// Says what something sealed is: its kind, the format, the data key's version, and more; no two things have one place.
fn place(kind: &[u8], data_version: u32, more: &[&[u8]]) -> Vec<u8> {
    let mut place = vec![VERSION];
    place.extend_from_slice(&data_version.to_le_bytes());
    for part in [kind].iter().chain(more) {
        // With its length, so that two parts cannot trade letters.
        place.extend_from_slice(&(part.len() as u64).to_le_bytes());
        place.extend_from_slice(part);
    }
    place
}

fn place_of_key(data_version: u32, id: KeyId) -> Vec<u8> {
    place(b"key", data_version, &[&id])
}

fn place_of_index(data_version: u32) -> Vec<u8> {
    place(b"index", data_version, &[])
}

fn place_of_value(data_version: u32, id: &SecretId, generation: u64) -> Vec<u8> {
    let (kind, tenant) = match &id.scope.tenant {
        Some(tenant) => (&b"tenant's value"[..], tenant.as_str()),
        None => (&b"installation's value"[..], ""),
    };
    let name = id.name.as_str();
    place(
        kind,
        data_version,
        &[
            tenant.as_bytes(),
            name.as_bytes(),
            &generation.to_le_bytes(),
        ],
    )
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(Fault::Damaged("length"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn take_at_most(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        Ok(self.take(1)?.first().copied().unwrap_or_default())
    }

    fn number(&mut self) -> Result<u32, Fault> {
        let bytes = self.take(4)?.first_chunk::<4>();
        bytes.map_or(Err(Fault::Damaged("length")), |b| {
            Ok(u32::from_le_bytes(*b))
        })
    }
}

#[cfg(test)]
mod tests;

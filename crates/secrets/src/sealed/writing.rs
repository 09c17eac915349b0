//! Changes of the encrypted file: read all, change it in memory, write all, replace.

use std::time::{SystemTime, UNIX_EPOCH};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::AttemptId,
    secret::{SecretId, SecretValue},
    undo::Undone,
};

use super::{
    DRAFT, Inner, NAME, Stored,
    crypto::Key,
    format::Contents,
    key::{self, MasterKey},
    place::{Access, Place},
};
use crate::runtime;

/// What a change came to.
enum Change<T> {
    /// Something is different now.
    Made(T),
    /// Nothing is, and nothing is written.
    None(T),
}

impl Inner {
    pub(super) fn set(&self, id: &SecretId, value: &SecretValue) -> Result<Stored, Error> {
        self.change(Access::Make, |contents| {
            Ok(Change::Made(if contents.put(id, value, now_ms())? {
                Stored::Replaced
            } else {
                Stored::Created
            }))
        })
    }

    pub(super) fn keep(&self, secrets: &[(SecretId, SecretValue)]) -> Result<(), Error> {
        let now = now_ms();
        self.change(Access::Make, |contents| {
            for (id, value) in secrets {
                contents.put(id, value, now)?;
            }
            Ok(Change::Made(()))
        })
    }

    pub(super) fn remove(&self, id: &SecretId) -> Result<Undone, Error> {
        self.change(Access::Change, |contents| {
            Ok(match contents.records.remove(id) {
                Some(_) => Change::Made(Undone::REMOVED),
                None => Change::None(Undone::AlreadyGone),
            })
        })
    }

    pub(super) fn forget(&self, attempt: AttemptId) -> Result<Undone, Error> {
        self.change(Access::Change, |contents| {
            let before = contents.records.len();
            contents
                .records
                .retain(|id, _| runtime::attempt_of(&id.name) != Some(attempt));
            Ok(if contents.records.len() < before {
                Change::Made(Undone::REMOVED)
            } else {
                Change::None(Undone::AlreadyGone)
            })
        })
    }

    pub(super) fn transfer(&self, from: &SecretId, to: &SecretId, keep: bool) -> Result<(), Error> {
        self.change(Access::Change, |contents| {
            let Some(record) = contents.records.get(from) else {
                return Err(Error::new(ErrorKind::NotFound, "there is no such secret")
                    .with("secret", from));
            };
            if contents.records.contains_key(to) {
                return Err(Error::new(
                    ErrorKind::AlreadyExists,
                    "there is a secret of that name already; remove it first, or choose another name",
                )
                .with("secret", to));
            }
            let created_ms = record.created_ms;
            let value = self.open_record(contents, from, record)?;
            contents.put(to, &value, now_ms())?;
            if !keep {
                contents.records.remove(from);
                if let Some(moved) = contents.records.get_mut(to) {
                    moved.created_ms = created_ms;
                }
            }
            Ok(Change::Made(()))
        })
    }

    pub(super) fn rotate(&self, to: MasterKey) -> Result<(), Error> {
        let Some(place) = self.place(Access::Change)? else {
            return self.switch(to);
        };
        place.sweep(&[DRAFT, key::DRAFT])?;
        let (Some(old), Some(mut contents)) = self.load(&place)? else {
            return self.switch(to);
        };
        // Everything must open before anything is changed.
        self.check_whole(&contents)?;
        contents.begin();
        let mut renewed = match contents.renewed()? {
            Ok(renewed) => renewed,
            Err(id) => return Err(self.damaged_value(&id)),
        };
        renewed.begin();
        match &to {
            MasterKey::Own => {
                let next = key::make_next(&place)?;
                // Until the next key is in its place, both open the file, and the data key is the one that the old key knows.
                self.save(&place, &contents, &[&old, &next])?;
                key::place_next(&place)?;
                *self.key() = to;
                self.save(&place, &renewed, &[&next])
            }
            MasterKey::File(path) => {
                let next = key::named(path)?;
                if next.id()? == old.id()? {
                    return Err(Error::new(
                        ErrorKind::InvalidInput,
                        "the new master key is the old one; nothing was changed",
                    )
                    .with("path", path.display()));
                }
                self.save(&place, &renewed, &[&next])?;
                *self.key() = to;
                // It opens nothing any more.
                place.sweep(&[key::NAME])?;
                place.sync()
            }
        }
    }

    fn save(&self, place: &Place<'_>, contents: &Contents, masters: &[&Key]) -> Result<(), Error> {
        let file = contents.write(masters)?;
        if file.len() as u64 > self.config.most {
            return Err(
                Error::new(ErrorKind::TooLarge, "all secrets together are too long")
                    .with("bytes", file.len())
                    .with("most", self.config.most),
            );
        }
        place.draft(DRAFT, &file, Some("half"))?;
        place.pass("written")?;
        place.rename(DRAFT, NAME)?;
        place.pass("renamed")?;
        place.sync()?;
        place.pass("durable")
    }

    /// Goes on with another key where nothing is stored yet.
    fn switch(&self, to: MasterKey) -> Result<(), Error> {
        to.check()?;
        *self.key() = to;
        Ok(())
    }

    fn check_whole(&self, contents: &Contents) -> Result<(), Error> {
        if contents.whole {
            Ok(())
        } else {
            Err(self.damaged("length"))
        }
    }

    fn change<T>(
        &self,
        access: Access,
        change: impl FnOnce(&mut Contents) -> Result<Change<T>, Error>,
    ) -> Result<T, Error> {
        let Some(place) = self.place(access)? else {
            // Nothing was ever stored; whatever the change makes of that, there is nothing to write.
            self.key().check()?;
            return match change(&mut Contents::new()?)? {
                Change::Made(answer) | Change::None(answer) => Ok(answer),
            };
        };
        let (master, contents) = self.load(&place)?;
        let mut contents = match contents {
            Some(contents) => contents,
            None => Contents::new()?,
        };
        contents.begin();
        let answer = match change(&mut contents)? {
            Change::Made(answer) => answer,
            Change::None(answer) => return Ok(answer),
        };
        // What is missing at the end of a file must not be written over with something that looks whole.
        self.check_whole(&contents)?;
        place.sweep(&[DRAFT, key::DRAFT])?;
        let master = match master {
            Some(master) => master,
            None => key::make(&place)?,
        };
        self.save(&place, &contents, &[&master])?;
        Ok(answer)
    }
}

/// Returns the time that people are shown.
fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| u64::try_from(since.as_millis()).ok())
        .unwrap_or(0)
}

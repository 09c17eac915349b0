//! The one row that says what all others must add up to.

use rusqlite::{Connection, params};

use crate::{
    fault::{Fault, corrupt},
    seal::{Sum, Tally},
};

/// What is known of the whole.
#[derive(Debug)]
pub(crate) struct Meta {
    /// The installation; also in its own file.
    pub(crate) install: String,
    /// How many writes there were that must never be lost.
    pub(crate) writes: i64,
    /// What the declarations of tables and indexes add up to.
    pub(crate) schema_sum: i64,
    /// What the records add up to.
    pub(crate) runs: Tally,
    /// What the attempts add up to.
    pub(crate) attempts: Tally,
}

impl Meta {
    fn sum(&self) -> i64 {
        Sum::new("meta")
            .text(&self.install)
            .number(self.writes)
            .number(self.schema_sum)
            .number(self.runs.count)
            .number(self.runs.mix)
            .number(self.attempts.count)
            .number(self.attempts.mix)
            .end()
    }
}

/// Reads the row.
pub(crate) fn load_meta(db: &Connection) -> Result<Meta, Fault> {
    let mut statement = db.prepare_cached(
        "SELECT install, writes, schema_sum, runs, runs_mix, attempts, attempts_mix, sum FROM meta WHERE one = 1",
    )?;
    let (meta, sum) = statement.query_row([], |row| {
        Ok((
            Meta {
                install: row.get(0)?,
                writes: row.get(1)?,
                schema_sum: row.get(2)?,
                runs: Tally {
                    count: row.get(3)?,
                    mix: row.get(4)?,
                },
                attempts: Tally {
                    count: row.get(5)?,
                    mix: row.get(6)?,
                },
            },
            row.get::<_, i64>(7)?,
        ))
    })?;
    if meta.sum() == sum {
        Ok(meta)
    } else {
        Err(corrupt("the row that describes the database is damaged").into())
    }
}

/// Writes the row.
pub(crate) fn store_meta(db: &Connection, meta: &Meta) -> Result<(), Fault> {
    db.prepare_cached(
        "INSERT OR REPLACE INTO meta (one, install, writes, schema_sum, runs, runs_mix, attempts, attempts_mix, sum)
         VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        meta.install,
        meta.writes,
        meta.schema_sum,
        meta.runs.count,
        meta.runs.mix,
        meta.attempts.count,
        meta.attempts.mix,
        meta.sum(),
    ])?;
    Ok(())
}

//! Writes down with what token the conversation of a run is gone on with.

use crate::{
    error::{Error, ErrorKind},
    id::RunId,
    shared::Shared,
    store::RunRecord,
};

/// How often a row that others write as well is read and written again.
const TRIES: u32 = 16;

/// Writes the token; whatever else is in the row stays, whoever wrote it meanwhile.
pub(crate) async fn remember(
    shared: &Shared,
    run: &RunId,
    token: &str,
) -> Result<RunRecord, Error> {
    let mut tries = 0;
    loop {
        let record = shared.record(run).await?;
        if record.resume_token.as_deref() == Some(token) {
            return Ok(record);
        }
        let told = RunRecord {
            resume_token: Some(token.to_owned()),
            ..record
        };
        tries += 1;
        match shared.parts.store.put(&told).await {
            Err(error) if error.kind() == ErrorKind::Conflict && tries < TRIES => {}
            written => return written,
        }
    }
}

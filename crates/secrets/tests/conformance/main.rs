//! The suite for stores of secrets against the encrypted file.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::TenantId,
    secret::{SecretId, SecretRef, SecretValue},
};
use groundcrew_secrets::{SealedConfig, SealedSecrets};
use groundcrew_testkit::conformance::{self, SecretsFixture};

const VALUE: &[u8] = b" \xff\x00 hunter2\n";
const THEIRS: &[u8] = b"theirs";

fn main() -> ExitCode {
    conformance::secrets_main(|ground| {
        let (name, tenant) = (SecretRef::new("api/key")?, TenantId::new("tenant")?);
        let (good, bad) = (
            ground.directory().join("good"),
            ground.directory().join("bad"),
        );
        for directory in [&good, &bad] {
            filled(directory.clone(), name.clone(), tenant.clone())?;
        }
        std::fs::write(bad.join("sealed"), "nothing that was ever sealed")
            .map_err(|e| Error::io("the store cannot be damaged", e))?;
        let open =
            |directory: PathBuf| SealedSecrets::open(SealedConfig::new(directory)).map(Arc::new);
        Ok(SecretsFixture::new(open(good)?, name, VALUE)
            .with_tenant(tenant, THEIRS)
            .with_damaged(open(bad)?))
    })
}

/// Fills a store on a thread of its own: whoever asks may be in a runtime already.
fn filled(directory: PathBuf, name: SecretRef, tenant: TenantId) -> Result<(), Error> {
    let fill = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Error::io("there is no runtime", e))?;
        runtime.block_on(async {
            let store = SealedSecrets::open(SealedConfig::new(directory))?;
            store
                .set(&name.clone().into(), SecretValue::new(VALUE))
                .await?;
            let theirs = SecretId::of_tenant(name, tenant);
            store.set(&theirs, SecretValue::new(THEIRS)).await.map(drop)
        })
    };
    let filled = std::thread::spawn(fill).join();
    filled.unwrap_or_else(|_| {
        Err(Error::new(
            ErrorKind::Panicked,
            "filling the store was given up",
        ))
    })
}

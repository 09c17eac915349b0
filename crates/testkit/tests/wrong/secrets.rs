//! Stores of secrets that are wrong on purpose.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use groundcrew_core::{
    async_trait,
    error::{Error, ErrorKind},
    id::TenantId,
    secret::{SecretRef, SecretScope, SecretStore, SecretValue},
};
use groundcrew_testkit::conformance::{self, Report, SecretsFixture};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    Trims,
    RevealsOnce,
    ForgetsTenants,
    MakesUpTheUnknown,
    MatchesParts,
    GivesTenantsOurs,
    SaysDamagedIsUnknown,
    ReplacesWhatIsDamaged,
}

#[derive(Debug)]
struct Store {
    fault: Fault,
    damaged: bool,
    asked: AtomicUsize,
}

const VALUE: &str = " hunter2\n";

#[async_trait]
impl SecretStore for Store {
    async fn reveal(
        &self,
        name: &SecretRef,
        scope: &SecretScope,
    ) -> Result<Option<SecretValue>, Error> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        if self.damaged {
            return match self.fault {
                Fault::SaysDamagedIsUnknown => Ok(None),
                Fault::ReplacesWhatIsDamaged if asked > 0 => Ok(None),
                _ => Err(Error::new(ErrorKind::Corrupt, "the key is damaged")),
            };
        }
        let value = |text: &str| Ok(Some(SecretValue::new(text)));
        let known = name.as_str() == "api/key";
        match scope.tenant.as_ref().map(TenantId::as_str) {
            None if known && self.fault == Fault::RevealsOnce && asked >= 3 => Ok(None),
            None if known && self.fault == Fault::Trims => value(VALUE.trim_end()),
            None if known => value(VALUE),
            None if self.fault == Fault::MatchesParts && name.as_str().starts_with("api/key") => {
                value(VALUE)
            }
            None if self.fault == Fault::MakesUpTheUnknown
                && name.as_str().starts_with("no-such") =>
            {
                value("")
            }
            Some("tenant") if known && self.fault != Fault::ForgetsTenants => value("theirs"),
            Some("a-stranger") if known && self.fault == Fault::GivesTenantsOurs => value(VALUE),
            _ => Ok(None),
        }
    }
}

async fn report(fault: Fault) -> Report {
    let store = move |damaged| {
        Arc::new(Store {
            fault,
            damaged,
            asked: AtomicUsize::new(0),
        })
    };
    conformance::secrets(move |_| {
        let name = SecretRef::new("api/key")?;
        Ok(SecretsFixture::new(store(false), name, VALUE)
            .with_tenant(TenantId::new("tenant")?, "theirs")
            .with_damaged(store(true)))
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_right_store_passes_and_each_wrong_one_fails_its_case() {
    let right = report(Fault::Nothing).await;
    assert!(right.certifies() && right.skipped().is_empty(), "{right}");
    for (fault, case) in [
        (Fault::ForgetsTenants, "known::a_tenant_has_its_own"),
        (Fault::MakesUpTheUnknown, "unknown::an_unknown_name_is_none"),
        (Fault::MatchesParts, "unknown::a_name_is_known_only_whole"),
        (
            Fault::GivesTenantsOurs,
            "unknown::what_is_the_installations_is_no_tenants",
        ),
        (
            Fault::ReplacesWhatIsDamaged,
            "damaged::a_damaged_store_is_not_replaced",
        ),
    ] {
        let report = report(fault).await;
        assert_eq!(report.failed(), [case], "{fault:?}: {report}");
    }
    // These are wrong in all that they say.
    for (fault, case) in [
        (Fault::Trims, "known::a_secret_is_revealed_byte_for_byte"),
        (
            Fault::RevealsOnce,
            "known::it_is_revealed_again_and_to_many_at_once",
        ),
        (
            Fault::SaysDamagedIsUnknown,
            "damaged::a_damaged_store_is_an_error",
        ),
    ] {
        let report = report(fault).await;
        assert!(report.failed().contains(&case), "{fault:?}: {report}");
    }
}

//! The suite for stores of secrets.

use std::{process::ExitCode, sync::Arc};

use futures_util::future::join_all;
use groundcrew_core::{
    error::Error,
    id::TenantId,
    secret::{SecretRef, SecretScope, SecretStore},
};

use super::{
    broken::{Broken, broken, hold},
    case::{self, Case},
    fixture::Need,
    place::{Ground, Land},
    report::Report,
    running,
    trial::{self, Standing, Suite, Trial},
};
use crate::polls::drop_after;

/// A store that holds one secret for the suite, and what else is known of it.
#[derive(Clone, Debug)]
pub struct SecretsFixture {
    store: Arc<dyn SecretStore>,
    name: SecretRef,
    value: Vec<u8>,
    tenant: Option<(TenantId, Vec<u8>)>,
    damaged: Option<Arc<dyn SecretStore>>,
    exceptions: Vec<(&'static str, &'static str)>,
}

impl SecretsFixture {
    /// Begins with a store in which that secret of the installation has that value.
    pub fn new(store: Arc<dyn SecretStore>, name: SecretRef, value: impl Into<Vec<u8>>) -> Self {
        Self {
            store,
            name,
            value: value.into(),
            tenant: None,
            damaged: None,
            exceptions: Vec::new(),
        }
    }

    /// Says that the secret of the same name of a tenant has that other value.
    #[must_use]
    pub fn with_tenant(mut self, tenant: TenantId, value: impl Into<Vec<u8>>) -> Self {
        self.tenant = Some((tenant, value.into()));
        self
    }

    /// Adds a store whose key or content is damaged, and which held the secret before.
    #[must_use]
    pub fn with_damaged(mut self, store: Arc<dyn SecretStore>) -> Self {
        self.damaged = Some(store);
        self
    }

    /// Says that a case is known not to hold, and why; it is run nevertheless, and fails once it holds.
    #[must_use]
    pub fn except(mut self, case: &'static str, why: &'static str) -> Self {
        self.exceptions.push((case, why));
        self
    }

    async fn reveal(
        &self,
        name: &SecretRef,
        scope: &SecretScope,
    ) -> Result<Option<Vec<u8>>, Broken> {
        let found = self.store.reveal(name, scope).await?;
        Ok(found.map(|value| value.expose().to_vec()))
    }
}

type Opening = Arc<dyn Fn(&Ground) -> Result<SecretsFixture, Error> + Send + Sync>;

/// The `main` of a test program that judges a store of secrets; see [`main`](super::main) for executors.
pub fn secrets_main(
    open: impl Fn(&Ground) -> Result<SecretsFixture, Error> + Send + Sync + 'static,
) -> ExitCode {
    running::run(suite(&(Arc::new(open) as Opening)))
}

/// Judges a store of secrets, one case after the other.
///
/// # Errors
///
/// When the store cannot be made.
pub async fn secrets(
    open: impl Fn(&Ground) -> Result<SecretsFixture, Error> + Send + Sync + 'static,
) -> Result<Report, Error> {
    Ok(suite(&(Arc::new(open) as Opening))?.judge_all().await)
}

fn suite(open: &Opening) -> Result<Suite, Error> {
    let land = Land::new()?;
    let fixture = open(land.ground())?;
    let standing = |case: &Case<SecretsFixture>| {
        let name = format!("secrets::{}", case.name);
        let excepted = fixture.exceptions.iter().find(|(case, _)| *case == name);
        match excepted {
            _ if case.needs.contains(&Need::Damage) && fixture.damaged.is_none() => {
                Standing::Lacking(Need::Damage)
            }
            Some((_, why)) => Standing::Excepted(why),
            None => Standing::Due,
        }
    };
    let trials = CASES.iter().map(|case| {
        let open = Arc::clone(open);
        Trial {
            name: format!("{}::{}", case.group, case.name),
            sentence: case.sentence,
            standing: standing(case),
            run: Box::new(move || {
                let open = Arc::clone(&open);
                Box::pin(trial::outcome(async move {
                    let land = Land::new()?;
                    let fixture = open(land.ground())?;
                    (case.run)(&fixture).await
                }))
            }),
        }
    });
    let report = Report {
        subject: ("secrets", format!("{:?}", fixture.store)),
        size: CASES.len(),
        ..Report::default()
    };
    Ok(Suite {
        trials: trials.collect(),
        report: report.into(),
    })
}

const CASES: &[Case<SecretsFixture>] = case::cases![
    known::a_secret_is_revealed_byte_for_byte: "reveals a value",
    known::it_is_revealed_again_and_to_many_at_once: "reveals a value, any number of times",
    known::a_reveal_that_is_broken_off_changes_nothing: "dropping a future loses nothing and changes nothing",
    known::a_tenant_has_its_own: "a tenant's secret is looked for among that tenant's only",
    unknown::an_unknown_name_is_none: "a name that the store does not know is `None`",
    unknown::a_name_is_known_only_whole: "a part of a name is another name",
    unknown::what_is_the_installations_is_no_tenants: "never among the installation's own, and the other way round",
    shown::nothing_that_is_shown_holds_a_value: "values are never shown",
    damaged::a_damaged_store_is_an_error [Damage]: "a damaged key or store is an error, and not unknown",
    damaged::a_damaged_store_is_not_replaced [Damage]: "nothing is replaced",
];

fn own() -> SecretScope {
    SecretScope::default()
}

fn of(tenant: TenantId) -> SecretScope {
    SecretScope {
        tenant: Some(tenant),
    }
}

mod known {
    use super::{Broken, SecretsFixture, TenantId, drop_after, hold, join_all, of, own};

    pub(super) async fn a_secret_is_revealed_byte_for_byte(
        it: &SecretsFixture,
    ) -> Result<(), Broken> {
        let found = it.reveal(&it.name, &own()).await?;
        hold!(
            found.as_ref() == Some(&it.value),
            "it is not what was stored"
        );
        Ok(())
    }

    pub(super) async fn it_is_revealed_again_and_to_many_at_once(
        it: &SecretsFixture,
    ) -> Result<(), Broken> {
        let scope = own();
        for found in join_all((0..8).map(|_| it.reveal(&it.name, &scope))).await {
            hold!(
                found?.as_ref() == Some(&it.value),
                "one of many gets something else"
            );
        }
        let found = it.reveal(&it.name, &scope).await?;
        hold!(
            found.as_ref() == Some(&it.value),
            "later it is something else"
        );
        Ok(())
    }

    pub(super) async fn a_reveal_that_is_broken_off_changes_nothing(
        it: &SecretsFixture,
    ) -> Result<(), Broken> {
        let scope = own();
        for waits in 0..6 {
            drop(drop_after(waits, it.store.reveal(&it.name, &scope)).await);
        }
        let found = it.reveal(&it.name, &scope).await?;
        hold!(
            found.as_ref() == Some(&it.value),
            "then it is something else"
        );
        Ok(())
    }

    pub(super) async fn a_tenant_has_its_own(it: &SecretsFixture) -> Result<(), Broken> {
        let (tenant, wanted) = match &it.tenant {
            Some((tenant, value)) => (tenant.clone(), Some(value)),
            None => (TenantId::new("some-tenant")?, None),
        };
        let found = it.reveal(&it.name, &of(tenant)).await?;
        hold!(
            found.as_ref() == wanted,
            "the tenant's secret is not what was stored"
        );
        Ok(())
    }
}

mod unknown {
    use super::{Broken, SecretRef, SecretsFixture, TenantId, hold, of, own};

    pub(super) async fn an_unknown_name_is_none(it: &SecretsFixture) -> Result<(), Broken> {
        let name = SecretRef::new("no-such/secret.of-the-suite")?;
        let found = it.reveal(&name, &own()).await?;
        hold!(found.is_none(), "a name that nobody stored has a value");
        Ok(())
    }

    pub(super) async fn a_name_is_known_only_whole(it: &SecretsFixture) -> Result<(), Broken> {
        for name in [
            format!("{}x", it.name),
            format!("{}/x", it.name),
            format!("x{}", it.name),
        ] {
            let found = it.reveal(&SecretRef::new(name.clone())?, &own()).await?;
            hold!(found.is_none(), "{name} has a value");
        }
        Ok(())
    }

    pub(super) async fn what_is_the_installations_is_no_tenants(
        it: &SecretsFixture,
    ) -> Result<(), Broken> {
        let found = it
            .reveal(&it.name, &of(TenantId::new("a-stranger")?))
            .await?;
        hold!(found.is_none(), "a tenant that has nothing gets a value");
        Ok(())
    }
}

mod shown {
    use super::{Broken, SecretsFixture, hold, own};

    pub(super) async fn nothing_that_is_shown_holds_a_value(
        it: &SecretsFixture,
    ) -> Result<(), Broken> {
        drop(it.reveal(&it.name, &own()).await?);
        let shown = format!("{:?}", it.store);
        let value = String::from_utf8_lossy(&it.value);
        hold!(
            !value.is_empty() && !shown.contains(&*value),
            "`Debug` shows the value"
        );
        Ok(())
    }
}

mod damaged {
    use super::{Broken, SecretsFixture, broken, own};

    pub(super) async fn a_damaged_store_is_an_error(it: &SecretsFixture) -> Result<(), Broken> {
        let Some(store) = &it.damaged else {
            broken!("there is no damaged store")
        };
        match store.reveal(&it.name, &own()).await {
            Err(_) => Ok(()),
            Ok(None) => broken!("what is damaged says that it does not know the name"),
            Ok(Some(_)) => broken!("what is damaged reveals a value"),
        }
    }

    pub(super) async fn a_damaged_store_is_not_replaced(it: &SecretsFixture) -> Result<(), Broken> {
        for _ in 0..3 {
            a_damaged_store_is_an_error(it).await?;
        }
        Ok(())
    }
}

//! `secret`: store, list, move and remove secrets; a value comes from standard input only, and is never shown.

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::TenantId,
    secret::{SecretId, SecretScope},
    undo::Undone,
};
use groundcrew_secrets::{Ending, SecretEntry, Stored};
use groundcrew_state::StateDirectory;
use rustix::process::{Resource, Rlimit};
use serde::Serialize;

use crate::{
    args::{
        Format, SecretArgs, SecretLsArgs, SecretMvArgs, SecretRmArgs, SecretSetArgs, SecretVerb,
    },
    documents::{Document, moment},
    exit,
    failing::Failing,
    program::Context,
    prompt,
};

/// A secret, without its value.
#[derive(Clone, Debug, Serialize)]
struct Secret {
    /// Its name.
    name: String,
    /// The tenant that owns it; none is the installation.
    tenant: Option<TenantId>,
    /// When it was first set, RFC 3339.
    created: String,
    /// When it was last set, RFC 3339.
    changed: String,
}

impl From<&SecretEntry> for Secret {
    fn from(entry: &SecretEntry) -> Self {
        Self {
            name: entry.id.name.to_string(),
            tenant: entry.id.scope.tenant.clone(),
            created: moment(entry.created_ms),
            changed: moment(entry.changed_ms),
        }
    }
}

/// The answer of `secret ls`.
#[derive(Clone, Debug, Serialize)]
struct Secrets {
    /// Each secret, by owner and name.
    secrets: Vec<Secret>,
}

/// The answer of the verbs that change something.
#[derive(Clone, Debug, Serialize)]
struct Changed {
    /// The name of the secret, now.
    name: String,
    /// Whose it is, now.
    tenant: Option<TenantId>,
    /// `created`, `replaced`, `removed` or `moved`.
    outcome: &'static str,
    /// What it was called, when it was moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Origin>,
}

/// What a secret was called, and whose it was.
#[derive(Clone, Debug, Serialize)]
struct Origin {
    name: String,
    tenant: Option<TenantId>,
}

/// Carries out one of the verbs.
///
/// # Errors
///
/// When the store or its key is damaged or cannot be reached, and as the verbs say.
pub(crate) async fn secret(context: &Context, args: &SecretArgs) -> Result<u8, Failing> {
    without_core_dumps();
    match &args.verb {
        SecretVerb::Set(args) => set(context, args).await,
        SecretVerb::Ls(args) => ls(context, args).await,
        SecretVerb::Rm(args) => rm(context, args).await,
        SecretVerb::Mv(args) => mv(context, args).await,
    }
}

/// F145: a value that we hold must not end up in a `core` file in somebody's working directory.
fn without_core_dumps() {
    let now = rustix::process::getrlimit(Resource::Core);
    let none = Rlimit {
        current: Some(0),
        ..now
    };
    // Lowering one's own limit is always allowed.
    let _lowered = rustix::process::setrlimit(Resource::Core, none);
}

fn id(name: &groundcrew_core::secret::SecretRef, tenant: Option<&TenantId>) -> SecretId {
    SecretId {
        name: name.clone(),
        scope: SecretScope {
            tenant: tenant.cloned(),
        },
    }
}

/// Stores a value.
async fn set(context: &Context, args: &SecretSetArgs) -> Result<u8, Failing> {
    let id = id(&args.name, args.tenant.as_ref());
    if args.name.is_runtime() {
        // Before anybody types a value in vain.
        return Err(Failing::usage(format!(
            "`{}` cannot be set: names that begin with `runtime/` are kept for the tokens of runs",
            args.name
        )));
    }
    let store = context.secrets()?;
    let value = if context.surroundings.terminals.input {
        if args.raw {
            return Err(Failing::usage(
                "--raw needs standard input that is no terminal; give the value through a pipe or from a file",
            ));
        }
        prompt::ask(&context.console, &id.to_string()).await?
    } else {
        let ending = if args.raw {
            Ending::Keep
        } else {
            Ending::DropNewline
        };
        prompt::read(ending).await?
    };
    let home = context.surroundings.state_directory()?;
    // The state directory is checked and made as every other verb does it.
    let opened = tokio::task::spawn_blocking(move || StateDirectory::open(&home)).await;
    drop(opened.map_err(|error| {
        Error::new(ErrorKind::Panicked, "opening the state directory broke off").with_source(error)
    })??);
    let outcome = match store.set(&id, value).await? {
        Stored::Created => "created",
        Stored::Replaced => "replaced",
    };
    tell(context, &id, outcome, None);
    Ok(exit::DONE)
}

/// Lists names.
async fn ls(context: &Context, args: &SecretLsArgs) -> Result<u8, Failing> {
    let console = &context.console;
    let scope = SecretScope {
        tenant: args.tenant.clone(),
    };
    let scope = (!args.all).then_some(&scope);
    let entries = context.secrets()?.list(scope).await?;
    if console.format == Format::Human {
        for line in table(&entries) {
            console.result(&line);
        }
        if entries.is_empty() {
            console.note(if args.all {
                "no secrets"
            } else {
                "no secrets; --tenant or --all lists those of tenants"
            });
        }
    }
    let secrets = entries.iter().map(Secret::from).collect();
    console.document(&Document::new(Secrets { secrets }));
    Ok(exit::DONE)
}

/// Makes a table: name, owner, times. Names and tenants hold nothing that a terminal would obey.
fn table(entries: &[SecretEntry]) -> Vec<String> {
    if entries.is_empty() {
        return Vec::new();
    }
    let mut rows = vec![["NAME", "TENANT", "CREATED", "CHANGED"].map(str::to_owned)];
    rows.extend(entries.iter().map(|entry| {
        let tenant = entry.id.scope.tenant.as_ref();
        [
            entry.id.name.to_string(),
            tenant.map_or_else(|| "-".to_owned(), ToString::to_string),
            moment(entry.created_ms),
            moment(entry.changed_ms),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let (name, tenant, created) = (width(0), width(1), width(2));
    rows.iter()
        .map(|row| {
            let [a, b, c, d] = row;
            format!("{a:name$}  {b:tenant$}  {c:created$}  {d}")
        })
        .collect()
}

/// Removes a secret.
async fn rm(context: &Context, args: &SecretRmArgs) -> Result<u8, Failing> {
    let id = id(&args.name, args.tenant.as_ref());
    if context.secrets()?.remove(&id).await? == Undone::AlreadyGone {
        return Err(Error::new(
            ErrorKind::NotFound,
            "there is no such secret; `groundcrew secret ls --all` lists all",
        )
        .with("secret", id)
        .into());
    }
    tell(context, &id, "removed", None);
    Ok(exit::DONE)
}

/// Moves a secret.
async fn mv(context: &Context, args: &SecretMvArgs) -> Result<u8, Failing> {
    let from = id(&args.name, args.tenant.as_ref());
    let tenant = if args.to_installation {
        None
    } else {
        args.to_tenant.as_ref().or(args.tenant.as_ref())
    };
    let to = id(&args.new, tenant);
    context.secrets()?.rename(&from, &to).await?;
    tell(context, &to, "moved", Some(&from));
    Ok(exit::DONE)
}

fn tell(context: &Context, id: &SecretId, outcome: &'static str, from: Option<&SecretId>) {
    let console = &context.console;
    console.result(&match from {
        Some(from) => format!("{outcome} {from} to {id}"),
        None => format!("{outcome} {id}"),
    });
    console.document(&Document::new(Changed {
        name: id.name.to_string(),
        tenant: id.scope.tenant.clone(),
        outcome,
        from: from.map(|from| Origin {
            name: from.name.to_string(),
            tenant: from.scope.tenant.clone(),
        }),
    }));
}

//! The words of `secret`; no value is among them.

use clap::{Args, Subcommand};
use groundcrew_core::{id::TenantId, secret::SecretRef};

/// Arguments of `secret`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SecretArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: SecretVerb,
}

/// What to do with secrets.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SecretVerb {
    /// Store a value, read from standard input; an earlier one of that name is replaced.
    ///
    /// At a terminal it asks for one line and does not show it. Otherwise the value is all of standard input, less one
    /// newline at its end. A value is 1 byte to 1 MiB, and any bytes.
    Set(SecretSetArgs),
    /// List names; values are never shown.
    Ls(SecretLsArgs),
    /// Remove a secret.
    Rm(SecretRmArgs),
    /// Give a secret another name or owner; never one that is taken.
    Mv(SecretMvArgs),
}

/// Arguments of `secret set`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SecretSetArgs {
    /// Tenant that owns it [default: the installation itself].
    #[arg(long, value_name = "ID")]
    pub tenant: Option<TenantId>,
    /// Keep a newline at the end of standard input.
    #[arg(long)]
    pub raw: bool,
    /// Name, such as openai/api-key.
    #[arg(value_name = "NAME", value_parser = secret_name)]
    pub name: SecretRef,
}

/// Arguments of `secret ls`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SecretLsArgs {
    /// List those of a tenant [default: those of the installation itself].
    #[arg(long, value_name = "ID", conflicts_with = "all")]
    pub tenant: Option<TenantId>,
    /// List those of the installation and of all tenants.
    #[arg(long, short = 'a')]
    pub all: bool,
}

/// Arguments of `secret rm`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SecretRmArgs {
    /// Tenant that owns it [default: the installation itself].
    #[arg(long, value_name = "ID")]
    pub tenant: Option<TenantId>,
    /// Name.
    #[arg(value_name = "NAME", value_parser = secret_name)]
    pub name: SecretRef,
}

/// Arguments of `secret mv`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SecretMvArgs {
    /// Tenant that owns it [default: the installation itself].
    #[arg(long, value_name = "ID")]
    pub tenant: Option<TenantId>,
    /// Tenant that will own it [default: its owner].
    #[arg(long, value_name = "ID", conflicts_with = "to_installation")]
    pub to_tenant: Option<TenantId>,
    /// The installation itself will own it.
    #[arg(long)]
    pub to_installation: bool,
    /// Name.
    #[arg(value_name = "NAME", value_parser = secret_name)]
    pub name: SecretRef,
    /// New name; the old one if only the owner changes.
    #[arg(value_name = "NEW", value_parser = secret_name)]
    pub new: SecretRef,
}

/// Reads the name of a secret.
fn secret_name(text: &str) -> Result<SecretRef, String> {
    SecretRef::new(text).map_err(|error| error.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        secret: SecretArgs,
    }

    fn parse(words: &[&str]) -> Result<SecretVerb, String> {
        let words = std::iter::once("secret").chain(words.iter().copied());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(line.secret.verb)
    }

    #[test]
    fn f142_a_value_is_no_word_of_the_command_line() {
        assert!(matches!(parse(&["set", "a/b"]), Ok(SecretVerb::Set(_))));
        for words in [
            &["set", "a", "v"][..],
            &["set", "a=v"],
            &["set", "a", "--value", "v"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn f062_names_and_tenants_that_are_none_are_refused() {
        for words in [
            &["set"][..],
            &["set", ""],
            &["set", "../a"],
            &["rm", "a//b"],
            &["mv", "a"],
            &["mv", "a", "b c"],
            &["ls", "a"],
            &["ls", "--tenant", "a/b"],
            &["ls", "--tenant", "a", "--all"],
            &["mv", "a", "b", "--to-tenant", "t", "--to-installation"],
            &["set", "a", "--tenant", ""],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
        assert!(
            parse(&["rm", "a b"])
                .unwrap_err()
                .contains("letters, digits")
        );
    }
}

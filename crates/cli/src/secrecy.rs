//! Which values had better not be shown: a guess by name and by look, rather once too often.
//!
//! It guards what is printed for people and programs; what is really secret is a secret by reference and never gets here.

/// Parts of a name that give it away wherever they stand.
const ANYWHERE: [&str; 9] = [
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "APIKEY",
    "PRIVATEKEY",
    "GIT_CONFIG_VALUE",
];

/// Words of a name that give it away when they stand alone between other signs: `AUTH` does, `AUTHOR` does not.
const WORDS: [&str; 13] = [
    "KEY",
    "KEYS",
    "PASS",
    "PW",
    "PWD",
    "AUTH",
    "COOKIE",
    "COOKIES",
    "PRIVATE",
    "DSN",
    "CREDS",
    "SIGNATURE",
    "CONNECTION",
];

/// What secrets of well-known makers begin with.
const BEGINNINGS: [&str; 14] = [
    "-----BEGIN ",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "sk-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "ASIA",
    "AIza",
    "eyJ",
];

/// Returns whether a value could be a secret, by the variable's name or by what it looks like.
pub(crate) fn may_be_secret(name: &[u8], value: &[u8]) -> bool {
    let name = name.to_ascii_uppercase();
    let holds = |text: &[u8], part: &[u8]| text.windows(part.len()).any(|found| found == part);
    let named = ANYWHERE.iter().any(|part| holds(&name, part.as_bytes()))
        || name
            .split(|b| !b.is_ascii_alphanumeric())
            .any(|word| WORDS.iter().any(|known| known.as_bytes() == word));
    let begins = BEGINNINGS
        .iter()
        .any(|beginning| value.starts_with(beginning.as_bytes()));
    // A URL with a user in it usually has the password there as well.
    let url = holds(value, b"://") && value.contains(&b'@');
    let lower = value.to_ascii_lowercase();
    let pairs = ["password=", "pwd=", "token=", "secret=", "authorization:"];
    let told = pairs.iter().any(|pair| holds(&lower, pair.as_bytes()));
    named || begins || url || told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f144_what_may_be_secret_is_recognised() {
        for (name, value) in [
            ("OPENAI_API_KEY", "x"),
            ("github_token", "x"),
            ("PGPASSWORD", "x"),
            ("NPM_TOKEN", "x"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("AWS_SESSION_TOKEN", "x"),
            ("DB_PASS", "x"),
            ("DOCKER_AUTH", "x"),
            ("SENTRY_DSN", "x"),
            ("GIT_CONFIG_VALUE_0", "AUTHORIZATION: basic x"),
            ("HTTPS_PROXY", "http://u:p@h:1"),
            ("DATABASE_URL", "postgres://u:p@h/d"),
            ("X", "ghp_abcdef"),
            ("X", "-----BEGIN RSA PRIVATE KEY-----"),
            ("X", "Server=h;Password=x"),
        ] {
            assert!(may_be_secret(name.as_bytes(), value.as_bytes()), "{name}");
        }
    }

    #[test]
    fn what_is_harmless_is_shown() {
        for (name, value) in [
            ("EDITOR", "vi"),
            ("HTTPS_PROXY", "http://h:1"),
            ("GIT_AUTHOR_NAME", "a"),
            ("GIT_AUTHOR_EMAIL", "a@b.c"),
            ("XDG_SESSION_ID", "3"),
            ("SSL_CERT_FILE", "/etc/ssl"),
            ("KEYBOARD", "de"),
            ("PATH", "/bin"),
            ("COMPASS", "north"),
        ] {
            assert!(!may_be_secret(name.as_bytes(), value.as_bytes()), "{name}");
        }
    }
}

//! Detection of environment variables that hold secrets, by name and by value.
//!
//! ```
//! use endstop_wire::redact::is_secret_variable;
//! assert!(is_secret_variable("TOKEN_GITHUB", "abc"));
//! assert!(is_secret_variable("DATABASE_URL", "postgres://app:Zk93-xQ71mmP@db/app"));
//! assert!(!is_secret_variable("DATABASE_URL", "postgres://db/app"));
//! assert!(!is_secret_variable("SSH_AUTH_SOCK", "/run/ssh.sock"));
//! ```
//!
//! A name is split into words at underscores, dashes, dots, and between lower case and a capital
//! (`npmAuthToken`). One secret word anywhere is enough: `TOKEN_GITHUB`, `GITHUB_TOKEN_RW`.

use super::entropy::is_random;
use super::formats::GUARD;
use super::names::unescaped;
use super::patterns;
use super::secret_names::{ADDRESSES, DESCRIBES, is_public, is_secret_name, secret_word, words};
use super::value::{Needle, needles};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use std::borrow::Cow;

/// Words in names of variables that are often numbers or switches, such as `MAX_TOKENS` and
/// `USE_AUTH`.
const COUNTED: [&str; 9] =
    ["AUTH", "COOKIE", "COOKIES", "KEY", "KEYS", "OAUTH", "PASS", "TOKEN", "TOKENS"];

/// Returns `true` if a variable holds a secret, according to its name or to the format of its
/// value.
pub fn is_secret_variable(name: &str, value: &str) -> bool {
    let words = words(name);
    if words.is_empty() {
        return has_credential(value);
    }
    let by_value = || has_credential(value);
    match secret_word(&words) {
        None => by_value(),
        Some(word) => {
            let last = words.last().map_or("", String::as_str);
            let plain = value.trim();
            if is_public(&words) {
                return by_value();
            }
            if DESCRIBES.contains(&last) {
                return by_value() || is_random(plain) && !plain.contains('/');
            }
            let is_named_address = ["WEBHOOK", "WEBHOOKS", "DSN"].contains(&word);
            if ADDRESSES.contains(&last) && !is_named_address {
                return by_value() || !plain.contains("://") && is_random(plain);
            }
            // `PWD` and `OLDPWD` hold the shell's directory, and programs set copies of them.
            if word == "PWD" && plain.starts_with('/') {
                return by_value();
            }
            !(COUNTED.contains(&word) && is_number_or_switch(plain))
        }
    }
}

/// Returns the needles of a variable, or nothing if it holds no secret.
pub(super) fn needles_of(name: &str, value: &str) -> Vec<Needle> {
    if is_headers(name) {
        return of_headers(value);
    }
    let mut found = if is_secret_variable(name, value) { needles(value, 0) } else { Vec::new() };
    if name.to_ascii_uppercase().ends_with("_PROXY") {
        found.extend(of_proxy(value));
    }
    found
}

/// Minimum length of a proxy's credential that is removed. A shorter one is a part of too many words.
const SHORTEST_LOGIN: usize = 6;

/// Collects the credentials in the address of a proxy: the password, and user and password as they
/// are written and sent. A server may echo the header with them.
///
/// Other passwords that are words are not removed, because they may be any word of an answer. The
/// address says that this one is a password, and it is sent with the requests.
pub(super) fn of_proxy(address: &str) -> Vec<Needle> {
    let rest = address.trim();
    let rest = rest.split_once("://").map_or(rest, |(_, rest)| rest);
    // A password may contain an unescaped `@` or slash, so split at the last `@`.
    let login = rest.rsplit_once('@').and_then(|(login, _)| login.split_once(':'));
    let Some((user, password)) = login.filter(|(_, password)| !password.is_empty()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (user, password) in
        [(user.to_owned(), password.to_owned()), (unescaped(user), unescaped(password))]
    {
        let both = format!("{user}:{password}");
        let sent = STANDARD_NO_PAD.encode(&both);
        for text in [password, both, sent] {
            if text.len() >= SHORTEST_LOGIN {
                found.push(Needle { bytes: text.into_bytes(), whole: true });
            }
        }
    }
    found
}

/// `true` for values such as `4096`, `true` and `off`.
fn is_number_or_switch(value: &str) -> bool {
    let number = value.len() <= 7 && value.parse::<f64>().is_ok();
    let switches = ["", "true", "false", "yes", "no", "on", "off", "auto", "always", "never"];
    number || switches.iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// Returns `true` if a value contains a credential by its format: a key, a URL with a password, or
/// a connection string.
fn has_credential(value: &str) -> bool {
    let value = &*without_guard(value);
    if patterns::is_in(value.as_bytes()) {
        return true;
    }
    if let Some((_, rest)) = value.split_once("://") {
        // Any password in a URL counts, even an ordinary word.
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        return user.is_some_and(|user| {
            user.split_once(':').is_some_and(|(_, password)| !password.is_empty())
        }) || !needles(value, 0).is_empty();
    }
    value.contains(';')
        && value.split(';').filter_map(|pair| pair.split_once('=')).any(|(name, value)| {
            !value.trim().is_empty() && is_secret_name(name.trim())
                || ["pwd", "pw"].iter().any(|word| name.trim().eq_ignore_ascii_case(word))
        })
}

/// Removes the secret of guard's address. It is redacted, but the address is not withheld: without it, the
/// model calls of a command would not pass through guard.
fn without_guard(value: &str) -> Cow<'_, str> {
    let mut value = Cow::Borrowed(value);
    for at in patterns::find(value.clone().as_bytes()).into_iter().rev() {
        if value[at.clone()].starts_with(GUARD) {
            value.to_mut().replace_range(at, "");
        }
    }
    value
}

/// Returns `true` if a variable holds headers for a telemetry collector, which include a key.
pub(super) fn is_headers(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    name.starts_with("OTEL_EXPORTER_OTLP_") && name.ends_with("HEADERS")
}

/// Collects the keys of `name=value,…`, as they are written and as they are sent. The scheme before
/// a key (`Bearer%20KEY`) is left out, because it is an ordinary word.
///
/// A header that names a tenant or a data set is not a key, because its value is a word of the
/// user's choice.
fn of_headers(list: &str) -> Vec<Needle> {
    const NAMES: [&str; 9] =
        ["auth", "key", "token", "secret", "password", "cred", "license", "dsn", "team"];
    let mut found = Vec::new();
    for (name, value) in list.split(',').filter_map(|pair| pair.split_once('=')) {
        let name = name.to_ascii_lowercase();
        if NAMES.iter().any(|word| name.contains(word)) {
            let written = value.trim().rsplit("%20").next().unwrap_or_default();
            found.extend(needles(written, 1));
            let sent = unescaped(written);
            if sent != written {
                found.extend(needles(sent.rsplit(' ').next().unwrap_or_default(), 1));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value that matches no format and no rule.
    const PLAIN: &str = "w";

    #[test]
    fn address_of_guard_is_redacted_but_not_withheld() {
        let url = "http://127.0.0.1:4000/endstop_guard_0123456789abcdef0123456789abcdef/run/r1/v1";
        assert_eq!(crate::redact::secrets_out(url), "http://127.0.0.1:4000/[redacted]/run/r1/v1");
        for value in [url.to_owned(), format!(r#"{{"options":{{"baseURL":"{url}"}}}}"#)] {
            assert!(!is_secret_variable("OPENAI_BASE_URL", &value), "{value}");
            let both = format!("{value} sk-proj-4fQ9xTz71LmN0pWv");
            assert!(is_secret_variable("OPENAI_BASE_URL", &both), "{both}");
        }
        assert!(is_secret_variable("API_KEY", url));
        // The name of a tool or a file is not such an address.
        let name = "endstop_guard_settings and endstop_guard_2";
        assert_eq!(crate::redact::secrets_out(name), name);
    }

    #[test]
    fn names_with_secret_words_are_secret() {
        for name in [
            "ANTHROPIC_API_KEY",
            "OPENAI_KEY",
            "GITHUB_TOKEN",
            "TOKEN",
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "AWS_BEARER_TOKEN_BEDROCK",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "CLOUDSDK_AUTH_ACCESS_TOKEN",
            "AZURE_OPENAI_AD_TOKEN",
            "PGPASSWORD",
            "my_secret",
            "GH_PAT",
            "SSH_PASSPHRASE",
            "TOKEN_GITHUB",
            "GITHUB_TOKEN_RW",
            "GITHUB_PAT_2",
            "KEY_OPENAI",
            "ENCRYPTION_KEYS",
            "GPG_PRIVATE_KEY_B64",
            "SIGNING_KEY_PEM",
            "NPM_CONFIG__AUTH",
            "npm_config_//registry.example/:_authToken",
            "BASIC_AUTH",
            "SESSION_COOKIE",
            "CI_JOB_JWT",
            "AZURE_STORAGE_CONNECTION_STRING",
            "SLACK_WEBHOOK_URL",
            "SENTRY_DSN",
            "DOCKER_AUTH_CONFIG",
            "DB_PW",
            "LDAP_BIND_PW",
            "STRIPE_SK",
            "VAULT_UNSEAL",
            "MYSQL_PWD",
            "REDISCLI_AUTH",
            "SSHPASS",
            "NGROK_AUTHTOKEN",
            "dbPassword",
            "app.secret-key",
            "TOKEN2",
            "PASSWORD_1",
            "KEYS",
            "BW_SESSION_KEY",
            "SECRETS_JSON",
            "TF_VAR_admin_password",
            "ConnectionStrings__Main",
        ] {
            assert!(is_secret_variable(name, PLAIN), "{name}");
        }
    }

    #[test]
    fn harmless_names_are_not_secret() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h:4318"),
            ("PATH", "/bin"),
            ("HOME", "/root"),
            ("PWD", "/work"),
            ("OLDPWD", "/"),
            ("MAX_TOKENS", "4096"),
            ("TOKENIZERS_PARALLELISM", "false"),
            ("KEYBOARD", "de"),
            ("KEYBOARD_LAYOUT", "de"),
            ("KEYMAP", "us"),
            ("KEY_REPEAT", "30"),
            ("MONKEY", "george"),
            ("SECRETARY", "alice"),
            ("AUTHOR", "Alice"),
            ("GIT_AUTHOR_NAME", "Alice"),
            ("GIT_AUTHOR_EMAIL", "a@example.com"),
            ("XAUTHORITY", "/root/.Xauthority"),
            ("GPG_TTY", "/dev/pts/0"),
            ("GPG_AGENT_INFO", "/run/gpg:0:1"),
            ("PASSWORD_STORE_DIR", "/root/.pass"),
            ("SSH_ASKPASS", "/usr/bin/ask"),
            ("SSH_AUTH_SOCK", "/run/ssh.sock"),
            ("SSH_AGENT_PID", "77"),
            ("XDG_SESSION_TYPE", "tty"),
            ("XDG_SESSION_ID", "c2"),
            ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/bus"),
            ("COLORTERM", "truecolor"),
            ("SSH_KEY_PATH", "/root/.ssh/id"),
            ("POSTGRES_PASSWORD_FILE", "/run/secrets/pw"),
            ("AUTH_METHOD", "oidc"),
            ("USE_AUTH", "true"),
            ("TOKEN_TTL", "3600"),
            ("TOKEN_URL", "https://auth.example.com/oauth/token"),
            ("DATABASE_URL", "postgres://db:5432/app"),
            ("HTTPS_PROXY", "http://proxy.example:3128"),
            ("SSH_PUBLIC_KEY", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 me"),
            ("COMPASS_HOME", "/opt/compass"),
            ("BYPASS", "1"),
            ("PATTERN", "x"),
            ("HISTIGNORE", "ls"),
        ] {
            assert!(!is_secret_variable(name, value), "{name}");
        }
    }

    #[test]
    fn values_with_credentials_are_secret() {
        for (name, value) in [
            ("DATABASE_URL", "postgres://app:app@db/app"),
            ("REDIS_URL", "redis://:Zk93-xQ71mmP@cache:6379"),
            ("HTTPS_PROXY", "http://me:pw@proxy:3128"),
            ("STORAGE", "AccountName=a;AccountKey=Zk93xQ71mmPqZk93xQ71mmPq==;"),
            ("DB", "Server=db;User=app;Pwd=w;"),
            ("DEPLOY", "ghp_abcdefghijklmnopqrstuvwxyzABCDEFGHIJ"),
            ("CERT", "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----"),
            (
                "NOTIFY",
                "https://hooks.slack.com/services/T0AB12CD3/B0AB12CD3/4fQ9xTz71LmN0pWv8aBcDeFg",
            ),
        ] {
            assert!(is_secret_variable(name, value), "{name}");
        }
    }

    #[test]
    fn proxy_login_is_found_even_if_a_word() {
        let known = |name, value| -> Vec<String> {
            let found = needles_of(name, value).into_iter();
            found.map(|needle| String::from_utf8(needle.bytes).unwrap()).collect()
        };
        let both = ["swordfish", "me:swordfish", "bWU6c3dvcmRmaXNo"];
        for name in ["HTTPS_PROXY", "http_proxy", "ALL_PROXY", "BUILD_PROXY"] {
            for value in ["http://me:swordfish@h:3128", "me:swordfish@h:3128"] {
                let known = known(name, value);
                assert!(both.iter().all(|form| known.iter().any(|one| one == form)), "{known:?}");
            }
        }
        let escaped = known("HTTP_PROXY", "http://me:sword%20fish@h");
        assert!(escaped.contains(&"sword fish".to_owned()), "{escaped:?}");
        for value in ["http://h:3128", "http://me@h", "http://me:@h", "localhost,.example.com"] {
            assert!(known("NO_PROXY", value).is_empty(), "{value}");
        }
        // Too short to be searched for alone.
        assert_eq!(known("HTTP_PROXY", "http://me:pw@h").len(), 2);
        assert!(known("DATABASE_URL", "postgres://app:postgres@db").is_empty());
    }

    #[test]
    fn header_keys_are_found_both_ways() {
        let list =
            "authorization=Bearer%20abc1%2Bdef2gh3, x-team = k%zz%1k%zz%1,x-dataset=mine,nothing";
        let known: Vec<String> = of_headers(list)
            .into_iter()
            .filter(|needle| !needle.whole)
            .map(|needle| String::from_utf8(needle.bytes).unwrap())
            .collect();
        assert_eq!(known, ["abc1%2Bdef2gh3", "abc1+def2gh3", "k%zz%1k%zz%1"]);
    }
}

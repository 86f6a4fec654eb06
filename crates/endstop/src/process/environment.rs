//! Which variables of the environment a command does not get to see.
//!
//! A command that a model wrote has no need of the key that pays for the model. Variables whose
//! *name* looks like that of a secret are therefore not handed on, unless they are allowed by
//! name. This keeps secrets out of what a command prints by accident; it is no wall: a command of
//! the same user can still read the files and the processes of that user.

use endstop_wire::redact::KnownKeys;

/// The variables of this process that a command must not get.
pub(super) fn withheld(allowed: &[String]) -> Vec<std::ffi::OsString> {
    std::env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| {
            let name = name.to_string_lossy();
            looks_secret(&name) && !allowed.iter().any(|allowed| *allowed == name)
        })
        .collect()
}

/// The values of this process's variables whose names look like those of secrets: what a journal or
/// a log must not have.
pub(super) fn secrets() -> KnownKeys {
    let mut secrets = Vec::new();
    for (name, value) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if is_headers(&name) {
            secrets.extend(of_headers(&value.to_string_lossy()));
        // A path to a file of credentials is none.
        } else if looks_secret(&name) && !std::path::Path::new(&value).exists() {
            secrets.push(value.into_encoded_bytes());
        }
    }
    KnownKeys::new(secrets)
}

/// Whether a variable has the headers that go to a collector of telemetry: a key is among them.
fn is_headers(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    name.starts_with("OTEL_EXPORTER_OTLP_") && name.ends_with("HEADERS")
}

/// The keys in `name=value,…`: as they stand, and as they are sent; without the scheme before a key
/// (`Bearer%20KEY`), which is a word like any other.
///
/// A header that names a tenant or a data set is no key: its value is a word of the user's own.
fn of_headers(list: &str) -> Vec<Vec<u8>> {
    const NAMES: [&str; 9] =
        ["auth", "key", "token", "secret", "password", "cred", "license", "dsn", "team"];
    let mut keys = Vec::new();
    for (name, value) in list.split(',').filter_map(|pair| pair.split_once('=')) {
        let name = name.to_ascii_lowercase();
        if NAMES.iter().any(|word| name.contains(word)) {
            let stands = value.trim().rsplit("%20").next().unwrap_or_default();
            keys.push(stands.as_bytes().to_vec());
            let sent: Vec<u8> = percent_encoding::percent_decode_str(stands).collect();
            keys.push(sent.rsplit(|byte| *byte == b' ').next().unwrap_or_default().to_vec());
        }
    }
    keys
}

/// Whether a variable's name looks like that of a secret.
///
/// Whole words of the name count (`GITHUB_TOKEN`, not `MAX_TOKENS`), but for the words that are
/// glued to others in practice (`PGPASSWORD`).
pub(super) fn looks_secret(name: &str) -> bool {
    const WORDS: [&str; 9] =
        ["TOKEN", "KEY", "APIKEY", "PAT", "PWD", "PASS", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS"];
    const ANYWHERE: [&str; 6] =
        ["SECRET", "PASSWORD", "PASSWD", "APIKEY", "API_KEY", "BEARER_TOKEN"];
    let name = name.to_ascii_uppercase();
    // The shell's own: where it is and was.
    if name == "PWD" || name == "OLDPWD" {
        return false;
    }
    let last = name.rsplit('_').next().unwrap_or_default();
    WORDS.contains(&last)
        || ANYWHERE.iter().any(|word| name.contains(word))
        || name.contains("ACCESS_KEY")
        || name.contains("CREDENTIALS")
        || is_headers(&name)
}

#[cfg(test)]
mod tests {
    use super::{looks_secret, of_headers};

    #[test]
    fn names_of_secrets_are_told_from_others() {
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
            "OTEL_EXPORTER_OTLP_HEADERS",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        ] {
            assert!(looks_secret(name), "{name}");
        }
        for name in [
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "PATH",
            "HOME",
            "PWD",
            "OLDPWD",
            "MAX_TOKENS",
            "TOKENIZERS_PARALLELISM",
            "KEYBOARD",
        ] {
            assert!(!looks_secret(name), "{name}");
        }
    }

    #[test]
    fn the_keys_of_headers_are_known_as_they_stand_and_as_they_are_sent() {
        let list = "authorization=Bearer%20abc%2Bdef, x-team = k%zz%1,x-dataset=mine,nothing";
        let known: Vec<String> =
            of_headers(list).into_iter().map(|key| String::from_utf8(key).unwrap()).collect();
        assert_eq!(known, ["abc%2Bdef", "abc+def", "k%zz%1", "k%zz%1"]);
    }
}

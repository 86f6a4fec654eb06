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
    let values = std::env::vars_os().filter(|(name, value)| {
        // A path to a file of credentials is none.
        looks_secret(&name.to_string_lossy()) && !std::path::Path::new(value).exists()
    });
    KnownKeys::new(values.map(|(_, value)| value.into_encoded_bytes()))
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
}

#[cfg(test)]
mod tests {
    use super::looks_secret;

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
        ] {
            assert!(looks_secret(name), "{name}");
        }
        for name in
            ["PATH", "HOME", "PWD", "OLDPWD", "MAX_TOKENS", "TOKENIZERS_PARALLELISM", "KEYBOARD"]
        {
            assert!(!looks_secret(name), "{name}");
        }
    }
}

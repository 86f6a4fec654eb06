//! Names that show that a value is a secret: words between underscores and between cases.

/// Words in the names of secrets.
const WORDS: [&str; 44] = [
    "AUTHKEY",
    "ACCESSKEY",
    "APIKEY",
    "APIKEYS",
    "AUTH",
    "AUTHORIZATION",
    "BEARER",
    "COOKIE",
    "COOKIES",
    "CRED",
    "CREDENTIAL",
    "CREDENTIALS",
    "CREDS",
    "DSN",
    "JWT",
    "KEY",
    "KEYS",
    "MNEMONIC",
    "OAUTH",
    "OTP",
    "PASS",
    "PASSCODE",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "PASSWORDS",
    "PAT",
    "PEM",
    "PRIVATEKEY",
    "PW",
    "SAS",
    "SECRET",
    "SECRETKEY",
    "SECRETS",
    "SK",
    "SSHPASS",
    "TOKEN",
    "TOKENS",
    "TOTP",
    "UNSEAL",
    "WEBHOOK",
    "WEBHOOKS",
    "CONNSTR",
    "PRIVKEY",
];

/// Words that are often joined to the previous word, as in `PGPASSWORD` and `NGROK_AUTHTOKEN`.
const ENDINGS: [&str; 12] = [
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "SECRET",
    "SECRETS",
    "TOKEN",
    "APIKEY",
    "ACCESSKEY",
    "PRIVATEKEY",
    "SECRETKEY",
    "CREDENTIALS",
    "WEBHOOK",
];

/// Last words of names of variables that describe a secret or contain its location.
pub(super) const DESCRIBES: [&str; 40] = [
    "AGENT",
    "ALGO",
    "ALGORITHM",
    "BACKEND",
    "COUNT",
    "DIR",
    "DIRS",
    "DISABLED",
    "ENABLED",
    "EXPIRES",
    "EXPIRY",
    "FILE",
    "FILES",
    "FOLDER",
    "FORMAT",
    "LAYOUT",
    "LEN",
    "LENGTH",
    "LIFETIME",
    "LIMIT",
    "METHOD",
    "METHODS",
    "MODE",
    "NAME",
    "PATH",
    "PATHS",
    "POLICY",
    "PREFIX",
    "PROVIDER",
    "REGION",
    "SIZE",
    "SOCK",
    "SOCKET",
    "STYLE",
    "TIMEOUT",
    "TTL",
    "TYPE",
    "VARIANT",
    "VERSION",
    "INFO",
];

/// Last words of names of variables that are URLs. Their value decides if they hold a secret.
pub(super) const ADDRESSES: [&str; 9] =
    ["URL", "URLS", "URI", "ENDPOINT", "HOST", "DOMAIN", "ISSUER", "SERVER", "PROXY"];

/// Returns `true` if a name alone shows that its value is a secret.
pub fn is_secret_name(name: &str) -> bool {
    let words = words(name);
    let last = words.last().map_or("", String::as_str);
    secret_word(&words).is_some()
        && !DESCRIBES.contains(&last)
        && !ADDRESSES.contains(&last)
        && !is_public(&words)
}

/// Splits a name into words, in upper case and without the number at a word's end.
pub(super) fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        if c.is_alphanumeric() {
            if before.is_lowercase() && c.is_uppercase() {
                words.push(String::new());
            }
            if let Some(word) = words.last_mut() {
                word.extend(c.to_uppercase());
            }
        } else {
            words.push(String::new());
        }
        before = c;
    }
    for word in &mut words {
        let letters = word.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        // The length check keeps words such as `B64`, which would otherwise become a single letter.
        if letters > 1 {
            word.truncate(letters);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the first word that makes the name that of a secret.
pub(super) fn secret_word(words: &[String]) -> Option<&'static str> {
    // Sockets and authors have words that resemble those of secrets, and every shell sets them.
    let starts =
        |with: &[&str]| words.len() >= with.len() && words.iter().zip(with).all(|(a, b)| a == b);
    if starts(&["SSH", "AUTH", "SOCK"]) || starts(&["GIT", "AUTHOR"]) || starts(&["XDG", "SESSION"])
    {
        return None;
    }
    let one = words.iter().find_map(|word| {
        let exact = WORDS.iter().find(|known| *known == word);
        exact.or_else(|| ENDINGS.iter().find(|end| word.ends_with(*end))).copied()
    });
    if one.is_some() {
        return one;
    }
    let last_is_pwd = words.len() > 1 && words.last().is_some_and(|last| last == "PWD");
    if last_is_pwd {
        return Some("PWD");
    }
    let pair = |a: &str, b: &str| words.windows(2).any(|pair| pair[0] == a && pair[1] == b);
    if pair("CONNECTION", "STRING") || pair("CONNECTION", "STRINGS") || pair("CONN", "STR") {
        return Some("CONNSTR");
    }
    None
}

/// `true` for the name of a public key, which is not secret.
pub(super) fn is_public(words: &[String]) -> bool {
    let public = |word: &str| matches!(word, "PUBLIC" | "PUB" | "PUBLISHABLE");
    words.windows(2).any(|pair| public(&pair[0]) && matches!(&*pair[1], "KEY" | "KEYS"))
        || words.iter().any(|word| matches!(&**word, "PUBKEY" | "PUBKEYS"))
}

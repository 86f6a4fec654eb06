//! Rules for secret values: decides if a value is a secret, and which parts of it are searched for.
//!
//! A secret is removed wherever it occurs, so an ordinary word (`postgres`, `true`, `localhost`)
//! must not count, because every answer with that word would be changed. A value counts if
//! - it has one of the known formats of keys, or
//! - it has a known key format, or
//! - it has at least 12 characters, among them letters and digits, or letters and one of
//!   `!#$%^&*~`, or
//! - it has at least 8 characters and changes three times between letters and digits, or between
//!   cases, within one of its parts, or
//! - it has no digit, and is a phrase of four words and 20 characters, or letters that are not
//!   words.
//!
//! Numbers, dates and paths do not count.

use super::entropy::{
    SHORTEST, SHORTEST_MIXED, SHORTEST_RANDOM, changes, is_date, is_path, is_random, is_specific,
};
use super::names::unescaped;
use super::patterns;
use super::secret_names::is_secret_name;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Line length in the output of the `base64` command.
const BASE64_LINE: usize = 76;

/// A string that is removed wherever it occurs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Needle {
    pub(super) bytes: Vec<u8>,
    /// `true` for a line or an encoded form of a longer secret, which is only found as a whole.
    pub(super) whole: bool,
}

/// `true` if this value is specific enough to search for.
pub(super) fn is_secret_value(value: &str) -> bool {
    let value = value.trim();
    // A short key inside a longer text does not make the whole text a secret.
    let is_key =
        || patterns::find(value.as_bytes()).first().is_some_and(|at| at.len() * 2 > value.len());
    is_specific(value) || value.len() >= SHORTEST && !is_path(value) && !is_date(value) && is_key()
}

/// Returns the parts of a secret value to search for: the secret strings of JSON, each line of a
/// multi-line value, the password of a URL, and the keys of a connection string. The text around
/// them also occurs elsewhere, so it must stay.
pub(super) fn needles(value: &str, depth: u32) -> Vec<Needle> {
    let value = value.trim();
    let mut found = Vec::new();
    // The depth limit stops values that contain encoded values without end.
    if value.len() < SHORTEST || depth > 4 {
        return found;
    }
    if value.starts_with(['{', '[']) {
        if let Ok(json @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(value) {
            of_json("", &json, depth, &mut found);
            return found;
        }
    }
    // A private key in a one-line setting has its line breaks as the two characters `
    //
    // `.
    let lines = value.replace("\\n", "\n");
    if lines.contains('\n') {
        for line in lines.lines().map(str::trim) {
            if line.starts_with("-----") {
                continue;
            }
            found.extend(
                needles(line, depth + 1).into_iter().map(|needle| Needle { whole: true, ..needle }),
            );
        }
        return found;
    }
    if of_address(value, &mut found) || of_pairs(value, depth, &mut found) {
        return found;
    }
    if let Some((scheme, key)) = value.split_once(' ') {
        if ["bearer", "basic", "token"].iter().any(|word| scheme.eq_ignore_ascii_case(word)) {
            return needles(key, depth + 1);
        }
    }
    if !is_secret_value(value) {
        return found;
    }
    found.push(Needle { bytes: value.as_bytes().to_vec(), whole: false });
    if let Some((user, password)) = value.split_once(':') {
        if !user.is_empty() && is_secret_value(password) {
            found.push(Needle { bytes: password.as_bytes().to_vec(), whole: false });
        }
    }
    found.extend(in_base64(value));
    found.extend(in_address(value));
    found.extend(out_of_base64(value, depth));
    found
}

/// Collects the secret strings: those with a secret name, and those that are random.
fn of_json(name: &str, json: &Value, depth: u32, found: &mut Vec<Needle>) {
    match json {
        Value::Object(members) => {
            for (name, member) in members {
                of_json(name, member, depth, found);
            }
        }
        Value::Array(list) => {
            for element in list {
                of_json(name, element, depth, found);
            }
        }
        Value::String(text) if is_secret_name(name) || is_random(text) => {
            found.extend(needles(text, depth + 1));
        }
        Value::String(text) if text.contains("-----BEGIN ") || text.contains("://") => {
            found.extend(needles(text, depth + 1));
        }
        _ => {}
    }
}

/// Collects the password of a URL, its secret parameters, and the random segments of its path, such
/// as in a webhook URL. Returns `false` if the value is not a URL.
fn of_address(value: &str, found: &mut Vec<Needle>) -> bool {
    let Some((scheme, rest)) = value.split_once("://") else { return false };
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.:".contains(c);
    if scheme.is_empty() || !scheme.chars().all(is_scheme) || rest.contains(char::is_whitespace) {
        return false;
    }
    let mut push = |text: &str| {
        if is_secret_value(text) {
            found.push(Needle { bytes: text.as_bytes().to_vec(), whole: false });
            // The application may use the password decoded, so search for both forms.
            let plain = unescaped(text);
            if plain != text {
                found.push(Needle { bytes: plain.into_bytes(), whole: false });
            }
        }
    };
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    // A password may contain an unescaped slash, so split at the last `@`.
    let (authority, path) = match place.rsplit_once('@') {
        Some((user, host)) => {
            match user.split_once(':') {
                Some((_, password)) => push(password),
                None => push(user),
            }
            (host, host.split_once('/').map_or("", |(_, path)| path))
        }
        None => (place, place.split_once('/').map_or("", |(_, path)| path)),
    };
    let _ = authority;
    for part in path.split('/') {
        if part.len() >= 16 && is_secret_value(part) && changes(part.as_bytes()) >= 3 {
            push(part);
        }
    }
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        if super::names::is_secret_parameter(name) || is_secret_name(name) {
            push(value);
        }
    }
    true
}

/// Collects the secrets of `Name=value;Name=value` (databases, Azure), `name=value name=value`
/// (libpq) and `name=value,name=value` (headers). Returns `false` if the value is not such a list.
fn of_pairs(value: &str, depth: u32, found: &mut Vec<Needle>) -> bool {
    let separator = if value.contains(';') {
        ';'
    } else if value.contains(',') {
        ','
    } else {
        ' '
    };
    let pairs: Vec<(&str, &str)> =
        value.split(separator).filter_map(|pair| pair.split_once('=')).collect();
    let is_name = |name: &str| {
        let name = name.trim();
        !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || " _-.".contains(c))
            && name.starts_with(|c: char| c.is_ascii_alphabetic())
    };
    if !pairs.iter().any(|(name, _)| is_name(name) && is_secret_name(name.trim())) {
        return false;
    }
    for (name, value) in pairs {
        if is_secret_name(name.trim()) {
            found.extend(needles(value, depth + 1));
        }
    }
    true
}

/// Returns the value's Base64 form, line by line. The last one or two bytes are left out, because
/// their encoding also depends on the bytes that follow.
fn in_base64(value: &str) -> Vec<Needle> {
    let whole = value.len() / 3 * 3;
    let text = STANDARD.encode(&value.as_bytes()[..whole]);
    let for_urls = text.replace('+', "-").replace('/', "_");
    let lines = text.as_bytes().chunks(BASE64_LINE);
    // Text for URLs has no line breaks.
    let for_urls = (for_urls != text).then_some(for_urls.as_bytes());
    let forms = lines.chain(for_urls).filter(|form| form.len() >= SHORTEST_MIXED);
    forms.map(|form| Needle { bytes: form.to_vec(), whole: true }).collect()
}

/// Returns the value as a URL contains it, with percent escapes, if that differs.
fn in_address(value: &str) -> Vec<Needle> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let written = |each: &dyn Fn(u8) -> String| {
        let text = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { each(byte) };
        value.bytes().map(text).collect::<String>()
    };
    let mut forms =
        vec![written(&|byte| format!("%{byte:02X}")), written(&|byte| format!("%{byte:02x}"))];
    forms.retain(|form| form != value);
    forms.dedup();
    // In a form, a blank is a plus sign.
    if value.contains(' ') {
        forms.extend(forms.first().map(|form| form.replace("%20", "+")));
    }
    forms.into_iter().map(|form| Needle { bytes: form.into_bytes(), whole: true }).collect()
}

/// Returns the needles of a Base64 value's content, if that is text.
fn out_of_base64(value: &str, depth: u32) -> Vec<Needle> {
    if value.len() < SHORTEST_RANDOM {
        return Vec::new();
    }
    let decoded = STANDARD.decode(value).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let is_text = |text: &String| !text.chars().any(|c| c.is_control() && !c.is_whitespace());
    decoded.filter(is_text).map(|text| needles(&text, depth + 1)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked_for(value: &str) -> Vec<String> {
        let plain = needles(value, 0).into_iter();
        let encoded = |needle: &Needle| {
            STANDARD.encode(&value.as_bytes()[..value.len() / 3 * 3]).as_bytes() == needle.bytes
        };
        plain
            .filter(|needle| !encoded(needle))
            .map(|needle| String::from_utf8(needle.bytes).unwrap())
            .collect()
    }

    #[test]
    fn words_numbers_paths_do_not_count() {
        for value in [
            "postgres",
            "true",
            "localhost",
            "password",
            "changeme",
            "admin123",
            "secret",
            "none",
            "4096",
            "1234567890123456",
            "2026-01-02T03:04:05Z",
            "/run/secrets/db_password",
            "/home/user1/.ssh/id_ed25519",
            "~/keys/deploy-key-2",
            "C:\\keys\\deploy1.pem",
            "development",
            "azure-active-directory",
            "application/json",
            "client-credentials",
            "lm-studio",
            "sk-no-key-required",
            "ServiceAccount",
            "127.0.0.1:5432",
            "gnome-keyring",
            "not-needed",
        ] {
            assert!(!is_secret_value(value), "{value}");
        }
    }

    #[test]
    fn random_values_and_phrases_count() {
        for value in [
            "sk-proj-4fQ9xTz71LmN0pWv",
            "hunter2hunter2",
            "x9Kd72mQ",
            "a3f9c01be77d",
            "correct horse battery staple",
            "CorrectHorseBatteryStaple",
            "Tr0ub4dor&3",
            "letmein!please",
            "qzkxwvbnmrtp",
            "AbCdEfGhIjKlMnOp",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "/9j4AAQSkZJRgABAQAAAQABAAD1k3==",
        ] {
            assert!(is_secret_value(value), "{value}");
        }
    }

    #[test]
    fn service_account_gives_its_private_key() {
        let json = serde_json::json!({
            "type": "service_account",
            "project_id": "my-project-1",
            "private_key_id": "3f1c9a7b2d4e5f60718293a4b5c6d7e8f9012345",
            "private_key": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\nAASCBKcwggSjAgEAAoIBAQC7\n-----END PRIVATE KEY-----\n",
            "client_email": "robot@my-project-1.iam.gserviceaccount.com",
            "auth_uri": "https://accounts.google.com/o/oauth2/auth",
        });
        assert_eq!(
            looked_for(&json.to_string())
                .iter()
                .filter(|text| text.len() != 36)
                .collect::<Vec<_>>(),
            [
                "3f1c9a7b2d4e5f60718293a4b5c6d7e8f9012345",
                "M2YxYzlhN2IyZDRlNWY2MDcxODI5M2E0YjVjNmQ3ZThmOTAxMjM0",
                "MIIEvQIBADANBgkqhkiG9w0BAQEF",
                "AASCBKcwggSjAgEAAoIBAQC7",
                "QUFTQ0JLY3dnZ1NqQWdFQUFvSUJBUUM3",
            ]
        );
    }

    #[test]
    fn addresses_and_pairs_give_their_credentials() {
        for (value, want) in [
            ("postgres://app:Zk93-xQ71mmP@db:5432/app", vec!["Zk93-xQ71mmP"]),
            ("postgres://postgres:postgres@localhost/app", vec![]),
            ("redis://:p%40ss-w0rd-77x@cache:6379/0", vec!["p%40ss-w0rd-77x", "p@ss-w0rd-77x"]),
            (
                "https://3f1c9a7b2d4e5f60718293a4b5c6d7e8@o1.ingest.sentry.io/42",
                vec!["3f1c9a7b2d4e5f60718293a4b5c6d7e8"],
            ),
            (
                "https://hooks.example.com/services/T00/B00/4fQ9xTz71LmN0pWv8aBcDeFg",
                vec!["4fQ9xTz71LmN0pWv8aBcDeFg"],
            ),
            ("https://h/v1?api_key=Zk93xQ71mmPq&alt=sse", vec!["Zk93xQ71mmPq"]),
            (
                "DefaultEndpointsProtocol=https;AccountName=me1;AccountKey=Zk93xQ71mmPq;EndpointSuffix=x",
                vec!["Zk93xQ71mmPq"],
            ),
            ("host=db user=app password=Zk93xQ71mmPq", vec!["Zk93xQ71mmPq"]),
            ("Bearer Zk93xQ71mmPq", vec!["Zk93xQ71mmPq"]),
            ("me:Zk93xQ71mmPq", vec!["me:Zk93xQ71mmPq", "Zk93xQ71mmPq"]),
        ] {
            let found: Vec<String> = needles(value, 0)
                .into_iter()
                .filter(|needle| !needle.whole)
                .map(|needle| String::from_utf8(needle.bytes).unwrap())
                .collect();
            assert_eq!(found, want, "{value}");
        }
    }

    #[test]
    fn encoded_forms_of_secret_are_needles() {
        let forms = |value: &str| -> Vec<String> {
            let found = needles(value, 0).into_iter().filter(|needle| needle.whole);
            found.map(|needle| String::from_utf8(needle.bytes).unwrap()).collect()
        };
        let key = forms("A9x/b+c=Zk04dQ71mmPx");
        assert!(key.contains(&"A9x%2Fb%2Bc%3DZk04dQ71mmPx".to_owned()), "{key:?}");
        assert!(key.contains(&"A9x%2fb%2bc%3dZk04dQ71mmPx".to_owned()), "{key:?}");
        let phrase = forms("correct horse battery staple");
        assert!(phrase.contains(&"correct+horse+battery+staple".to_owned()), "{phrase:?}");
        let binary = forms("~~~???>>>Zk04dQ71mm");
        assert!(binary.iter().any(|form| form.starts_with("fn5-Pz8_Pj4-")), "{binary:?}");
        assert_eq!(forms("Zk04dQ71mmPx").len(), 1, "only Base64 differs");
    }

    #[test]
    fn base64_value_yields_decoded_secret() {
        let key =
            STANDARD.encode("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\n-----END");
        assert!(looked_for(&key).contains(&"MIIEvQIBADANBgkqhkiG9w0BAQEF".to_owned()));
        // The secret's own encoding is searched for as well.
        let found = needles("Zk93xQ71mmPq7", 0);
        assert!(
            found.iter().any(|needle| needle.bytes == STANDARD.encode("Zk93xQ71mmPq").as_bytes())
        );
    }
}

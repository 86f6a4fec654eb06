//! Credentials without a format of their own, which the text around them shows: the name of a variable or
//! a member, or the words of a file.
//!
//! ```text
//! export DEPLOY_TOKEN=Zk04dQ71mmPx8Lw2          "SecretAccessKey": "wJalrXUtnFEMI/K7MDENG/…"
//! machine h login me password Zk04dQ71mmPx      https://h/c?sv=2024&sig=…%3D
//! ```

use super::chars::{begins_a_word, in_credential, is_token, run};
use super::entropy::{changes, is_specific};
use super::names::unescaped;
use super::secret_names::is_secret_name;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use std::ops::Range;

/// The context of a credential.
#[derive(Clone, Copy)]
pub(super) enum Context {
    /// The name of a variable in capitals, and a value that could be a secret.
    Variable,
    /// The name of an AWS secret key, and 40 characters.
    AwsSecret,
    /// The parameter `sig` of a shared access signature: 32 bytes in Base64.
    Signature,
    /// A name, and at least 40 characters of Base64: a client's key in a kubeconfig.
    Key,
    /// The token of a user in a kubeconfig.
    KubeToken,
    /// The login of a registry in Docker's settings: `user:password` in Base64.
    DockerAuth,
    /// A line of a `.netrc`.
    Netrc,
    /// The token of a bot of Telegram after its number.
    Telegram,
}

/// A search that ended at the end of a text that may continue.
struct Open;

/// A text in which a credential is searched for. If it may continue, a search that reaches its end fails.
struct Text<'b> {
    bytes: &'b [u8],
    is_whole: bool,
}

/// The longest rest of a name, in bytes.
const LONGEST_NAME: usize = 80;
/// Number of bytes before a prefix that count. A stream does not keep more of the text that was written.
const MOST_BEFORE: usize = 48;
/// More than the longest signature, all of whose characters may be percent escapes.
const LONGEST_SIGNATURE: usize = 150;
/// Number of bytes of a variable's value that are examined. Text may have very many names in one run.
const EXAMINED: usize = 512;

/// Returns the credential after the prefix at `start..end`, or `None`.
pub(super) fn find(
    context: Context,
    bytes: &[u8],
    start: usize,
    end: usize,
) -> Option<Range<usize>> {
    Text { bytes, is_whole: true }.find(context, start, end).ok().flatten()
}

/// `true` if more text may make a credential of the text after the prefix at `start..end`, or a longer one.
pub(super) fn is_open(context: Context, bytes: &[u8], start: usize, end: usize) -> bool {
    Text { bytes, is_whole: false }.find(context, start, end).is_err()
}

impl Text<'_> {
    fn find(
        &self,
        context: Context,
        start: usize,
        end: usize,
    ) -> Result<Option<Range<usize>>, Open> {
        let bytes = self.bytes;
        match context {
            Context::Variable => self.variable(start, end),
            Context::AwsSecret => {
                let found = self.value(end, is_aws_secret)?;
                Ok(found.filter(|at| at.len() == 40 && is_mixed(&bytes[at.clone()])))
            }
            Context::Key => Ok(self.value(end, in_credential)?.filter(|at| at.len() >= 40)),
            Context::KubeToken => {
                let before = &bytes[start.saturating_sub(MOST_BEFORE)..start];
                // Blanks, quotes and a brace, also with escapes, as within JSON.
                let is_between =
                    |byte: &u8| byte.is_ascii_whitespace() || b"\\n\"{:".contains(byte);
                let between = before.iter().rev().take_while(|byte| is_between(byte)).count();
                let (owner, between) = before.split_at(before.len() - between);
                if !owner.ends_with(b"user") || !between.contains(&b':') {
                    return Ok(None);
                }
                Ok(self.value(end, in_credential)?.filter(|at| at.len() >= 8))
            }
            // The quote of the prefix belongs to the separator.
            Context::DockerAuth => {
                Ok(self.value(end - 1, in_credential)?.filter(|at| is_login(&bytes[at.clone()])))
            }
            Context::Signature => {
                let rest = &bytes[end..bytes.len().min(end + LONGEST_SIGNATURE)];
                let len = run(rest, |byte| is_token(byte) || b"+/%".contains(&byte));
                let len = len + run(&rest[len..], |byte| byte == b'=').min(2);
                let at = end..end + len;
                self.open_at(at.end)?;
                Ok(Some(at).filter(|at| is_signature(&bytes[at.clone()])))
            }
            Context::Netrc => self.netrc(end),
            Context::Telegram => {
                let digits = bytes[..start].iter().rev().take(11);
                let digits = digits.take_while(|byte| byte.is_ascii_digit()).count();
                let number = start - digits;
                let stands = bytes[..number].ends_with(b"bot") || begins_a_word(bytes, number);
                if !(8..=10).contains(&digits) || !stands {
                    return Ok(None);
                }
                // The `AA` of the prefix is a part of the secret.
                let at = end - 2..end - 2 + run(&bytes[end - 2..], is_token);
                self.open_at(at.end)?;
                Ok(Some(at).filter(|at| at.len() == 35))
            }
        }
    }

    /// Finds the value of a variable whose name has a secret word at `start..end`: `X_SECRET=…`,
    /// `"X_TOKEN": "…"`.
    fn variable(&self, start: usize, end: usize) -> Result<Option<Range<usize>>, Open> {
        let bytes = self.bytes;
        let before = bytes[..start].iter().rev().take(MOST_BEFORE);
        let before = before.take_while(|byte| of_name(**byte)).count();
        let name = start - before;
        // A word that begins in lower case is not the name of a variable.
        if before < MOST_BEFORE && !begins_a_word(bytes, name) {
            return Ok(None);
        }
        let after = rest_of_name(bytes, end);
        self.open_at(end + after)?;
        // Most names have no value, and the words of a name take longer to examine.
        let Some(mut value) = self.examined(end + after)? else { return Ok(None) };
        let Ok(text) = std::str::from_utf8(&bytes[name..end + after]) else { return Ok(None) };
        if !is_secret_name(text) {
            return Ok(None);
        }
        let text = std::str::from_utf8(&bytes[value.clone()]).unwrap_or_default();
        if !is_assigned(text) {
            return Ok(None);
        }
        value.end += run(&bytes[value.end..], in_value);
        value.end += run(&bytes[value.end..], |byte| byte == b'=').min(2);
        self.open_at(value.end)?;
        let separator = &bytes[end + after..value.start];
        let is_quoted = separator.ends_with(b"\"") || separator.ends_with(b"'");
        let is_code = match bytes.get(value.end) {
            _ if is_quoted => false,
            // A call or an index: `X_KEY = decode64Url(`.
            Some(b'(' | b'[' | b'{' | b'<') => true,
            // The type of a constant: `const X_KEY: X509Key = `. A value of YAML ends its line.
            Some(next) => separator.contains(&b':') && !matches!(next, b'\n' | b'\r' | b'\\'),
            None => false,
        };
        Ok(Some(value).filter(|_| !is_code))
    }

    /// Returns the part of a variable's value that is examined.
    fn examined(&self, name_end: usize) -> Result<Option<Range<usize>>, Open> {
        let bytes = &self.bytes[..self.bytes.len().min(name_end + EXAMINED)];
        let is_whole = self.is_whole || bytes.len() < self.bytes.len();
        Text { bytes, is_whole }.value(name_end, in_value)
    }

    /// Returns the value after a name that ends here: a separator, with a quote before or after it, and the
    /// characters of the value.
    fn value(
        &self,
        at: usize,
        of_value: impl Fn(u8) -> bool,
    ) -> Result<Option<Range<usize>>, Open> {
        let bytes = self.bytes;
        let blanks = |at: usize| at + run(&bytes[at..], |byte| matches!(byte, b' ' | b'\t')).min(8);
        let quote = |at: usize| {
            let escaped = at + run(&bytes[at..], |byte| byte == b'\\').min(8);
            let is_quote = bytes.get(escaped).is_some_and(|byte| matches!(byte, b'"' | b'\''));
            if is_quote { escaped + 1 } else { at }
        };
        let separator = blanks(quote(at));
        let after =
            separator + run(&bytes[separator..], |byte| matches!(byte, b'=' | b':' | b'>')).min(2);
        self.open_at(after)?;
        if after == separator {
            return Ok(None);
        }
        let start = quote(blanks(after));
        let value = start..start + run(&bytes[start..], of_value);
        self.open_at(value.end)?;
        Ok(Some(value))
    }

    /// Finds the password of `machine HOST login USER password WORD`, on one line or on several.
    fn netrc(&self, end: usize) -> Result<Option<Range<usize>>, Open> {
        const LONGEST_WORD: usize = 256;
        let bytes = self.bytes;
        let in_word = |byte: u8| byte.is_ascii_graphic() && !b"\"'\\".contains(&byte);
        // A line break may be an escape, as within JSON.
        let is_blank = |at: usize| match bytes.get(at..) {
            Some([b'\\', b'n' | b'r' | b't', ..]) => 2,
            Some([byte, ..]) if byte.is_ascii_whitespace() => 1,
            _ => 0,
        };
        let blanks = |mut at: usize| {
            let most = at + 16;
            while at < most && is_blank(at) > 0 {
                at += is_blank(at);
            }
            at
        };
        let mut at = end;
        let mut is_password = false;
        // The host, and then pairs of a name and a value.
        for _ in 0..4 {
            let word = at..at + run(&bytes[at..], in_word);
            if word.len() > LONGEST_WORD {
                return Ok(None);
            }
            self.open_at(word.end)?;
            if is_password {
                let is_example =
                    bytes.get(at).is_some_and(|first| matches!(first, b'<' | b'$' | b'{' | b'*'));
                return Ok((word.len() >= 4 && !is_example).then_some(word));
            }
            let name = blanks(word.end);
            let after = name + run(&bytes[name..], |byte| byte.is_ascii_alphabetic()).min(9);
            self.open_at(after)?;
            is_password = bytes[name..after] == *b"password";
            if word.is_empty()
                || !is_password && !matches!(&bytes[name..after], b"login" | b"account")
            {
                return Ok(None);
            }
            at = blanks(after);
            self.open_at(at)?;
        }
        Ok(None)
    }

    fn open_at(&self, at: usize) -> Result<(), Open> {
        if self.is_whole || at < self.bytes.len() { Ok(()) } else { Err(Open) }
    }
}

/// Returns the offset up to which no variable has to be searched for, after the one whose name has a secret
/// word up to `end` and whose value does not qualify: the names in the value would have the rest of it.
pub(super) fn examined_until(bytes: &[u8], end: usize) -> usize {
    let name_end = end + rest_of_name(bytes, end);
    let value = Text { bytes, is_whole: true }.examined(name_end).ok().flatten();
    value.map_or(end, |value| {
        // A name at its end may have a value of its own.
        let name = bytes[value.clone()].iter().rev().take_while(|byte| of_name(**byte)).count();
        value.end - name
    })
}

fn rest_of_name(bytes: &[u8], from: usize) -> usize {
    run(&bytes[from..bytes.len().min(from + LONGEST_NAME)], of_name)
}

fn of_name(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_'
}

/// `true` for 32 bytes in Base64, also with percent escapes.
fn is_signature(value: &[u8]) -> bool {
    // A quick check, because any text may have the name.
    let escapes = memchr::memchr_iter(b'%', value).count();
    if !(43..=46).contains(&value.len().saturating_sub(2 * escapes)) {
        return false;
    }
    let value = unescaped(&String::from_utf8_lossy(value));
    let plain = value.trim_end_matches('=').replace('-', "+").replace('_', "/");
    STANDARD_NO_PAD.decode(plain).is_ok_and(|bytes| bytes.len() == 32)
}

/// `true` for `user:password` in Base64.
fn is_login(value: &[u8]) -> bool {
    let login = STANDARD.decode(value).ok().and_then(|login| String::from_utf8(login).ok());
    login.is_some_and(|login| {
        let is_plain = login.chars().all(|c| !c.is_control());
        let pair = login.split_once(':');
        is_plain && pair.is_some_and(|(user, word)| !user.is_empty() && !word.is_empty())
    })
}

/// Returns the secret key of AWS that stands within a few words after the id of its access key.
pub(super) fn aws_secret_after(bytes: &[u8], id_end: usize) -> Option<Range<usize>> {
    let mut at = id_end;
    let end = bytes.len().min(id_end + AWS_WINDOW);
    while at < end {
        // A letter after a backslash belongs to an escape.
        match bytes[at] {
            b'\\' => {
                at += 2;
                continue;
            }
            byte if !is_aws_secret(byte) => {
                at += 1;
                continue;
            }
            _ => {}
        }
        // One character more than a key has shows that it is not a key.
        let len = run(&bytes[at..bytes.len().min(at + 41)], is_aws_secret);
        if len == 40 && at < end && is_mixed(&bytes[at..at + len]) {
            return Some(at..at + len);
        }
        at += len.max(1);
    }
    None
}

/// The distance in which the secret key follows its id: in files, listings and JSON it is the next value.
pub(super) const AWS_WINDOW: usize = 120;

fn is_aws_secret(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'+')
}

/// `true` for letters of both cases, which a hash in hexadecimal does not have.
fn is_mixed(value: &[u8]) -> bool {
    value.iter().any(u8::is_ascii_uppercase)
        && value.iter().any(u8::is_ascii_lowercase)
        && value.iter().any(u8::is_ascii_digit)
}

fn in_value(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\"'`,;&|<>(){}[]\\=".contains(&byte)
}

/// `true` for a value that is not a word, a reference, or the name of a constant.
fn is_assigned(value: &str) -> bool {
    let value = value.trim_end_matches(['.', ':', '!', '?']);
    let varies = changes(value.as_bytes()) >= 3 && value.bytes().any(|byte| byte.is_ascii_digit());
    let is_reference = value.starts_with(['$', '%', '*', '@']) || value.contains("://");
    let is_constant = value.contains('_') && !value.bytes().any(|byte| byte.is_ascii_lowercase());
    is_specific(value) && varies && !is_reference && !is_constant
}

#[cfg(test)]
mod tests {
    use crate::redact::{KnownKeys, TextRedactor, secrets_out};
    use serde_json::json;

    const AWS: &str = "wJa1rXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    const SIG: &str = "4fQ9xTz71LmN0pWv8aBcDeFg4fQ9xTz71LmN0pWv8aA%3D";
    const BOT: &str = "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1";
    const PEM64: &str = "LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQpNSUlFb3dJQkFBS0NB";

    /// Texts with `SECRET`, and the secret.
    fn cases() -> Vec<(String, String)> {
        let of = |text: &str, secret: &str| (text.to_owned(), secret.to_owned());
        vec![
            // The secret key of AWS next to its id, and by its name.
            of("aws_access_key_id = ID\naws_secret_access_key = SECRET\n", AWS),
            of("ID,SECRET\n", AWS),
            of("Access key ID,Secret access key\nID,SECRET", AWS),
            of("export AWS_ACCESS_KEY_ID=ID AWS_SECRET_ACCESS_KEY=SECRET\n", AWS),
            of("{\"AccessKeyId\": \"ID\", \"SecretAccessKey\": \"SECRET\"}", AWS),
            of("\"SecretAccessKey\":\"SECRET\",", AWS),
            of("secretAccessKey: 'SECRET'", AWS),
            of("aws_secret_access_key=SECRET", AWS),
            of("aws_secret_key: SECRET\n", AWS),
            // Shared access signatures.
            of("https://a.blob.core.windows.net/c?sv=2022-11-02&se=2030&sp=r&sig=SECRET", SIG),
            of("https://a/c?sig=SECRET&sv=2022-11-02 and", SIG),
            of("BlobEndpoint=https://a;SAS: ?sv=2022&amp;sig=SECRET\"", SIG),
            // .netrc, on one line and on several.
            of("machine h.example login me password SECRET\n", "swordfish"),
            of("machine h.example\n  login me\n  password SECRET\n", "Zk04dQ71mm"),
            of("machine h account a login me password SECRET", "swordfish"),
            of("machine h password SECRET", "swordfish"),
            // kubeconfig.
            of("- name: a\n  user:\n    token: SECRET\n", "abcdef.0123456789abcdef"),
            of("{\"user\": {\"token\": \"SECRET\"}}", "abcdef.0123456789abcdef"),
            of("    client-key-data: SECRET\n", PEM64),
            of("\"client-key-data\":\"SECRET\"", PEM64),
            // Docker.
            of("{\"auths\":{\"r\":{\"auth\":\"SECRET\"}}}", "bWU6c3dvcmRmaXNo"),
            of("{\\\"auth\\\": \\\"SECRET\\\"}", "bWU6c3dvcmRmaXNo"),
            of("\t\t\t\"auth\": \"SECRET\"\n", "X3Rva2VuOnN3b3JkZmlzaA=="),
            of("\"identitytoken\": \"SECRET\"", PEM64),
            // Telegram.
            of("https://api.telegram.org/bot123456789:SECRET/getMe", BOT),
            of("BOT=12345678:SECRET\n", BOT),
            of("token 1234567890:SECRET.", BOT),
            // Variables in text.
            of("DEPLOY_TOKEN=SECRET\n", "Zk04dQ71mmPx8Lw2"),
            of("export X_SECRET=\"SECRET\"; echo", "Zk04dQ71mmPx8Lw2"),
            of("DB_PASSWORD: SECRET\n", "x9Kd72mQ"),
            of("\"GITHUB_TOKEN_RW\": \"SECRET\",", "Zk04dQ71mmPx8Lw2"),
            of("-e STRIPE_KEY=SECRET image", "Zk04dQ71mmPx8Lw2=="),
            of("SECRET_KEY = 'SECRET'", "Zk04dQ71/mm+Px8Lw2"),
            of("docker run -e API_PASSPHRASE=SECRET", "Zk04-dQ71-mmPx8Lw2"),
        ]
    }

    fn filled(text: &str, secret: &str) -> String {
        text.replace("=SECRET", &format!("={secret}"))
            .replace("SECRET\"", &format!("{secret}\""))
            .replace("'SECRET'", &format!("'{secret}'"))
            .replace(" SECRET", &format!(" {secret}"))
            .replace(":SECRET", &format!(":{secret}"))
            .replace(",SECRET", &format!(",{secret}"))
            .replace("\"SECRET", &format!("\"{secret}"))
            .replace("ID", "AKIAIOSFODNN7EXAMPLE")
    }

    #[test]
    fn context_shows_credentials() {
        for (text, secret) in cases() {
            let text = filled(&text, &secret);
            assert!(text.contains(&secret), "{text}");
            let clean = secrets_out(&text);
            assert!(!clean.contains(&secret), "{text}: {clean}");
            assert!(clean.contains("[redacted]"), "{clean}");
            assert_eq!(secrets_out(&clean), clean, "{text}");
            // In a result of a tool.
            let record = json!({"content": text}).to_string();
            let clean = KnownKeys::default()
                .out_of_json(&record)
                .unwrap_or_else(|| panic!("{text}"))
                .0
                .to_string();
            assert!(!clean.contains(&secret), "{text}: {clean}");
            let bytes = KnownKeys::default();
            let bytes = bytes.out_of(record.as_bytes());
            assert!(memchr::memmem::find(&bytes, secret.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn pieces_of_a_stream_do_not_matter() {
        for (text, secret) in cases() {
            let text = format!("so: {} and the rest\n", filled(&text, &secret));
            let whole = secrets_out(&text);
            for at in 0..=text.len() {
                let mut out = TextRedactor::default();
                let streamed = [out.push(&text[..at]), out.push(&text[at..]), out.finish()];
                assert_eq!(streamed.concat(), whole, "{at}: {text}");
            }
            let mut out = TextRedactor::default();
            let mut streamed: String = text.chars().map(|c| out.push(&c.to_string())).collect();
            streamed += &out.finish();
            assert_eq!(streamed, whole, "{text}");
        }
    }

    /// A call whose arguments are a structure, not text.
    #[test]
    fn name_of_member_shows_credential() {
        let keys = KnownKeys::default();
        let clean = |value: &serde_json::Value| {
            let (clean, cuts) = keys.out_of_json(&value.to_string()).expect("a secret");
            assert_eq!(cuts, 1, "{clean}");
            let bytes = value.to_string();
            let bytes = String::from_utf8(keys.out_of(bytes.as_bytes()).into_owned()).unwrap();
            assert_eq!(serde_json::from_str::<serde_json::Value>(&bytes).unwrap(), clean);
            clean
        };
        let (user, secret) = ("Zk04", "Zk04dQ71mmPx8Lw2");
        let input =
            json!({"input": {"USER": user, "env": {"API_TOKEN": secret, "LEVEL": "debug"}}});
        let want =
            json!({"input": {"USER": user, "env": {"API_TOKEN": "[redacted]", "LEVEL": "debug"}}});
        assert_eq!(clean(&input), want);
        assert_eq!(clean(&json!({"SecretAccessKey": AWS}))["SecretAccessKey"], "[redacted]");
        let auths = json!({"auths": {"r": {"auth": "bWU6c3dvcmRmaXNo"}}});
        assert_eq!(clean(&auths)["auths"]["r"]["auth"], "[redacted]");
        assert!(keys.out_of_json(&json!({"api_token": "x", "auth": "oidc"}).to_string()).is_none());
    }

    #[test]
    fn similar_text_is_unchanged() {
        for text in [
            // No secret key: a hash, a path, other lengths, too far away.
            "AKIA and da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "SecretAccessKey: see the documentation",
            "aws_secret_access_key = ${AWS_SECRET_ACCESS_KEY}",
            "secret_access_key: 0123456789abcdef0123456789abcdef01234567",
            "https://h/c?sig=abc123&x=1, sig=HMAC-SHA256, config=1",
            "the machine learning model has a login page and a password field",
            "machine h login me password <password>, machine h login me password ${PASSWORD}",
            "user:\n    token: $TOKEN\n",
            "next token: abcdefghij0123, max_tokens: 4096, token: string",
            "\"auth\": \"bearer\", \"auth\":\"aGVsbG8gd29ybGQ=\", auth\": true",
            "time 12345678:AA, 123456789:AAbb, a1234567890123:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1",
            "client-key-data: REDACTED, client-key: /home/me/key.pem",
            // Names of variables and constants, and values that are words, numbers and references.
            "MAX_TOKENS=4096, TOKEN_LIMIT=128000, SORT_KEY=created_at_desc",
            "API_KEY=os.environ[\"API_KEY\"], API_KEY=$(cat key.txt), TOKEN=${GITHUB_TOKEN_2}",
            "const X_KEY: X509KeyUsageFlags = 1; PASS_FLAG = D3D12_RENDER_PASS_FLAGS",
            "const SHARED_KEY = decode64Url2(text); PRIMARY_KEY = id2Name3x[0]",
            "PASSWORD=changeme, DB_PASSWORD=postgres, SECRET=secret, ACCESS_KEY=minioadmin",
            "SSH_KEY_PATH=/home/user1/.ssh/id_ed25519, TOKEN_URL=https://h1.example/a2b3c4",
            "PUBLIC_KEY=AAAAC3NzaC1lZDI1NTE5, EXPECTED_KEY_2024: the key of 2024 is old\n",
            "MONKEY=a1b2c3d4e5f6g7, FOO_KEYBOARD=a1b2c3d4e5f6g7, aSECRET=Zk04dQ71mmPx8Lw2",
        ] {
            assert_eq!(secrets_out(text), text);
            assert!(
                KnownKeys::default().out_of_json(&json!({"content": text}).to_string()).is_none()
            );
        }
    }

    #[test]
    fn repeated_contexts_take_linear_time() {
        for unit in [
            "A_KEY:",
            "A_KEY=",
            "A_KEY",
            "_KEY",
            "SECRET",
            "sig=",
            "identitytoken=",
            "client-key-data:",
            "machine ",
            "machine a login b ",
            ":AA",
            "123456789:AA",
            "auth\":\"",
            "user:token:",
            "SecretAccessKey",
            "SecretAccessKey=",
            "AKIAIOSFODNN7EXAMPLE/",
            "AKIAIOSFODNN7EXAMPLE ",
        ] {
            let text = unit.repeat((128 << 10) / unit.len());
            secrets_out(&text);
            let mut out = TextRedactor::default();
            out.push(&text);
            out.finish();
        }
    }
}

//! Credentials that are recognised by their format, wherever they come from: keys of providers and
//! of code hosts, private keys in PEM, JSON Web Tokens, passwords in addresses.
//!
//! A format has a prefix and a least length, because a prefix alone also begins ordinary names: the
//! wire format `xai-responses` is not a key of xAI. If the prefix is short, a key also needs a long
//! part with digits in it.

use super::entropy::{changes, is_specific};
use memchr::memmem;
use std::ops::Range;

/// The required text after a prefix.
#[derive(Clone, Copy)]
enum Tail {
    /// At least this many characters of a token, because the prefix has no other use.
    Token(usize),
    /// At least 16 characters, with one part of 12 that has letters and digits, because the prefix
    /// also begins ordinary names.
    Mixed,
    /// At least this many characters of Base64 or of a path, which may have slashes.
    Slashed(usize),
    /// 16 capitals and digits, and nothing after them.
    AwsId,
    /// Three parts with dots between them.
    Jwt,
    /// A PEM block, if its label says that it is private.
    Pem,
    /// A user and a password before the `@` of an address.
    Userinfo,
    /// A word of at least eight characters that has a digit or changes its case.
    Credential,
}

/// The known formats: a prefix, and the required text after it.
const FORMATS: [(&str, Tail); 97] = [
    // Providers of models.
    ("sk-", Tail::Mixed),
    ("sk_", Tail::Mixed),
    ("gsk_", Tail::Mixed),
    ("xai-", Tail::Mixed),
    ("hf_", Tail::Mixed),
    ("r8_", Tail::Mixed),
    ("pplx-", Tail::Mixed),
    ("nvapi-", Tail::Mixed),
    ("csk-", Tail::Mixed),
    ("fw_", Tail::Mixed),
    ("tgp_v1_", Tail::Mixed),
    ("tvly-", Tail::Mixed),
    ("lsv2_pt_", Tail::Mixed),
    ("lsv2_sk_", Tail::Mixed),
    ("pcsk_", Tail::Mixed),
    ("jina_", Tail::Mixed),
    ("rpa_", Tail::Mixed),
    ("apify_api_", Tail::Token(16)),
    // Amazon, Google, Azure and other clouds.
    ("AKIA", Tail::AwsId),
    ("ASIA", Tail::AwsId),
    ("ABIA", Tail::AwsId),
    ("ACCA", Tail::AwsId),
    ("ABSK", Tail::Slashed(40)),
    ("bedrock-api-key-", Tail::Slashed(16)),
    ("IQoJ", Tail::Slashed(40)),
    ("FwoGZXIvYXdz", Tail::Slashed(40)),
    ("AIza", Tail::Token(30)),
    ("ya29.", Tail::Token(16)),
    ("GOCSPX-", Tail::Token(20)),
    ("1//0", Tail::Token(30)),
    ("AccountKey=", Tail::Slashed(20)),
    ("SharedAccessKey=", Tail::Slashed(20)),
    ("SharedAccessSignature=", Tail::Slashed(20)),
    ("dop_v1_", Tail::Token(20)),
    ("doo_v1_", Tail::Token(20)),
    ("dor_v1_", Tail::Token(20)),
    ("LTAI", Tail::Mixed),
    // Code hosts and registries of packages.
    ("ghp_", Tail::Token(16)),
    ("gho_", Tail::Token(16)),
    ("ghu_", Tail::Token(16)),
    ("ghs_", Tail::Token(16)),
    ("ghr_", Tail::Token(16)),
    ("github_pat_", Tail::Token(16)),
    ("glpat-", Tail::Token(16)),
    ("gldt-", Tail::Token(16)),
    ("glrt-", Tail::Token(16)),
    ("glcbt-", Tail::Token(16)),
    ("glptt-", Tail::Token(16)),
    ("glsoat-", Tail::Token(16)),
    ("npm_", Tail::Token(30)),
    ("pypi-AgE", Tail::Token(20)),
    ("dckr_pat_", Tail::Token(16)),
    ("dckr_oat_", Tail::Token(16)),
    ("ATATT3", Tail::Token(30)),
    ("ATCTT3", Tail::Token(30)),
    ("ATBB", Tail::Token(28)),
    // Messages, payments, mail and the rest.
    ("xoxb-", Tail::Token(10)),
    ("xoxp-", Tail::Token(10)),
    ("xoxa-", Tail::Token(10)),
    ("xoxr-", Tail::Token(10)),
    ("xoxs-", Tail::Token(10)),
    ("xoxe-", Tail::Token(10)),
    ("xoxe.", Tail::Token(10)),
    ("xapp-", Tail::Token(10)),
    ("hooks.slack.com/services/", Tail::Slashed(16)),
    ("hooks.slack.com/workflows/", Tail::Slashed(16)),
    ("discord.com/api/webhooks/", Tail::Slashed(16)),
    ("discordapp.com/api/webhooks/", Tail::Slashed(16)),
    ("webhook.office.com/webhookb2/", Tail::Slashed(16)),
    ("sk_live_", Tail::Token(8)),
    ("sk_test_", Tail::Token(8)),
    ("rk_live_", Tail::Token(8)),
    ("rk_test_", Tail::Token(8)),
    ("whsec_", Tail::Token(16)),
    ("sq0atp-", Tail::Token(16)),
    ("sq0csp-", Tail::Token(16)),
    ("shpat_", Tail::Token(20)),
    ("shpss_", Tail::Token(20)),
    ("shpca_", Tail::Token(20)),
    ("shppa_", Tail::Token(20)),
    ("SG.", Tail::Mixed),
    ("hvs.", Tail::Token(20)),
    ("hvb.", Tail::Token(20)),
    ("lin_api_", Tail::Token(20)),
    ("PMAK-", Tail::Token(24)),
    ("sntrys_", Tail::Token(20)),
    ("glsa_", Tail::Token(20)),
    ("tskey-", Tail::Token(16)),
    ("AGE-SECRET-KEY-1", Tail::Token(20)),
    ("eyJ", Tail::Jwt),
    ("-----BEGIN ", Tail::Pem),
    ("://", Tail::Userinfo),
    ("Bearer ", Tail::Credential),
    ("bearer ", Tail::Credential),
    ("Basic ", Tail::Credential),
    // AWS quotes the headers of a request that is signed wrongly.
    ("x-amz-security-token:", Tail::Credential),
    ("Signature=", Tail::Credential),
];

/// For each byte, the groups of formats that have it as their first, second and third byte. A
/// format belongs to the group of its row number modulo 64.
///
/// Every record of a journal is searched, and nearly none has a match. An automaton of all prefixes
/// takes 300 kB, more than the first-level cache holds; these tables take 6 kB.
static HEADS: [[u64; 3]; 256] = {
    let mut heads = [[0; 3]; 256];
    let mut row = 0;
    while row < FORMATS.len() {
        let prefix = FORMATS[row].0.as_bytes();
        let mut nth = 0;
        while nth < 3 {
            // A shorter prefix would not compile: the index would be out of bounds.
            heads[prefix[nth] as usize][nth] |= 1 << (row % 64);
            nth += 1;
        }
        row += 1;
    }
    heads
};

/// Returns the start and the row of the first prefix from `at` on. If several prefixes match at one
/// position, the longest is used, because `sk_live_` also starts with `sk_`.
fn next_prefix(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    // The groups that match the byte before this one, and the two bytes before it.
    let (mut one, mut two) = (0, 0);
    for (end, byte) in bytes.iter().enumerate().skip(at) {
        let [first, second, third] = HEADS[usize::from(*byte)];
        let groups = two & third;
        two = one & second;
        one = first;
        if groups != 0 {
            let start = end - 2;
            let rest = &bytes[start..];
            let is_here = |row: &usize| rest.starts_with(FORMATS[*row].0.as_bytes());
            let in_groups = (0..FORMATS.len()).filter(|row| groups >> (row % 64) & 1 == 1);
            let longest = in_groups.filter(is_here).max_by_key(|row| FORMATS[*row].0.len());
            if let Some(row) = longest {
                return Some((start, row));
            }
        }
    }
    None
}

/// Returns the positions of the credentials of a known format, in order.
pub(super) fn find(bytes: &[u8]) -> Vec<Range<usize>> {
    Found { bytes, at: 0, failed: Failed::default() }.collect()
}

/// `true` if the bytes contain a credential of a known format.
pub(super) fn is_in(bytes: &[u8]) -> bool {
    Found { bytes, at: 0, failed: Failed::default() }.next().is_some()
}

/// `true` if the bytes start with the prefix of a known format.
pub(super) fn begins(bytes: &[u8]) -> bool {
    FORMATS.iter().any(|(prefix, _)| bytes.starts_with(prefix.as_bytes()))
}

/// Returns the start of a suffix that more bytes could turn into a credential, or could extend.
pub(super) fn unfinished(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    let mut begun = None;
    let mut failed = Failed::default();
    while let Some((start, row)) = next_prefix(bytes, at) {
        let (prefix, tail) = FORMATS[row];
        at = start + prefix.len();
        if failed.before(bytes, start, at, tail) {
            continue;
        }
        if is_open(bytes, start, at, tail) {
            begun = Some(start);
            break;
        }
        match credential(bytes, start, at, tail) {
            Some(found) => at = at.max(found.end),
            None => failed.add(bytes, start, at, tail),
        }
    }
    // The end may be a part of a prefix.
    let longest = FORMATS.iter().map(|(prefix, _)| prefix.len()).max().unwrap_or(0);
    let is_part = |start: &usize| {
        let suffix = &bytes[*start..];
        let starts = HEADS[usize::from(suffix[0])][0] != 0;
        starts
            && FORMATS.iter().any(|(prefix, tail)| {
                prefix.len() > suffix.len()
                    && prefix.as_bytes().starts_with(suffix)
                    && (stands_anywhere(*tail) || begins_a_word(bytes, *start))
            })
    };
    let part = ((bytes.len() + 1).saturating_sub(longest)..bytes.len()).find(is_part);
    begun.into_iter().chain(part).min()
}

/// `true` for formats that also count within a word.
fn stands_anywhere(tail: Tail) -> bool {
    matches!(tail, Tail::Userinfo | Tail::Pem | Tail::Credential)
}

/// `true` if the text after the prefix at `start..end` may continue after the last byte.
fn is_open(bytes: &[u8], start: usize, end: usize, tail: Tail) -> bool {
    let rest = &bytes[end..];
    if !stands_anywhere(tail) && !begins_a_word(bytes, start) {
        return false;
    }
    let dotted = bytes[start..end].ends_with(b".");
    let len = match tail {
        Tail::Pem => return is_open_pem(&bytes[start..]),
        Tail::Userinfo => run(rest, in_authority),
        Tail::Credential => run(rest, in_credential),
        Tail::Slashed(_) => run(rest, |byte| is_token(byte) || b"+/=%".contains(&byte)),
        // One more character than the format has shows that the text is something else.
        Tail::AwsId => run(&rest[..rest.len().min(17)], |byte| byte.is_ascii_alphanumeric()),
        Tail::Jwt => run(rest, |byte| is_token(byte) || byte == b'.'),
        Tail::Mixed | Tail::Token(_) => run(rest, |byte| is_token(byte) || dotted && byte == b'.'),
    };
    len == rest.len()
}

/// `true` if these bytes begin a private key in PEM whose end is missing.
fn is_open_pem(block: &[u8]) -> bool {
    let begun = b"-----BEGIN ".len();
    let label = &block[..block.len().min(LONGEST_LABEL)];
    let Some(closes) = memmem::find(&label[begun..], b"-----").map(|at| begun + at) else {
        return block.len() < LONGEST_LABEL && !label.contains(&b'\n');
    };
    if memmem::find(&label[..closes], b"PRIVATE KEY").is_none() {
        return false;
    }
    match memmem::find(&block[..block.len().min(LONGEST_PEM)], b"-----END ") {
        Some(end) => {
            let rest = &block[end + b"-----END ".len()..];
            rest.len() < LONGEST_LABEL && memmem::find(rest, b"-----").is_none()
        }
        None => block.len() < LONGEST_PEM,
    }
}

/// Maximum length of a PEM block that is searched; private keys are shorter.
const LONGEST_PEM: usize = 32 << 10;
/// Maximum length of the line that begins or ends a PEM block.
const LONGEST_LABEL: usize = 80;

fn in_authority(byte: u8) -> bool {
    !byte.is_ascii_whitespace() && !b"/?#\"'<>\\`".contains(&byte)
}

fn in_credential(byte: u8) -> bool {
    is_token(byte) || b".~+/=".contains(&byte)
}

struct Found<'b> {
    bytes: &'b [u8],
    at: usize,
    failed: Failed,
}

/// The ends of the runs of characters that did not qualify as a credential. If a run does not
/// qualify, neither does the rest of it after another prefix, so the run is examined once: text
/// such as `sk-sk-sk-…` would otherwise take quadratic time.
#[derive(Default)]
struct Failed([usize; 4]);

impl Failed {
    /// Returns the index of the formats that share a rule, and the end of the run; `None` for
    /// formats of which any long run qualifies.
    fn rule(bytes: &[u8], start: usize, end: usize, tail: Tail) -> Option<usize> {
        match tail {
            Tail::Mixed => Some(usize::from(bytes[start..end].ends_with(b"."))),
            Tail::Jwt => Some(2),
            Tail::Credential => Some(3),
            _ => None,
        }
    }

    /// `true` if the prefix at `start..end` is within a run that did not qualify.
    fn before(&self, bytes: &[u8], start: usize, end: usize, tail: Tail) -> bool {
        Failed::rule(bytes, start, end, tail).is_some_and(|rule| end < self.0[rule])
    }

    /// Records that the run after this prefix does not qualify.
    fn add(&mut self, bytes: &[u8], start: usize, end: usize, tail: Tail) {
        // A prefix within a word does not decide about the run after it.
        if !stands_anywhere(tail) && !begins_a_word(bytes, start) {
            return;
        }
        let Some(rule) = Failed::rule(bytes, start, end, tail) else { return };
        let rest = &bytes[end..];
        self.0[rule] = end
            + match rule {
                1 => run(rest, |byte| is_token(byte) || byte == b'.'),
                3 => run(rest, in_credential),
                _ => run(rest, is_token),
            };
    }
}

impl Iterator for Found<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        loop {
            let (start, row) = next_prefix(self.bytes, self.at)?;
            let (prefix, tail) = FORMATS[row];
            self.at = start + prefix.len();
            if self.failed.before(self.bytes, start, self.at, tail) {
                continue;
            }
            if let Some(found) = credential(self.bytes, start, self.at, tail) {
                self.at = self.at.max(found.end);
                return Some(found);
            }
            self.failed.add(self.bytes, start, self.at, tail);
        }
    }
}

/// Returns the credential whose prefix is at `start..end`, if the text after it qualifies.
fn credential(bytes: &[u8], start: usize, end: usize, tail: Tail) -> Option<Range<usize>> {
    match tail {
        Tail::Userinfo => return password(bytes, end),
        Tail::Pem => return pem(bytes, start),
        Tail::Credential => {
            let len = run(&bytes[end..], in_credential);
            let word = &bytes[end..end + len];
            let mixed = word.iter().any(u8::is_ascii_digit) || changes(word) >= 3;
            return (len >= 8 && mixed).then_some(end..end + len);
        }
        _ => {}
    }
    if !begins_a_word(bytes, start) {
        return None;
    }
    let rest = &bytes[end..];
    // In other formats a full stop ends the sentence.
    let dotted = bytes[start..end].ends_with(b".");
    let len = match tail {
        Tail::Slashed(least) => {
            let len = run(rest, |byte| is_token(byte) || b"+/=%".contains(&byte));
            Some(len).filter(|len| *len >= least)
        }
        Tail::AwsId => {
            let len = run(rest, |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
            let more = rest.get(len).is_some_and(u8::is_ascii_alphanumeric);
            Some(len).filter(|len| *len == 16 && !more)
        }
        Tail::Jwt => jwt(rest),
        Tail::Mixed => {
            let len = run(rest, |byte| is_token(byte) || dotted && byte == b'.');
            let token = trimmed(&rest[..len]);
            let long = token.split(|byte| b"-_.".contains(byte)).any(|part| {
                part.len() >= 12
                    && part.iter().any(u8::is_ascii_digit)
                    && part.iter().any(u8::is_ascii_alphabetic)
            });
            Some(token.len()).filter(|len| *len >= 16 && long)
        }
        Tail::Token(least) => {
            let len = run(rest, |byte| is_token(byte) || dotted && byte == b'.');
            Some(trimmed(&rest[..len]).len()).filter(|len| *len >= least)
        }
        Tail::Userinfo | Tail::Pem | Tail::Credential => None,
    }?;
    // The prefix of an assignment or an address stays, because it is not secret and tells the
    // reader which credential was redacted.
    let prefix = &bytes[start..end];
    let named = prefix.ends_with(b"=") || prefix.ends_with(b"/") && !prefix.starts_with(b"1/");
    Some(if named { end } else { start }..end + len)
}

/// Removes the full stop or the dash that a sentence may add after a token.
fn trimmed(token: &[u8]) -> &[u8] {
    let end = token.iter().rposition(u8::is_ascii_alphanumeric).map_or(0, |at| at + 1);
    &token[..end]
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

fn run(bytes: &[u8], of: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|byte| !of(*byte)).unwrap_or(bytes.len())
}

/// `true` if a word may start at this position. A JSON escape, a terminal colour or a URL escape
/// before it may end in a letter or a digit, and does not belong to the word.
fn begins_a_word(bytes: &[u8], at: usize) -> bool {
    let before = &bytes[..at];
    let Some(last) = before.last() else { return true };
    if !last.is_ascii_alphanumeric() {
        return true;
    }
    let hex = |digits: &[u8]| digits.iter().all(u8::is_ascii_hexdigit);
    match before {
        [.., b'\\', b'n' | b'r' | b't' | b'b' | b'f'] => true,
        [.., b'%', a, b] if hex(&[*a, *b]) => true,
        [.., b'\\', b'u', a, b, c, d] => hex(&[*a, *b, *c, *d]),
        [colour @ .., b'm'] => {
            let digits =
                colour.iter().rev().take_while(|b| b.is_ascii_digit() || **b == b';').count();
            colour[..colour.len() - digits].ends_with(b"[")
        }
        _ => false,
    }
}

/// Returns the length of a signed or encrypted token after its `eyJ`.
fn jwt(rest: &[u8]) -> Option<usize> {
    let mut len = run(rest, is_token);
    let mut parts = usize::from(len >= 10);
    while parts > 0 && rest.get(len) == Some(&b'.') {
        let more = run(&rest[len + 1..], is_token);
        if more == 0 && parts < 2 {
            break;
        }
        len += 1 + more;
        parts += 1;
    }
    // A full stop after it belongs to the sentence.
    (parts >= 3).then(|| len - usize::from(rest[len - 1] == b'.'))
}

/// Returns the position of the password in an address, after its `://`.
fn password(bytes: &[u8], from: usize) -> Option<Range<usize>> {
    let rest = &bytes[from..];
    let len = run(rest, in_authority);
    let at = memchr::memrchr(b'@', &rest[..len])?;
    let colon = memchr::memchr(b':', &rest[..at])?;
    let text = std::str::from_utf8(&rest[colon + 1..at]).ok()?;
    let is_secret = is_specific(text) || begins(text.as_bytes());
    (is_secret && !names_variable(text)).then_some(from + colon + 1..from + at)
}

/// `true` for `${NAME}` and `$NAME`, which stand for the value of a variable in an address of a
/// settings file. A name without braces has no digit here, because it could be a password.
fn names_variable(text: &str) -> bool {
    let braced = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    let name = braced.or_else(|| text.strip_prefix('$')).unwrap_or_default();
    let fits = |byte: u8| {
        byte == b'_' || byte.is_ascii_uppercase() || (braced.is_some() && byte.is_ascii_digit())
    };
    !name.is_empty() && name.bytes().all(fits)
}

/// Returns the range of a PEM block with a private key; if its end is missing, the range of the
/// key's text.
fn pem(bytes: &[u8], start: usize) -> Option<Range<usize>> {
    let block = &bytes[start..bytes.len().min(start + LONGEST_PEM)];
    let label = &block[..block.len().min(LONGEST_LABEL)];
    let begun = b"-----BEGIN ".len();
    let closes = begun + memmem::find(&label[begun..], b"-----")?;
    memmem::find(&label[..closes], b"PRIVATE KEY")?;
    let body = closes + 5;
    let end = if let Some(at) = memmem::find(&block[body..], b"-----END ") {
        let label = body + at + b"-----END ".len();
        let rest = &block[label..block.len().min(label + LONGEST_LABEL)];
        memmem::find(rest, b"-----").map_or(block.len(), |at| label + at + 5)
    } else {
        let of_key = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=\\ \r\n\t:,-".contains(&byte);
        body + run(&block[body..], of_key)
    };
    Some(start..start + end)
}

#[cfg(test)]
mod tests {
    use super::find;

    /// Returns the text with each credential replaced.
    fn left(text: &str) -> String {
        let mut out = text.to_owned();
        for at in find(text.as_bytes()).into_iter().rev() {
            out.replace_range(at, "…");
        }
        out
    }

    #[test]
    fn longest_prefix_found_at_every_offset() {
        for (row, (prefix, _)) in super::FORMATS.iter().enumerate() {
            for pad in 0..6 {
                let text = format!("{}{prefix}", "s".repeat(pad));
                let (start, found) = super::next_prefix(text.as_bytes(), 0).unwrap();
                // `s` before `k-` would be a prefix of its own.
                assert_eq!((start, found), (pad, row), "{text}");
                let cut = &text.as_bytes()[..text.len() - 1];
                let shorter = super::next_prefix(cut, 0).map(|(_, row)| super::FORMATS[row].0);
                assert!(shorter.is_none_or(|shorter| prefix.starts_with(shorter)), "{text}");
            }
        }
    }

    #[test]
    fn keys_of_known_formats_are_found() {
        let pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----";
        for key in [
            "sk-proj-4fQ9xTz71LmN0pWv",
            "sk-ant-api03-4fQ9xTz71LmN0pWv-x_A",
            "sk_live_51HxAbCdEfGhIjKlMn",
            "rk_test_abcdefghijklmnop",
            "xai-4fQ9xTz71LmN0pWv8aBcD",
            "gsk_4fQ9xTz71LmN0pWv8aBcD",
            "ghp_abcdefghijklmnopqrstuvwxyzABCDEFGHIJ",
            "github_pat_11ABCDEFG0abcdefghij_klmnop",
            "glpat-abcdefghijklmnopqrst",
            "npm_abcdefghijklmnopqrstuvwxyz0123456789",
            "AKIAIOSFODNN7EXAMPLE",
            "AIzaSyD-1234567890abcdefghijklmnopqrstu",
            "xoxb-123456789012-abcdefABCDEF",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
            pem,
        ] {
            assert_eq!(left(&format!("a {key} b")), "a … b", "{key}");
            assert_eq!(left(&format!("key={key}")), "key=…", "{key}");
            assert_eq!(left(key), "…", "{key}");
            // After an escape, in a colour, at the end of a sentence.
            assert_eq!(left(&format!("\\n{key}.")), "\\n….", "{key}");
            assert_eq!(left(&format!("\u{1b}[01;31m{key}\u{1b}[m")), "\u{1b}[01;31m…\u{1b}[m");
        }
    }

    #[test]
    fn names_like_keys_are_unchanged() {
        for text in [
            "gemini, xai-responses, cohere-v2",
            "a risk-free sk- prompt, sk-no-key-required, sk-learn-documentation",
            "task-1234567890abcdef and disk-4fQ9xTz71LmN0pWv",
            "hf_transfer_is_not_installed",
            "eyJ0eXBlIjoibWVzc2FnZV9zdGFydCJ9",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
            "postgres://user:password@localhost/db",
            "http://h:8080/a@b",
            "http://me:$PROXY_PASSWORD@h:8080 or http://me:${PROXY_PASSWORD_2}@h",
            "Bearer authentication is required; Basic authentication, too",
            "ASIA and AFRICA, AKIAx",
        ] {
            assert_eq!(left(text), text);
        }
    }

    /// The time is linear: with quadratic work this test would take many minutes.
    #[test]
    fn repeated_prefixes_are_searched_once() {
        for unit in ["sk-", "SG.", "eyJ-", "Signature=", "://", "-----BEGIN ", "Bearer ", "ghp_-"] {
            let text = unit.repeat((512 << 10) / unit.len());
            find(text.as_bytes());
            super::unfinished(text.as_bytes());
            super::unfinished(format!("{text} .").as_bytes());
        }
        // A key after such a run is found.
        let key = "sk-proj-4fQ9xTz71LmN0pWv";
        assert_eq!(left(&format!("{} {key}", "sk-".repeat(99))), format!("{} …", "sk-".repeat(99)));
    }

    #[test]
    fn password_in_address_is_found() {
        let text = "DATABASE_URL=postgres://app:Zk93-xQ71mmP@db:5432/app?x=1";
        assert_eq!(left(text), "DATABASE_URL=postgres://app:…@db:5432/app?x=1");
        let hook = "curl https://hooks.slack.com/services/T0AB12CD3/B0AB12CD3/4fQ9xTz71LmN0pWv8aBcDeFg -d x";
        assert_eq!(left(hook), "curl https://hooks.slack.com/services/… -d x");
    }

    #[test]
    fn cut_private_key_is_found() {
        let text = "x -----BEGIN PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG9w0B\\nAQEF\" y";
        assert_eq!(left(text), "x …\" y");
    }
}

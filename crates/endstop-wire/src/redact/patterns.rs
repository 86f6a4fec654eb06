//! Credentials that are recognised by their format, wherever they come from: keys of providers and
//! of code hosts, private keys in PEM, JSON Web Tokens, passwords in addresses.

use super::chars::{begins_a_word, in_credential, is_token, run};
use super::context::{Context, aws_secret_after, examined_until};
use super::formats::{FORMATS, Tail, begun_by, next_prefix};
use super::tail::{credential, is_open, stands_anywhere};
use std::ops::Range;

/// Returns the positions of the credentials of a known format. They may overlap.
pub(super) fn find(bytes: &[u8]) -> Vec<Range<usize>> {
    Found::of(bytes).collect()
}

/// Returns the positions of the credentials that the text around them shows. In JSON each of them is within
/// one string, but the names that show it are outside.
pub(super) fn find_shown(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut all = Found::of(bytes);
    let mut found = Vec::new();
    while let Some((at, tail)) = all.next_of_format() {
        if matches!(tail, Tail::Context(_)) {
            found.push(at);
        }
    }
    found
}

/// Returns the positions of the credentials in the value of a member that its name shows.
pub(super) fn find_named(name: &[u8], value: &[u8]) -> Vec<Range<usize>> {
    const BETWEEN: &[u8] = b"\": \"";
    let from = name.len() + BETWEEN.len();
    // Most names are words of an API, and begin no format.
    let head = [name, BETWEEN].concat();
    if next_prefix(&head, 0).is_none() {
        return Vec::new();
    }
    let text = [&head, value].concat();
    let found = find(&text).into_iter().filter(|at| at.start >= from);
    found.map(|at| at.start - from..at.end - from).collect()
}

/// `true` if the bytes contain a credential of a known format.
pub(super) fn is_in(bytes: &[u8]) -> bool {
    Found::of(bytes).next().is_some()
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
        begun_by(&bytes[*start..])
            .any(|row| stands_anywhere(FORMATS[row].1) || begins_a_word(bytes, *start))
    };
    let part = ((bytes.len() + 1).saturating_sub(longest)..bytes.len()).find(is_part);
    begun.into_iter().chain(part).min()
}

struct Found<'b> {
    bytes: &'b [u8],
    at: usize,
    failed: Failed,
    /// The secret of the last credential, which was its id.
    then: Option<Range<usize>>,
}

impl<'b> Found<'b> {
    fn of(bytes: &'b [u8]) -> Found<'b> {
        Found { bytes, at: 0, failed: Failed::default(), then: None }
    }
}

/// The ends of the runs of characters that did not qualify as a credential. If a run does not
/// qualify, neither does the rest of it after another prefix, so the run is examined once: text
/// such as `sk-sk-sk-…` would otherwise take quadratic time.
#[derive(Default)]
struct Failed([usize; 5]);

impl Failed {
    /// Returns the index of the formats that share a rule, and the end of the run; `None` for
    /// formats of which any long run qualifies.
    fn rule(bytes: &[u8], start: usize, end: usize, tail: Tail) -> Option<usize> {
        match tail {
            Tail::Mixed => Some(usize::from(bytes[start..end].ends_with(b"."))),
            Tail::Jwt => Some(2),
            Tail::Credential => Some(3),
            Tail::Context(Context::Variable) => Some(4),
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
        self.0[rule] = match rule {
            1 => end + run(rest, |byte| is_token(byte) || byte == b'.'),
            3 => end + run(rest, in_credential),
            4 => examined_until(bytes, end),
            _ => end + run(rest, is_token),
        };
    }
}

impl Iterator for Found<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        // The search continues after the id, because another id may stand between.
        self.then.take().or_else(|| self.next_of_format().map(|(found, _)| found))
    }
}

impl Found<'_> {
    /// Returns the next credential, without the secret that follows an id.
    fn next_of_format(&mut self) -> Option<(Range<usize>, Tail)> {
        loop {
            let (start, row) = next_prefix(self.bytes, self.at)?;
            let (prefix, tail) = FORMATS[row];
            self.at = start + prefix.len();
            if self.failed.before(self.bytes, start, self.at, tail) {
                continue;
            }
            if let Some(found) = credential(self.bytes, start, self.at, tail) {
                self.at = self.at.max(found.end);
                if matches!(tail, Tail::AwsId) {
                    self.then = aws_secret_after(self.bytes, found.end);
                }
                return Some((found, tail));
            }
            self.failed.add(self.bytes, start, self.at, tail);
        }
    }
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
                // A word such as `SECRET` may be within a prefix.
                assert!(shorter.is_none_or(|shorter| prefix.contains(shorter)), "{text}");
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

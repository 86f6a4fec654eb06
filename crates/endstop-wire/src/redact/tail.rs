//! Text after the prefix of a credential: if it qualifies, where it ends, and if it may continue.

use super::chars::{begins_a_word, in_credential, is_token, run};
use super::context::{self, AWS_WINDOW, Context, aws_secret_after};
use super::entropy::{changes, is_specific};
use super::formats::{Tail, begins};
use memchr::memmem;
use std::ops::Range;

/// `true` for formats that also count within a word.
pub(super) fn stands_anywhere(tail: Tail) -> bool {
    matches!(tail, Tail::Userinfo | Tail::Pem | Tail::Credential | Tail::Context(Context::Variable))
        || matches!(tail, Tail::Context(Context::AwsSecret | Context::Telegram))
}

/// `true` if the text after the prefix at `start..end` may continue after the last byte.
pub(super) fn is_open(bytes: &[u8], start: usize, end: usize, tail: Tail) -> bool {
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
        // One more character than the format has shows that the text is something else. After an id, its
        // secret may follow.
        Tail::AwsId if credential(bytes, start, end, tail).is_some() => {
            let id_end = end + 16;
            return aws_secret_after(bytes, id_end).is_none_or(|at| at.end == bytes.len())
                && bytes.len() < id_end + AWS_WINDOW + 41;
        }
        Tail::AwsId => run(&rest[..rest.len().min(17)], |byte| byte.is_ascii_alphanumeric()),
        Tail::Context(context) => return context::is_open(context, bytes, start, end),
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

/// Returns the credential whose prefix is at `start..end`, if the text after it qualifies.
pub(super) fn credential(
    bytes: &[u8],
    start: usize,
    end: usize,
    tail: Tail,
) -> Option<Range<usize>> {
    match tail {
        Tail::Userinfo => return password(bytes, end),
        Tail::Pem => return pem(bytes, start),
        Tail::Context(context) if stands_anywhere(tail) || begins_a_word(bytes, start) => {
            return context::find(context, bytes, start, end);
        }
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
        Tail::Userinfo | Tail::Pem | Tail::Credential | Tail::Context(_) => None,
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

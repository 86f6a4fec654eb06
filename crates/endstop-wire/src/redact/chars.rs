//! The characters of credentials, and the places at which a word begins.

pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

pub(super) fn in_credential(byte: u8) -> bool {
    is_token(byte) || b".~+/=".contains(&byte)
}

pub(super) fn run(bytes: &[u8], of: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|byte| !of(*byte)).unwrap_or(bytes.len())
}

/// `true` if a word may start at this position. A JSON escape, a terminal colour or a URL escape
/// before it may end in a letter or a digit, and does not belong to the word.
pub(super) fn begins_a_word(bytes: &[u8], at: usize) -> bool {
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

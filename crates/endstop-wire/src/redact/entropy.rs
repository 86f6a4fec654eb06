//! The character statistics that tell a secret from a word, a number, a date or a path.

/// Minimum length of a value that is searched for.
pub(super) const SHORTEST: usize = 8;
/// Minimum length of a value that counts because it mixes letters and digits.
pub(super) const SHORTEST_MIXED: usize = 12;
/// Minimum length of a part that counts as random, whatever the variable's name is.
pub(super) const SHORTEST_RANDOM: usize = 20;

/// `true` if a value is specific enough to search for, judged by its characters alone.
pub(super) fn is_specific(value: &str) -> bool {
    let value = value.trim();
    if value.len() < SHORTEST || is_path(value) || is_date(value) {
        return false;
    }
    let bytes = value.as_bytes();
    let letters = bytes.iter().any(u8::is_ascii_alphabetic) || !value.is_ascii();
    if !letters {
        return false;
    }
    let changes = changes(bytes);
    if bytes.iter().any(u8::is_ascii_digit) {
        return value.len() >= SHORTEST_MIXED || changes >= 3;
    }
    if value.len() < SHORTEST_MIXED {
        return changes >= 3;
    }
    let symbols = bytes.iter().any(|byte| b"!#$%^&*~".contains(byte));
    symbols || changes >= 4 || is_phrase(value) || is_gibberish(value)
}

/// Returns how often the characters change between lower case, upper case and digits, within parts
/// without other characters. A capital followed by lower case counts as no change.
pub(super) fn changes(bytes: &[u8]) -> usize {
    let class = |byte: u8| match byte {
        b'a'..=b'z' => 1,
        b'A'..=b'Z' => 2,
        b'0'..=b'9' => 3,
        _ => 0u8,
    };
    let change = |pair: &[u8]| {
        let (a, b) = (class(pair[0]), class(pair[1]));
        a != b && a != 0 && b != 0 && (a, b) != (2, 1)
    };
    bytes.windows(2).filter(|pair| change(pair)).count()
}

/// Returns `true` if a value is random, whatever its name is: one of its parts is long and changes
/// often between cases or between letters and digits.
///
/// ```
/// use endstop_wire::redact::is_random;
/// assert!(is_random("custom-4fQ9xTz71LmN0pWv8aBc") && !is_random("gzip, deflate, br, zstd"));
/// ```
pub fn is_random(value: &str) -> bool {
    value
        .split(|c: char| !c.is_ascii_alphanumeric())
        .any(|part| part.len() >= SHORTEST_RANDOM && changes(part.as_bytes()) >= 4)
}

pub(super) fn is_path(value: &str) -> bool {
    let drive = matches!(value.as_bytes(), [letter, b':', b'\\' | b'/', ..] if letter.is_ascii_alphabetic());
    let rooted =
        drive || ["/", "~/", "./", "../", "file:"].iter().any(|start| value.starts_with(start));
    // Base64 may begin with a slash, so random values and those with padding are not paths.
    rooted && !is_random(value) && !value.ends_with('=')
}

pub(super) fn is_date(value: &str) -> bool {
    let year = value.bytes().take_while(u8::is_ascii_digit).count();
    year == 4 && value.bytes().all(|byte| byte.is_ascii_digit() || b"-:TZ.+ ".contains(&byte))
}

/// `true` for at least four words, as in a pass phrase.
fn is_phrase(value: &str) -> bool {
    let mut words = 0;
    let mut before = b' ';
    for byte in value.bytes() {
        let begins = !before.is_ascii_alphabetic()
            || before.is_ascii_lowercase() && byte.is_ascii_uppercase();
        words += usize::from(byte.is_ascii_alphabetic() && begins);
        before = byte;
    }
    value.len() >= SHORTEST_RANDOM && words >= 4 && !value.contains('/')
}

/// `true` for letters that are not words: a run longer than any word, or six consonants in a row.
fn is_gibberish(value: &str) -> bool {
    let is_consonant = |c: char| c.is_ascii_alphabetic() && !"aeiouyAEIOUY".contains(c);
    let consonants = value.split(|c| !is_consonant(c)).map(str::len).max();
    let letters = value.split(|c: char| !c.is_ascii_alphabetic()).map(str::len).max();
    consonants >= Some(6) || letters >= Some(24)
}

//! Compares a stored string, from which secrets were cut out, with the string of this run.
//!
//! ```text
//! stands_for("key=[redacted]", "key=abc") // true
//! ```

use endstop_wire::redact::REDACTED;

/// `true` if the recorded string matches this one; `[redacted]` matches any text.
pub(crate) fn stands_for(recorded: &str, now: &str) -> bool {
    let Some((first, rest)) = recorded.split_once(REDACTED) else { return recorded == now };
    let Some(mut now) = now.strip_prefix(first) else { return false };
    // The first and the last piece are anchored. The earliest match of each middle piece leaves the
    // most text for the rest, so no backtracking is needed.
    let (between, last) = rest.rsplit_once(REDACTED).map_or(("", rest), |(b, last)| (b, last));
    let Some(middle) = now.strip_suffix(last) else { return false };
    now = middle;
    for piece in between.split(REDACTED) {
        match now.find(piece) {
            Some(at) => now = &now[at + piece.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacted_matches_any_text() {
        for (recorded, now, same) in [
            ("a [redacted] b", "a key b", true),
            ("a [redacted] b", "a  b", true),
            ("a [redacted] b", "a b", false),
            ("[redacted]", "", true),
            ("x[redacted]y[redacted]z", "x1y2z", true),
            ("x[redacted]y[redacted]z", "x12z", false),
            ("x[redacted]", "y", false),
            ("[redacted]x[redacted]", "axb", true),
        ] {
            assert_eq!(stands_for(recorded, now), same, "{recorded} {now}");
        }
    }
}

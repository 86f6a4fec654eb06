//! Tool call ids in the form that a strict server accepts.
//!
//! ```text
//! call_id("D681PevKs", Some(9)) → "D681PevKs"   (already valid)
//! call_id("call_1", Some(9))    → nine letters and digits derived from "call_1"
//! call_id("call_1", None)       → "call_1"
//! ```

use std::borrow::Cow;

/// Returns the id, or a replacement of `length` letters and digits derived from it. The result is
/// deterministic, because a call and its result must agree even if the id is from another server or
/// was generated here.
pub(super) fn call_id(id: &str, length: Option<usize>) -> Cow<'_, str> {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let Some(length) = length else {
        return Cow::Borrowed(id);
    };
    if id.len() == length && id.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Cow::Borrowed(id);
    }
    // FNV-1a with 128 bits, so that all characters of the replacement depend on the whole id.
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in id.bytes() {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    let mut made = String::with_capacity(length);
    for _ in 0..length {
        made.push(char::from(DIGITS[(hash % 62) as usize]));
        hash /= 62;
    }
    Cow::Owned(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn derived_ids_are_valid_and_distinct() {
        let ids: Vec<String> = (0..10_000).map(|n| format!("call_turn_{n}")).collect();
        let made: HashSet<String> =
            ids.iter().map(|id| call_id(id, Some(9)).into_owned()).collect();
        assert_eq!(made.len(), ids.len());
        assert!(made.iter().all(|id| id.len() == 9 && call_id(id, Some(9)) == id.as_str()));
        for id in ["", "null", "ten letter", "D681PevK-", "é12345678", "D681PevKs1"] {
            let made = call_id(id, Some(9));
            assert!(made.len() == 9 && made.bytes().all(|b| b.is_ascii_alphanumeric()), "{made}");
            assert_eq!(made, call_id(id, Some(9)));
        }
    }
}

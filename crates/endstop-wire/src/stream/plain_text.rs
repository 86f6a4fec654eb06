//! Finds the end of the plain text inside a JSON string: the first quote, backslash or control
//! character.
//!
//! Most names and values are shorter than 30 bytes, for which the call of a vectorised search costs
//! more than the search. So eight bytes are examined at a time.

/// Returns the number of bytes before the first quote, backslash or control character.
#[inline]
pub(crate) fn plain_length(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let mut rest = bytes;
    while let Some((eight, after)) = rest.split_first_chunk::<8>() {
        let eight = u64::from_le_bytes(*eight);
        // Sets the high bit of each byte that is less than `limit`. A borrow can only set the bit of a
        // byte after the first one.
        let below = |bytes: u64, limit: u64| bytes.wrapping_sub(ONES * limit) & !bytes;
        // Exchanges the quote, 0x22, with the space, 0x20; control characters stay below it.
        let quotes_and_controls = below(eight ^ (ONES * 0x02), 0x21);
        let backslashes = below(eight ^ (ONES * u64::from(b'\\')), 1);
        let special = (quotes_and_controls | backslashes) & HIGH;
        if special != 0 {
            return bytes.len() - rest.len() + special.trailing_zeros() as usize / 8;
        }
        rest = after;
    }
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    let last = rest.iter().position(is_special).unwrap_or(rest.len());
    bytes.len() - rest.len() + last
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn plain_length_is_exact(bytes in proptest::collection::vec(
            prop_oneof![9 => any::<u8>(), 1 => proptest::sample::select(&b"\"\\\n\x1f !]#"[..])],
            0..40,
        )) {
            let is_special = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
            let want = bytes.iter().position(is_special).unwrap_or(bytes.len());
            prop_assert_eq!(plain_length(&bytes), want);
        }
    }
}

//! A hash that is the same in each process, on each machine and with each version of Rust, so that
//! counts of several processes can be merged.
//!
//! ```text
//! let task = stable_hash(["intercode_sql", "dev/17"]);
//! ```

/// Returns the hash of several strings: FNV-1a, mixed so that each bit depends on all bytes.
pub(crate) fn stable_hash<'p>(parts: impl IntoIterator<Item = &'p str>) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        // No UTF-8 text contains 0xff, so it separates the parts.
        for byte in part.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    // The finaliser of SplitMix64: the low bits of FNV-1a hardly depend on the high bits of a byte.
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

#[cfg(test)]
mod tests {
    use super::stable_hash;

    #[test]
    fn hash_is_fixed_and_separates_parts() {
        // Counts of other processes contain these values, so they must never change.
        assert_eq!(stable_hash([]), 0xf52a_15e9_a9b5_e89b);
        assert_eq!(stable_hash(["sql", "17"]), 0xda05_a087_6839_6d5c);
        assert_ne!(stable_hash(["sql", "17"]), stable_hash(["sql1", "7"]));
        assert_ne!(stable_hash(["sql", "17"]), stable_hash(["17", "sql"]));
        let ones: u32 = (0..1000).map(|n| stable_hash([&*n.to_string()]) as u32 & 1).sum();
        assert!((450..550).contains(&ones), "{ones} of 1000 have the lowest bit set");
    }
}

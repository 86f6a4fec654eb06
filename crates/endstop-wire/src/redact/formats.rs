//! Formats of known credentials as a table: a prefix, and the required text after it.
//!
//! A format has a prefix and a least length, because a prefix alone also begins ordinary names: the
//! wire format `xai-responses` is not a key of xAI. If the prefix is short, a key also needs a long
//! part with digits in it.

use super::context::Context;

/// The required text after a prefix.
#[derive(Clone, Copy)]
pub(super) enum Tail {
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
    /// A value that the text around it shows.
    Context(Context),
}

/// The prefix of the secret in the address that guard gives to its program.
pub(super) const GUARD: &str = "endstop_guard_";

/// The known formats: a prefix, and the required text after it.
pub(super) const FORMATS: [(&str, Tail); 119] = [
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
    (GUARD, Tail::Token(32)),
    ("eyJ", Tail::Jwt),
    ("-----BEGIN ", Tail::Pem),
    ("://", Tail::Userinfo),
    ("Bearer ", Tail::Credential),
    ("bearer ", Tail::Credential),
    ("Basic ", Tail::Credential),
    // AWS quotes the headers of a request that is signed wrongly.
    ("x-amz-security-token:", Tail::Credential),
    ("Signature=", Tail::Credential),
    // Without a format: the text around them shows them.
    ("SECRET", Tail::Context(Context::Variable)),
    ("TOKEN", Tail::Context(Context::Variable)),
    ("PASSWORD", Tail::Context(Context::Variable)),
    ("PASSWD", Tail::Context(Context::Variable)),
    ("PASSPHRASE", Tail::Context(Context::Variable)),
    ("APIKEY", Tail::Context(Context::Variable)),
    ("_KEY", Tail::Context(Context::Variable)),
    ("_PASS", Tail::Context(Context::Variable)),
    ("CREDENTIAL", Tail::Context(Context::Variable)),
    ("secret_access_key", Tail::Context(Context::AwsSecret)),
    ("SecretAccessKey", Tail::Context(Context::AwsSecret)),
    ("secretAccessKey", Tail::Context(Context::AwsSecret)),
    ("aws_secret_key", Tail::Context(Context::AwsSecret)),
    ("sig=", Tail::Context(Context::Signature)),
    ("client-key-data", Tail::Context(Context::Key)),
    ("identitytoken", Tail::Context(Context::Key)),
    ("token", Tail::Context(Context::KubeToken)),
    ("auth\"", Tail::Context(Context::DockerAuth)),
    ("auth\\", Tail::Context(Context::DockerAuth)),
    ("machine ", Tail::Context(Context::Netrc)),
    (":AA", Tail::Context(Context::Telegram)),
];

/// For each byte, the groups of formats that have it as their first, second and third byte. A
/// format belongs to the group of its row number modulo 64.
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

/// The pairs of bytes with which a prefix begins, and the pairs one byte later: one bit for each
/// pair. Of two neighbouring positions one is even, so looking at every second pair finds every
/// prefix.
///
/// Every record of a journal is searched, and nearly none has a match. An automaton of all prefixes
/// takes 300 kB, more than the first-level cache holds; these tables take 14 kB, and a search reads
/// half of the positions.
static PAIRS: [u64; 1024] = {
    let mut pairs = [0; 1024];
    let mut row = 0;
    while row < FORMATS.len() {
        let prefix = FORMATS[row].0.as_bytes();
        let mut nth = 0;
        while nth < 2 {
            let pair = u16::from_le_bytes([prefix[nth], prefix[nth + 1]]) as usize;
            pairs[pair / 64] |= 1 << (pair % 64);
            nth += 1;
        }
        row += 1;
    }
    pairs
};

/// Returns the start and the row of the first prefix from `at` on. If several prefixes match at one
/// position, the longest is used, because `sk_live_` also starts with `sk_`.
pub(super) fn next_prefix(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let begins = |pair: &[u8]| {
        let pair = usize::from(u16::from_le_bytes(pair.try_into().unwrap_or_default()));
        PAIRS[pair / 64] >> (pair % 64) & 1 == 1
    };
    for (nth, pair) in bytes.get(at..)?.chunks_exact(2).enumerate() {
        if !begins(pair) {
            continue;
        }
        // The pair is the second of a prefix that starts before it, or the first of its own.
        let middle = at + 2 * nth;
        for start in middle.saturating_sub(1).max(at)..=middle {
            let groups = groups_at(bytes, start);
            // Most pairs belong to a word, and its next letter shows that.
            if groups == 0 {
                continue;
            }
            if let Some(row) = longest_of(groups, &bytes[start..]) {
                return Some((start, row));
            }
        }
    }
    None
}

/// Returns the groups of the formats whose prefix may be at this position, one bit for each.
fn groups_at(bytes: &[u8], start: usize) -> u64 {
    let Some([first, second, third]) = bytes.get(start..).and_then(|rest| rest.first_chunk())
    else {
        return 0;
    };
    let of = |byte: &u8, nth: usize| HEADS[usize::from(*byte)][nth];
    of(first, 0) & of(second, 1) & of(third, 2)
}

/// Returns the row of the longest prefix in these groups with which the bytes begin.
// Hardly any three letters of a text are those of a prefix.
#[cold]
fn longest_of(groups: u64, bytes: &[u8]) -> Option<usize> {
    let is_here = |row: &usize| bytes.starts_with(FORMATS[*row].0.as_bytes());
    rows_of(groups).filter(is_here).max_by_key(|row| FORMATS[*row].0.len())
}

/// Returns the rows of these groups, one bit for each group.
fn rows_of(mut groups: u64) -> impl Iterator<Item = usize> {
    let each = std::iter::from_fn(move || {
        let group = (groups != 0).then(|| groups.trailing_zeros() as usize)?;
        // Clears the lowest bit.
        groups &= groups - 1;
        Some(group)
    });
    each.flat_map(|group| (group..FORMATS.len()).step_by(64))
}

/// Returns the rows of the prefixes that begin with these bytes and are longer.
pub(super) fn begun_by(bytes: &[u8]) -> impl Iterator<Item = usize> {
    // Most ends of a text begin no prefix, and their first bytes show that.
    let heads = bytes.iter().zip(0..3).map(|(byte, nth)| HEADS[usize::from(*byte)][nth]);
    let longer = |row: &usize| {
        let prefix = FORMATS[*row].0.as_bytes();
        prefix.len() > bytes.len() && prefix.starts_with(bytes)
    };
    rows_of(heads.fold(u64::MAX, |groups, head| groups & head)).filter(longer)
}

/// `true` if the bytes start with the prefix of a known format.
pub(super) fn begins(bytes: &[u8]) -> bool {
    FORMATS.iter().any(|(prefix, _)| bytes.starts_with(prefix.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_begun_by(row: usize, bytes: &[u8]) -> bool {
        FORMATS[row].0.len() > bytes.len() && FORMATS[row].0.as_bytes().starts_with(bytes)
    }

    fn assert_begun(bytes: &[u8]) {
        let mut found: Vec<usize> = begun_by(bytes).collect();
        found.sort_unstable();
        let expected: Vec<usize> =
            (0..FORMATS.len()).filter(|row| is_begun_by(*row, bytes)).collect();
        assert_eq!(found, expected, "{bytes:?}");
    }

    #[test]
    fn each_part_of_prefix_begins_it() {
        for (prefix, _) in FORMATS {
            (0..=prefix.len()).for_each(|end| assert_begun(&prefix.as_bytes()[..end]));
        }
    }

    proptest! {
        #[test]
        fn other_bytes_begin_no_prefix(bytes in "[a-zA-Z_:/ -]{0,5}") {
            assert_begun(bytes.as_bytes());
        }
    }
}

//! The nearest of several names, for the message about an unknown name.

/// Returns ` (did you mean `NAME`?)` with the nearest of these names, or nothing if none is near.
pub fn did_you_mean<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    // 64 characters bound the work for a hostile name; no real name is that long.
    let start: String = name.chars().take(64).collect();
    let near = known
        .into_iter()
        .map(|known| (strsim::osa_distance(&start, known), known))
        // Allow one typo, and one more for every four characters of the name.
        .filter(|(distance, known)| *distance <= 1 + known.len() / 4)
        .min();
    near.map_or_else(String::new, |(_, known)| format!(" (did you mean `{known}`?)"))
}

//! The nearest of several names, for the message about an unknown name.

/// Returns ` (did you mean `NAME`?)` with the nearest of these names, or nothing if none is near.
pub fn did_you_mean<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    // 64 characters bound the work for a hostile name; no real name is that long.
    let start: String = name.chars().take(64).collect();
    let letters = start.chars().count();
    let near = known
        .into_iter()
        .filter_map(|known| {
            let distance = strsim::osa_distance(&start, known);
            // Allow one typo, and one more for every four characters of the name.
            if distance <= 1 + known.len() / 4 {
                return Some((false, distance, known));
            }
            // A shortened name is compared with the beginning; three letters would fit too many.
            let beginning: String = known.chars().take(letters + 1).collect();
            let distance = strsim::osa_distance(&start, &beginning);
            (letters > 3 && distance <= 1).then_some((true, distance, known))
        })
        .min();
    near.map_or_else(String::new, |(_, _, known)| format!(" (did you mean `{known}`?)"))
}

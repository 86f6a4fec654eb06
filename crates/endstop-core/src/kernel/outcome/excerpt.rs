//! Shortens texts of the model and of tools for evidence and messages.

/// The first 200 characters.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(200) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// The text without its middle, if it is longer than this number of bytes: a quarter from its
/// beginning and the rest from its end, where programs print their summary.
pub(crate) fn without_middle(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    // The standard library's search for a boundary is newer than the oldest supported compiler.
    let boundary = |at: &usize| text.is_char_boundary(*at);
    let quarter = most / 4;
    let head = (0..=quarter).rev().find(boundary).unwrap_or(0);
    let tail = (text.len() - (most - quarter)..text.len()).find(boundary).unwrap_or(text.len());
    format!("{}\n[… {} bytes left out …]\n{}", &text[..head], tail - head, &text[tail..])
}

//! Shortens texts of the model and of tools for evidence and messages.

/// The first 200 characters.
pub(super) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(200) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// The text without its middle, if it is longer than this number of bytes: a quarter from its
/// beginning and the rest from its end, where programs print their summary.
pub(super) fn without_middle(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(most / 4);
    let tail = text.ceil_char_boundary(text.len() - (most - most / 4));
    format!("{}\n[… {} bytes left out …]\n{}", &text[..head], tail - head, &text[tail..])
}

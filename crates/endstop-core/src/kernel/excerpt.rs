//! Shortens texts of the model and of tools for evidence and messages.

/// The first 200 characters.
pub(super) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(200) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

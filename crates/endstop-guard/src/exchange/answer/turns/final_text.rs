//! The text of a final turn, and its surroundings.

/// A text, and the values that its answer repeats or requires.
#[derive(Clone, Copy)]
pub(crate) struct FinalText<'a> {
    pub(crate) model: &'a str,
    pub(crate) text: &'a str,
    pub(crate) id: &'a str,
    pub(crate) at: u64,
    pub(crate) usage: bool,
}

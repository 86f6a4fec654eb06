//! Declared answers: what the scanner of calls finds, and the options that decide which one counts.

/// The declaration that counts if there are several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pick {
    /// The first in the text.
    #[default]
    First,
    /// The last in the text.
    Last,
}

/// The options of a [`Scanner`](super::Scanner).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannerOptions {
    /// The text is a message: calls in fenced blocks and inline code do not count.
    pub prose: bool,
    /// Ignore `final(…)` and other spellings.
    pub case_sensitive: bool,
    /// The declaration that counts.
    pub pick: Pick,
}

impl Default for ScannerOptions {
    fn default() -> Self {
        ScannerOptions { prose: false, case_sensitive: true, pick: Pick::First }
    }
}

/// A declaration that was found.
#[derive(Clone, Copy, Debug)]
pub struct Declaration<'a> {
    pub(super) callee: Callee,
    pub(super) at: usize,
    pub(super) argument: &'a str,
}

impl<'a> Declaration<'a> {
    /// Returns the function that was called.
    pub fn callee(&self) -> Callee {
        self.callee
    }

    /// Returns the start of its name, in bytes from the start of the text.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Returns the text between its brackets.
    pub fn argument(&self) -> &'a str {
        self.argument
    }
}

/// The policy's name.
pub(super) const NAME: &str = "final_pattern";

/// The function that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    /// `FINAL(answer)`
    Final,
    /// `FINAL_VAR(name)`
    FinalVar,
    /// `SUBMIT(key=value, …)`
    Submit,
}

impl Callee {
    /// The name as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Callee::Final => "FINAL",
            Callee::FinalVar => "FINAL_VAR",
            Callee::Submit => "SUBMIT",
        }
    }

    /// Returns the function with this name.
    pub(super) fn named(word: &str, case_sensitive: bool) -> Option<Callee> {
        [Callee::Final, Callee::FinalVar, Callee::Submit].into_iter().find(|c| {
            if case_sensitive { word == c.as_str() } else { word.eq_ignore_ascii_case(c.as_str()) }
        })
    }
}

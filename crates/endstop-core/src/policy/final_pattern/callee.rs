//! The functions that declare an answer.

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

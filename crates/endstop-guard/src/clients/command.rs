//! A command line while it is changed.
//!
//! ```text
//! command.option("--model") // the words of the option, and its value
//! ```

use std::ffi::OsString;
use std::ops::Range;

/// A command line, and where the arguments of its program begin.
#[derive(Clone, Debug, Default)]
pub(super) struct Command {
    pub(super) words: Vec<OsString>,
    /// Index of the first argument of the program.
    pub(super) after: usize,
    /// Variables that `env` sets: the index of the word, the name and the value.
    pub(super) assignments: Vec<(usize, String, String)>,
    /// The word that clears the environment, if there is one.
    pub(super) cleared_by: Option<String>,
}

impl Command {
    /// `true` if the program is started as another user.
    pub(super) fn changes_user(&self) -> bool {
        self.cleared_by.as_deref().is_some_and(|word| matches!(word, "sudo" | "doas"))
    }

    /// Returns the indices of an option's words, and its value. The last one counts.
    pub(super) fn option(&self, name: &str) -> Option<(Range<usize>, String)> {
        let words = &self.words;
        (self.after..words.len()).rev().find_map(|at| {
            let word = words[at].to_string_lossy();
            match word.strip_prefix(name)?.strip_prefix('=') {
                Some(value) => Some((at..at + 1, value.to_owned())),
                None if *word == *name => {
                    Some((at..at + 2, words.get(at + 1)?.to_string_lossy().into_owned()))
                }
                // Another option whose name begins with this one.
                None => None,
            }
        })
    }
}

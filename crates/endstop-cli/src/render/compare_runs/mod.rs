//! The comparison of single runs: how each ended, what it cost, and where they diverge; as text, as
//! JSON, and as an HTML page.
//!
//! ```text
//! let compared = Comparison::of(sides); // the first run with each of the others
//! ```

pub(crate) mod difference;
mod format;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod path;
pub(crate) mod text;

use difference::{Divergence, divergence};
use path::Path;

/// The first run, compared with each of the others.
pub(crate) struct Comparison {
    pub(crate) runs: Vec<Path>,
    pub(crate) pairs: Vec<Pair>,
}

/// The first run and another one.
pub(crate) struct Pair {
    /// Position of the other run, from 1.
    pub(crate) other: usize,
    /// Number of turns from the first that both runs have in common.
    pub(crate) same: u64,
    /// The first difference; `None` if all turns are the same.
    pub(crate) diverge: Option<Divergence>,
}

impl Comparison {
    /// Compares the first run with the others.
    pub(crate) fn of(runs: Vec<Path>) -> Comparison {
        let pair = |other: usize| {
            let diverge = divergence(&runs[0], &runs[other]);
            let last = runs[0].last().max(runs[other].last());
            let same = diverge.as_ref().map_or(last, |found| found.turn - 1);
            Pair { other, same, diverge }
        };
        let pairs = (1..runs.len()).map(pair).collect();
        Comparison { runs, pairs }
    }

    /// Returns the letter of a run: `A` for the first.
    pub(crate) fn letter(nth: usize) -> String {
        let letter = char::from(b'A' + (nth % 26) as u8);
        if nth < 26 { letter.to_string() } else { format!("{letter}{}", nth / 26) }
    }
}

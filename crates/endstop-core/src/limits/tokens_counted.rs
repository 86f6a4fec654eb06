//! The tokens that count against the token ceiling of a run.
//!
//! ```
//! use endstop_core::{TokensCounted, Usage};
//! let usage = Usage {
//!     input_tokens: Some(1000),
//!     cached_input_tokens: Some(900),
//!     output_tokens: Some(50),
//!     ..Usage::default()
//! };
//! let counts = [TokensCounted::All, TokensCounted::Uncached, TokensCounted::Output];
//! assert_eq!(counts.map(|counts| counts.of(&usage)), [1050, 150, 50]);
//! ```

use crate::usage::Usage;
use serde::{Deserialize, Serialize};

/// The tokens that [`Limits::max_tokens`](super::Limits::max_tokens) counts. A variant that counts
/// fewer tokens permits more, and is greater.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum TokensCounted {
    /// Prompt and generated tokens.
    #[default]
    All,
    /// Generated tokens, and the prompt tokens that were not read from a cache.
    Uncached,
    /// Generated tokens, including reasoning.
    Output,
}

impl TokensCounted {
    /// All variants, from the one that permits least.
    pub const ALL: [TokensCounted; 3] =
        [TokensCounted::All, TokensCounted::Uncached, TokensCounted::Output];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            TokensCounted::All => "all",
            TokensCounted::Uncached => "uncached",
            TokensCounted::Output => "output",
        }
    }

    /// The word before "tokens" in a sentence, with a space; empty for all tokens.
    pub const fn qualifier(self) -> &'static str {
        match self {
            TokensCounted::All => "",
            TokensCounted::Uncached => "uncached ",
            TokensCounted::Output => "output ",
        }
    }

    /// Returns the number of tokens of a usage that count.
    pub fn of(self, usage: &Usage) -> u64 {
        match self {
            TokensCounted::All => usage.total_tokens(),
            TokensCounted::Uncached => {
                // A server may report more cached tokens than the prompt has.
                let cached = usage.cached_input_tokens.unwrap_or(0);
                let prompt = usage.prompt_tokens().saturating_sub(cached);
                prompt.saturating_add(usage.generated_tokens().unwrap_or(0))
            }
            TokensCounted::Output => usage.generated_tokens().unwrap_or(0),
        }
    }

    /// Returns the part of a prompt that counts in the worst case, in which no cache is read.
    pub(crate) const fn of_prompt(self, tokens: u64) -> u64 {
        match self {
            TokensCounted::All | TokensCounted::Uncached => tokens,
            TokensCounted::Output => 0,
        }
    }
}

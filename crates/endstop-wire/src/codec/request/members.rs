//! The members that a request may have, as data: for each what it may hold without a cost that its size does not show.
//!
//! The lists have what may be there: a provider can add a member that costs at any time, and a server can read a
//! member otherwise than its format has it, for example in another case. What is not in a list is not known.

/// The values that a member may hold.
#[derive(Clone, Copy, Debug)]
pub enum Holds {
    /// Anything: it costs no more than the tokens of the request, and of an answer up to its cap.
    Any,
    /// The number of answers.
    Count,
    /// A list of messages.
    Messages,
    /// A list of messages, or a text.
    MessagesOrText,
    /// Instructions: a text, or parts like those of messages.
    Parts,
    /// Tools that the client runs.
    Tools,
    /// One of these words, alone or in an object.
    Word(&'static [&'static str]),
    /// A list of text modalities.
    Text,
    /// Changes of the history that generate nothing.
    Edits,
    /// A value that stands for nothing: some clients send members that they do not use.
    Nothing,
    /// An object with these members.
    Object(&'static [Member]),
}

/// A member's name, and what it may hold.
pub type Member = (&'static str, Holds);

/// The members of a format's requests.
#[derive(Clone, Copy, Debug)]
pub struct Members {
    /// The members, without the output cap.
    pub rows: &'static [Member],
    /// `true` if servers read a name of the list in snake case, too.
    pub also_in_snake_case: bool,
}

use Holds::{Any, Object, Word};

/// Service tiers at the list price or below.
pub(crate) const TIER: Holds =
    Word(&["auto", "default", "flex", "standard", "standard_only", "batch"]);
/// Members that make a server generate more than it returns; one of them is allowed.
pub(crate) const ONE: Holds = Word(&["1"]);
/// The reasoning of OpenAI's models, and of gateways. It counts against the output cap.
pub(crate) const REASONING: Holds = Object(&[
    ("effort", Any),
    ("summary", Any),
    ("generate_summary", Any),
    ("max_tokens", Any),
    ("enabled", Any),
    ("exclude", Any),
]);
/// The reasoning of other models. It counts against the output cap.
pub(crate) const THINKING: Holds = Object(&[
    ("type", Any),
    ("budget_tokens", Any),
    ("token_budget", Any),
    ("display", Any),
    ("clear_thinking", Any),
]);

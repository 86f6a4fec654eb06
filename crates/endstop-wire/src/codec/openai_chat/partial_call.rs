//! A tool call whose fragments are being received.

use crate::bounded::Nesting;
use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::sync::OnceLock;

/// A partially received tool call.
#[derive(Default)]
pub(super) struct PartialCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    nesting: Nesting,
    /// Length of the arguments when their brackets were closed for the first time.
    closed: Option<usize>,
    /// `true` if the arguments up to there parse as JSON. Set when it is first asked for, because
    /// only calls without an index need it.
    whole: OnceLock<bool>,
    /// Position among the reported calls. A call without a name is never reported.
    pub(super) shown: Option<usize>,
    /// Index of the choice that the call is in.
    pub(super) choice: u64,
    /// `true` if the stream index of the call is its position.
    pub(super) in_place: bool,
}

impl PartialCall {
    /// Creates a call of a choice.
    pub(super) fn of(choice: u64) -> PartialCall {
        PartialCall { choice, ..PartialCall::default() }
    }

    /// Appends arguments.
    pub(super) fn more(&mut self, arguments: Cow<'_, str>) {
        let closed = self.nesting.push(&arguments);
        if self.arguments.is_empty() {
            // Those of a complete body arrive at once, and are not copied again.
            self.arguments = arguments.into_owned();
        } else {
            self.arguments.push_str(&arguments);
        }
        if closed && self.closed.is_none() {
            self.closed = Some(self.arguments.len());
        }
    }

    /// `true` if the arguments were complete JSON when their brackets were closed. They are parsed
    /// only once, so that the total work stays linear.
    pub(super) fn is_whole(&self) -> bool {
        let Some(arguments) = self.closed.and_then(|end| self.arguments.get(..end)) else {
            return false;
        };
        *self.whole.get_or_init(|| serde_json::from_str::<IgnoredAny>(arguments).is_ok())
    }
}

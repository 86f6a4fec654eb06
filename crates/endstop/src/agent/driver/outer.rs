//! The tool call of another run on whose behalf a run works.
//!
//! ```text
//! let outer = Outer::new(context); // what this run spends is reported there
//! ```

use crate::tool::ToolContext;
use endstop_core::{NanoUsd, Unreported, Usage};

/// The tool call of another run on whose behalf this run works, and the totals reported to that
/// run.
pub(super) struct Outer {
    pub(super) context: ToolContext,
    pub(super) usage: Usage,
    pub(super) cost: NanoUsd,
    pub(super) unreported: Unreported,
}

impl Outer {
    pub(super) fn new(context: ToolContext) -> Outer {
        Outer {
            context,
            usage: Usage::default(),
            cost: NanoUsd::ZERO,
            unreported: Unreported::NOTHING,
        }
    }
}

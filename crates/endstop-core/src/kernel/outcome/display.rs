//! An outcome in two lines: what stopped the run, and what it used.
//!
//! ```text
//! error_max_turns (capacity), decided by limit `max_turns`: 25 of 25 turns
//! 25 turns, 31 tool calls, 48210 tokens, $0.1234, 61.2 s
//! ```

use super::Outcome;
use crate::usage::{Billing, NanoUsd};
use std::fmt;

impl fmt::Display for Outcome {
    /// Formats two lines: what stopped the run, and what it used. The answer is not part of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = &self.decided_by;
        write!(f, "{} ({})", self.termination, self.category().as_str())?;
        if !self.is_success() {
            write!(f, ", decided by {} `{}`", by.layer, by.decision)?;
        }
        // Only the first line: the evidence may quote a response.
        if let Some(evidence) = by.evidence.lines().next().filter(|line| !line.is_empty()) {
            write!(f, ": {evidence}")?;
        }
        if self.verified == Some(false) {
            f.write_str(", but the verifier rejected the result")?;
        }
        writeln!(f)?;
        count(f, u64::from(self.turns), "turn")?;
        f.write_str(", ")?;
        count(f, u64::from(self.tool_calls), "tool call")?;
        f.write_str(", ")?;
        count(f, self.usage.total_tokens(), "token")?;
        match (self.cost_unknown, self.cost == NanoUsd::ZERO) {
            (false, _) => write!(f, ", {}", self.cost)?,
            (true, false) if self.usage.billing == Billing::AtMost => {
                write!(f, ", at most {}", self.cost)?;
            }
            (true, false) => write!(f, ", at least {}", self.cost)?,
            (true, true) => f.write_str(", cost unknown")?,
        }
        write!(f, ", {:.1} s", self.duration.as_secs_f64())
    }
}

fn count(f: &mut fmt::Formatter<'_>, number: u64, what: &str) -> fmt::Result {
    write!(f, "{number} {what}{}", if number == 1 { "" } else { "s" })
}

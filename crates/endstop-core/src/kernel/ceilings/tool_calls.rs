//! The limits on the tool calls of a run and of each of its tools.
//!
//! Only calls that start count, without `finish`. A call too many is answered and not started, so that as many calls as
//! allowed may be followed by an answer.

use crate::kernel::context::RunContext;
use crate::kernel::outcome::ending::excerpt;
use crate::kernel::setup::spec::RunSpec;
use std::collections::BTreeMap;

/// Calls that a turn is about to start, by their tools.
#[derive(Debug, Default)]
pub(crate) struct Starting<'a> {
    all: u32,
    // By name, because a hostile response may have any number of calls.
    of: BTreeMap<&'a str, u32>,
}

impl<'a> Starting<'a> {
    /// Adds a call, or returns the evidence if it would be one too many.
    pub(crate) fn add(&mut self, name: &'a str, context: &RunContext) -> Result<(), String> {
        let of_tool = self.of.entry(name).or_default();
        if let Some(evidence) = exceeded(name, *of_tool, self.all, context) {
            return Err(evidence);
        }
        *of_tool += 1;
        self.all += 1;
        Ok(())
    }
}

/// Returns the evidence if a call of this tool would be one too many.
pub(crate) fn exhausted(name: &str, context: &RunContext) -> Option<String> {
    exceeded(name, 0, 0, context)
}

/// The same after more calls of the tool, and of all tools.
fn exceeded(name: &str, of_tool: u32, of_all: u32, context: &RunContext) -> Option<String> {
    let counts = &context.counts;
    let all = counts.started.saturating_add(of_all);
    if let Some(max) = context.settings.limits.max_tool_calls.filter(|max| all >= *max) {
        return Some(format!("{all} of {max} tool calls; `{}` was not started", excerpt(name)));
    }
    let max = most_of(name, &context.settings)?;
    let own = counts.started_of.get(name).copied().unwrap_or_default().saturating_add(of_tool);
    (own >= max).then(|| {
        format!("{own} of {max} calls of `{}`; another one was not started", excerpt(name))
    })
}

/// Counts a call that is started.
pub(crate) fn count(name: &str, context: &mut RunContext) {
    context.counts.started = context.counts.started.saturating_add(1);
    if most_of(name, &context.settings).is_some() {
        let own = context.counts.started_of.entry(name.to_owned()).or_default();
        *own = own.saturating_add(1);
    }
}

fn most_of(name: &str, settings: &RunSpec) -> Option<u32> {
    settings.tools.iter().find(|tool| tool.name == name)?.max_calls
}

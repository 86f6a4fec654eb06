//! What a run and its work spend: reports it to the run that this one works for, and limits what tools may spend.

use crate::budget::SharedBudget;
use crate::tool::ToolContext;
use endstop_core::{Limits, NanoUsd, Outcome, Run, Unreported, Usage};

/// The tool call of another run on whose behalf this run works, and the totals reported to that
/// run.
pub(super) struct Outer {
    context: ToolContext,
    usage: Usage,
    cost: NanoUsd,
    unreported: Unreported,
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

    /// Reports the spending of the run since the last report.
    pub(super) fn report(&mut self, run: &Run) {
        self.report_as(run.usage(), run.spent(), false, run.unreported());
    }

    /// Same as [`report`](Self::report), for a run that has ended.
    pub(super) fn report_ended(&mut self, outcome: &Outcome) {
        let unreported = outcome.unreported();
        self.report_as(&outcome.usage, outcome.cost, outcome.cost_unknown, unreported);
    }

    fn report_as(
        &mut self,
        usage: &Usage,
        cost: NanoUsd,
        cost_unknown: bool,
        unreported: Unreported,
    ) {
        let same = *usage == self.usage && cost == self.cost && unreported == self.unreported;
        if same && !cost_unknown {
            return;
        }
        // Report only the difference, because the outer context adds up what it receives.
        let (since, more) = (usage.since(&self.usage), cost.saturating_sub(self.cost));
        let beyond = unreported.since(self.unreported);
        (self.usage, self.cost, self.unreported) = (usage.clone(), cost, unreported);
        self.context.spend_at_most(&since, more, cost_unknown, beyond);
    }
}

/// Returns the budget that the tools of a turn share. The run makes no model call of its own at the
/// same time, so everything that is left is available to them.
pub(super) fn what_is_left(
    run: Option<&Run>,
    limits: &Limits,
    budget: Option<&SharedBudget>,
) -> Option<SharedBudget> {
    let usd = run.map_or(NanoUsd::ZERO, Run::committed);
    let used = run.map_or(0, Run::committed_tokens);
    let max = limits.max_budget_usd.map(NanoUsd::from_usd);
    let left = max.map(|max| max.saturating_sub(usd));
    let tokens = limits.max_tokens.map(|max| max.saturating_sub(used));
    SharedBudget::within(budget, left, tokens)
}

/// Returns the budget of a tool that runs in the background: it may spend nothing of the run's own
/// ceilings, and within a shared budget as any other call. The model is called while it runs, so that both would
/// spend what is left.
pub(super) fn nothing(limits: &Limits, budget: Option<&SharedBudget>) -> Option<SharedBudget> {
    let usd = limits.max_budget_usd.map(|_| NanoUsd::ZERO);
    let tokens = limits.max_tokens.map(|_| 0);
    SharedBudget::within(budget, usd, tokens)
}

//! What tools and compactions spend beside the model's own calls: what they may, what they did, and what
//! was reserved for a call.
//!
//! ```ignore
//! let context = driver.context(call_id);      // bound to what is left
//! driver.book(context.take_spent());          // the kernel knows of it
//! ```

use super::Driver;
use crate::budget::SharedBudget;
use crate::tool::{Spent, ToolContext};
use endstop_core::{EffectId, Event, EventKind, NanoUsd, Run, Step};

impl Driver {
    /// Books what the tools that run have spent on models of their own: the kernel knows of it
    /// before it decides.
    pub(super) fn book_running(&mut self) {
        let spent: Vec<Spent> = self.tools.values().filter_map(ToolContext::take_spent).collect();
        for spent in spent {
            self.book(Some(spent));
        }
    }

    pub(super) fn book(&mut self, spent: Option<Spent>) {
        let Some(Spent { usage, cost, cost_unknown }) = spent else { return };
        let Some(run) = self.run.take() else { return };
        let event = Event::new(self.now(), EventKind::Spent { usage, cost, cost_unknown });
        let before = self.recorder.as_mut().and_then(|recorder| recorder.before(&event));
        // This event asks for nothing and ends no run.
        if let Step::Continue(run) = run.handle(event, &mut self.effects) {
            self.run = Some(run);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.after(before, &[], false);
        }
    }

    pub(super) fn settle(&mut self, id: EffectId, spent: NanoUsd) {
        let granted = self.reserved.remove(&id).unwrap_or_default();
        if let Some(budget) = &self.shared.config.budget {
            budget.settle(granted, spent);
        }
    }

    /// A context of something that may spend: a tool call, a compaction.
    pub(super) fn context(&mut self, call_id: String) -> ToolContext {
        let context = ToolContext::new(
            call_id,
            self.control.token.child_token(),
            self.shared.token.clone(),
            self.shared.config.limits.cancel_grace,
            self.shared.config.working_dir.clone(),
        );
        if let Some(purse) = self.purse() {
            context.bind(purse);
        }
        context
    }

    /// What the tools of this turn may spend together. No model call of the run's own is under way
    /// beside them, so that all that is left is theirs.
    pub(super) fn purse(&mut self) -> Option<SharedBudget> {
        if self.purse.is_none() {
            let config = &self.shared.config;
            let spent = self.run.as_ref().map_or(NanoUsd::ZERO, Run::spent);
            let left = config.limits.max_budget_usd.map(NanoUsd::from_usd);
            let left = left.map(|max| max.saturating_sub(spent));
            self.purse = match (left, &config.budget) {
                (Some(left), Some(budget)) => Some(budget.part(left)),
                (Some(left), None) => Some(SharedBudget::new(left)),
                (None, budget) => budget.clone(),
            };
        }
        self.purse.clone()
    }
}

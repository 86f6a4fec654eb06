//! Tracks what tools and compactions spend in addition to the run's own model calls, and limits it.
//!
//! ```text
//! let context = driver.context(call_id);      // limited to what is left
//! driver.book(context.take_spent());          // books it in the kernel
//! ```

use super::Driver;
use crate::budget::SharedBudget;
use crate::tool::{Spent, ToolContext};
use endstop_core::{Event, EventKind, NanoUsd, Outcome, Run, Step, Unreported, Usage};

impl Driver {
    /// Books what running tools have spent on models of their own, so that the kernel knows of it
    /// before it decides.
    pub(super) fn book_running(&mut self) {
        let spent = self.tools.iter().filter_map(|(_, context)| context.take_spent());
        let spent: Vec<Spent> = spent.collect();
        for spent in spent {
            self.book(Some(spent));
        }
    }

    pub(super) fn book(&mut self, spent: Option<Spent>) {
        let Some(Spent { usage, cost, cost_unknown, unreported }) = spent else { return };
        let unreported = Some(unreported);
        let Some(run) = self.run.take() else { return };
        // The turns of a nested agent have a limit of their own.
        let spent = EventKind::Spent { usage, cost, cost_unknown, unreported, turns: 0 };
        let event = Event::new(self.now(), spent);
        // Stored with the next event, or by `spent`.
        if let Some(recorder) = &mut self.recorder {
            recorder.add(&event);
        }
        // `Spent` never ends a run and requests no effects.
        if let Step::Continue(run) = run.handle(event, &mut Vec::new()) {
            self.run = Some(run);
        }
        self.report();
    }

    /// Books spending that a running tool has reported, and journals it at once: the next event of
    /// this run may be an hour away, and a crash until then must not lose it.
    pub(super) fn spent(&mut self) {
        self.book_running();
        if let Some(recorder) = &mut self.recorder {
            recorder.write();
            self.tell_problem();
        }
    }

    /// Reports the spending since the last report to the run that this one works for.
    pub(super) fn report(&mut self) {
        let Some(run) = self.run.as_ref().filter(|_| self.outer.is_some()) else { return };
        let (usage, cost, unreported) = (run.usage().clone(), run.spent(), run.unreported());
        self.report_as(&usage, cost, false, unreported);
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
        let Some(outer) = &mut self.outer else { return };
        let same = *usage == outer.usage && cost == outer.cost && unreported == outer.unreported;
        if same && !cost_unknown {
            return;
        }
        // Report only the difference, because the outer context adds up what it receives.
        let (since, more) = (usage.since(&outer.usage), cost.saturating_sub(outer.cost));
        let beyond = unreported.since(outer.unreported);
        (outer.usage, outer.cost, outer.unreported) = (usage.clone(), cost, unreported);
        outer.context.spend_at_most(&since, more, cost_unknown, beyond);
    }

    /// Creates the context of work that may spend: a tool call or a compaction.
    pub(super) fn context(&mut self, call_id: String) -> ToolContext {
        let context = ToolContext::new(
            call_id,
            self.control.token().child_token(),
            self.control.terminated().clone(),
            self.limits().cancel_grace,
            self.shared.config.working_dir.clone(),
        );
        context.bind_run(self.control.clone());
        if let Some(nesting) = self.teller.nesting() {
            context.bind_nesting(nesting);
        }
        if let Some(tool_budget) = self.tool_budget() {
            context.bind(tool_budget);
        }
        context
    }

    /// The budget that the tools of this turn share. The run makes no model call of its own at the
    /// same time, so everything that is left is available to them.
    pub(super) fn tool_budget(&mut self) -> Option<SharedBudget> {
        if self.tool_budget.is_none() {
            let limits = self.limits();
            let usd = self.run.as_ref().map_or(NanoUsd::ZERO, Run::committed);
            let used = self.run.as_ref().map_or(0, Run::committed_tokens);
            let max = limits.max_budget_usd.map(NanoUsd::from_usd);
            let left = max.map(|max| max.saturating_sub(usd));
            let tokens = limits.max_tokens.map(|max| max.saturating_sub(used));
            self.tool_budget = SharedBudget::within(self.owner.budget.as_ref(), left, tokens);
        }
        self.tool_budget.clone()
    }
}

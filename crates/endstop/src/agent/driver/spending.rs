//! Tracks what tools and compactions spend in addition to the run's own model calls, limits it, and
//! reserves and settles in the shared budget.
//!
//! ```text
//! let context = driver.context(call_id);      // limited to what is left
//! driver.book(context.take_spent());          // books it in the kernel
//! ```

use super::Driver;
use super::reservation::{Asked, Due, Reservation, event_of, locked, settle_due};
use crate::agent::user_code::pending::Pending;
use crate::budget::{Amount, SharedBudget};
use crate::tool::ToolContext;
use endstop_core::guest::Spending;
use endstop_core::{EffectId, Event, EventKind, NanoUsd, Outcome, Run, Step, Unreported, Usage};
use std::future::poll_fn;
use std::sync::Arc;

impl Driver {
    /// Books what running tools have spent on models of their own, so that the kernel knows of it
    /// before it decides.
    pub(super) fn book_running(&mut self) {
        let spent = self.tools.iter().filter_map(|(_, context)| context.take_spent());
        let spent: Vec<Spending> = spent.collect();
        for spent in spent {
            self.book(Some(spent));
        }
    }

    pub(super) fn book(&mut self, spent: Option<Spending>) {
        let Some(spent) = spent else { return };
        let Some(run) = self.run.take() else { return };
        // The turns of a nested agent have a limit of their own.
        let event = Event::new(self.now(), EventKind::Spent(spent));
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

    /// Asks the shared budget, and reports its answer to the kernel.
    pub(super) fn reserve(&mut self, id: EffectId, want: Amount, least: Amount) {
        let Some(budget) = self.owner.budget.clone() else {
            self.reserved.insert(id, Reservation::Held(want));
            return self.queue.push_back(event_of(id, Ok(want), false));
        };
        let bounded = budget.bounds_tokens();
        if !budget.is_stored() {
            let answer = budget.reserve_or_explain(want, least);
            // A refused reservation is recorded as zero, so that `settle` returns nothing to the
            // budget.
            let granted = *answer.as_ref().unwrap_or(&Amount::ZERO);
            self.reserved.insert(id, Reservation::Held(granted));
            return self.queue.push_back(event_of(id, answer, bounded));
        }
        let (asked, due) = (Arc::new(Asked::default()), self.due());
        self.reserved.insert(id, Reservation::Asked(Arc::clone(&asked)));
        let under_way = self.owner.under_way();
        let mut pending = Pending::spawn(None, move |answer| {
            settle_due(&budget, &due);
            let reserved = budget.reserve_or_explain(want, least);
            asked.taken(*reserved.as_ref().unwrap_or(&Amount::ZERO), &budget);
            *answer = Some(reserved);
            drop(under_way);
        });
        self.ask(id, "shared_budget", "the shared budget", async move {
            match poll_fn(|cx| pending.poll(cx)).await {
                Some(answer) => event_of(id, answer, bounded),
                // The runtime is shut down and has dropped the work.
                None => EventKind::Tick,
            }
        });
    }

    /// Returns a reservation, and books what was spent of it.
    pub(super) fn settle(&mut self, id: EffectId, spent: Amount) {
        let granted = match self.reserved.remove(&id) {
            Some(Reservation::Held(granted)) => granted,
            Some(Reservation::Asked(asked)) => asked.close(),
            None => Amount::ZERO,
        };
        let Some(budget) = self.owner.budget.clone() else { return };
        if !budget.is_stored() {
            return budget.settle_amount(granted, spent);
        }
        if granted == Amount::ZERO && spent == Amount::ZERO {
            return;
        }
        let due = self.due();
        locked(&due).push((granted, spent));
        let under_way = self.owner.under_way();
        // Dropped, because nothing waits for it but `settled`.
        drop(Pending::spawn((), move |()| {
            settle_due(&budget, &due);
            drop(under_way);
        }));
    }

    fn due(&mut self) -> Due {
        Arc::clone(self.due.get_or_insert_default())
    }

    /// Returns what is still reserved. The kernel has settled every call that it knows of.
    pub(super) fn settle_rest(&mut self) {
        let reserved: Vec<EffectId> = self.reserved.keys().copied().collect();
        for id in reserved {
            self.settle(id, Amount::ZERO);
        }
    }

    /// Returns what is still reserved, and waits until everything is settled, so that a caller who
    /// learns of the ending finds it in the books.
    pub(super) async fn settle_all(&mut self) {
        self.settle_rest();
        let Some(budget) = self.owner.budget.clone().filter(SharedBudget::is_stored) else {
            return;
        };
        let due = self.due();
        let under_way = self.owner.under_way();
        let mut pending = Pending::spawn((), move |()| {
            settle_due(&budget, &due);
            drop(under_way);
        });
        poll_fn(|cx| pending.poll(cx)).await;
    }

    /// Creates the context of work that may spend: a tool call or a compaction.
    pub(super) fn context(&mut self, call_id: String) -> ToolContext {
        let budget = self.tool_budget();
        self.context_within(call_id, budget)
    }

    /// Creates the context of work that may spend within this budget.
    pub(super) fn context_within(
        &self,
        call_id: String,
        budget: Option<SharedBudget>,
    ) -> ToolContext {
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
        if let Some(budget) = budget {
            context.bind(budget);
        }
        context
    }

    /// The budget of a tool that runs in the background: it may spend nothing of the run's own
    /// ceilings, and within a shared budget as any other call.
    pub(super) fn nothing_left(&self) -> Option<SharedBudget> {
        let limits = self.limits();
        let usd = limits.max_budget_usd.map(|_| NanoUsd::ZERO);
        let tokens = limits.max_tokens.map(|_| 0);
        SharedBudget::within(self.owner.budget.as_ref(), usd, tokens)
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

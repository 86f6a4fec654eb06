//! A failed attempt at a model call: retry after a wait, compact, or end the run.

use super::booking::is_complete;
use super::call::Call;
use super::decided_by::{Decision, Layer};
use super::effect::{Effect, RunEvent};
use super::guard::Flow;
use super::jitter::LONGEST_RETRY_AFTER;
use super::machine::{Machine, Phase};
use super::outcome::Ending;
use crate::error_class::{ErrorClass, ModelError};
use crate::limits::Limits;
use crate::message::{ModelTurn, Part, Role};
use crate::termination::Termination;
use crate::usage::Usage;
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

/// Number of retries that are made even if the attempts themselves took longer than `retry_for`: a
/// model call that stalls takes a minute to fail, which would use up the window before the first
/// retry.
const SLOW_RETRIES: u32 = 2;

/// The decision after a failed attempt.
enum Retry {
    /// Retry after this wait.
    After(Duration),
    /// Do not retry, because the run's deadline comes before the end of the wait.
    PastDeadline { wait: Duration, deadline: Duration },
    /// Do not retry.
    Never,
}

impl Machine {
    /// Decides whether a failed attempt is retried, and after what wait.
    fn retry_after(&mut self, error: &ModelError) -> Retry {
        let Limits { retry_for, max_retries, timeout, .. } = self.settings.limits;
        // Off if both limits are off, or if `retry_for` is zero, or if `max_retries` is used up.
        if !error.class.is_retryable()
            || retry_for
                .or(max_retries.map(|_| Duration::MAX))
                .is_none_or(|window| window.is_zero())
            || max_retries.is_some_and(|max| self.attempts.retries >= max)
        {
            return Retry::Never;
        }
        let since = *self.attempts.failed_since.get_or_insert(self.now);
        let asked = error.retry_after_ms.map(Duration::from_millis);
        // A longer wait is not worth holding the run open; the outcome reports it as `retry_after`.
        if asked.is_some_and(|wait| wait > LONGEST_RETRY_AFTER) {
            return Retry::Never;
        }
        let mut wait = match asked {
            // The first waits follow the server. Later ones are never shorter than the backoff,
            // because a server that asks to return at once would otherwise be called in a tight
            // loop.
            Some(asked) if self.attempts.retries < SLOW_RETRIES => asked,
            asked => self.jitter.backoff(self.attempts.retries + 1).max(asked.unwrap_or_default()),
        };
        if let Some(window) = retry_for {
            let left = window.saturating_sub(self.attempts.waited);
            let over =
                self.now.saturating_sub(since) >= window && self.attempts.retries >= SLOW_RETRIES;
            // A server that asks for more time than the window has left would refuse an earlier
            // attempt.
            if left.is_zero() || over || asked.is_some_and(|wait| wait > left) {
                return Retry::Never;
            }
            // The last attempt comes at the end of the window, so that it reaches a server that is
            // back by then.
            wait = wait.min(left);
        }
        match timeout {
            Some(deadline) if self.now.saturating_add(wait) >= deadline && asked.is_some() => {
                Retry::PastDeadline { wait, deadline }
            }
            _ => Retry::After(wait),
        }
    }

    /// Handles a failed attempt: books its usage, then retries, compacts or ends the run.
    pub(super) fn turn_failed(
        &mut self,
        call: &Call,
        error: &ModelError,
        partial: Option<&ModelTurn>,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        self.state.streaming.abort();
        let reported = partial.map(|turn| &turn.usage);
        let cost = partial.and_then(|turn| turn.cost);
        // A rejected request is not billed; a request that was cut is billed for what it generated.
        // A timeout or a cut stream can also come after output that was never delivered.
        let began = !call.text.is_empty()
            || call.hidden > 0
            || matches!(error.class, ErrorClass::Timeout | ErrorClass::IncompleteStream)
            || partial.is_some_and(|turn| !turn.parts.is_empty());
        let usage = match reported {
            Some(usage) if is_complete(usage) => usage.clone(),
            _ if began => self.estimate(call, partial),
            reported => reported.cloned().unwrap_or_default(),
        };
        let blank = Usage::default();
        let reported = reported.unwrap_or(&blank);
        let more = if began && !is_complete(reported) {
            self.unreported(call, (reported, &usage), cost, self.most_output(call))
        } else {
            self.all_reported(&usage, cost)
        };
        self.settle(call, &usage, cost, more, effects);
        // Keep whichever text exists: the decoder's partial turn is better than the raw deltas.
        let text = partial
            .map(ModelTurn::text)
            .filter(|text| !text.trim().is_empty())
            .or_else(|| Some(call.text.clone()).filter(|text| !text.trim().is_empty()));
        if text.is_some() {
            self.last_text.clone_from(&text);
        }
        if let Some(turn) = partial {
            self.last_signal = Some(turn.signal.clone());
        }

        let turn = self.counts.turns + 1;
        let mut failed = |error: &ModelError, retry_in: Option<Duration>, attempt: u32| {
            effects.push(Effect::Emit(RunEvent::AttemptFailed {
                turn,
                attempt,
                error: error.clone(),
                retry_in_ms: retry_in.map(|wait| wait.as_millis() as u64),
            }));
        };
        // After a resume: the failure that ended the run before is replayed, and the call repeated
        // once.
        if std::mem::take(&mut self.attempts.call_again) {
            failed(error, Some(Duration::ZERO), self.attempts.attempt);
            self.phase = Phase::Backoff { until: self.now };
            return Continue(());
        }
        let retry = self.retry_after(error);
        if !matches!(retry, Retry::Never) {
            // Do not wait for an attempt that the budget cannot pay for.
            if let Break(ending) = self.check_budgets() {
                failed(error, None, self.attempts.attempt);
                return Break(ending);
            }
        }
        match retry {
            Retry::After(wait) => {
                failed(error, Some(wait), self.attempts.attempt);
                self.attempts.retries += 1;
                self.attempts.waited = self.attempts.waited.saturating_add(wait);
                self.phase = Phase::Backoff { until: self.now.saturating_add(wait) };
                return Continue(());
            }
            // The deadline comes before the end of the wait: end now instead of after an idle wait.
            Retry::PastDeadline { wait, deadline } => {
                failed(error, None, self.attempts.attempt);
                let left = deadline.saturating_sub(self.now);
                let evidence = format!(
                    "the next attempt must wait {wait:?}, and {left:?} of {deadline:?} are left: {error}"
                );
                let mut ending = Ending::new(
                    Termination::ErrorTimeout,
                    Layer::Limit,
                    Decision::Timeout,
                    evidence,
                )
                .diagnostic(error.to_string());
                ending.retry_after = error.retry_after_ms.map(Duration::from_millis);
                return Break(ending);
            }
            Retry::Never => {}
        }
        // A forced compaction is tried once per turn: if the shortened prompt is refused too,
        // another one would not help.
        let too_long = error.class.termination() == Termination::ErrorPromptTooLong;
        if too_long && self.settings.compaction.reactive && !self.compactions.forced_this_turn {
            self.compactions.forced_this_turn = true;
            failed(error, Some(Duration::ZERO), self.attempts.attempt);
            self.compact(true, effects);
            return Continue(());
        }
        failed(error, None, self.attempts.attempt);
        // The partial text becomes the last message, so that a resumed conversation contains it.
        if let Some(text) = text {
            self.state.push(Role::Assistant, vec![Part::Text { text }]);
        }
        let mut evidence = error.to_string();
        if self.attempts.attempt > 1 {
            evidence = format!("{evidence} (attempt {})", self.attempts.attempt);
        }
        if too_long && self.compactions.any() {
            evidence = format!("{evidence}; {}", self.compactions.told());
        }
        let mut ending = Ending::new(
            error.class.termination(),
            Layer::Provider,
            Decision::CallFailed(error.class),
            evidence,
        )
        .diagnostic(error.to_string());
        ending.retry_after = error.retry_after_ms.map(Duration::from_millis);
        Break(ending)
    }
}

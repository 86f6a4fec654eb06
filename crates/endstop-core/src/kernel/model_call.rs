//! The model call in progress, and the timeouts that apply to it.

use super::ceilings::ledger::Ceiling;
use super::ceilings::meter::Meter;
use super::effect::EffectId;
use super::event::TurnDelta;
use crate::limits::Limits;
use crate::usage::NanoUsd;
use crate::visible::Opening;
use std::time::Duration;

/// The name of the limit on reasoning without visible output.
pub(super) const THINKING: &str = "thinking_timeout";

/// The model call in progress.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: EffectId,
    /// Time of the request, later by the times in which the process was suspended.
    pub(super) started: Duration,
    /// Time of the last content; `None` before the first.
    pub(super) last_content: Option<Duration>,
    /// Time at which the reasoning began that no visible output has followed yet.
    pub(super) thinks_since: Option<Duration>,
    pub(super) text: String,
    /// Finds the visible part of the text.
    pub(super) opening: Opening,
    /// Policies and rules have read the visible part of the text.
    pub(super) shown: bool,
    /// The policy requested a stop mid-stream, but the stop had to wait for the complete turn.
    pub(super) deferred_stop: bool,
    /// Number of generated characters that are not visible text (reasoning, tool arguments).
    pub(super) hidden: u64,
    /// The caller's output cap, before any ceiling.
    pub(super) own_cap: Option<u64>,
    /// The output cap that was sent.
    pub(super) cap: Option<u64>,
    /// The ceiling that lowered the cap below the caller's.
    pub(super) lowered_by: Option<Ceiling>,
    pub(super) quote: Option<NanoUsd>,
    pub(super) reservation: Option<EffectId>,
    pub(super) prompt_bound: u64,
    /// Counts the output of a call whose cap cannot be lowered.
    pub(super) meter: Option<Box<Meter>>,
}

/// A timeout that applies to the current model call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallClock {
    /// The limit's name as configuration spells it.
    pub(super) name: &'static str,
    pub(super) since: Duration,
    pub(super) limit: Duration,
}

impl CallClock {
    pub(super) fn deadline(self) -> Duration {
        self.since.saturating_add(self.limit)
    }
}

impl Call {
    /// Returns the timeouts that apply now. A stall is only detectable between two pieces of
    /// content, because a model that reasons without streaming its reasoning is silent before the
    /// first one.
    pub(super) fn clocks(&self, limits: &Limits, streaming: bool) -> [Option<CallClock>; 3] {
        let clock = |name, since, limit: Option<Duration>| {
            limit.map(|limit| CallClock { name, since, limit })
        };
        let content = match self.last_content {
            // Without streaming there is no content before the end, so only `turn_timeout` applies.
            _ if !streaming => None,
            Some(last) => clock("stall_timeout", last, limits.stall_timeout),
            None => clock("first_content_timeout", self.started, limits.first_content_timeout),
        };
        let thinks = self.thinks_since.filter(|_| streaming);
        let thinks = thinks.and_then(|since| clock(THINKING, since, limits.thinking_timeout));
        [clock("turn_timeout", self.started, limits.turn_timeout), thinks, content]
    }

    /// Notes the time of streamed content that is not empty.
    pub(super) fn note_content(&mut self, delta: &TurnDelta, now: Duration) {
        self.last_content = Some(now);
        match delta {
            TurnDelta::Reasoning(_) => {
                self.thinks_since.get_or_insert(now);
            }
            TurnDelta::Text(_) | TurnDelta::ToolArguments(_) => self.thinks_since = None,
        }
    }

    /// Adds a chunk of text. Returns where the part begins that policies and rules have to read, which is
    /// empty in reasoning.
    pub(super) fn add_text(&mut self, piece: &str) -> usize {
        let before = self.text.len();
        self.text.push_str(piece);
        let hidden = self.text.len() - self.opening.read(&self.text).len();
        let shown = std::mem::replace(&mut self.shown, hidden < self.text.len());
        if shown { before } else { hidden }
    }

    /// The visible text that policies and rules have read.
    pub(super) fn visible(&self) -> &str {
        if self.shown { self.opening.clone().read(&self.text) } else { "" }
    }

    /// Excludes a time in which the process did not run, and therefore could not receive content.
    pub(super) fn skip_suspension(&mut self, time: Duration, now: Duration) {
        let (content, thinks) = (self.last_content.as_mut(), self.thinks_since.as_mut());
        for since in [Some(&mut self.started), content, thinks].into_iter().flatten() {
            *since = since.saturating_add(time).min(now);
        }
    }
}

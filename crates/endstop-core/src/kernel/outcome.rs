//! The outcome of a run: how it ended, who decided on which evidence, what it cost.

use super::effect::ConversationSize;
use super::watch::Fired;
use crate::message::Message;
use crate::signal::TerminationSignal;
use crate::termination::{Category, Termination};
use crate::usage::{NanoUsd, Unreported, Usage};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// Who decided that the run ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecidedBy {
    /// `turn` (the model's signal), `policy`, `tool`, `hook`, `limit`, `provider`, `caller`,
    /// `fault`.
    pub layer: String,
    /// The rule, policy, tool or limit.
    pub name: String,
    /// What it was decided on, for a person to read.
    pub evidence: String,
}

/// The proof that a run was stuck.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoProgressSnapshot {
    /// Unproductive turns in a row.
    pub unproductive_turns: u32,
    /// The last turn's calls, with what they answered (cut to 200 characters each).
    pub calls: Vec<RepeatedCall>,
    /// The last turn's text (cut to 200 characters).
    pub text: String,
}

/// A compaction that was tried, and what it gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionAttempt {
    /// The turn that was about to be made, from 1.
    pub turn: u32,
    /// The provider had refused the prompt.
    pub forced: bool,
    /// What shortened the conversation, where that has a name.
    pub strategy: String,
    /// How long it was.
    pub before: ConversationSize,
    /// How long it is since; `None`: as before.
    pub after: Option<ConversationSize>,
    /// Why it failed, where it did.
    pub failed: Option<String>,
}

/// What would let a call be made that did not fit under a ceiling; each is enough by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WouldFit {
    /// A ceiling on cost of at least so much.
    pub max_budget_usd: Option<f64>,
    /// A ceiling on tokens of at least so many.
    pub max_tokens: Option<u64>,
    /// An output cap of at most so many tokens.
    pub max_output_tokens: Option<u64>,
}

/// A call that repeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepeatedCall {
    /// The tool.
    pub name: String,
    /// The arguments.
    pub arguments: String,
    /// What it answered.
    pub result: String,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Why it ended.
    pub termination: Termination,
    /// Who decided.
    pub decided_by: DecidedBy,
    /// Other endings that were also true (a finished answer that crossed a ceiling, say).
    pub also: Vec<Termination>,
    /// The last visible text that is not blank; partial where it was cut.
    pub last_text: Option<String>,
    /// The declared answer of a `submitted` run.
    pub deliverable: Option<Value>,
    /// The model's own summary, where `finish` gave one.
    pub summary: Option<String>,
    /// The validated answer, where an output schema was given.
    pub structured: Option<Value>,
    /// The conversation: always one that the provider accepts.
    pub messages: Vec<Message>,
    /// The conversation's epoch.
    pub epoch: u64,
    /// Why the last response stopped.
    pub signal: Option<TerminationSignal>,
    /// What all attempts used.
    pub usage: Usage,
    /// What all attempts cost, as far as it is known: by the provider's report or, for an attempt that
    /// was cut before the provider counted, an estimate of what was visible.
    pub cost: NanoUsd,
    /// The most that all attempts can have cost: `cost`, and the rest of what was reserved for each
    /// attempt that the provider did not count. `None`: no bound is known.
    pub cost_upper: Option<NanoUsd>,
    /// Whether a part of the cost is not known (no price, or no report of what was used): `cost` is
    /// then a lower bound.
    pub cost_unknown: bool,
    /// The most tokens that all attempts can have used; `None`: no bound is known.
    pub tokens_upper: Option<u64>,
    /// What the provider billed beyond the quotes.
    pub overrun: NanoUsd,
    /// Time from the start to the end.
    pub duration: Duration,
    /// Turns: responses that were kept.
    pub turns: u32,
    /// Attempts at model calls.
    pub model_calls: u32,
    /// Tool calls that were answered to the model.
    pub tool_calls: u32,
    /// The compactions that were tried, in order.
    pub compactions: Vec<CompactionAttempt>,
    /// The rules that fired among those that watched the run, in order, whatever their mode.
    pub fired: Vec<Fired>,
    /// How long the provider asked to wait, where that is why the run ended.
    pub retry_after: Option<Duration>,
    /// The proof of `error_no_progress`.
    pub no_progress_snapshot: Option<NoProgressSnapshot>,
    /// What was wrong, for `error_schema_validation`, provider errors and faults.
    pub error_diagnostic: Option<String>,
    /// What would let the next call be made, if it did not fit under a ceiling.
    pub would_fit: Option<WouldFit>,
    /// Why, for `error_halted`, and what the model said for `gave_up`.
    pub halted_reason: Option<String>,
    /// The model, as the provider names it, else as it was asked for.
    pub model: Option<String>,
    /// The provider.
    pub provider: Option<String>,
    /// The run's id, where the driver gave one.
    pub run_id: Option<String>,
    /// Whether the work is right: `None` until a verifier has looked.
    pub verified: Option<bool>,
}

impl Outcome {
    /// What to do about the ending.
    pub fn category(&self) -> Category {
        self.termination.category()
    }

    /// Whether the run is a success.
    pub fn is_success(&self) -> bool {
        self.termination.is_success()
    }

    /// The outcome of a success, or an [`Unsuccessful`] to use with `?`.
    ///
    /// # Errors
    /// The run did not end as a success.
    pub fn into_result(self) -> Result<Outcome, Box<Unsuccessful>> {
        if self.is_success() { Ok(self) } else { Err(Box::new(Unsuccessful(self))) }
    }

    /// The answer: the deliverable, else the structured value, else the last text.
    pub fn answer(&self) -> Option<String> {
        match self.deliverable.as_ref().or(self.structured.as_ref()) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(value) => Some(value.to_string()),
            None => self.last_text.clone(),
        }
    }

    /// Adds what a tool had spent on models of its own until it ended behind its run.
    pub fn add_spent(
        &mut self,
        usage: &Usage,
        cost: NanoUsd,
        cost_unknown: bool,
        unreported: Unreported,
    ) {
        let mut more = self.unreported();
        more += unreported;
        self.usage.add(usage);
        self.cost += cost;
        self.cost_unknown |= cost_unknown;
        self.cost_upper = more.cost.map(|more| self.cost + more);
        let tokens = self.usage.total_tokens();
        self.tokens_upper = more.tokens.map(|more| tokens.saturating_add(more));
    }

    /// What the attempts may have used beyond what is known of them.
    pub fn unreported(&self) -> Unreported {
        let tokens = self.usage.total_tokens();
        Unreported {
            cost: self.cost_upper.map(|upper| upper.saturating_sub(self.cost)),
            tokens: self.tokens_upper.map(|upper| upper.saturating_sub(tokens)),
        }
    }

    /// The process exit status: the termination's, or 1 for a success that its verifier refused.
    pub fn exit_status(&self) -> u8 {
        if self.is_success() && self.verified == Some(false) {
            1
        } else {
            self.termination.exit_status()
        }
    }
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut s = serializer.serialize_struct("Outcome", 35)?;
        s.serialize_field("type", "outcome")?;
        s.serialize_field("termination", &self.termination)?;
        s.serialize_field("category", &self.category())?;
        s.serialize_field("decided_by", &self.decided_by)?;
        s.serialize_field("also", &self.also)?;
        s.serialize_field("last_text", &self.last_text)?;
        s.serialize_field("deliverable", &self.deliverable)?;
        s.serialize_field("summary", &self.summary)?;
        s.serialize_field("structured", &self.structured)?;
        s.serialize_field("turns", &self.turns)?;
        s.serialize_field("model_calls", &self.model_calls)?;
        s.serialize_field("tool_calls", &self.tool_calls)?;
        s.serialize_field("compactions", &self.compactions)?;
        s.serialize_field("fired", &self.fired)?;
        s.serialize_field("usage", &self.usage)?;
        s.serialize_field("cost_usd", &self.cost.to_usd())?;
        s.serialize_field("cost_upper_usd", &self.cost_upper.map(NanoUsd::to_usd))?;
        s.serialize_field("cost_unknown", &self.cost_unknown)?;
        s.serialize_field("tokens_upper", &self.tokens_upper)?;
        s.serialize_field("overrun_usd", &self.overrun.to_usd())?;
        s.serialize_field("duration_ms", &(self.duration.as_micros() as f64 / 1e3))?;
        s.serialize_field("retry_after_ms", &self.retry_after.map(|d| d.as_millis() as u64))?;
        s.serialize_field("no_progress_snapshot", &self.no_progress_snapshot)?;
        s.serialize_field("error_diagnostic", &self.error_diagnostic)?;
        s.serialize_field("would_fit", &self.would_fit)?;
        s.serialize_field("halted_reason", &self.halted_reason)?;
        s.serialize_field("signal", &self.signal)?;
        s.serialize_field("model", &self.model)?;
        s.serialize_field("provider", &self.provider)?;
        s.serialize_field("run_id", &self.run_id)?;
        s.serialize_field("verified", &self.verified)?;
        s.serialize_field("messages", &self.messages)?;
        s.end()
    }
}

/// A run that did not end as a success, as an error to use with `?`.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsuccessful(pub Outcome);

impl fmt::Display for Unsuccessful {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the run ended as {}", self.0.termination)?;
        if !self.0.decided_by.evidence.is_empty() {
            write!(f, ": {}", self.0.decided_by.evidence)?;
        }
        Ok(())
    }
}

impl std::error::Error for Unsuccessful {}

/// An ending that was decided, before the outcome is put together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ending {
    pub(crate) termination: Termination,
    pub(crate) decided_by: DecidedBy,
    pub(crate) deliverable: Option<Value>,
    pub(crate) summary: Option<String>,
    pub(crate) structured: Option<Value>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) diagnostic: Option<String>,
    pub(crate) halted_reason: Option<String>,
    pub(crate) would_fit: Option<WouldFit>,
    /// Endings that were also decided, and that this one outranks. If this ending is withdrawn (a
    /// veto, an answer that does not satisfy the schema), the first of them takes its place.
    pub(crate) outranked: Vec<Ending>,
}

impl Ending {
    pub(crate) fn new(
        termination: Termination,
        layer: &str,
        name: impl Into<String>,
        evidence: impl Into<String>,
    ) -> Box<Ending> {
        Box::new(Ending {
            termination,
            decided_by: DecidedBy {
                layer: layer.to_owned(),
                name: name.into(),
                evidence: evidence.into(),
            },
            deliverable: None,
            summary: None,
            structured: None,
            retry_after: None,
            diagnostic: None,
            halted_reason: None,
            would_fit: None,
            outranked: Vec::new(),
        })
    }

    /// Takes over the answer of a success that cannot stand.
    pub(crate) fn carry(&mut self, answer: &Ending) {
        self.deliverable.clone_from(&answer.deliverable);
        self.summary.clone_from(&answer.summary);
        self.structured.clone_from(&answer.structured);
    }

    /// The ending that takes the place of a success that was withdrawn.
    pub(crate) fn next_in_rank(&mut self) -> Option<Box<Ending>> {
        if self.outranked.is_empty() {
            return None;
        }
        let mut next = self.outranked.remove(0);
        next.outranked.append(&mut self.outranked);
        Some(Box::new(next))
    }

    /// The terminations of all endings that this one outranks.
    pub(crate) fn outranked_terminations(&self) -> Vec<Termination> {
        let of = |one: &Ending| {
            std::iter::once(one.termination).chain(one.outranked_terminations()).collect::<Vec<_>>()
        };
        self.outranked.iter().flat_map(of).collect()
    }

    pub(crate) fn diagnostic(mut self: Box<Self>, text: impl Into<String>) -> Box<Ending> {
        self.diagnostic = Some(text.into());
        self
    }

    pub(crate) fn halted(
        layer: &str,
        name: impl Into<String>,
        reason: impl Into<String>,
    ) -> Box<Ending> {
        let reason = reason.into();
        let mut ending = Ending::new(Termination::ErrorHalted, layer, name, reason.clone());
        ending.halted_reason = Some(reason);
        ending
    }
}

//! The outcome of a run: its termination, the decision and its evidence, the answer and the cost.
//! Displayed, it has two lines.
//!
//! ```text
//! error_max_turns (capacity), decided by limit `max_turns`: 25 of 25 turns
//! 25 turns, 31 tool calls, 48210 tokens, $0.1234, 61.2 s
//! ```

pub(super) mod decided_by;
pub(super) mod ending;
pub(super) mod json;

use super::effect::ConversationSize;
use super::setup::models::{ModelUse, Spending};
use super::setup::spec::BranchPoint;
use super::setup::watch::RuleHit;
use crate::message::{Message, MessageId, Role};
use crate::price::cache_use::CacheUse;
use crate::signal::TerminationSignal;
use crate::termination::{Category, Termination};
use crate::usage::{Billing, KnownUsd, NanoUsd, Unreported, Usage, optional_usd, usd};
use crate::visible::visible_text;
use decided_by::DecidedBy;
use json::{NameFields, milliseconds, optional_milliseconds, with_category};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// Evidence that a run made no progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoProgressSnapshot {
    /// Number of consecutive unproductive turns.
    pub unproductive_turns: u32,
    /// Calls of the last turn with their results (each cut to 200 characters).
    pub calls: Vec<RepeatedCall>,
    /// Text of the last turn (cut to 200 characters).
    pub text: String,
}

/// A compaction attempt and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionAttempt {
    /// The turn that was about to begin, from 1.
    pub turn: u32,
    /// `true` if the provider had refused the prompt.
    pub forced: bool,
    /// Name of the compaction strategy; may be empty.
    pub strategy: String,
    /// Size of the conversation before.
    pub before: ConversationSize,
    /// Size of the conversation after; `None`: unchanged.
    pub after: Option<ConversationSize>,
    /// Reason for the failure, if it failed.
    pub failed: Option<String>,
}

/// A verdict of the verifier on an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyRound {
    /// The turn that gave the answer, from 1.
    pub turn: u32,
    /// `true` if the answer was accepted.
    pub passed: bool,
    /// The output of the verifier, shortened to what the model read.
    pub output: String,
}

/// Changes under which a call that did not fit under a ceiling would fit; each alone is enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WouldFit {
    /// Minimum cost ceiling.
    #[serde(rename = "max_budget_usd", with = "optional_usd", default)]
    pub max_budget: Option<NanoUsd>,
    /// Minimum token ceiling.
    pub max_tokens: Option<u64>,
    /// Minimum cost ceiling of the shared budget, or of the part of it that refused, as long as other
    /// runs have spent and reserved what they had then.
    #[serde(
        rename = "shared_budget_usd",
        with = "optional_usd",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub shared_budget: Option<NanoUsd>,
    /// The same as a token ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_tokens: Option<u64>,
    /// Maximum output cap in tokens.
    pub max_output_tokens: Option<u64>,
}

/// A background call that was stopped because its run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppedWork {
    /// The handle that the model was given, for example `h1`.
    pub handle: String,
    /// The provider's id of the call.
    pub call_id: String,
    /// Name of the tool.
    pub name: String,
}

/// A repeated tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepeatedCall {
    /// Name of the tool.
    pub name: String,
    /// The arguments.
    pub arguments: String,
    /// The result.
    pub result: String,
}

/// Defines [`Outcome`], and a private struct with its JSON form, from one list of fields.
// Two structs, because errors must name the field: the derived methods of the private one read the
// JSON, and the public one adds the names.
macro_rules! outcome {
    (@form $type:ty) => { $type };
    (@form $type:ty as $json:ty) => { $json };
    ($(
        $(#[doc = $doc:literal])* $(#[serde($($form:tt)*)])?
        pub $field:ident: $type:ty $(as $json:ty)?,
    )*) => {
        /// The result of a run.
        ///
        /// The JSON form is that of the last line of `endstop run --json`. A value that was read
        /// from it equals the written one, except that JSON contains no [`epoch`](Outcome::epoch),
        /// that [`duration`](Outcome::duration) has microseconds and
        /// [`retry_after`](Outcome::retry_after) milliseconds, and that a `null` answer cannot be
        /// told from no answer. Only `termination` and `decided_by` are required, so that the
        /// outcomes of earlier versions can be read.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Outcome {
            $($(#[doc = $doc])* pub $field: $type,)*
        }

        #[derive(Serialize, Deserialize)]
        #[serde(remote = "Outcome", tag = "type", rename = "outcome")]
        struct Form {
            $($(#[serde($($form)*)])? $field: outcome!(@form $type $(as $json)?),)*
        }

        impl From<Form> for Outcome {
            fn from(form: Form) -> Outcome {
                let cost_unknown = form.cost.0.is_none() || form.cost_unknown;
                Outcome { cost_unknown, ..Outcome { $($field: form.$field.into(),)* } }
            }
        }
    };
}

outcome! {
    /// The termination.
    #[serde(flatten, with = "with_category")]
    pub termination: Termination,
    /// The decision that ended the run.
    pub decided_by: DecidedBy,
    /// Other terminations that also applied, for example a ceiling that the final answer crossed.
    #[serde(default)]
    pub also: Vec<Termination>,
    /// The last visible text that is not blank; partial if the response was cut.
    pub last_text: Option<String>,
    /// The declared answer of a `submitted` run.
    pub deliverable: Option<Value>,
    /// The model's own summary, if `finish` carried one.
    pub summary: Option<String>,
    /// The validated answer, if an output schema was set.
    pub structured: Option<Value>,
    /// Number of turns, that is, of responses that were appended to the conversation.
    #[serde(default)]
    pub turns: u32,
    /// Number of attempts at model calls, with those of nested runs that report them.
    #[serde(default)]
    pub model_calls: u32,
    /// Number of tool calls that were answered.
    #[serde(default)]
    pub tool_calls: u32,
    /// The compaction attempts, in order.
    #[serde(default)]
    pub compactions: Vec<CompactionAttempt>,
    /// The watch rules that fired, in order, in any mode.
    #[serde(default)]
    pub fired: Vec<RuleHit>,
    /// Usage of all attempts.
    #[serde(default)]
    pub usage: Usage,
    /// The use of prompt caches by the run's own calls; `None` if no cache was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheUse>,
    /// Known cost of all attempts, in JSON `null` if it is not [known](Outcome::known_cost) at all: as the provider reported it or, for an attempt that was aborted
    /// before the provider counted, an estimate from the visible output.
    #[serde(rename = "cost_usd", getter = "Outcome::json_cost", default)]
    pub cost: NanoUsd as KnownUsd,
    /// Upper bound on the cost of all attempts: `cost` plus the unused reservation of each attempt
    /// that the provider did not count. `None`: no bound is known.
    #[serde(rename = "cost_upper_usd", with = "optional_usd", default)]
    pub cost_upper: Option<NanoUsd>,
    /// `true` if the cost is not exactly known: a call has no price or no usage report, or its bill
    /// is not the cost of its tokens (see [`Billing`](crate::Billing) in `usage`). `cost` is then a
    /// lower bound, or with [`Billing::AtMost`](crate::Billing::AtMost) the upper one.
    #[serde(default = "cost_is_unknown")]
    pub cost_unknown: bool,
    /// Upper bound on the tokens of all attempts; `None`: no bound is known.
    pub tokens_upper: Option<u64>,
    /// Amount that the provider billed beyond the worst case computed before each call or, for a
    /// guest's call without a lowered cap, beyond what was left below the ceiling. For a guest, at least what
    /// it and others spent above its ceiling.
    #[serde(rename = "overrun_usd", with = "usd", default)]
    pub overrun: NanoUsd,
    /// Time from start to end.
    #[serde(rename = "duration_ms", with = "milliseconds", default)]
    pub duration: Duration,
    /// Part of `duration` in which the process was suspended during model calls. The timeouts of the
    /// calls do not include it, the run's `timeout` does.
    #[serde(
        rename = "suspended_ms",
        with = "milliseconds",
        default,
        skip_serializing_if = "Duration::is_zero"
    )]
    pub suspended: Duration,
    /// Wait time that the provider asked for, if that is why the run ended.
    #[serde(rename = "retry_after_ms", with = "optional_milliseconds", default)]
    pub retry_after: Option<Duration>,
    /// Evidence for `error_no_progress`.
    pub no_progress_snapshot: Option<NoProgressSnapshot>,
    /// Details of the problem for `error_schema_validation`, provider errors and faults.
    pub error_diagnostic: Option<String>,
    /// Changes that would let the next call fit, if a ceiling prevented it.
    pub would_fit: Option<WouldFit>,
    /// Reason for `error_halted`, or the model's reason for `gave_up`.
    pub halted_reason: Option<String>,
    /// The model's hand-over, if `wrap_up` is on and a ceiling ended the run: what is done, what is
    /// open, and what is next. It may be cut, and nothing has checked it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_over: Option<String>,
    /// The background calls that were still running when the run ended, and were stopped. Each may
    /// have done part of its work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<StoppedWork>,
    /// The reason why the last response stopped.
    pub signal: Option<TerminationSignal>,
    /// The model as the provider names it, or else as it was requested.
    pub model: Option<String>,
    /// The provider.
    pub provider: Option<String>,
    /// The use of each model that was called, in the order of their first calls, if the run has
    /// fallback models.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelUse>,
    /// The run's id, if the driver set one.
    pub run_id: Option<String>,
    /// Result of the verifier; `None` if it gave none. After several rounds, that of the last one.
    pub verified: Option<bool>,
    /// The verdicts on the answers of the run, in order. Empty if the verifier ran after the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verify_rounds: Vec<VerifyRound>,
    /// The place in another run at which this one branched off. The amounts of the outcome do not
    /// include that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branched_from: Option<BranchPoint>,
    /// The conversation. Always valid for providers, so that the caller can continue it.
    #[serde(default)]
    pub messages: Vec<Message>,
    /// The conversation's epoch.
    #[serde(skip)]
    pub epoch: u64,
}

/// The cost of an outcome that does not state it is unknown.
const fn cost_is_unknown() -> bool {
    true
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Form::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Outcome {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Outcome, D::Error> {
        Form::deserialize(NameFields(deserializer))
    }
}

impl Outcome {
    /// Returns the termination's category, which determines what to do next.
    pub fn category(&self) -> Category {
        self.termination.category()
    }

    /// `true` if the run is a success.
    pub fn is_success(&self) -> bool {
        self.termination.is_success()
    }

    /// Returns the outcome if it is a success, or an [`Unsuccessful`] to use with `?`.
    ///
    /// # Errors
    /// The run did not end as a success.
    pub fn into_result(self) -> Result<Outcome, Box<Unsuccessful>> {
        if self.is_success() { Ok(self) } else { Err(Box::new(Unsuccessful(self))) }
    }

    /// Returns the answer of a success: the deliverable, else the structured value, else the visible part
    /// of the last text. `None` if the run is not a success; its [`last_text`](Self::last_text) is then
    /// whatever the model said last.
    pub fn answer(&self) -> Option<String> {
        if !self.is_success() {
            return None;
        }
        match self.deliverable.as_ref().or(self.structured.as_ref()) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(value) => Some(value.to_string()),
            None => self.last_text.as_deref().map(|text| visible_text(text).to_owned()),
        }
    }

    /// The known cost, which is a lower bound if [`cost_unknown`](Outcome::cost_unknown) is set.
    /// `None` if no part of the cost is known: it is not 0 then.
    pub fn known_cost(&self) -> Option<NanoUsd> {
        (!self.cost_unknown || self.cost > NanoUsd::ZERO).then_some(self.cost)
    }

    fn json_cost(&self) -> KnownUsd {
        KnownUsd(self.known_cost())
    }

    /// Adds the spending of a tool that ended after its run, for example of a nested agent.
    pub fn add_spent(&mut self, spent: &Spending) {
        let mut more = self.unreported();
        more += spent.unreported();
        self.turns = self.turns.saturating_add(spent.turns);
        self.model_calls = self.model_calls.saturating_add(spent.calls);
        self.usage.add(&spent.usage);
        self.cost += spent.cost;
        self.cost_unknown |= spent.cost_unknown;
        self.cost_upper = more.cost.map(|more| self.cost + more);
        let tokens = self.usage.total_tokens();
        self.tokens_upper = more.tokens.map(|more| tokens.saturating_add(more));
    }

    /// Appends a message that the user sent when the run had just ended, so that a run which continues
    /// the conversation reads it.
    pub fn add_said(&mut self, text: String) {
        let last = self.messages.iter().map(|message| message.id.0).max().unwrap_or(0);
        let id = MessageId(last.saturating_add(1));
        self.messages.push(Message::text(id, Role::User, text));
    }

    /// Upper bound on the usage that the provider did not report.
    pub fn unreported(&self) -> Unreported {
        let tokens = self.usage.total_tokens();
        Unreported {
            cost: self.cost_upper.map(|upper| upper.saturating_sub(self.cost)),
            tokens: self.tokens_upper.map(|upper| upper.saturating_sub(tokens)),
        }
    }

    /// Returns the process exit status: the termination's, or 1 for a success that the verifier
    /// rejected.
    pub fn exit_status(&self) -> u8 {
        if self.is_success() && self.verified == Some(false) {
            1
        } else {
            self.termination.exit_status()
        }
    }
}

/// A run that did not succeed, as an error to use with `?`.
#[derive(Clone, PartialEq)]
pub struct Unsuccessful(
    /// The outcome of the run.
    pub Outcome,
);

impl fmt::Display for Unsuccessful {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the run ended as {}", self.0.termination)?;
        if !self.0.decided_by.evidence.is_empty() {
            write!(f, ": {}", self.0.decided_by.evidence)?;
        }
        Ok(())
    }
}

/// The text of `Display`, because a `main` that returns an error prints its `Debug`, and the outcome
/// has the whole conversation.
impl fmt::Debug for Unsuccessful {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unsuccessful({self})")
    }
}

impl std::error::Error for Unsuccessful {}

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

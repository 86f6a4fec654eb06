//! The settings of a guarded run: limits, rules, and the answers after its end.

use super::journal::JournalSettings;
use super::meter::Meter;
use crate::clients::AwsKeys;
use endstop::budget::SharedBudget;
use endstop::telemetry::SpanSettings;
use endstop_core::{GuestMode, Limits, Price, TerminationPolicy, ToolPolicy, Watch};
use endstop_wire::catalog::prices::PriceBook;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The answer to calls of a run that has reached a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLimit {
    /// Each thread gets one answer in text with the reason for the stop; later calls are
    /// refused. Most clients end after one call, with exit status 0.
    #[default]
    Final,
    /// Calls are refused with a status that no known client retries.
    Refuse,
    /// Calls are refused, and the program is stopped at once.
    Kill,
}

impl FromStr for OnLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<OnLimit, String> {
        match text {
            "final" => Ok(OnLimit::Final),
            "refuse" => Ok(OnLimit::Refuse),
            "kill" => Ok(OnLimit::Kill),
            other => Err(format!("unknown value `{other}`; expected `final`, `refuse` or `kill`")),
        }
    }
}

impl fmt::Display for OnLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OnLimit::Final => "final",
            OnLimit::Refuse => "refuse",
            OnLimit::Kill => "kill",
        })
    }
}

/// What happens to requests that may cost and that guard cannot count: JSON to paths that it does not know,
/// batches, legacy completions, interactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherCalls {
    /// They are refused with the reason.
    Refuse,
    /// They pass, and no limit counts them.
    Pass,
}

impl FromStr for OtherCalls {
    type Err = String;

    fn from_str(text: &str) -> Result<OtherCalls, String> {
        match text {
            "refuse" => Ok(OtherCalls::Refuse),
            "pass" => Ok(OtherCalls::Pass),
            other => Err(format!("unknown value `{other}`; expected `refuse` or `pass`")),
        }
    }
}

/// Creates the policy of a thread.
pub type MakePolicy = Arc<dyn Fn() -> Box<dyn TerminationPolicy> + Send + Sync>;

/// The settings of guarded runs.
#[derive(Clone)]
pub struct Settings {
    /// The limits. Those on turns, money, tokens and time hold for all threads of a run together;
    /// the others for each thread.
    pub limits: Limits,
    /// Creates the termination policy of each thread, if there is one.
    pub policy: Option<MakePolicy>,
    /// The tools of the program that have a limit on their calls, which holds for each thread.
    pub tools: Arc<Vec<ToolPolicy>>,
    /// The rules that watch each thread.
    pub watches: Vec<Watch>,
    /// The answer to calls after the end.
    pub on_limit: OnLimit,
    /// Sentence after the reason for the stop, about what happens to the program and how it is started again. After a limit,
    /// "with a higher limit" follows.
    pub closing: Option<String>,
    /// What happens to requests that may cost and that guard cannot count. `None`: they are refused while
    /// [calls are counted](Settings::counts_calls), and pass otherwise.
    pub other: Option<OtherCalls>,
    /// `true` to lower the output cap in requests, so that ceilings are strict.
    pub cap_output: bool,
    /// A price for all models, instead of the catalogue's.
    pub price: Option<Price>,
    /// Prices of models, over those of the catalogue.
    pub prices: Arc<PriceBook>,
    /// `true` if the program is known to be a coding agent, which offers tools with each turn: a call
    /// without tools is then none, even if its headers do not name the client.
    pub is_agent: bool,
    /// Word in the arguments of the tool call with which the program ends its work, and whose result it does not send.
    pub submits_with: Option<&'static str>,
    /// The program of a run, if its owner sees it: it is at work until its end is reported, also between two calls.
    /// `true` once a person sits in front of it, who may read, write the next message, or leave it in the middle.
    pub attended: Option<Arc<AtomicBool>>,
    /// The keys to sign calls to Amazon Bedrock again; without them, signed calls are refused.
    pub aws: Option<AwsKeys>,
    /// A budget that all runs share, for example of a day.
    pub budget: Option<SharedBudget>,
    /// Counts what the runs do, for metrics.
    pub meter: Arc<Meter>,
    /// The journal, if runs are recorded.
    pub journal: Option<JournalSettings>,
    /// The settings of the spans of runs, in a build of `endstop` with its feature `tracing`.
    pub spans: SpanSettings,
}

impl Settings {
    /// The capabilities of guarded runs.
    pub fn mode(&self) -> GuestMode {
        // The program has the conversation, and the journal its events.
        GuestMode {
            capped: self.cap_output,
            waits: true,
            warns: true,
            forgets: true,
            forgets_input: true,
            ..GuestMode::default()
        }
    }

    /// `true` if a limit counts calls or what they cost, for a run as a whole or for several runs together. A
    /// timeout counts neither.
    pub fn counts_calls(&self) -> bool {
        let Limits { max_turns, max_rate, max_window, .. } = self.limits;
        max_turns.is_some()
            || max_rate.is_some()
            || max_window.is_some()
            || self.limits_tool_calls()
            || self.has_ceiling()
    }

    /// `true` if the calls of tools, or of one of them, have a limit.
    pub(super) fn limits_tool_calls(&self) -> bool {
        self.limits.max_tool_calls.is_some()
            || self.tools.iter().any(|tool| tool.max_calls.is_some())
    }

    /// `true` if a ceiling must never be exceeded, so that each call needs a bound.
    pub fn is_strict(&self) -> bool {
        self.cap_output && self.has_ceiling()
    }

    /// `true` if a person sits in front of the program.
    pub(super) fn is_attended(&self) -> bool {
        self.attended.as_ref().is_some_and(|attended| attended.load(Ordering::Relaxed))
    }

    /// `true` if the program is at work between two calls: no person sits in front of it, and its end was not reported.
    pub(super) fn is_at_work(&self) -> bool {
        self.attended.is_some() && !self.is_attended()
    }

    /// `true` if requests that may cost and that guard cannot count are refused.
    pub(super) fn refuses_other(&self) -> bool {
        match self.other {
            Some(OtherCalls::Refuse) => true,
            Some(OtherCalls::Pass) => false,
            None => self.counts_calls(),
        }
    }

    /// The limits of a run for which none are set: the defaults of `run` end coding agents too early, but a response that
    /// only reasons has no other end.
    pub(crate) fn default_limits() -> Limits {
        Limits { thinking_timeout: Limits::default().thinking_timeout, ..Limits::none() }
    }

    /// `true` if money or tokens have a ceiling.
    pub(super) fn has_ceiling(&self) -> bool {
        let Limits { max_budget_usd, max_tokens, .. } = self.limits;
        max_budget_usd.is_some() || max_tokens.is_some() || self.budget.is_some()
    }
}

impl Default for Settings {
    /// Observes: no limits but that on reasoning, and the default watch rules.
    fn default() -> Settings {
        Settings {
            limits: Settings::default_limits(),
            policy: None,
            tools: Arc::default(),
            watches: Watch::defaults(),
            on_limit: OnLimit::default(),
            closing: None,
            other: None,
            cap_output: false,
            price: None,
            prices: Arc::default(),
            is_agent: false,
            submits_with: None,
            attended: None,
            aws: None,
            budget: None,
            meter: Arc::default(),
            journal: None,
            spans: SpanSettings::default(),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the keys, and without the task in the journal's settings.
        f.debug_struct("Settings")
            .field("limits", &self.limits)
            .field("policy", &self.policy.is_some())
            .field("watches", &self.watches)
            .field("on_limit", &self.on_limit)
            .field("cap_output", &self.cap_output)
            .finish_non_exhaustive()
    }
}

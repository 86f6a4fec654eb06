//! Simulation: drives the kernel with a scripted scenario in virtual time, and returns the outcome
//! that a run would have.
//!
//! ```
//! use endstop::simulate::{simulate, Scenario};
//! use endstop::{Termination, policy::Registry};
//! use serde_json::json;
//! let scenario = Scenario::from_value(&json!({
//!     "limits": {"timeout_ms": 500},
//!     "turns": [{"text": "a long answer", "duration_ms": 1000}]
//! })).unwrap();
//! let outcome = simulate(&scenario, &Registry::default()).unwrap();
//! assert_eq!(outcome.termination, Termination::ErrorTimeout);
//! ```
//!
//! A scenario has no price list. The cost of a turn is the cost that the scenario states, and no
//! budget is reserved before a call.

mod scenario;
mod spec;

pub use scenario::{Scenario, ScenarioError};

use crate::schema::OutputSchema;
use endstop_core::{
    Compaction, Confidence, ConsultPoint, Effect, EffectId, ErrorClass, Event, EventKind,
    HookDecision, ModelError, ModelTurn, NanoUsd, Outcome, Part, Registry, Role, Run, SignalReason,
    Step, TerminationSignal, ToolCall, ToolReport, ToolStart, ToolStatus, Usage, is_blank,
};
use endstop_wire::signal::finish::{Finish, error_class_of, finish_of_any};
use endstop_wire::signal::precedence::{TurnFacts, signal};
use scenario::{ScriptedTurn, ToolKind, What};
use serde_json::{Map, Value};
use spec::{problem, run_spec};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

/// Runs a scenario to its outcome.
///
/// # Errors
/// The scenario's policy or schema cannot be built.
pub fn simulate(scenario: &Scenario, policies: &Registry) -> Result<Box<Outcome>, ScenarioError> {
    Simulation::new(scenario, policies)?.run()
}

/// Maximum number of model calls. A scenario that repeats its last turn without a limit would
/// otherwise never end.
const MOST_CALLS: usize = 100_000;

/// The time, rank and key of a scheduled event. At equal times, interruptions come first and
/// ticks last.
// The kernel's rules for events at the same moment: a cancel wins, and a turn that ends exactly at
// the deadline is in time. The key grows, so that equal ranks keep their order.
type Due = Reverse<(Duration, u8, u64)>;

/// A scenario in progress.
struct Simulation<'s> {
    scenario: &'s Scenario,
    schema: Option<OutputSchema>,
    /// `None` while the kernel has it, because `Run::handle` consumes the run.
    run: Option<Run>,
    now: Duration,
    due: BinaryHeap<Due>,
    /// Scheduled events by key; an entry that is removed is cancelled.
    events: BTreeMap<u64, EventKind>,
    /// For each running tool, the key of the event that ends it.
    running: BTreeMap<EffectId, u64>,
    next: u64,
    next_turn: usize,
    /// For each tool, the number of calls so far, which selects its next result.
    answers: BTreeMap<String, usize>,
}

const INTERRUPTION: u8 = 0;
const COMPLETION: u8 = 1;
const TICK: u8 = 2;

impl<'s> Simulation<'s> {
    fn new(scenario: &'s Scenario, policies: &Registry) -> Result<Simulation<'s>, ScenarioError> {
        let schema = scenario.output_schema.clone().map(OutputSchema::new).transpose();
        let schema = schema.map_err(|e| problem("output_schema", &e))?;
        let policy = scenario.policy.as_ref().map(|spec| policies.build(spec)).transpose();
        let policy = policy.map_err(|e| problem("policy", &e))?;
        let spec = run_spec(scenario, policy, schema.is_some())?;
        Ok(Simulation {
            scenario,
            schema,
            run: Some(Run::new(spec)),
            now: Duration::ZERO,
            due: BinaryHeap::new(),
            events: BTreeMap::new(),
            running: BTreeMap::new(),
            next: 0,
            next_turn: 0,
            answers: BTreeMap::new(),
        })
    }

    fn run(mut self) -> Result<Box<Outcome>, ScenarioError> {
        for interruption in &self.scenario.at {
            let kind = match interruption.what {
                What::Cancel => EventKind::Cancel,
                What::Terminate => EventKind::Terminate,
            };
            self.schedule(Duration::from_millis(interruption.ms), INTERRUPTION, kind);
        }
        let start = EventKind::Start { seed: 0, price: None, wall_ms: None };
        self.schedule(Duration::ZERO, COMPLETION, start);
        let mut effects = Vec::new();
        while let Some(Reverse((at, _, key))) = self.due.pop() {
            // An aborted tool removed its event; only the entry in the queue is left.
            let Some(kind) = self.events.remove(&key) else {
                continue;
            };
            // An event may have been scheduled for a time that has passed; time must not go back.
            self.now = self.now.max(at);
            let Some(run) = self.run.take() else { break };
            match run.handle(Event::new(self.now, kind), &mut effects) {
                Step::Ended(outcome) => return Ok(outcome),
                Step::Continue(run) => self.run = Some(run),
            }
            for effect in effects.drain(..) {
                self.perform(effect);
            }
            if self.next_turn > MOST_CALLS {
                return Err(ScenarioError {
                    field: "repeat_last".to_owned(),
                    problem: format!(
                        "the run has not ended after {MOST_CALLS} calls; set a limit, such as limits.max_turns"
                    ),
                });
            }
        }
        Err(ScenarioError {
            field: String::new(),
            problem: "no event is left, and the run has not ended".to_owned(),
        })
    }

    fn schedule(&mut self, at: Duration, rank: u8, kind: EventKind) -> u64 {
        let key = self.next;
        self.next += 1;
        self.due.push(Reverse((at, rank, key)));
        self.events.insert(key, kind);
        key
    }

    fn soon(&mut self, kind: EventKind) {
        self.schedule(self.now, COMPLETION, kind);
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            // The hand-over is the next scripted turn, too.
            Effect::CallModel { id, .. } | Effect::CallHandOver { id, .. } => self.call_model(id),
            Effect::StartTools { calls } => {
                for start in calls {
                    self.start_tool(&start);
                }
            }
            Effect::AbortTools { ids, .. } => {
                for tool in ids {
                    // Its scripted end is cancelled, because a tool ends only once.
                    if let Some(key) = self.running.remove(&tool) {
                        self.events.remove(&key);
                    }
                    let report = ToolReport::new(ToolStatus::Aborted, "aborted");
                    self.soon(EventKind::ToolEnded { tool, report });
                }
            }
            Effect::WakeAt { at } => {
                self.schedule(at, TICK, EventKind::Tick);
            }
            Effect::Consult { id, point } => {
                let answer = self.consult(&point);
                self.soon(EventKind::Answered { id, answer });
            }
            Effect::Compact { id, forced, .. } => {
                let result = self.compact(forced);
                self.soon(EventKind::Compacted { id, result });
            }
            Effect::Validate { id, candidate } => {
                let result = match &self.schema {
                    Some(schema) => schema.validate(&candidate).map_err(|error| error.to_string()),
                    None => Ok(candidate),
                };
                self.soon(EventKind::Validated { id, result });
            }
            Effect::Verify { id, round, .. } => self.verify(id, round),
            // Not sent while `reserve` is false, but answered so that the run could not hang.
            Effect::Reserve { id, want, .. } => {
                self.soon(EventKind::Reserved {
                    id,
                    granted: want,
                    granted_tokens: None,
                    refused_by: None,
                });
            }
            _ => {}
        }
    }

    /// Schedules the scripted verdict of a round.
    fn verify(&mut self, id: EffectId, round: u32) {
        let verdicts = &self.scenario.verdicts;
        let nth = round.saturating_sub(1) as usize;
        // The run has a verifier only if there is at least one verdict.
        let Some(verdict) = verdicts.get(nth).or(verdicts.last()) else { return };
        let at = self.now.saturating_add(Duration::from_millis(verdict.duration_ms));
        let (passed, output) = (verdict.passed, verdict.output.clone());
        self.schedule(at, COMPLETION, EventKind::Verified { id, passed, output });
    }

    /// Schedules the end of the next scripted turn.
    fn call_model(&mut self, call: EffectId) {
        let at = if self.scenario.repeat_last {
            self.next_turn.min(self.scenario.turns.len().saturating_sub(1))
        } else {
            self.next_turn
        };
        self.next_turn += 1;
        // A run that outlives its script fails; an invented answer could end it as a success.
        let Some(turn) = self.scenario.turns.get(at) else {
            let error = ModelError::new(
                ErrorClass::UnknownError,
                format!(
                    "the scenario has no turn {}: it ends after {}",
                    at + 1,
                    self.scenario.turns.len()
                ),
            );
            self.soon(EventKind::TurnFailed { call, error, partial: None });
            return;
        };
        let ends = self.now.saturating_add(Duration::from_millis(turn.duration_ms));
        // Scheduled before the turn ends, so that the policy sees the metrics of this step.
        if !turn.metrics.is_empty() {
            let observe =
                EventKind::Observe { variables: Map::new(), metrics: turn.metrics.clone() };
            self.schedule(ends, COMPLETION, observe);
        }
        let kind = self.turn(call, turn);
        self.schedule(ends, COMPLETION, kind);
    }

    /// Returns the event that a scripted turn ends with.
    fn turn(&self, call: EffectId, scripted: &ScriptedTurn) -> EventKind {
        if let Some(error) = scripted.error {
            let class = error.class();
            let error = ModelError {
                retry_after_ms: scripted.retry_after_ms,
                ..ModelError::new(class, format!("scripted {class}"))
            };
            return EventKind::TurnFailed { call, error, partial: billed(scripted) };
        }
        let text = scripted.text.clone().unwrap_or_default();
        let blank = is_blank(&text);
        let mut parts = Vec::new();
        if !text.is_empty() {
            parts.push(Part::Text { text });
        }
        if let Some(text) = &scripted.refusal {
            parts.push(Part::Refusal { text: text.clone() });
        }
        for call in &scripted.tool_calls {
            parts.push(Part::ToolCall(ToolCall {
                id: call.id.clone(),
                name: call.name.clone(),
                arguments: match &call.args {
                    Value::Null => "{}".to_owned(),
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                },
            }));
        }
        let (finish, raw) = match &scripted.finish {
            Some(Some(raw)) => (finish_of_any(raw), raw.as_str()),
            Some(None) => (Finish::Missing, ""),
            None if scripted.starved.is_some() => (Finish::Length, "length"),
            None if !scripted.tool_calls.is_empty() => (Finish::ToolUse, "tool_calls"),
            None => (Finish::Natural, "stop"),
        };
        // The same precedence table as for real responses, so that a scenario tests it as well.
        let signal = signal(&TurnFacts {
            finish,
            field: "finish",
            raw,
            calls: scripted.tool_calls.len(),
            text_blank: blank,
            refusal: scripted.refusal.is_some(),
            ..TurnFacts::default()
        });
        let cut = signal.reason == SignalReason::ErrorTermination;
        let mut turn = ModelTurn::new(parts, signal);
        turn.usage = Usage {
            input_tokens: scripted
                .input_tokens
                .or(scripted.starved.map(|_| self.scenario.prompt_tokens)),
            output_tokens: scripted.output_tokens,
            ..Usage::default()
        };
        turn.cost = scripted.cost.map(NanoUsd::from_usd);
        turn.output_cap = scripted.starved.and_then(|starved| starved.completion_cap);
        turn.call_missing = finish == Finish::ToolUse && scripted.tool_calls.is_empty();
        if scripted.unparseable {
            turn.unparseable = Some("the scenario marks the tool calls as unparseable".to_owned());
        }
        if cut {
            let (class, message) = match finish {
                Finish::Missing => {
                    (ErrorClass::IncompleteStream, "the stream closed without its end")
                }
                _ => (error_class_of(raw), "the finish value reports that the provider failed"),
            };
            let error = ModelError::new(class, message);
            return EventKind::TurnFailed { call, error, partial: Some(Box::new(turn)) };
        }
        EventKind::TurnEnded { call, turn: Box::new(turn) }
    }

    fn start_tool(&mut self, start: &ToolStart) {
        let scripted = self.scenario.tools.get(&start.call.name);
        let nth = self.answers.entry(start.call.name.clone()).or_insert(0);
        // After the last of its `results`, a tool repeats it.
        let value = scripted.and_then(|tool| {
            tool.results.get(*nth).or(tool.results.last()).or(tool.result.as_ref())
        });
        *nth += 1;
        let content = match value {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let kind = scripted.map_or(ToolKind::Ok, |tool| tool.kind);
        // `ERR:` lets a tool with several results fail in only some of them.
        let status = if kind == ToolKind::Error || content.starts_with("ERR:") {
            ToolStatus::Error
        } else {
            ToolStatus::Ok
        };
        let mut report = ToolReport::new(status, content.clone());
        if kind == ToolKind::Halt {
            report.halt = Some(content);
        }
        let wait = Duration::from_millis(scripted.map_or(0, |tool| tool.duration_ms));
        let ended = EventKind::ToolEnded { tool: start.id, report };
        let key = self.schedule(self.now.saturating_add(wait), COMPLETION, ended);
        self.running.insert(start.id, key);
    }

    fn consult(&self, point: &ConsultPoint) -> HookDecision {
        let hooks = &self.scenario.hooks;
        let halt = |reason: &String| HookDecision::Halt(reason.clone());
        match point {
            ConsultPoint::Prompt => self.scenario.early_halt.as_ref().map(halt),
            ConsultPoint::PreIteration { tool_turns, unproductive } => hooks
                .pre_iteration
                .as_ref()
                .filter(|hook| {
                    hook.at.is_some_and(|at| at == *tool_turns)
                        || hook.when_unproductive.is_some_and(|n| *unproductive >= n)
                })
                .map(|hook| halt(&hook.halt)),
            ConsultPoint::ChatParams { tool_turns, .. } => hooks
                .chat_params
                .as_ref()
                .filter(|hook| hook.at.is_none_or(|at| at == *tool_turns))
                .map(|hook| halt(&hook.halt)),
            ConsultPoint::PreTool { call } => hooks.pre_tool.get(&call.name).map(halt),
            _ => None,
        }
        .unwrap_or(HookDecision::Proceed)
    }

    /// Returns the scripted result of a compaction.
    fn compact(&mut self, forced: bool) -> Compaction {
        let scripted = &self.scenario.compaction;
        let tool_turns = self.run.as_ref().map_or(0, |run| {
            run.messages().iter().filter(|message| message.role == Role::Tool).count() as u32
        });
        if forced {
            if scripted.force_fails {
                return Compaction::Failed("the scenario makes compaction fail".to_owned());
            }
            let messages = self.run.as_ref().map(|run| run.messages().to_vec()).unwrap_or_default();
            return Compaction::done("scenario", messages);
        }
        if scripted.proactive_fails_at == Some(tool_turns) {
            return Compaction::Failed("the scenario makes compaction fail".to_owned());
        }
        Compaction::NotNeeded
    }
}

/// Returns the usage and cost of a failed attempt if the script states them, because a provider
/// bills failed attempts too.
fn billed(scripted: &ScriptedTurn) -> Option<Box<ModelTurn>> {
    let usage = Usage {
        input_tokens: scripted.input_tokens,
        output_tokens: scripted.output_tokens,
        ..Usage::default()
    };
    if scripted.cost.is_none() && usage == Usage::default() {
        return None;
    }
    let signal = TerminationSignal::new(SignalReason::ErrorTermination, Confidence::High);
    let mut turn = ModelTurn::new(Vec::new(), signal);
    turn.usage = usage;
    turn.cost = scripted.cost.map(NanoUsd::from_usd);
    Some(Box::new(turn))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use endstop_core::Termination;
    use serde_json::json;

    #[test]
    fn failed_attempt_counts_scripted_cost() {
        for (limits, used) in [
            (json!({"max_budget_usd": 1}), json!({"cost": 1.0})),
            (json!({"max_tokens": 10}), json!({"input_tokens": 10})),
        ] {
            let mut failed = json!({"error": "overloaded"});
            failed.as_object_mut().unwrap().extend(used.as_object().unwrap().clone());
            let scenario = json!({"limits": limits, "turns": [failed, {"text": "ok"}]});
            let scenario = Scenario::from_value(&scenario).unwrap();
            let outcome = simulate(&scenario, &Registry::default()).unwrap();
            assert_eq!(outcome.model_calls, 1, "{limits}");
            assert_ne!(outcome.termination, Termination::Stop, "{limits}");
        }
    }
}

//! Replays a recorded run through a fresh kernel, in order to see how it would have ended under
//! other limits and policies.
//!
//! ```
//! use endstop_core::{Limits, Termination};
//! use endstop_trajectory::replay::{Setting, replay};
//! use endstop_trajectory::{Call, CallResult, Role, Step, Trajectory};
//!
//! let step = Step {
//!     calls: vec![Call { name: "read".into(), arguments: "{}".into(), ..Call::default() }],
//!     results: vec![CallResult { content: "12 lines".into(), ..CallResult::default() }],
//!     ..Step::new(Role::Agent)
//! };
//! let run = Trajectory { steps: vec![step; 9], ..Trajectory::new("run-1") };
//! let setting = Setting { limits: Limits { max_turns: Some(3), ..Limits::default() }, ..Setting::default() };
//! let replayed = replay(&run, &setting)?;
//! assert_eq!((replayed.turns, replayed.ended), (3, Some(Termination::ErrorMaxTurns)));
//! # Ok::<(), endstop_core::PolicyError>(())
//! ```
//!
//! The kernel receives the recorded events: each turn's text, calls, results, usage and cost. If an
//! agent spoke without a call and the recording continues, the replay treats the next message as a
//! reply.
//!
//! Data that is missing from a recording cannot be evaluated. Timeouts are off, except the run's
//! own if the steps have times; no budget is reserved, and no nudges are sent. If tool results are
//! missing, the limits on mistakes and on progress are off, as are the parts of rules and policies
//! that inspect results. A replay shows the effect of a stop; the effect that a nudge would have
//! had is unknown.

use crate::availability;
use crate::model::{Role, Step, Trajectory};
pub use crate::setting::Setting;
use endstop_core::limits::Needs;
use endstop_core::{
    Confidence, Effect, EffectId, Event, EventKind, HookDecision, Hooks, Limits, Message,
    MessageId, ModelTurn, NanoUsd, Outcome, Part, PolicyError, Registry, Role as Speaker, RuleHit,
    Run, RunData, RunSpec, SignalReason, Step as Handled, Termination, TerminationSignal, ToolCall,
    ToolPolicy, ToolReport, ToolStatus, Usage, Watch,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replayed {
    /// The termination chosen by the kernel; `None` if the recording ended first.
    pub ended: Option<Termination>,
    /// The name of the decider and its evidence: `max_turns: 3 of 3 turns`.
    pub decided_by: Option<String>,
    /// Number of turns until then.
    pub turns: u32,
    /// The rules that fired.
    pub fired: Vec<RuleHit>,
}

/// Replays a recorded run.
///
/// # Errors
/// The setting's policy is unknown or invalid.
pub fn replay(run: &Trajectory<'_>, setting: &Setting) -> Result<Replayed, PolicyError> {
    let build = |spec: &Value| Registry::new().build(spec);
    let mut policy = setting.policy.as_ref().map(build).transpose()?;
    let turns: Vec<usize> = (0..run.steps.len()).filter(|at| run.steps[*at].is_turn()).collect();
    let tools: BTreeSet<&str> =
        turns.iter().flat_map(|at| &run.steps[*at].calls).map(|call| &*call.name).collect();
    let mut limits = Limits {
        turn_timeout: None,
        first_content_timeout: None,
        stall_timeout: None,
        thinking_timeout: None,
        tool_timeout: None,
        // The recording already fixed the order, so the replay must not queue calls.
        tool_concurrency: u32::MAX,
        ..setting.limits.clone()
    };
    let mut watches = setting.watches.clone();
    if run.lacks_results() {
        limits.switch_off(
            |row| matches!(row.needs, Needs::Data(data) if data.contains(&RunData::Results)),
        );
        let seeing = |watch: Watch| {
            Some(Watch { rule: availability::without_results(&watch.rule)?, ..watch })
        };
        watches = watches.into_iter().filter_map(seeing).collect();
        let rest = setting.policy.as_ref().and_then(availability::policy_without_results);
        policy = rest.as_ref().map(build).transpose()?;
    }
    let spec = RunSpec {
        limits,
        policy: policy.map(endstop_core::BoxPolicy::into_inner),
        watches,
        tools: tools
            .into_iter()
            .map(|name| ToolPolicy {
                name: name.to_owned(),
                // All calls of a turn start at once, so that results can be assigned by index.
                parallel_safe: true,
                ..ToolPolicy::default()
            })
            .collect::<Vec<_>>()
            .into(),
        finish_tool: false,
        hooks: Hooks { reply: true, ..Hooks::default() },
        reserve: false,
        streaming: false,
        nudge: false,
        model: run.model.as_deref().map(str::to_owned),
        ..RunSpec::new(vec![Message::text(MessageId(1), Speaker::User, task(run))])
    };
    let mut hand =
        Hand { run: Some(Run::new(spec)), outcome: None, effects: Vec::new(), at: Duration::ZERO };
    hand.feed(EventKind::Start { seed: 0, price: None, wall_ms: None });
    let clock = Clock::of(run, &turns);
    for (nth, at) in turns.iter().enumerate() {
        if hand.outcome.is_some() {
            break;
        }
        let step = &run.steps[*at];
        hand.at = clock.at(nth);
        let next = turns.get(nth + 1);
        hand.turn(step, next.map(|next| &run.steps[at + 1..*next]));
    }
    Ok(hand.replayed())
}

/// Replays the events of an Endstop run under other limits. Decisions of the original limits are
/// made again. Returns `None` if the events end before the run does.
pub fn replay_events(spec: RunSpec, events: &[Event]) -> Option<Outcome> {
    let mut run = Run::new(spec);
    let mut effects = Vec::new();
    for event in events {
        effects.clear();
        match run.handle(event.clone(), &mut effects) {
            Handled::Continue(on) => run = on,
            Handled::Ended(outcome) => return Some(*outcome),
        }
    }
    None
}

fn task<'r>(run: &'r Trajectory<'_>) -> &'r str {
    run.steps.iter().find(|step| step.role == Role::User).map_or("", |step| &*step.text)
}

/// Drives a kernel with recorded events.
struct Hand {
    run: Option<Run>,
    outcome: Option<Box<Outcome>>,
    effects: Vec<Effect>,
    at: Duration,
}

impl Hand {
    fn feed(&mut self, kind: EventKind) {
        let Some(run) = self.run.take() else { return };
        self.effects.clear();
        match run.handle(Event::new(self.at, kind), &mut self.effects) {
            Handled::Continue(run) => self.run = Some(run),
            Handled::Ended(outcome) => self.outcome = Some(outcome),
        }
    }

    /// Feeds one turn, and the messages before the next one; `then` is `None` for the last turn.
    fn turn(&mut self, step: &Step<'_>, then: Option<&[Step<'_>]>) {
        let Some(call) = self.asked_call() else { return };
        // Before the turn ends, because a policy reads the reward when it evaluates the turn.
        if let Some(reward) = step.reward {
            let metrics = serde_json::Map::from_iter([("last_reward".to_owned(), reward.into())]);
            self.feed(EventKind::Observe { variables: serde_json::Map::new(), metrics });
        }
        self.feed(EventKind::TurnEnded { call, turn: Box::new(model_turn(step)) });
        let started: Vec<EffectId> = self.effects.iter().flat_map(started).collect();
        for (nth, tool) in started.into_iter().enumerate() {
            let report = match step.result_of(nth) {
                Some(result) if result.is_error => {
                    ToolReport::new(ToolStatus::Error, &*result.content)
                }
                Some(result) => ToolReport::new(ToolStatus::Ok, &*result.content),
                // The result is unknown. `Aborted` counts neither as a success nor as a mistake of
                // the model.
                None => ToolReport::new(ToolStatus::Aborted, ""),
            };
            self.feed(EventKind::ToolEnded { tool, report });
        }
        let asked = self.effects.iter().find_map(|effect| match effect {
            Effect::Consult { id, .. } => Some(*id),
            _ => None,
        });
        // A reply is only given if the recording continues; otherwise the kernel ends the run.
        if let (Some(id), Some(between)) = (asked, then) {
            let said: Vec<&str> = between
                .iter()
                .filter(|step| step.role == Role::User)
                .map(|step| &*step.text)
                .chain(step.results.iter().map(|result| &*result.content))
                .collect();
            self.feed(EventKind::Answered {
                id,
                answer: HookDecision::ProceedWith(said.join("\n")),
            });
        } else if let Some(id) = asked {
            self.feed(EventKind::Answered { id, answer: HookDecision::Proceed });
        }
    }

    fn asked_call(&self) -> Option<EffectId> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::CallModel { id, .. } => Some(*id),
            _ => None,
        })
    }

    fn replayed(self) -> Replayed {
        match self.outcome {
            Some(outcome) => Replayed {
                ended: Some(outcome.termination),
                decided_by: Some(format!(
                    "{}: {}",
                    outcome.decided_by.decision, outcome.decided_by.evidence
                )),
                turns: outcome.turns,
                fired: outcome.fired,
            },
            None => Replayed {
                turns: self.run.as_ref().map_or(0, Run::turns),
                fired: self.run.as_ref().map_or_else(Vec::new, |run| run.fired().to_vec()),
                ..Replayed::default()
            },
        }
    }
}

fn started(effect: &Effect) -> Vec<EffectId> {
    match effect {
        Effect::StartTools { calls } => calls.iter().map(|start| start.id).collect(),
        _ => Vec::new(),
    }
}

fn model_turn(step: &Step<'_>) -> ModelTurn {
    let mut parts = Vec::with_capacity(step.calls.len() + 1);
    if !step.text.is_empty() {
        parts.push(Part::Text { text: step.text.to_string() });
    }
    for (nth, call) in step.calls.iter().enumerate() {
        // Recorded ids may repeat, so each call gets a new one.
        parts.push(Part::ToolCall(ToolCall {
            id: format!("call_{nth}"),
            name: call.name.to_string(),
            arguments: as_object(&call.arguments),
        }));
    }
    let reason =
        if step.calls.is_empty() { SignalReason::NaturalCompletion } else { SignalReason::ToolUse };
    let signal = TerminationSignal::new(reason, Confidence::Low)
        .from_field("finish_reason", step.finish_reason.as_deref().unwrap_or("not recorded"));
    let usage = step.usage.as_deref().map_or_else(Usage::default, |used| Usage {
        input_tokens: used.prompt_tokens,
        output_tokens: used.completion_tokens,
        cached_input_tokens: used.cached_tokens,
        cache_write_tokens: used.cache_write_tokens,
        cache_write_1h_tokens: used.cache_write_1h_tokens(),
        reasoning_tokens: used.reasoning_tokens,
        ..Usage::default()
    });
    ModelTurn { usage, cost: step.cost_usd.map(NanoUsd::from_usd), ..ModelTurn::new(parts, signal) }
}

/// Wraps arguments that are not an object in one, because the kernel requires an object.
fn as_object(arguments: &str) -> String {
    if arguments.trim_start().starts_with('{') {
        arguments.to_owned()
    } else {
        format!("{{\"raw\":{arguments}}}")
    }
}

/// The time of each turn since the first step, if the steps have times.
struct Clock(Vec<Option<Duration>>);

impl Clock {
    fn of(run: &Trajectory<'_>, turns: &[usize]) -> Clock {
        let time = |step: &Step<'_>| step.at.as_deref().and_then(crate::time::unix_ms);
        let Some(first) = run.steps.iter().find_map(time) else { return Clock(Vec::new()) };
        let since = |at: &usize| {
            let ms = time(&run.steps[*at])?.saturating_sub(first);
            Some(Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
        };
        Clock(turns.iter().map(since).collect())
    }

    fn at(&self, nth: usize) -> Duration {
        self.0.get(nth).copied().flatten().unwrap_or_default()
    }
}

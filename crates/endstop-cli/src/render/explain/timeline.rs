//! The timeline of a run: its events in order, the limits before each turn, and repeats. It is
//! built from a run of the journal, whose events are replayed, or from a file of `--events`.

use super::open_call::open_call;
use super::repeats::{Repeat, repeats_of};
use super::turns::{Turn, turns_of};
use crate::failure::{Failure, Result};
use crate::render::advice::{
    AFTER_DIVERGENCE, Again, Facts, Guarded, before_repeats, in_journal, of_demo,
};
use crate::render::card::Beside;
use endstop::core::{Limit, NanoUsd, RunEvent};
use endstop::journal::{BranchSummary, RecordedRun, brief};
use endstop::{
    BranchPoint, Limits, Outcome,
    core::{CheckState, Decision, Effect, EventKind, Replay},
};
use serde::{Deserialize as _, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// The timeline of a run, with everything that `explain` shows.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Timeline {
    /// The run's header, if it comes from a journal.
    pub(crate) run: Option<About>,
    /// `ended`, `running`, `parked`, `interrupted`, or `cut`: the events end for an unknown reason.
    pub(crate) state: &'static str,
    /// Problems that make the timeline incomplete or uncertain.
    pub(crate) problems: Vec<String>,
    /// Number of events.
    pub(crate) events: usize,
    /// The events for observers, with `at_ms` on the run's clock.
    #[serde(rename = "timeline")]
    pub(crate) entries: Vec<Value>,
    /// The use of each limit before each turn, and at the end.
    pub(crate) limits: Vec<Boundary>,
    /// Turns that made the same calls with the same results and added no text.
    pub(crate) repeats: Vec<Repeat>,
    /// The outcome as it was written, if the run ended.
    pub(crate) outcome: Option<Value>,
    /// The same outcome, unless it cannot be read.
    #[serde(skip)]
    pub(crate) ending: Option<Outcome>,
    /// The limits of the run; all off if they are not known.
    #[serde(skip)]
    pub(crate) allowed: Limits,
    /// Number of calls that started, by tool, in all conversations of the record.
    #[serde(skip)]
    pub(crate) calls: BTreeMap<String, u64>,
    /// The next step.
    pub(crate) next: Option<String>,
}

/// The header of a stored run.
#[derive(Debug, Serialize)]
pub(crate) struct About {
    #[serde(rename = "run_id")]
    pub(crate) id: String,
    pub(crate) continues: Option<String>,
    /// The place in another run at which this one branched off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) branched_from: Option<BranchPoint>,
    /// The runs that branched off this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) branches: Vec<BranchSummary>,
    /// The run that continued this one to a success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) continued_by: Option<String>,
    pub(crate) started_ms: u64,
    pub(crate) version: String,
    pub(crate) provider: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) task: String,
    pub(crate) policy: Option<Value>,
    pub(crate) verified: Option<bool>,
    /// The command of the verifier.
    pub(crate) verify: Option<String>,
}

/// The limits at one point in time.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Boundary {
    pub(crate) at_ms: f64,
    /// The turn that begins; `None` for the end of the run.
    pub(crate) turn: Option<u64>,
    pub(crate) checks: Vec<CheckState>,
}

impl Timeline {
    /// Builds the timeline of a stored run. `journal` is the path that commands need to find it, if
    /// it is not the default.
    pub(crate) fn of_run(
        run: &RecordedRun,
        running: bool,
        journal: Option<&Path>,
    ) -> Result<Timeline> {
        let header = &run.header;
        let mut timeline = Timeline {
            run: Some(About {
                id: header.id.clone(),
                continues: header.continues.clone().filter(|earlier| {
                    // The journal stores the run that a branch came from in the same place.
                    header.spec.branched_from.as_ref().is_none_or(|from| from.run_id != *earlier)
                }),
                branched_from: header.spec.branched_from.as_deref().cloned(),
                branches: Vec::new(),
                continued_by: None,
                started_ms: header.started_ms,
                version: header.version.clone(),
                provider: header.spec.provider.clone(),
                model: run.model().map(str::to_owned),
                task: header.spec.task.clone(),
                policy: header.policy.clone(),
                verified: run.verified,
                verify: header.settings["verify"].as_str().map(str::to_owned),
            }),
            events: run.events.len(),
            allowed: run.limits(),
            problems: run
                .damage
                .iter()
                .map(|what| format!("part of the run is lost: {what}"))
                .collect(),
            ..Timeline::default()
        };
        let spec = run.spec(None).or_else(|error| {
            // Without the policy's code the run can be replayed up to the policy's first decision.
            timeline.problems.push(error.problem);
            Ok(header.spec.clone_with(None))
        });
        let mut replay =
            Replay::new(spec.map_err(|error: endstop::journal::JournalError| {
                Failure::usage(error.to_string())
            })?);
        timeline.replay(run, &mut replay);
        timeline.entries.extend(open_call(run, &replay));
        timeline.calls = started_calls(&timeline.entries);
        let mut outcome = run.outcome.clone();
        if outcome.is_none() {
            // The run had ended, and its process died before it stored the outcome. The replay
            // gives the same one.
            outcome = replay.outcome().and_then(|outcome| serde_json::to_value(outcome).ok());
        }
        if let (Some(outcome), Some(verified)) = (&mut outcome, run.verified) {
            // The verifier runs after the outcome is stored, so its result is stored separately.
            outcome["verified"] = verified.into();
        }
        timeline.end(outcome);
        timeline.state = match (&timeline.outcome, running) {
            (Some(_), _) => "ended",
            (None, true) => "running",
            (None, false) if parked(run) => "parked",
            (None, false) => "interrupted",
        };
        timeline.next = timeline.advice(run, journal);
        timeline.close();
        Ok(timeline)
    }

    /// Adds what the recorded events did, and the limits before each turn.
    fn replay(&mut self, run: &RecordedRun, replay: &mut Replay) {
        let mut differs = false;
        for (nth, event) in run.events.iter().enumerate() {
            let at_ms = event.at.as_secs_f64() * 1e3;
            let resumed = matches!(event.kind, EventKind::Resumed(_));
            // Before the effects, because these events lead to them.
            if run.header.spec.guest.is_some() {
                self.entries.extend(of_guest(&event.kind, at_ms));
            }
            let effects = replay.feed(event.clone()).to_vec();
            let asked: Vec<Value> = effects.iter().filter_map(brief).collect();
            // Only the first difference is reported, because later ones may follow from it.
            if run.effects.get(nth).is_some_and(|was| *was != asked) && !differs {
                differs = true;
                self.problems.push(format!(
                    "from event {nth} ({}) on, this version of Endstop decides differently from version {}; the timeline after it may be wrong",
                    event.kind.name(),
                    run.header.version
                ));
            }
            if resumed {
                self.entries.push(json!({"type": "resumed", "at_ms": at_ms}));
            }
            for effect in effects {
                let Effect::Emit(event) = effect else { continue };
                if let RunEvent::TurnStarted { turn, attempt: 1 } = event
                    && let Some(live) = replay.run()
                {
                    let turn = Some(u64::from(turn));
                    self.limits.push(Boundary { at_ms, turn, checks: live.checks() });
                }
                if let Ok(mut told) = serde_json::to_value(&event) {
                    told["at_ms"] = at_ms.into();
                    self.entries.push(told);
                }
            }
        }
    }

    /// Returns what the user can do next, for a run that has ended or was interrupted.
    fn advice(&self, run: &RecordedRun, journal: Option<&Path>) -> Option<String> {
        let header = &run.header;
        if self.state == "parked"
            && run.events.last().is_some_and(|last| last.kind.name() == "parked")
        {
            let command = in_journal(&format!("endstop answer {} --approve", header.id), journal);
            return Some(format!("decide: {command} (or --deny WHY)"));
        }
        let program = Guarded {
            limits: &self.allowed,
            client: header.settings["client"].as_str(),
            profile: header.settings["profile"].as_str(),
        };
        let is_guarded = header.settings["guard"] == true;
        if is_guarded && self.state == "interrupted" {
            let again = program.again(None);
            return again.map(|command| format!("if the program has ended, too: {command}"));
        }
        if self.state == "interrupted" || self.state == "parked" {
            let again = Again::of_interrupted(run, &header.id, journal);
            return again.map(|again| format!("resume: {}", again.command()));
        }
        let facts = self.ending.as_ref().map(Facts::of)?;
        if is_guarded {
            return facts.next_of_guarded(program);
        }
        let again = Again::of(facts, run, &header.id, journal);
        let back = before_repeats(facts.outcome(), run, &header.id, journal);
        let next = back.unwrap_or_else(|| facts.next(again.as_ref(), journal));
        let demo = header.settings["demo"].is_string() && facts.is_failure();
        Some(if demo { of_demo(&next) } else { next })
    }

    /// Builds the timeline of a file of events.
    pub(crate) fn of_events(events: Vec<Value>) -> Timeline {
        let count = events.len();
        let (outcome, entries): (Vec<Value>, Vec<Value>) =
            events.into_iter().partition(|event| event["type"] == "outcome");
        let outcome = outcome.into_iter().next_back();
        let parked = entries.last().is_some_and(|last| last["type"] == "run_parked");
        let state = match (&outcome, parked) {
            (Some(_), _) => "ended",
            (None, true) => "parked",
            (None, false) => "cut",
        };
        let calls = started_calls(&entries);
        // Turns are counted for each conversation of a guarded run, so only the first is shown.
        let entries = entries.into_iter().filter(|event| {
            event["type"] != "delta" && event["thread"].as_str().is_none_or(|name| name == "main")
        });
        let entries = entries.collect();
        let allowed = Limits::none();
        let mut timeline =
            Timeline { state, events: count, entries, allowed, calls, ..Timeline::default() };
        timeline.end(outcome);
        timeline.next = match timeline.diverged() {
            Some(_) => Some(AFTER_DIVERGENCE.to_owned()),
            None => timeline.ending.as_ref().and_then(|outcome| {
                let facts = Facts::of(outcome);
                // Only the outcome of a guarded program has its own ending.
                let is_guarded =
                    timeline.outcome.as_ref().is_some_and(|one| one["agent"].is_object());
                let program = Guarded { limits: &timeline.allowed, client: None, profile: None };
                if is_guarded {
                    facts.next_of_guarded(program)
                } else {
                    Some(facts.next(None, None))
                }
            }),
        };
        timeline.close();
        timeline
    }

    /// Sets the outcome.
    fn end(&mut self, outcome: Option<Value>) {
        match outcome.as_ref().map(Outcome::deserialize) {
            Some(Ok(ending)) => self.ending = Some(ending),
            Some(Err(error)) => {
                self.problems.push(format!("the outcome cannot be read: {error}"));
            }
            None => {}
        }
        self.outcome = outcome;
    }

    /// Returns the parts of the card that do not come from the outcome.
    pub(crate) fn beside(&self) -> Beside {
        let verifier = self.run.as_ref().and_then(|run| run.verify.clone());
        Beside {
            fired_elsewhere: Vec::new(),
            next: self.next.clone(),
            run: None,
            agent: None,
            diverged: self.diverged().map(str::to_owned),
            // A successful run with a verifier but without a result: the verifier was stopped, or
            // its process died.
            unverified: verifier.is_some() && self.ending.as_ref().is_some_and(Outcome::is_success),
            verifier,
        }
    }

    /// The first difference from the recording, if the run replayed one and diverged.
    fn diverged(&self) -> Option<&str> {
        self.outcome.as_ref()?["diverged"]["message"].as_str()
    }

    /// `true` if this limit ended the run.
    pub(crate) fn is_decided_by(&self, limit: Limit) -> bool {
        let decided = |outcome: &Outcome| outcome.decided_by.decision == Decision::Limit(limit);
        self.ending.as_ref().is_some_and(decided)
    }

    /// Adds the parts that need the whole timeline: the limits at the end, and repeats.
    fn close(&mut self) {
        self.repeats = repeats_of(&self.turns());
        // Without a price the sum of the turns is 0, which would be a claim.
        let unknown = |outcome: &Outcome| outcome.known_cost().is_none();
        if self.ending.as_ref().is_some_and(unknown) {
            for repeat in &mut self.repeats {
                repeat.cost_usd = None;
            }
        }
        let (Some(outcome), Some(last)) = (&self.ending, self.limits.last()) else { return };
        let mut end = Boundary { turn: None, ..last.clone() };
        end.at_ms = ms(outcome).max(end.at_ms);
        for check in &mut end.checks {
            let decided = self.is_decided_by(check.limit);
            let value = match check.limit {
                Limit::MaxTurns => Some(outcome.turns.into()),
                // The upper bound, because the budget limit is checked against it.
                Limit::MaxBudgetUsd => Some(outcome.cost_upper.unwrap_or(outcome.cost).to_usd()),
                Limit::Timeout => Some(ms(outcome) / 1e3),
                // The outcome does not contain the final value of the others, but a limit that
                // decided was reached.
                _ => check.max.filter(|_| decided),
            };
            check.value = value.unwrap_or(check.value);
            check.met |= decided || check.max.is_some_and(|max| check.value >= max);
        }
        self.limits.push(end);
    }

    /// Groups the timeline into turns, in order.
    pub(crate) fn turns(&self) -> Vec<Turn<'_>> {
        turns_of(&self.entries, self.end_ms())
    }

    /// Returns the end of the timeline on the run's clock, in milliseconds.
    pub(crate) fn end_ms(&self) -> f64 {
        let last = self.entries.iter().rev().find_map(|event| event["at_ms"].as_f64());
        last.unwrap_or(0.0).max(self.ending.as_ref().map_or(0.0, ms))
    }
}

/// `true` if the records end with a request or its decision.
fn parked(run: &RecordedRun) -> bool {
    let last = run.events.last().map(|event| &event.kind);
    matches!(last, Some(EventKind::Parked { .. } | EventKind::Decided { .. }))
}

/// Counts the calls that started, by tool.
fn started_calls(entries: &[Value]) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry["type"] == "tool_started") {
        *calls.entry(entry["name"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    calls
}

/// Returns the entry of an event that only the runs of guests have. The messages of a call are not
/// part of it, because they may be long.
fn of_guest(event: &EventKind, at_ms: f64) -> Option<Value> {
    match event {
        EventKind::Asked { call } => Some(json!({
            "type": "asked",
            "at_ms": at_ms,
            "model": call.model,
            "messages": call.input.len(),
            "prompt_bytes": call.prompt_bytes,
            "output_cap": call.output_cap,
            "attempt_of_previous": call.attempt_of_previous,
        })),
        EventKind::Closed { ok, detail, ended_as } => {
            let elsewhere = ended_as.as_ref().map(|ending| ending.decided_by.to_string());
            Some(json!({
                "type": "closed",
                "at_ms": at_ms,
                "ok": ok,
                "detail": detail,
                "decided_elsewhere": elsewhere,
            }))
        }
        EventKind::Spent(spent) => Some(json!({
            "type": "spent_elsewhere",
            "at_ms": at_ms,
            "turns": spent.turns,
            "cost_usd": spent.known_cost().map(NanoUsd::to_usd),
            "tokens": spent.usage.total_tokens(),
        })),
        _ => None,
    }
}

/// Returns the duration of a run in milliseconds, as its JSON contains it.
fn ms(outcome: &Outcome) -> f64 {
    outcome.duration.as_micros() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::Timeline;
    use serde_json::json;

    #[test]
    fn unreadable_outcome_is_a_problem() {
        let timeline = Timeline::of_events(vec![
            json!({"type": "turn_started", "turn": 1, "attempt": 1, "at_ms": 0.0}),
            json!({"type": "outcome", "termination": "error_of_2030", "decided_by": {}}),
        ]);
        assert!(timeline.ending.is_none() && timeline.next.is_none());
        assert_eq!(timeline.state, "ended");
        assert!(timeline.problems[0].contains("`termination`: unknown variant `error_of_2030`"));
        assert_eq!(timeline.outcome.unwrap()["termination"], "error_of_2030");
    }
}

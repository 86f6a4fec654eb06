//! Compares a run as it was with its journal: the outcome, byte for byte, the requested effects, the
//! reported events, the messages of the user, and the calls that were decided.

use super::{Story, Whole};
use endstop::core::{EventKind, Replay};
use endstop::journal::{RecordedRun, SqliteJournal, brief};
use endstop::park::ParkDecision;
use endstop::{AgentEventKind, Outcome};
use serde_json::Value;
use std::collections::BTreeMap;

/// Kinds of events that every hundred runs contain.
pub(super) const FREQUENT: &[&str] = &[
    "event: decided",
    "event: limits_changed",
    "event: parked",
    "event: resumed",
    "event: said",
    "event: verified",
    "feature: background call",
    "feature: branch",
    "run: 3 or more at once",
];

/// Kinds of events of which every thousand runs contain at least ten.
pub(super) const EXPECTED: &[&str] = &[
    "answer: expired",
    "answer: in time",
    "answer: late",
    "answer: none yet",
    "answer: twice",
    "answer: with the resume",
    "answer: cancelled",
    "effect: abandon",
    "effect: abort_model",
    "effect: abort_tools",
    "effect: call_hand_over",
    "effect: call_model",
    "effect: compact",
    "effect: reserve",
    "effect: settle",
    "effect: start_tools",
    "effect: switch_model",
    "effect: validate",
    "effect: verify",
    "event: answered",
    "event: cancel",
    "event: compacted",
    "event: decided",
    "event: delta",
    "event: limits_changed",
    "event: parked",
    "event: reserved",
    "event: resumed",
    "event: said",
    "event: spent",
    "event: suspended",
    "event: terminate",
    "event: tick",
    "event: tool_ended",
    "event: turn_ended",
    "event: turn_failed",
    "event: validated",
    "event: verified",
    "feature: background call",
    "feature: branch",
    "feature: ceiling of the day",
    "feature: changed limit",
    "feature: compaction",
    "feature: death",
    "feature: fallback",
    "feature: hand-over",
    "feature: message",
    "feature: park",
    "feature: resume after the end",
    "feature: suspension",
    "feature: verification",
    "park: approval",
    "park: question",
    "run: 3 or more at once",
    "run: 5 or more at once",
];

/// Checks that the journal of a run replays to what the run was.
pub(super) fn check(story: &mut Story<'_>, whole: &Whole) {
    let seed = story.seed;
    let journal = SqliteJournal::read(&story.file).unwrap();
    let run = journal.load(&whole.id).unwrap();
    assert_eq!(run.damage, None, "seed {seed}");
    let live = serde_json::to_string(&whole.outcome).unwrap();
    let stored = run.outcome.as_ref().unwrap().to_string();
    assert_eq!(stored, live, "seed {seed}: stored");
    let replay = run.replay(None).unwrap();
    let again = serde_json::to_string(replay.outcome().expect("it has ended")).unwrap();
    assert_eq!(again, live, "seed {seed}: replayed");

    // The kernel asks for the same again, event by event.
    let mut replay = Replay::new(run.spec(None).unwrap());
    assert_eq!(run.events.len(), run.effects.len(), "seed {seed}");
    for (nth, (event, asked)) in run.events.iter().zip(&run.effects).enumerate() {
        let effects: Vec<Value> = replay.feed(event.clone()).iter().filter_map(brief).collect();
        assert_eq!(effects, *asked, "seed {seed}: event {nth}, {}", event.kind.name());
    }
    same_events(seed, whole, &run);
    said_once(seed, whole, &run);
    decisions_hold(story, &run);
    count(story, &whole.outcome, &run);
}

/// The journal reports the events that the handles have reported, except for decisions, which other
/// processes have stored.
fn same_events(seed: u64, whole: &Whole, run: &RecordedRun) {
    if !whole.heard {
        return;
    }
    let again: Vec<Value> = run
        .events_again()
        .unwrap()
        .iter()
        .filter(|event| {
            event.path().is_empty() && !matches!(event.kind, AgentEventKind::Decided { .. })
        })
        .map(|event| serde_json::to_value(event).unwrap())
        .collect();
    let kinds = |events: &[Value]| -> Vec<String> {
        events.iter().map(|event| event["type"].to_string()).collect()
    };
    let from = if whole.continues { again.len().saturating_sub(whole.events.len()) } else { 0 };
    for (nth, (again, live)) in again[from..].iter().zip(&whole.events).enumerate() {
        let (mut again, mut live) = (again.clone(), live.clone());
        if whole.continues {
            // The handle counts the turns after the decision that was evaluated again, and the journal
            // before it. Events of a turn have their own number, which the others would hide.
            for event in [&mut again, &mut live] {
                let kind = event["type"].as_str().unwrap_or_default();
                if !["turn_started", "turn_finished", "usage", "attempt_failed"].contains(&kind) {
                    event["turn"] = Value::Null;
                }
            }
        }
        assert_eq!(again, live, "seed {seed}: event {nth} of {:?}", kinds(&whole.events));
    }
    let (again, live) = (kinds(&again[from..]), kinds(&whole.events));
    assert_eq!(again, live, "seed {seed}");
}

/// A message that was accepted is in the journal, once and in order.
fn said_once(seed: u64, whole: &Whole, run: &RecordedRun) {
    if !whole.heard {
        return;
    }
    let mut said: Vec<&str> = Vec::new();
    for event in &run.events {
        if let EventKind::Said { text } = &event.kind {
            said.push(text);
        }
    }
    let from = if whole.continues { said.len().saturating_sub(whole.said.len()) } else { 0 };
    assert_eq!(said[from..], whole.said, "seed {seed}: messages");
}

/// A call that was denied, or whose request expired, did not run.
fn decisions_hold(story: &Story<'_>, run: &RecordedRun) {
    if story.died {
        return;
    }
    let mut requests = BTreeMap::new();
    let ran = story.setting.ran.lock().unwrap();
    for event in &run.events {
        match &event.kind {
            EventKind::Parked { request } => {
                requests.insert(request.id, request.subject.as_str());
            }
            EventKind::Decided {
                id,
                decision: ParkDecision::Deny(_) | ParkDecision::Expired,
                ..
            } => {
                let subject = requests[id];
                let text = serde_json::from_str::<Value>(subject).unwrap_or_default();
                let text = text["text"].as_str().unwrap_or_default();
                assert!(!ran.iter().any(|ran| ran == text), "seed {}: {subject}", story.seed);
            }
            _ => {}
        }
    }
}

fn count(story: &mut Story<'_>, outcome: &Outcome, run: &RecordedRun) {
    for event in &run.events {
        story.counts.add("event", event.kind.name());
        match &event.kind {
            EventKind::Said { .. } => story.note("message"),
            EventKind::LimitsChanged { .. } => story.note("changed limit"),
            EventKind::Suspended { .. } => story.note("suspension"),
            EventKind::Compacted { .. } => story.note("compaction"),
            EventKind::Verified { .. } => story.note("verification"),
            EventKind::Reserved { refused_by: Some(_), .. } => story.note("ceiling of the day"),
            _ => {}
        }
    }
    for effect in run.effects.iter().flatten() {
        let name = effect["effect"].as_str().or(effect["event"].as_str()).unwrap_or("event");
        story.counts.add("effect", name);
        match name {
            "switch_model" => story.note("fallback"),
            "start_tools" => {
                let calls = effect["calls"].as_array().into_iter().flatten();
                if calls.into_iter().any(|call| call["name"] == "build") {
                    story.note("background call");
                }
            }
            _ => {}
        }
    }
    if outcome.hand_over.is_some() {
        story.note("hand-over");
    }
    if !outcome.background.is_empty() {
        story.counts.add("run", "stopped background work");
    }
    story.counts.add("ending", outcome.termination.as_str());
}

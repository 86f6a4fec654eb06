//! Resume after a crash: at whatever moment the process dies, the run ends once, by the same laws,
//! and completed work is not repeated.

use crate::kernel_laws::silence_scripted_panics;
use crate::world::{self, Rng, all_of, play, play_on};
use endstop_core::replay::{self, CannotResume, Resumed};
use endstop_core::*;
use std::time::Duration;

fn spec(seed: u64) -> impl Fn() -> RunSpec {
    move || world::spec(&mut Rng(seed)).0
}

/// Passes events through the journal format: merged, written as text, and read again.
fn kept(seed: u64, events: &[Event]) -> Vec<Event> {
    let mut joiner = DeltaBuffer::default();
    let mut replay = Replay::new(spec(seed)());
    let mut kept = Vec::new();
    for event in events {
        let decided = !replay.feed(event.clone()).is_empty() || replay.outcome().is_some();
        if matches!(event.kind, EventKind::Delta { .. }) && !decided {
            kept.extend(joiner.delta(event.clone()));
        } else {
            kept.extend(joiner.take());
            kept.push(event.clone());
        }
    }
    kept.into_iter()
        .map(|event| {
            let text = serde_json::to_string(&event).unwrap();
            let read: Event = serde_json::from_str(&text).unwrap();
            assert_eq!(read, event, "{text}");
            assert!(text.contains(&format!("\"event\":\"{}\"", event.kind.name())), "{text}");
            read
        })
        .collect()
}

#[test]
fn joined_journal_replays_to_same_outcome() {
    silence_scripted_panics();
    let mut shorter = 0;
    for seed in 0..1_500 {
        let played = play(seed).unwrap();
        let kept = kept(seed, &played.events);
        shorter += played.events.len() - kept.len();
        let mut replay = Replay::new(spec(seed)());
        for event in kept {
            replay.feed(event);
        }
        let phase = replay.run().map(|run| run.phase());
        let again = replay.into_outcome();
        let again = again.unwrap_or_else(|| panic!("world {seed} had ended, and is {phase:?} now"));
        assert_eq!(all_of(&again), all_of(&played.outcome), "world {seed}");
    }
    assert!(shorter > 500, "deltas were joined: {shorter}");
}

#[test]
fn resumed_run_keeps_kernel_laws() {
    silence_scripted_panics();
    for seed in 0..1_000 {
        let length = play(seed).unwrap().events.len();
        let mut rng = Rng(seed ^ 0x00de_ad00);
        let first = 1 + rng.below(length as u64) as usize;
        // The second crash may come immediately; after the end of the run it never comes.
        let deaths = [first, first + 1 + rng.below(6) as usize];
        let played =
            play_on(seed, &deaths).unwrap_or_else(|law| panic!("{seed} {deaths:?}: {law}"));
        let again = world::replay(seed, &played.events).unwrap();
        assert_eq!(all_of(&again), all_of(&played.outcome), "world {seed} {deaths:?}");
    }
}

fn running(on: &Resumed) -> &Run {
    match &on.step {
        Step::Continue(run) => run,
        Step::Ended(outcome) => panic!("it ended as {}", outcome.termination),
    }
}

/// The ids of the calls that the conversation answers.
fn answered(messages: &[Message]) -> Vec<(String, ToolStatus)> {
    let parts = messages.iter().flat_map(|message| &message.parts);
    parts
        .filter_map(|part| match part {
            Part::ToolResult(result) => Some((result.call_id.clone(), result.status)),
            _ => None,
        })
        .collect()
}

#[test]
fn completed_calls_survive_resume() {
    silence_scripted_panics();
    let mut lost = 0;
    for seed in 0..800 {
        let events = play(seed).unwrap().events;
        let died = 1 + Rng(seed).below(events.len() as u64 - 1).min(events.len() as u64) as usize;
        let before = {
            let mut replay = Replay::new(spec(seed)());
            for event in &events[..died] {
                replay.feed(event.clone());
            }
            replay
        };
        let is_over = |run: &&Run| matches!(run.phase().as_str(), "stopping" | "wrapping_up");
        let Some(run) = before.run().filter(|run| !is_over(run)) else {
            continue;
        };
        let (messages, spent, calls) =
            (run.messages().to_vec(), run.spent(), before.outstanding().len());
        let on = replay::resume(spec(seed), events[..died].to_vec(), Resumption::default())
            .unwrap_or_else(|problem| panic!("world {seed}: {problem}"));
        assert_eq!(on.kept, died);
        assert_eq!(on.events[..died], events[..died]);
        let (after, cost) = match &on.step {
            Step::Continue(run) => (run.messages(), run.spent()),
            // The booked cost of the lost attempt may reach the ceiling.
            Step::Ended(outcome) => (&outcome.messages[..], outcome.cost),
        };
        assert!(after.starts_with(&messages), "world {seed}");
        assert!(cost >= spent, "world {seed}: money is remembered");
        lost += calls;
    }
    assert!(lost > 300, "some were in flight: {lost}");
}

#[test]
fn ended_run_resumes_after_raised_limit() {
    silence_scripted_panics();
    let (mut went_on, mut again, mut successes) = (0, 0, 0);
    for seed in 0..900 {
        let played = play(seed).unwrap();
        let had = answered(&played.outcome.messages);
        // It is evaluated again, and replaces the conversation.
        let is_shortened = matches!(
            played.events.last().map(|event| &event.kind),
            Some(EventKind::Compacted { result: Compaction::Done { .. }, .. })
        );
        let limits = Limits {
            max_turns: None,
            max_budget_usd: None,
            max_tokens: None,
            timeout: None,
            max_consecutive_mistakes: None,
            max_unproductive_turns: None,
            max_structured_output_retries: Some(50),
            max_empty_turns: Some(50),
            max_continuations: 50,
            verify_rounds: spec(seed)().limits.verify_rounds.map(|_| 50),
            ..Limits::default()
        };
        let with = Resumption { limits: Some(limits), ..Resumption::default() };
        match replay::resume(spec(seed), played.events.clone(), with) {
            Ok(on) => {
                went_on += 1;
                let run = running(&on);
                let results = answered(run.messages());
                for (id, status) in had.iter().filter(|_| !is_shortened) {
                    let known = results.iter().any(|(other, _)| other == id);
                    let open = run.state().pending_calls.contains(id);
                    assert!(known || open, "world {seed}: {id} ({status:?}) is forgotten");
                }
                let ended = world::resume_and_play(seed, on)
                    .unwrap_or_else(|law| panic!("world {seed}: {law}"));
                let replayed = world::replay(seed, &ended.events).unwrap();
                assert_eq!(all_of(&replayed), all_of(&ended.outcome), "world {seed}");
            }
            Err(CannotResume::Succeeded(outcome)) => {
                successes += 1;
                assert!(outcome.is_success() && played.outcome.is_success());
            }
            Err(CannotResume::EndsAgain(outcome)) => {
                again += 1;
                let category = played.outcome.category();
                assert!(
                    !matches!(
                        outcome.termination,
                        Termination::ErrorMaxTurns
                            | Termination::Cancelled
                            | Termination::Terminated
                    ),
                    "world {seed}: {} again, {category:?}",
                    outcome.termination
                );
            }
            Err(other) => panic!("world {seed}: {other}"),
        }
    }
    assert!(went_on > 100 && successes > 30 && again > 15, "{went_on} {successes} {again}");
}

#[test]
fn failed_call_is_repeated_and_booked() {
    let spec = || RunSpec {
        limits: Limits { max_retries: Some(0), ..Limits::default() },
        ..RunSpec::new(vec![Message::text(MessageId(1), Role::User, "go")])
    };
    let price =
        Price { input: NanoUsd(1_000_000_000), output: NanoUsd(1_000_000_000), ..Price::default() };
    let start = EventKind::Start { seed: 1, price: Some(price), wall_ms: None };
    let usage = Usage { input_tokens: Some(7), output_tokens: Some(0), ..Usage::default() };
    let partial = ModelTurn {
        usage,
        ..ModelTurn::new(
            vec![],
            TerminationSignal::new(SignalReason::ErrorTermination, Confidence::High),
        )
    };
    let failed = EventKind::TurnFailed {
        call: EffectId(1),
        error: ModelError::new(ErrorClass::Authentication, "no such key"),
        partial: Some(Box::new(partial)),
    };
    let events =
        vec![Event::new(Duration::ZERO, start), Event::new(Duration::from_millis(40), failed)];
    let mut ended = Replay::new(spec());
    for event in &events {
        ended.feed(event.clone());
    }
    assert_eq!(ended.outcome().unwrap().termination, Termination::ErrorProviderAuth);

    let on = replay::resume(spec, events, Resumption::default()).unwrap();
    assert_eq!(on.kept, 1);
    assert_eq!(running(&on).spent(), ended.outcome().unwrap().cost, "no more than it was billed");
    assert_eq!(running(&on).phase().as_str(), "backoff");
    assert_eq!(on.perform.iter().filter(|e| matches!(e, Effect::CallModel { .. })).count(), 0);
    assert!(
        on.perform.contains(&Effect::WakeAt { at: Duration::from_millis(40) }),
        "{:?}",
        on.perform
    );
}

#[test]
fn lower_limit_stops_repeated_call() {
    let spec = || RunSpec::new(Vec::new());
    let at = |ms, kind| Event::new(Duration::from_millis(ms), kind);
    let start = at(0, EventKind::Start { seed: 1, price: None, wall_ms: None });
    let failed = at(
        9,
        EventKind::TurnFailed {
            call: EffectId(1),
            error: ModelError::new(ErrorClass::Authentication, "no such key"),
            partial: None,
        },
    );
    let under = |max_turns| {
        let limits = Limits { max_turns: Some(max_turns), ..Limits::default() };
        Resumption { limits: Some(limits), ..Resumption::default() }
    };
    // The process died during the call.
    let on = replay::resume(spec, vec![start.clone()], under(1)).unwrap();
    assert_eq!(running(&on).phase().as_str(), "calling");
    let Step::Ended(outcome) = replay::resume(spec, vec![start.clone()], under(0)).unwrap().step
    else {
        panic!("the call is repeated without a turn left")
    };
    assert_eq!(outcome.termination, Termination::ErrorMaxTurns);
    // The call had failed, and ended the run.
    let events = vec![start, failed];
    assert!(replay::resume(spec, events.clone(), under(1)).is_ok());
    let refused = replay::resume(spec, events, under(0));
    assert!(matches!(refused, Err(CannotResume::EndsAgain(_))), "{:?}", refused.err());
}

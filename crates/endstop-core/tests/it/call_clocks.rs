//! The timeouts of a model call: reasoning without visible output, and times in which the process
//! was suspended.

use crate::hand::{Hand, calls, spec, stop};
use endstop_core::*;
use std::time::Duration;

fn thinking(ms: u64) -> Limits {
    Limits {
        thinking_timeout: Some(Duration::from_millis(ms)),
        stall_timeout: None,
        first_content_timeout: None,
        ..Limits::default()
    }
}

fn reasoning(call: EffectId) -> EventKind {
    EventKind::Delta { call, delta: TurnDelta::Reasoning(9) }
}

fn text(call: EffectId) -> EventKind {
    EventKind::Delta { call, delta: TurnDelta::Text("so ".into()) }
}

fn suspended(ms: u64) -> EventKind {
    EventKind::Suspended { time: Duration::from_millis(ms) }
}

fn wakes(hand: &Hand) -> Option<u64> {
    hand.effects.iter().find_map(|effect| match effect {
        Effect::WakeAt { at } => Some(at.as_millis() as u64),
        _ => None,
    })
}

/// Reasons without an end in each attempt, until the run ends. Returns it, and the attempts.
fn reason_for_ever(limits: Limits) -> (Hand, u32) {
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    let (mut now, mut attempts) = (0, 0);
    while hand.outcome.is_none() {
        attempts += 1;
        let call = hand.call();
        while hand.outcome.is_none() && hand.run().phase() == RunPhase::Calling {
            now += 100;
            hand.at(now).feed(reasoning(call)).feed(EventKind::Tick);
        }
        if hand.outcome.is_none() {
            now += 60_000;
            hand.at(now).feed(EventKind::Tick);
        }
    }
    (hand, attempts)
}

#[test]
fn endless_reasoning_is_retried_once() {
    let (hand, attempts) = reason_for_ever(thinking(1_000));
    assert_eq!(hand.ended(), Termination::ErrorThinkingStarved);
    assert_eq!(attempts, 2);
    let by = &hand.outcome().decided_by;
    assert_eq!((by.layer, &by.decision), (Layer::Limit, &Decision::Limit(Limit::ThinkingTimeout)));
    assert!(by.evidence.contains("thinking_timeout"), "{by:?}");
    assert!(by.evidence.contains("within 1s"), "{by:?}");
    let limits = Limits { max_retries: Some(0), ..thinking(1_000) };
    let (hand, attempts) = reason_for_ever(limits);
    assert_eq!((hand.ended(), attempts), (Termination::ErrorThinkingStarved, 1));
}

#[test]
fn visible_output_restarts_thinking_clock() {
    for visible in [TurnDelta::Text("so".into()), TurnDelta::ToolArguments(4)] {
        let mut hand = Hand::start(RunSpec { limits: thinking(1_000), ..spec() }, None);
        let call = hand.call();
        // Silence before the first reasoning does not count.
        hand.at(5_000).feed(EventKind::Tick).feed(reasoning(call));
        assert_eq!(wakes(&hand), Some(6_000), "{:?}", hand.effects);
        hand.at(5_999).feed(EventKind::Tick).feed(reasoning(call));
        hand.feed(EventKind::Delta { call, delta: visible });
        // Nor does silence after visible output.
        hand.at(20_000).feed(EventKind::Tick).feed(reasoning(call));
        hand.at(20_999).feed(EventKind::Tick);
        assert_eq!(hand.run().phase(), RunPhase::Calling);
        hand.at(21_000).feed(EventKind::Tick);
        assert_eq!(hand.run().phase(), RunPhase::Backoff);
    }
}

#[test]
fn merged_deltas_keep_thinking_time() {
    // The first reasoning comes while other content of the same call waits to be merged.
    let deltas =
        [(10, false), (20, true), (30, true), (40, false), (50, true), (400, true), (410, true)];
    let mut run = Run::new(RunSpec { limits: thinking(1_000), ..spec() });
    let (mut joiner, mut journal, mut effects) = (DeltaBuffer::default(), Vec::new(), Vec::new());
    let ms = Duration::from_millis;
    let start = Event::new(ms(0), EventKind::Start { seed: 7, price: None, wall_ms: None });
    let mut events = vec![start];
    let call = EffectId(1);
    let piece = |thinks| if thinks { reasoning(call) } else { text(call) };
    events.extend(deltas.map(|(at, thinks)| Event::new(ms(at), piece(thinks))));
    events.extend([1_049, 1_050].map(|at| Event::new(ms(at), EventKind::Tick)));
    let mut phases = Vec::new();
    for event in events {
        effects.clear();
        let Step::Continue(next) = run.handle(event.clone(), &mut effects) else {
            panic!("it ended")
        };
        run = next;
        // As journals do: a delta that requested something has a record of its own.
        if effects.is_empty() {
            journal.extend(joiner.delta(event));
        } else {
            journal.extend(joiner.take());
            journal.push(event);
        }
        phases.push(run.phase());
    }
    assert_eq!(phases[8..], [RunPhase::Calling, RunPhase::Backoff]);
    assert_eq!(journal.len(), 9, "the last two deltas were merged: {journal:?}");
    let mut replay = Replay::new(RunSpec { limits: thinking(1_000), ..spec() });
    for event in journal {
        let waits = replay.run().is_some_and(|run| run.phase() == RunPhase::Backoff);
        assert!(!waits, "only the last event ends the attempt");
        replay.feed(event);
    }
    assert_eq!(replay.run().map(Run::phase), Some(RunPhase::Backoff));
}

#[test]
fn suspension_is_no_hang() {
    let hour = 3_600_000;
    let limits = Limits {
        turn_timeout: Some(Duration::from_secs(60)),
        stall_timeout: Some(Duration::from_secs(5)),
        first_content_timeout: Some(Duration::from_secs(5)),
        thinking_timeout: Some(Duration::from_secs(5)),
        ..Limits::default()
    };
    let begin = || Hand::start(RunSpec { limits: limits.clone(), ..spec() }, None);
    type Before = fn(EffectId) -> Option<EventKind>;
    let before: [Before; 3] = [|_| None, |call| Some(text(call)), |call| Some(reasoning(call))];
    for content in before {
        let mut hand = begin();
        let call = hand.call();
        hand.at(1_000);
        if let Some(content) = content(call) {
            hand.feed(content);
        }
        // Without the report, an hour would be a hang.
        hand.at(hour).feed(suspended(hour - 2_000)).feed(EventKind::Tick);
        assert_eq!(hand.run().phase(), RunPhase::Calling);
        // The clocks continue: a second before the suspension, and four after it.
        hand.at(hour + 2_999).feed(EventKind::Tick);
        assert_eq!(hand.run().phase(), RunPhase::Calling);
        hand.at(hour + 5_000).feed(EventKind::Tick);
        assert_eq!(hand.run().phase(), RunPhase::Backoff, "a server that stays silent");
        hand.at(2 * hour).feed(EventKind::Tick).answer(stop("Paris."));
        assert_eq!(hand.outcome().suspended, Duration::from_millis(hour - 2_000));
        assert!(hand.outcome().duration >= hand.outcome().suspended);
    }
    let mut hand = begin();
    hand.at(hour).feed(EventKind::Tick);
    assert_eq!(hand.run().phase(), RunPhase::Backoff, "an hour that was not a suspension");
}

#[test]
fn suspension_counts_against_run_timeout() {
    let limits = Limits { timeout: Some(Duration::from_secs(600)), ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    hand.at(3_600_000).feed(suspended(3_599_000));
    assert_eq!(hand.ended(), Termination::ErrorTimeout);
}

#[test]
fn invalid_suspension_changes_nothing() {
    let mut hand = Hand::start(spec(), None);
    let call = hand.call();
    // Longer than the call itself: at most its own time.
    hand.at(2_000).feed(text(call)).feed(EventKind::Suspended { time: Duration::MAX });
    hand.at(4_000).feed(EventKind::TurnEnded { call, turn: Box::new(calls(&["read"])) });
    // No call is in progress.
    hand.feed(suspended(1_000)).tools_end(ToolStatus::Ok, "ok");
    assert!(hand.outcome.is_none());
    // The call has just begun.
    let mut hand = Hand::start(spec(), None);
    let call = hand.call();
    hand.feed(suspended(60_000));
    hand.feed(EventKind::TurnEnded { call, turn: Box::new(stop("Paris.")) });
    assert_eq!(hand.outcome().suspended, Duration::ZERO);
}

#[test]
fn blank_output_extends_no_reasoning() {
    // Models of some servers send blanks between their thoughts, and others reason in tags.
    let blanks = [" ", "\n\n", "\u{200B}", "\u{FEFF}\t", "\u{2800}"];
    let said = |call, text: &str| EventKind::Delta { call, delta: TurnDelta::Text(text.into()) };
    for blank in blanks {
        let mut hand = Hand::start(RunSpec { limits: thinking(1_000), ..spec() }, None);
        let call = hand.call();
        // Blanks do not begin it either.
        hand.feed(said(call, blank)).at(5_000).feed(EventKind::Tick).feed(reasoning(call));
        for at in [5_300, 5_600, 5_900] {
            hand.at(at).feed(said(call, blank)).feed(EventKind::Tick).feed(reasoning(call));
        }
        assert_eq!(hand.run().phase(), RunPhase::Calling, "{blank:?}");
        hand.at(6_000).feed(EventKind::Tick);
        assert_eq!(hand.run().phase(), RunPhase::Backoff, "{blank:?}");
    }
    // One visible character begins it anew, also among blanks.
    let mut hand = Hand::start(RunSpec { limits: thinking(1_000), ..spec() }, None);
    let call = hand.call();
    hand.feed(reasoning(call)).at(900).feed(said(call, " \u{200B}.")).feed(reasoning(call));
    hand.at(1_899).feed(said(call, "\n")).feed(EventKind::Tick);
    assert_eq!(hand.run().phase(), RunPhase::Calling);
    hand.at(1_900).feed(EventKind::Tick);
    assert_eq!(hand.run().phase(), RunPhase::Backoff);
}

#[test]
fn text_in_open_tags_is_reasoning() {
    for open in ["<think>\n", "\n<THINKING>", "[THINK]"] {
        let mut hand = Hand::start(RunSpec { limits: thinking(1_000), ..spec() }, None);
        let call = hand.call();
        let said = |text: &str| EventKind::Delta { call, delta: TurnDelta::Text(text.into()) };
        // A tag that is not complete may be text.
        let (begin, rest) = open.split_at(3);
        hand.feed(said(begin)).at(2_000).feed(EventKind::Tick).feed(said(rest));
        for at in [2_400, 2_800] {
            hand.at(at).feed(said("hmm ")).feed(EventKind::Tick);
            assert_eq!(hand.run().phase(), RunPhase::Calling, "{open:?}");
        }
        hand.at(3_000).feed(EventKind::Tick);
        assert_eq!(hand.run().phase(), RunPhase::Backoff, "{open:?}");
    }
    // After the closing tag, text is the answer.
    let mut hand = Hand::start(RunSpec { limits: thinking(1_000), ..spec() }, None);
    let call = hand.call();
    let said = |text: &str| EventKind::Delta { call, delta: TurnDelta::Text(text.into()) };
    hand.feed(said("<think>hm")).at(900).feed(said("m</think>\n")).at(950).feed(said("It"));
    hand.at(9_000).feed(said(" is <think>")).at(20_000).feed(said("so")).feed(EventKind::Tick);
    assert_eq!(hand.run().phase(), RunPhase::Calling);
}

#[test]
fn unrequested_stream_has_clocks() {
    let spec = RunSpec { limits: thinking(1_000), streaming: false, ..spec() };
    let mut hand = Hand::start(spec, None);
    let call = hand.call();
    hand.at(5_000).feed(EventKind::Tick).feed(reasoning(call)).at(6_000).feed(EventKind::Tick);
    assert_eq!(hand.run().phase(), RunPhase::Backoff);
}

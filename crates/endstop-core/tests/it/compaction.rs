//! Compactions: which results the kernel accepts, what failures lead to, and how often they happen.

use crate::hand::{Hand, calls, spec, stop};
use endstop_core::*;

/// A conversation before the task, with at least this number of bytes.
fn talked(bytes: usize, compaction: CompactionSpec) -> RunSpec {
    let said = "x".repeat(bytes / 2);
    RunSpec {
        messages: vec![
            Message::text(MessageId(1), Role::User, said.clone()),
            Message::text(MessageId(2), Role::Assistant, said),
            Message::text(MessageId(3), Role::User, "do it"),
        ],
        compaction,
        ..spec()
    }
}

fn proactive(proactive: ProactiveCompaction) -> CompactionSpec {
    CompactionSpec { proactive, ..CompactionSpec::default() }
}

fn compact(hand: &Hand) -> Option<(EffectId, bool, ConversationSize, u64)> {
    hand.effects.iter().find_map(|effect| match effect {
        Effect::Compact { id, forced, before, target, .. } => {
            Some((*id, *forced, *before, *target))
        }
        _ => None,
    })
}

fn answer(hand: &mut Hand, result: Compaction) {
    let (id, ..) = compact(hand).unwrap_or_else(|| panic!("none among {:?}", hand.effects));
    hand.feed(EventKind::Compacted { id, result });
}

fn task() -> Message {
    Message::text(MessageId(3), Role::User, "do it")
}

#[test]
fn compaction_is_due_at_window_share() {
    // 4,032 bytes of messages with their framing: about 1,013 tokens.
    let run = |window| {
        let compaction = proactive(ProactiveCompaction::AtShare(0.6));
        let spec = RunSpec { context_window: Some(window), ..talked(4_000, compaction) };
        compact(&Hand::start(spec, None))
    };
    let (_, forced, before, target) = run(1_688).unwrap();
    assert!(!forced);
    assert_eq!((before.messages, before.bytes, before.tokens), (3, 4_053, 1_013));
    assert_eq!(target, 2_026, "half of what there is");
    assert_eq!(run(1_689), None);
    let (.., target) = run(1_000).unwrap();
    assert_eq!(target, 1_200, "half of the share at which it is due: 300 tokens of 1,013");
}

#[test]
fn accepted_compaction_starts_new_epoch() {
    let mut hand = Hand::start(talked(4_000, proactive(ProactiveCompaction::Ask)), None);
    let cost = NanoUsd(7);
    let result = Compaction::Done { messages: vec![task()], cost, strategy: "drop".to_owned() };
    answer(&mut hand, result);
    let told = RunEvent::Compacted {
        before: 3,
        after: 1,
        bytes_before: 4_053,
        bytes_after: 21,
        tokens_before: 1_013,
        tokens_after: 5,
        strategy: "drop".to_owned(),
        forced: false,
    };
    assert!(hand.effects.contains(&Effect::Emit(told)), "{:?}", hand.effects);
    assert_eq!((hand.run().epoch(), hand.run().messages()), (1, &[task()][..]));
    hand.answer(stop("done"));
    let outcome = hand.outcome();
    assert_eq!((outcome.termination, outcome.cost), (Termination::Stop, cost));
    let [tried] = &outcome.compactions[..] else { panic!("{:?}", outcome.compactions) };
    assert_eq!(
        (tried.turn, tried.forced, &*tried.strategy, &tried.failed),
        (1, false, "drop", &None)
    );
    assert_eq!((tried.before.bytes, tried.after.unwrap().bytes), (4_053, 21));
}

#[test]
fn rejected_compaction_names_its_reason() {
    let message = |id, role, text: &str| Message::text(MessageId(id), role, text);
    let old = |bytes: usize| {
        let said = "x".repeat(bytes);
        vec![message(1, Role::User, &said), message(2, Role::Assistant, &said), task()]
    };
    let call = ToolCall { id: "c".to_owned(), name: "read".to_owned(), arguments: String::new() };
    let asks = Message::new(MessageId(9), Role::Assistant, vec![Part::ToolCall(call)]);
    for (name, given) in [
        ("not_smaller", old(2_000)),
        ("not_smaller", old(1_900)),
        ("not_smaller", old(2_100)),
        ("empty", vec![]),
        ("empty_message", vec![message(8, Role::User, " "), task()]),
        ("duplicate_id", vec![message(3, Role::User, "in short"), task()]),
        ("role", vec![message(8, Role::Assistant, "in short"), task()]),
        ("call_without_result", vec![message(8, Role::User, "in short"), asks, task()]),
        ("task_lost", vec![message(3, Role::User, "do something else")]),
        ("open_turn_lost", vec![task(), message(8, Role::User, "in short")]),
    ] {
        let compaction = proactive(ProactiveCompaction::AtShare(0.5));
        let spec = RunSpec { context_window: Some(2_000), ..talked(4_000, compaction) };
        let mut hand = Hand::start(spec, None);
        let before = hand.run().messages().to_vec();
        answer(&mut hand, Compaction::done("lies", given));
        let why = hand.effects.iter().find_map(|effect| match effect {
            Effect::Emit(RunEvent::CompactionFailed { why, in_a_row: 1, .. }) => Some(why.clone()),
            _ => None,
        });
        assert!(why.as_ref().is_some_and(|why| why.starts_with(name)), "{name}: {why:?}");
        // The prompt still fits, so the run continues unchanged.
        assert_eq!((hand.run().epoch(), hand.run().messages()), (0, &before[..]), "{name}");
        hand.answer(stop("done"));
        assert_eq!(hand.ended(), Termination::Stop);
        assert_eq!(hand.outcome().compactions[0].failed, why);
    }
}

#[test]
fn branch_keeps_task_of_its_run() {
    // The last message is the result of a tool, and the task is the first one.
    let mut spec = RunSpec {
        context_window: Some(2_000),
        ..talked(4_000, proactive(ProactiveCompaction::AtShare(0.5)))
    };
    spec.task_message = Some(MessageId(1));
    spec.branched_from =
        Some(BranchPoint { run_id: "k3v9".into(), turn: 1, ..BranchPoint::default() }.into());
    let first = spec.messages[0].clone();
    let task_lost = |kept: Vec<Message>| {
        let mut hand = Hand::start(spec.clone_with(None), None);
        answer(&mut hand, Compaction::done("lies", kept));
        hand.effects.iter().any(|effect| {
            matches!(effect, Effect::Emit(RunEvent::CompactionFailed { why, .. }) if why.starts_with("task_lost"))
        })
    };
    assert!(task_lost(vec![task()]));
    assert!(!task_lost(vec![first, task()]));
}

#[test]
fn least_gain_follows_specification() {
    for (least_gain, taken) in [(0.5, true), (0.6, false), (f64::NAN, false)] {
        let compaction = CompactionSpec {
            least_gain,
            proactive: ProactiveCompaction::AtShare(0.5),
            ..CompactionSpec::default()
        };
        let spec = RunSpec { context_window: Some(2_000), ..talked(4_000, compaction) };
        let mut hand = Hand::start(spec, None);
        let (_, _, before, _) = compact(&hand).unwrap();
        let half = "x".repeat((before.bytes / 2) as usize - 16 - 21);
        let given = vec![Message::text(MessageId(8), Role::User, half), task()];
        answer(&mut hand, Compaction::done("half", given));
        assert_eq!(hand.run().epoch() == 1, taken, "{least_gain}");
    }
}

#[test]
fn three_failures_stop_proactive_compaction() {
    let compaction =
        CompactionSpec { reactive: true, ..proactive(ProactiveCompaction::AtShare(0.01)) };
    let spec = RunSpec {
        context_window: Some(100_000),
        limits: Limits { max_turns: None, max_unproductive_turns: None, ..Limits::default() },
        ..talked(8_000, compaction)
    };
    let mut hand = Hand::start(spec, None);
    let mut asked = 0;
    for _ in 0..6 {
        if compact(&hand).is_some() {
            asked += 1;
            let same = hand.run().messages().to_vec();
            answer(&mut hand, Compaction::done("same", same));
        }
        hand.answer(calls(&["read"])).tools_end(ToolStatus::Ok, "r");
    }
    assert_eq!(asked, 3);
    hand.fail(ErrorClass::ContextLengthExceeded);
    let (_, forced, ..) = compact(&hand).unwrap();
    assert!(forced);
    answer(&mut hand, Compaction::Failed("could not".to_owned()));
    let outcome = hand.outcome();
    assert_eq!(outcome.termination, Termination::ErrorPromptTooLong);
    assert_eq!(outcome.compactions.len(), 4);
    let evidence = &outcome.decided_by.evidence;
    assert!(evidence.contains("4 compactions were tried"), "{evidence}");
    assert!(evidence.contains("not_smaller") && evidence.ends_with("could not"), "{evidence}");
}

#[test]
fn proactive_failure_rarely_ends_run() {
    let end = |window: Option<u64>, reactive| {
        let due = match window {
            Some(_) => ProactiveCompaction::AtShare(0.1),
            None => ProactiveCompaction::Ask,
        };
        let compaction = CompactionSpec { reactive, ..proactive(due) };
        let spec = RunSpec { context_window: window, ..talked(4_000, compaction) };
        let mut hand = Hand::start(spec, None);
        answer(&mut hand, Compaction::Failed("no".to_owned()));
        hand.outcome.map(|outcome| (outcome.termination, outcome.error_diagnostic))
    };
    let failed = Some((Termination::ErrorCompactionFailed, Some("no".to_owned())));
    // About 1,013 tokens.
    assert_eq!(end(Some(2_000), false), None, "it fits");
    assert_eq!(end(Some(1_000), true), None, "the provider decides if it fits");
    assert_eq!(end(Some(1_000), false), failed, "it does not fit");
    assert_eq!(end(None, true), failed, "it is not known to fit");
}

#[test]
fn refusal_triggers_one_compaction_per_turn() {
    let compaction = CompactionSpec { reactive: true, ..CompactionSpec::default() };
    let mut hand = Hand::start(talked(4_000, compaction), None);
    hand.fail(ErrorClass::RequestTooLarge);
    answer(&mut hand, Compaction::done("drop", vec![task()]));
    hand.fail(ErrorClass::RequestTooLarge);
    let outcome = hand.outcome();
    assert_eq!((outcome.termination, outcome.model_calls), (Termination::ErrorPromptTooLong, 2));
    let evidence = &outcome.decided_by.evidence;
    assert!(evidence.contains("1 compaction was tried: 4053 to 21 bytes"), "{evidence}");

    let mut hand = Hand::start(talked(4_000, compaction), None);
    hand.fail(ErrorClass::RequestTooLarge);
    answer(&mut hand, Compaction::NotNeeded);
    assert_eq!(hand.ended(), Termination::ErrorPromptTooLong);
}

#[test]
fn resumed_run_retries_failed_compaction() {
    let compaction = CompactionSpec { reactive: true, ..CompactionSpec::default() };
    let spec = || RunSpec { run_id: None, ..talked(4_000, compaction) };
    let mut replay = Replay::new(spec());
    let mut events = Vec::new();
    let mut feed = |kind: EventKind| {
        events.push(Event::new(std::time::Duration::ZERO, kind.clone()));
        replay.feed(events[events.len() - 1].clone()).to_vec()
    };
    let asked = feed(EventKind::Start { seed: 1, price: None, wall_ms: None });
    let call = asked.iter().find_map(|effect| match effect {
        Effect::CallModel { id, .. } => Some(*id),
        _ => None,
    });
    let error = ModelError::new(ErrorClass::ContextLengthExceeded, "too long");
    let asked = feed(EventKind::TurnFailed { call: call.unwrap(), error, partial: None });
    let compact = |effects: &[Effect]| {
        effects.iter().find_map(|effect| match effect {
            Effect::Compact { id, .. } => Some(*id),
            _ => None,
        })
    };
    let id = compact(&asked).unwrap();
    feed(EventKind::Compacted { id, result: Compaction::Failed("no".to_owned()) });
    let ended = replay.outcome().unwrap().termination;
    assert_eq!(ended, Termination::ErrorPromptTooLong);

    let on = replay::resume(spec, events, Resumption::default()).unwrap();
    let Step::Continue(run) = on.step else { panic!("the run continues") };
    assert_eq!((run.phase().as_str(), compact(&on.perform)), ("compacting", Some(id)));
    let result = Compaction::done("drop", vec![task()]);
    let event = Event::new(run.elapsed(), EventKind::Compacted { id, result });
    let Step::Continue(run) = run.handle(event, &mut Vec::new()) else {
        panic!("the run continues")
    };
    assert_eq!((run.phase().as_str(), run.epoch()), ("calling", 1));
}

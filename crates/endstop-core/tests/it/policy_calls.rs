//! The kernel calls policies: once a turn, and a panic is an ending.

use crate::hand::{Hand, calls, results, said, spec, stop};
use endstop_core::*;
use serde_json::{Map, Value, json};
use std::time::Duration;

#[test]
fn panicking_policy_is_reported_once() {
    #[derive(Clone)]
    struct Panics;
    impl TerminationPolicy for Panics {
        fn name(&self) -> &str {
            "panics"
        }
        fn should_terminate(&mut self, _: &StepResult, _: &StepContext) -> Verdict {
            panic!("asked to panic")
        }
        fn reset(&mut self) {}
    }
    let mut hand = Hand::start(RunSpec { policy: Some(Box::new(Panics)), ..spec() }, None);
    let mut turn = calls(&["read"]);
    turn.parts.push(Part::Text { text: "kept".into() });
    hand.answer(turn).tools_end(ToolStatus::Ok, "r");
    assert_eq!(hand.ended(), Termination::ErrorDuringExecution);
    assert!(hand.outcome().error_diagnostic.as_ref().unwrap().contains("asked to panic"));
    assert_eq!(hand.outcome().last_text.as_deref(), Some("kept"));
}

#[test]
fn policy_fault_has_evidence_and_diagnostic() {
    use endstop_core::policy::PolicyFault;
    #[derive(Clone)]
    struct Raises;
    impl TerminationPolicy for Raises {
        fn name(&self) -> &str {
            "raises"
        }
        fn should_terminate(&mut self, _: &StepResult, _: &StepContext) -> Verdict {
            let (evidence, diagnostic) = ("KeyError: 'x'".into(), "line 3 in mine".into());
            PolicyFault { evidence, diagnostic }.raise()
        }
        fn reset(&mut self) {}
    }
    let mut hand = Hand::start(RunSpec { policy: Some(Box::new(Raises)), ..spec() }, None);
    hand.answer(calls(&["read"])).tools_end(ToolStatus::Ok, "r");
    assert_eq!(hand.ended(), Termination::ErrorDuringExecution);
    let decided = &hand.outcome().decided_by;
    assert_eq!((decided.layer, decided.decision.as_str()), (Layer::Fault, "raises"));
    assert_eq!(decided.evidence, "KeyError: 'x'");
    assert_eq!(hand.outcome().error_diagnostic.as_deref(), Some("line 3 in mine"));
}

#[test]
fn panicking_policy_leaves_no_open_call() {
    #[derive(Clone)]
    struct Panics(u32);
    impl TerminationPolicy for Panics {
        fn name(&self) -> &str {
            "panics"
        }
        fn should_terminate(&mut self, _: &StepResult, _: &StepContext) -> Verdict {
            Verdict::Continue
        }
        fn begin_turn(&mut self) {
            self.0 += 1;
            assert!(self.0 < 2, "asked to panic");
        }
        fn on_delta(&mut self, text: &str, _: &StepContext) -> Option<Stop> {
            assert!(text.is_empty(), "asked to panic");
            None
        }
        fn reset(&mut self) {}
    }
    let with = || RunSpec { policy: Some(Box::new(Panics(0))), ..spec() };
    let mut hand = Hand::start(with(), None);
    let mut turn = calls(&["read"]);
    turn.parts.push(Part::Text { text: "and so".into() });
    hand.answer(turn);
    assert_eq!(hand.ended(), Termination::ErrorDuringExecution);
    assert_eq!(results(hand.outcome()), [("c0".into(), ToolStatus::Skipped, false)]);

    let mut hand = Hand::start(with(), None);
    hand.answer(calls(&["read"])).tools_end(ToolStatus::Ok, "read");
    assert_eq!(hand.ended(), Termination::ErrorDuringExecution);
    assert_eq!(hand.outcome().model_calls, 1);
}

#[test]
fn policy_sees_each_turn_once() {
    use std::sync::{Arc, Mutex};
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<(i64, StepResult, Map<String, Value>)>>>);
    impl TerminationPolicy for Seen {
        fn name(&self) -> &str {
            "seen"
        }
        fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict {
            self.0.lock().unwrap().push((context.step, step.clone(), context.metrics.clone()));
            Verdict::Continue
        }
        fn reset(&mut self) {}
    }
    let seen = Seen::default();
    let mut hand = Hand::start(RunSpec { policy: Some(Box::new(seen.clone())), ..spec() }, None);
    let mut metrics = Map::new();
    metrics.insert("last_reward".into(), json!(0.5));
    hand.answer(calls(&["read"]));
    let (tool, _) = hand.started()[0].clone();
    let mut report = ToolReport::new(ToolStatus::Ok, "printed");
    report.metrics = metrics.clone();
    hand.feed(EventKind::ToolEnded { tool, report });
    hand.answer(stop("text"));
    let steps = seen.0.lock().unwrap();
    assert_eq!(steps.len(), 2);
    let call = &steps[0].1.calls[0];
    assert_eq!(
        (steps[0].0, call.success, call.result.as_deref()),
        (0, Some(true), Some("printed"))
    );
    assert_eq!(steps[0].1.outputs, [], "what a tool returns is data");
    assert_eq!(steps[0].2, metrics);
    assert_eq!((steps[1].0, steps[1].1.output.as_deref()), (1, Some("text")));
    assert!(steps[1].2.is_empty(), "measurements are those of their own turn");
}

/// A run with `final_pattern` that gets these responses, streamed in chunks of this length or at once.
fn declares(pieces: &[(&str, SignalReason)], chunk: Option<usize>) -> Outcome {
    let policy = Registry::new().build_text("final_pattern").map(BoxPolicy::into_inner);
    let limits = Limits { max_continuations: 3, ..Limits::default() };
    let mut hand = Hand::start(RunSpec { policy: Some(policy.unwrap()), limits, ..spec() }, None);
    for (text, reason) in pieces {
        let call = hand.call();
        let letters: Vec<char> = text.chars().collect();
        for piece in letters.chunks(chunk.unwrap_or(usize::MAX).min(letters.len().max(1))) {
            if chunk.is_some() && hand.outcome.is_none() {
                let piece = piece.iter().collect();
                hand.feed(EventKind::Delta { call, delta: TurnDelta::Text(piece) });
            }
        }
        if hand.outcome.is_none() {
            let turn = Box::new(said(text, *reason));
            hand.feed(EventKind::TurnEnded { call, turn });
        }
        if hand.outcome.is_some() {
            break;
        }
    }
    hand.outcome().clone()
}

#[test]
fn declarations_are_read_in_the_joined_visible_text() {
    use SignalReason::{NaturalCompletion as Stop, Paused, TokenLimitReached as Cut};
    for cut in [Cut, Paused] {
        for (first, rest, answer) in [
            ("FINAL('half of the", " answer') FINAL('other')", Some("half of the answer")),
            ("Write `", "FINAL('x')` at the end.", None),
            ("For example:\n```\n", "FINAL('example')\n```\nThat is how.", None),
            ("This is NOT_", "FINAL('x')", None),
            ("When I am sure I will call ", "FINAL(answer) as said.", None),
            ("FINAL('4", "2')", Some("42")),
            ("<think>maybe FINAL('41')</think>It is ", "FINAL('42')", Some("42")),
            ("<think>maybe FINAL('41')", "</think>FINAL('42')", Some("42")),
        ] {
            for chunk in [None, Some(1), Some(5)] {
                if first.starts_with("<think>") && !first.contains("</think>") && cut == Cut {
                    // A turn that is cut within its reasoning is not continued.
                    continue;
                }
                let outcome = declares(&[(first, cut), (rest, Stop)], chunk);
                let why = format!("{first:?} + {rest:?} {cut:?} {chunk:?}: {outcome:?}");
                match answer {
                    Some(answer) => {
                        assert_eq!(outcome.termination, Termination::Submitted, "{why}");
                        assert_eq!(outcome.answer().as_deref(), Some(answer), "{why}");
                    }
                    None => assert_eq!(outcome.termination, Termination::Stop, "{why}"),
                }
            }
        }
    }
    for chunk in [None, Some(3)] {
        let outcome = declares(&[("<think>maybe FINAL('41')</think>\nFINAL('42')", Stop)], chunk);
        assert_eq!(outcome.answer().as_deref(), Some("42"));
    }
}

#[test]
fn turns_of_text_reset_what_is_counted_in_a_row() {
    // A mistake, an answer that the verifier rejects, and another mistake are not two in a row.
    let limits = Limits {
        max_consecutive_mistakes: Some(2),
        verify_rounds: Some(9),
        max_unproductive_turns: Some(2),
        ..Limits::default()
    };
    let run = || RunSpec { limits: limits.clone(), verifier: true, ..spec() };
    let rejects = |hand: &mut Hand| {
        let id = hand.effects.iter().find_map(|effect| match effect {
            Effect::Verify { id, .. } => Some(*id),
            _ => None,
        });
        let id = id.unwrap_or_else(|| panic!("{:?}", hand.effects));
        hand.feed(EventKind::Verified { id, passed: false, output: "no".into() });
    };
    let mut hand = Hand::start(run(), None);
    for round in 0..4 {
        hand.answer(calls(&["read"])).tools_end(ToolStatus::Error, "no such file");
        hand.answer(stop(&format!("answer {round}")));
        rejects(&mut hand);
    }
    // The same test with the same result between new answers is not a repetition, but between equal ones.
    for (new, ends) in [(true, false), (false, true)] {
        let mut hand = Hand::start(run(), None);
        for round in 0..4 {
            hand.answer(calls(&["read"])).tools_end(ToolStatus::Ok, "1 failed");
            if hand.outcome.is_some() {
                break;
            }
            let round = if new { round } else { 0 };
            hand.answer(stop(&format!("answer {round}")));
            rejects(&mut hand);
            if hand.outcome.is_some() {
                break;
            }
        }
        let ended = hand.outcome.as_ref().map(|outcome| outcome.termination);
        assert_eq!(ended, ends.then_some(Termination::ErrorNoProgress), "{new}");
    }
}

#[test]
fn timeout_names_the_error_that_used_it_up() {
    let limits = Limits { timeout: Some(Duration::from_secs(3)), ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits: limits.clone(), ..spec() }, None);
    hand.fail(ErrorClass::ServerError);
    hand.at(3000).feed(EventKind::Tick);
    assert_eq!(hand.ended(), Termination::ErrorTimeout);
    let outcome = hand.outcome();
    assert!(outcome.decided_by.evidence.contains("the last attempt at the model call failed"));
    assert_eq!(outcome.also, [Termination::ErrorDuringExecution]);
    assert!(outcome.error_diagnostic.is_some());
    // An attempt that worked in the end is not to blame.
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    hand.fail(ErrorClass::ServerError);
    hand.at(2000).feed(EventKind::Tick).answer(calls(&["read"]));
    hand.at(3000).feed(EventKind::Tick).at(9000).feed(EventKind::Tick);
    assert_eq!(hand.ended(), Termination::ErrorTimeout);
    assert_eq!((hand.outcome().also.len(), &hand.outcome().error_diagnostic), (0, &None));
}

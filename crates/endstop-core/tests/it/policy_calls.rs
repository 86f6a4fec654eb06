//! The kernel calls policies: once a turn, and a panic is an ending.

use crate::hand::{Hand, calls, results, spec, stop};
use endstop_core::*;
use serde_json::{Map, Value, json};

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
    assert_eq!((steps[0].0, steps[0].1.outputs[0].output.as_str()), (0, "printed"));
    assert_eq!(steps[0].2, metrics);
    assert_eq!((steps[1].0, steps[1].1.output.as_deref()), (1, Some("text")));
    assert!(steps[1].2.is_empty(), "measurements are those of their own turn");
}

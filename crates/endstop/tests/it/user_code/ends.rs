//! Endings caused by user code: vetoes, panics and hangs.

use super::code::{Code, Does, Veto, WORDS};
use super::points::points;
use super::{Case, decided_by};
use endstop::{Limits, Termination};
use std::time::Duration;

/// Returns the expected ending after a veto, and the name in `decided_by`.
fn vetoed(point: &str, veto: Veto) -> Option<(Termination, &'static str, &'static str)> {
    let halted = Termination::ErrorHalted;
    Some(match (point, veto) {
        ("prompt", _) => (halted, "hook", "prompt"),
        ("pre_iteration", _) => (halted, "hook", "pre_iteration"),
        ("chat_params", _) => (halted, "hook", "chat_params"),
        ("pre_call", _) => (halted, "hook", "pre_call"),
        ("pre_tool", Veto::Halt) => (halted, "hook", "pre_tool"),
        ("post_tool", Veto::Halt) => (halted, "hook", "post_tool"),
        // The answer was declared before the hook was called, or in the step at which the policy
        // halts.
        ("stop" | "step of text", Veto::Halt) => (Termination::Stop, "turn", "natural_completion"),
        ("approval", Veto::Halt) => (halted, "hook", "approval"),
        ("tool", Veto::Halt) => (halted, "tool", "act"),
        // The model receives the veto and answers in its next turn.
        ("pre_tool" | "post_tool" | "stop" | "approval" | "tool", Veto::No) => {
            (Termination::Stop, "turn", "natural_completion")
        }
        ("compaction", _) => (Termination::ErrorCompactionFailed, "limit", "compaction"),
        ("forced compaction", _) => {
            (Termination::ErrorPromptTooLong, "provider", "context_length_exceeded")
        }
        ("look" | "on_text_complete" | "step of tools" | "step of text", Veto::No) => {
            (Termination::Submitted, "policy", "watches")
        }
        ("look" | "on_text_complete" | "step of tools", Veto::Halt) => {
            (halted, "policy", "watches")
        }
        ("detect_termination", _) => (Termination::ErrorDuringExecution, "turn", "unknown_finish"),
        _ => return None,
    })
}

#[tokio::test]
async fn veto_ends_run_or_reaches_model() {
    let mut seen = 0;
    for veto in [Veto::No, Veto::Halt] {
        for point in points() {
            let Some((termination, layer, name)) = vetoed(point.name, veto) else { continue };
            seen += 1;
            let code = Code::new(Does::Veto(veto));
            let case = Case::new(point.name, &code, (point.make)(&code));
            let outcome = case.ending(case.session.run("go").unwrap()).await;
            assert_eq!(outcome.termination, termination, "{}: {outcome:?}", point.name);
            assert_eq!(decided_by(&outcome), (layer, name), "{}", point.name);
            if termination == Termination::ErrorHalted {
                assert!(outcome.halted_reason.is_some(), "{}", point.name);
            }
            case.afterwards(&outcome).await;
        }
    }
    assert_eq!(seen, 32, "a veto that is not tried");
}

/// The points at which the model's answer is complete when the code is called.
const ANSWERED: [&str; 2] = ["stop", "step of text"];

#[tokio::test]
async fn panic_ends_run_and_names_code() {
    for point in points() {
        let code = Code::new(Does::Panic);
        let case = Case::new(point.name, &code, (point.make)(&code));
        let outcome = case.ending(case.session.run("go").unwrap()).await;
        let name = point.name;
        // A declared answer stands, and the panic is recorded next to it.
        if ANSWERED.contains(&name) {
            assert_eq!(outcome.termination, Termination::Stop, "{name}: {outcome:?}");
            assert_eq!(outcome.also, [Termination::ErrorDuringExecution], "{name}");
            let diagnostic = outcome.error_diagnostic.as_deref().unwrap_or_default();
            assert!(diagnostic.ends_with(&format!("panicked: {WORDS}")), "{name}: {diagnostic}");
            case.afterwards(&outcome).await;
            continue;
        }
        assert_eq!(outcome.termination, Termination::ErrorDuringExecution, "{name}: {outcome:?}");
        assert_eq!(decided_by(&outcome), ("fault", point.decides), "{name}: {outcome:?}");
        let evidence = &outcome.decided_by.evidence;
        assert!(evidence.ends_with(&format!("panicked: {WORDS}")), "{name}: {evidence}");
        assert_eq!(outcome.error_diagnostic.as_ref(), Some(evidence), "{name}");
        case.afterwards(&outcome).await;
    }
}

#[tokio::test(start_paused = true)]
async fn run_deadline_bounds_a_hang() {
    let mut seen = 0;
    for point in points().into_iter().filter(|point| point.waits) {
        seen += 1;
        let code = Code::new(Does::Hang);
        let deadline = Duration::from_secs(60);
        let limits = Limits {
            timeout: Some(deadline),
            turn_timeout: None,
            first_content_timeout: None,
            stall_timeout: None,
            tool_timeout: None,
            ..Limits::default()
        };
        let most = deadline + limits.cancel_grace + Duration::from_secs(2);
        let case = Case::new(point.name, &code, (point.make)(&code).limits(limits));
        let began = tokio::time::Instant::now();
        let outcome = case.ending(case.session.run("go").unwrap()).await;
        let (took, name) = (began.elapsed(), point.name);
        if ANSWERED.contains(&name) {
            assert_eq!(outcome.termination, Termination::Stop, "{name}: {outcome:?}");
            assert_eq!(outcome.also, [Termination::ErrorTimeout], "{name}");
        } else {
            assert_eq!(outcome.termination, Termination::ErrorTimeout, "{name}: {outcome:?}");
            assert_eq!(decided_by(&outcome), ("limit", "timeout"), "{name}");
        }
        assert!(took >= deadline && took < most, "{name}: {took:?}");
        tokio::time::resume();
        case.afterwards(&outcome).await;
        tokio::time::pause();
    }
    assert_eq!(seen, 12, "a future that is not tried");
}

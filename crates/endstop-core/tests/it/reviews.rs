//! The order of calls while a `post_tool` hook is asked about a result.

use crate::hand::{Hand, calls, spec, stop};
use endstop_core::*;

fn reviewed() -> RunSpec {
    RunSpec { hooks: Hooks { post_tool: true, ..Hooks::default() }, ..spec() }
}

fn ends(hand: &mut Hand, tool: EffectId, content: &str) -> EffectId {
    hand.feed(EventKind::ToolEnded { tool, report: ToolReport::new(ToolStatus::Ok, content) });
    hand.consulted()
}

fn contents(outcome: &Outcome) -> Vec<(ToolStatus, String)> {
    let results = outcome.messages.iter().flat_map(Message::tool_results);
    results.map(|result| (result.status, result.content.clone())).collect()
}

#[test]
fn call_that_runs_alone_waits_for_review() {
    let mut hand = Hand::start(reviewed(), None);
    hand.answer(calls(&["read", "write", "read"]));
    let begun = hand.started();
    assert_eq!(begun.len(), 1, "`write` runs alone");
    let review = ends(&mut hand, begun[0].0, "first");
    assert!(hand.started().is_empty(), "the hook may still halt the run");
    hand.feed(EventKind::Answered { id: review, answer: HookDecision::Proceed });
    let begun = hand.started();
    assert_eq!(begun[0].1, "c1");
    let review = ends(&mut hand, begun[0].0, "second");
    assert!(hand.started().is_empty(), "it is not overtaken");
    hand.feed(EventKind::Answered { id: review, answer: HookDecision::Proceed });
    assert_eq!(hand.started()[0].1, "c2");
}

#[test]
fn review_holds_no_parallel_safe_call() {
    let mut spec = reviewed();
    spec.limits.tool_concurrency = 1;
    let mut hand = Hand::start(spec, None);
    hand.answer(calls(&["read", "read"]));
    let (first, _) = hand.started()[0];
    hand.feed(EventKind::ToolEnded {
        tool: first,
        report: ToolReport::new(ToolStatus::Ok, "first"),
    });
    let (review, second) = (hand.consulted(), hand.started());
    assert_eq!(second.len(), 1, "the first no longer runs");
    // The second ends before the hook has answered about the first.
    let other = ends(&mut hand, second[0].0, "second");
    hand.feed(EventKind::Answered { id: other, answer: HookDecision::Proceed });
    assert_eq!(hand.run().phase().as_str(), "tools");
    let changed = HookDecision::ChangeResult(ChangedResult::error("changed"));
    hand.feed(EventKind::Answered { id: review, answer: changed });
    hand.answer(stop("done"));
    let expected =
        [(ToolStatus::Error, "changed".to_owned()), (ToolStatus::Ok, "second".to_owned())];
    assert_eq!(contents(hand.outcome()), expected);
}

#[test]
fn halt_of_tool_waits_for_review() {
    let mut hand = Hand::start(reviewed(), None);
    hand.answer(calls(&["read"]));
    let (tool, _) = hand.started()[0];
    let halts = ToolReport {
        halt: Some("enough".to_owned()),
        ..ToolReport::new(ToolStatus::Ok, "a secret")
    };
    hand.feed(EventKind::ToolEnded { tool, report: halts });
    let id = hand.consulted();
    hand.feed(EventKind::Answered { id, answer: HookDecision::Deny("no secrets".to_owned()) });
    assert_eq!(hand.ended(), Termination::ErrorHalted);
    let withheld = "the result is withheld: no secrets".to_owned();
    assert_eq!(contents(hand.outcome()), [(ToolStatus::Denied, withheld)]);
}

#[test]
fn result_during_stop_is_withheld() {
    let mut hand = Hand::start(reviewed(), None);
    hand.answer(calls(&["read"]));
    let (tool, _) = hand.started()[0];
    hand.feed(EventKind::Cancel);
    let report = ToolReport::new(ToolStatus::Ok, "a secret");
    hand.feed(EventKind::ToolEnded { tool, report });
    assert_eq!(hand.ended(), Termination::Cancelled);
    let [(status, content)] = &contents(hand.outcome())[..] else { panic!("one result") };
    assert_eq!(*status, ToolStatus::Aborted);
    assert!(content.contains("had ended (ok)") && !content.contains("secret"), "{content}");
}

#[test]
fn unused_points_leave_journals_unchanged() {
    let written = serde_json::to_value(spec().hooks).unwrap();
    let names: Vec<&String> = written.as_object().unwrap().keys().collect();
    let old = ["prompt", "pre_iteration", "chat_params", "pre_tool", "stop", "reply"];
    assert_eq!(names, old);
    let read: Hooks = serde_json::from_value(written).unwrap();
    assert_eq!(read, spec().hooks);
}

#[test]
fn withheld_and_changed_results_keep_no_attachment() {
    let photo: Attachment = Image::Url("https://host/secret.png".to_owned()).into();
    let kept = ChangedResult::ok("kept").attachments(vec![photo.clone()]);
    for (answer, expected) in [
        (HookDecision::Proceed, 1),
        (HookDecision::Deny("no".to_owned()), 0),
        (HookDecision::ChangeResult(ChangedResult::ok("clean")), 0),
        // The same text is a change, too, because the image is gone.
        (HookDecision::ChangeResult(ChangedResult::ok("photo")), 0),
        (HookDecision::ChangeResult(kept), 1),
        (HookDecision::Halt("enough".to_owned()), 0),
    ] {
        let mut hand = Hand::start(reviewed(), None);
        hand.answer(calls(&["read"]));
        let (tool, _) = hand.started()[0];
        let report = ToolReport {
            attachments: vec![photo.clone()],
            ..ToolReport::new(ToolStatus::Ok, "photo")
        };
        hand.feed(EventKind::ToolEnded { tool, report });
        let review = hand.consulted();
        let halts = matches!(answer, HookDecision::Halt(_));
        hand.feed(EventKind::Answered { id: review, answer: answer.clone() });
        if !halts {
            hand.answer(stop("done"));
        }
        let results = hand.outcome().messages.iter().flat_map(Message::tool_results);
        let attached: usize = results.map(|result| result.attachments.len()).sum();
        assert_eq!(attached, expected, "{answer:?}");
    }
}

#[test]
fn long_reasons_of_hooks_are_cut() {
    let mut hand = Hand::start(reviewed(), None);
    hand.answer(calls(&["read"]));
    let (tool, _) = hand.started()[0];
    let review = ends(&mut hand, tool, "text");
    hand.feed(EventKind::Answered { id: review, answer: HookDecision::Deny("é".repeat(1 << 20)) });
    hand.answer(stop("done"));
    assert!(contents(hand.outcome())[0].1.len() < 66_000);
}

//! The token ceiling counts all tokens, those that no cache had, or generated ones.

use crate::hand::{Hand, calls, spec, stop};
use endstop_core::*;
use serde_json::json;

fn limits(max: u64, counts: TokensCounted) -> Limits {
    Limits { max_tokens: Some(max), max_tokens_counts: counts, ..Limits::default() }
}

fn used(input: u64, cached: u64, output: u64) -> ModelTurn {
    let mut turn = calls(&["read"]);
    turn.usage = Usage {
        input_tokens: Some(input),
        cached_input_tokens: Some(cached),
        output_tokens: Some(output),
        ..Usage::default()
    };
    turn
}

/// A run that reserves, with this ceiling.
fn run(max: u64, counts: TokensCounted) -> Hand {
    let limits = limits(max, counts);
    let spec = RunSpec { limits, reserve: true, output_cap: Some(2_000), ..spec() };
    Hand::start(spec, None)
}

#[test]
fn each_choice_counts_its_tokens() {
    for (counts, committed) in [
        (TokensCounted::All, 10_100),
        (TokensCounted::Uncached, 1_100),
        (TokensCounted::Output, 100),
    ] {
        let mut hand = run(100_000, counts);
        hand.answer(used(10_000, 9_000, 100)).tools_end(ToolStatus::Ok, "ok");
        assert_eq!(hand.run().committed_tokens(), committed, "{counts:?}");
        assert_eq!(hand.run().all_tokens(), 10_100);
    }
    // A provider that reports cached tokens apart from the others.
    let mut hand = run(100_000, TokensCounted::Uncached);
    let mut turn = used(1_000, 9_000, 100);
    turn.usage.cache_apart = true;
    hand.answer(turn).tools_end(ToolStatus::Ok, "ok");
    assert_eq!((hand.run().committed_tokens(), hand.run().all_tokens()), (1_100, 10_100));
}

#[test]
fn output_ceiling_ignores_prompts() {
    let mut hand = run(1_000, TokensCounted::Output);
    // The ceiling is below the bound of the prompt that follows, and lowers only the output.
    assert_eq!(hand.cap(), Some(1_000));
    hand.answer(used(50_000, 0, 400)).tools_end(ToolStatus::Ok, &"x".repeat(5_000));
    assert_eq!(hand.cap(), Some(600));
    hand.answer(used(60_000, 0, 599)).tools_end(ToolStatus::Ok, "ok");
    assert_eq!(hand.ended(), Termination::ErrorMaxTokens);
    let evidence = &hand.outcome().decided_by.evidence;
    assert!(evidence.contains("256 tokens of output > 1 output tokens left"), "{evidence}");
    assert_eq!(hand.outcome().tokens_upper, Some(110_999), "all tokens, whatever counts");
}

#[test]
fn call_that_does_not_fit_names_output() {
    let mut hand = run(1_000, TokensCounted::Output);
    hand.answer(used(50_000, 0, 900)).tools_end(ToolStatus::Ok, "ok");
    assert_eq!(hand.ended(), Termination::ErrorMaxTokens);
    let evidence = &hand.outcome().decided_by.evidence;
    assert!(evidence.contains("256 tokens of output > 100 output tokens left"), "{evidence}");
    assert!(!evidence.contains("prompt"), "{evidence}");
    assert_eq!(hand.outcome().would_fit.unwrap().max_tokens, Some(1_156));
}

#[test]
fn uncached_prompt_is_reserved_whole() {
    // A cache may miss, so the whole prompt must fit.
    let mut hand = run(3_000, TokensCounted::Uncached);
    hand.answer(used(2_000, 2_000, 10)).tools_end(ToolStatus::Ok, &"x".repeat(5_000));
    assert_eq!(hand.ended(), Termination::ErrorMaxTokens);
    assert_eq!(hand.outcome().decided_by.decision, Decision::Limit(Limit::MaxTokens));
}

#[test]
fn failed_attempt_counts_its_output_cap() {
    for (counts, least, most) in
        [(TokensCounted::Output, 2_000, 2_000), (TokensCounted::All, 2_001, 4_000)]
    {
        let mut hand = run(100_000, counts);
        hand.fail(ErrorClass::IncompleteStream);
        let tokens = hand.run().committed_tokens();
        assert!((least..=most).contains(&tokens), "{counts:?}: {tokens}");
    }
}

#[test]
fn hand_over_leaves_room_for_output() {
    let mut limits = limits(3_000, TokensCounted::Output);
    limits.wrap_up = true;
    let spec = RunSpec { limits, reserve: true, output_cap: Some(5_000), ..spec() };
    let hand = Hand::start(spec, None);
    assert_eq!(hand.cap(), Some(3_000 - 1_024));
}

#[test]
fn choice_can_change_while_run_works() {
    let mut hand = run(20_000, TokensCounted::All);
    let call = hand.call();
    let output = LimitChanges::new().set("max_tokens_counts", json!("output")).unwrap();
    hand.feed(EventKind::LimitsChanged { limits: output });
    hand.feed(EventKind::TurnEnded { call, turn: Box::new(used(50_000, 0, 10)) });
    hand.tools_end(ToolStatus::Ok, "ok").answer(stop("Done."));
    assert_eq!(hand.ended(), Termination::Stop);
}

#[test]
fn choice_is_read_and_compared() {
    let mut limits = Limits::default();
    assert_eq!(limits.max_tokens_counts, TokensCounted::All);
    limits.set("max_tokens_counts", &json!("uncached")).unwrap();
    assert_eq!(limits.get("max_tokens_counts"), Some(json!("uncached")));
    for wrong in [json!("some"), json!(3), json!(null), json!("off")] {
        let error = limits.set("max_tokens_counts", &wrong).unwrap_err().to_string();
        assert!(error.contains("max_tokens_counts") && error.contains("uncached"), "{error}");
    }
    let row = LimitRow::of("max_tokens_counts").unwrap();
    let with = |counts| Limits { max_tokens_counts: counts, ..Limits::default() };
    let [all, uncached, output] = TokensCounted::ALL.map(with);
    assert!(row.is_looser(&all, &uncached) && row.is_looser(&uncached, &output));
    assert!(!row.is_looser(&output, &all) && !row.is_looser(&all, &all));
    // A limit that is not set has its default.
    let partial: Limits = serde_json::from_value(json!({"max_tokens": 5})).unwrap();
    assert_eq!(partial.max_tokens_counts, TokensCounted::All);
}

#[test]
fn exaggerated_cache_hides_no_other_prompt() {
    let mut hand = run(100_000, TokensCounted::Uncached);
    hand.answer(used(100, 1_000_000, 10)).tools_end(ToolStatus::Ok, "ok");
    assert_eq!(hand.run().committed_tokens(), 10);
    hand.answer(used(500, 0, 10)).tools_end(ToolStatus::Ok, "ok");
    assert_eq!(hand.run().committed_tokens(), 520);
}

//! Ceilings on cost and tokens: when they end a run, what counts against them, and the evidence.

use crate::hand::{Hand, calls, said};
use endstop_core::guest::Spending;
use endstop_core::*;
use std::time::Duration;

/// Three dollars per million prompt tokens, fifteen per million generated tokens.
fn price() -> Price {
    Price { input: NanoUsd::from_usd(3.0), output: NanoUsd::from_usd(15.0), ..Price::default() }
}

fn spec() -> RunSpec {
    RunSpec { reserve: true, ..crate::hand::spec() }
}

fn used(mut turn: ModelTurn, input: u64, output: u64) -> ModelTurn {
    turn.usage =
        Usage { input_tokens: Some(input), output_tokens: Some(output), ..Usage::default() };
    turn
}

fn cut(output: u64) -> ModelTurn {
    used(said("half", SignalReason::TokenLimitReached), 5, output)
}

fn reserve(hand: &Hand) -> (EffectId, [NanoUsd; 2], [u64; 2]) {
    let asked = hand.effects.iter().find_map(|effect| match effect {
        Effect::Reserve { id, want, least, want_tokens, least_tokens } => {
            Some((*id, [*want, *least], [*want_tokens, *least_tokens]))
        }
        _ => None,
    });
    asked.expect("the shared budget is asked")
}

/// One run under each kind of ceiling, each with enough left.
fn with_enough() -> Vec<(&'static str, RunSpec)> {
    let own = |limits| RunSpec { limits, output_cap: Some(1000), ..spec() };
    let usd = Limits { max_budget_usd: Some(100.0), ..Limits::default() };
    let tokens = Limits { max_tokens: Some(100_000), ..Limits::default() };
    vec![
        ("max_budget_usd", own(usd)),
        ("max_tokens", own(tokens)),
        ("shared", RunSpec { shared_budget: true, ..own(Limits::default()) }),
    ]
}

#[test]
fn distant_ceiling_allows_continuation() {
    for (name, mut spec) in with_enough() {
        spec.limits.max_continuations = 1;
        let shared = spec.shared_budget;
        let mut hand = Hand::start(spec, Some(price()));
        let grant = |hand: &mut Hand| {
            if shared {
                let (id, [granted, _], [tokens, _]) = reserve(hand);
                let granted_tokens = Some(tokens);
                hand.feed(EventKind::Reserved { id, granted, granted_tokens, refused_by: None });
            }
        };
        grant(&mut hand);
        assert_eq!(hand.cap(), Some(1000), "{name}: the caller's own cap is sent");
        assert_eq!(hand.run().call_quote().unwrap().lowered_by, None, "{name}");
        hand.answer(cut(1000));
        grant(&mut hand);
        hand.answer(used(said("done", SignalReason::NaturalCompletion), 9, 5));
        assert_eq!(hand.ended(), Termination::Stop, "{name}");
    }
}

#[test]
fn distant_ceiling_lets_starvation_retry() {
    for (name, spec) in with_enough() {
        let shared = spec.shared_budget;
        let mut hand = Hand::start(spec, Some(price()));
        for cap in [1000, 4000] {
            if shared {
                let (id, [granted, _], _) = reserve(&hand);
                hand.feed(EventKind::Reserved {
                    id,
                    granted,
                    granted_tokens: None,
                    refused_by: None,
                });
            }
            assert_eq!(hand.cap(), Some(cap), "{name}");
            if cap == 1000 {
                hand.answer(used(said("", SignalReason::TokenLimitReached), 5, 1000));
            }
        }
    }
}

#[test]
fn output_below_lowered_cap_is_truncated() {
    // No cap by the caller: the server cuts at its own limit, or the window is full.
    for output in [150, 4096] {
        for limits in [
            Limits { max_tokens: Some(100_000), ..Limits::default() },
            Limits { max_budget_usd: Some(100.0), ..Limits::default() },
        ] {
            let mut hand = Hand::start(RunSpec { limits, ..spec() }, Some(price()));
            hand.answer(cut(output));
            assert_eq!(hand.ended(), Termination::ErrorOutputTruncated, "{output}");
        }
    }
    // Lowered but not reached; lowered and reached.
    for (output, expected) in
        [(299, Termination::ErrorOutputTruncated), (300, Termination::ErrorMaxTokens)]
    {
        let limits = Limits { max_tokens: Some(321), ..Limits::default() };
        let mut hand =
            Hand::start(RunSpec { limits, output_cap: Some(4000), ..spec() }, Some(price()));
        assert_eq!(hand.cap(), Some(300), "21 bytes of prompt");
        hand.answer(cut(output));
        assert_eq!(hand.ended(), expected, "{output}");
    }
}

#[test]
fn unseen_output_counts_by_its_reservation() {
    let stalls = |hand: &mut Hand, at: u64| {
        hand.at(at).feed(EventKind::Tick);
        hand.at(at + 60_000).feed(EventKind::Tick);
    };
    let limits = Limits {
        max_budget_usd: Some(0.04),
        first_content_timeout: Some(Duration::from_secs(1)),
        retry_for: Some(Duration::from_secs(600)),
        max_retries: Some(5),
        ..Limits::default()
    };
    let mut hand = Hand::start(RunSpec { limits, output_cap: Some(1000), ..spec() }, Some(price()));
    let worst = price().worst(21, 1000);
    stalls(&mut hand, 1_000);
    assert_eq!(hand.run().committed(), worst, "nothing was seen, all may have been generated");
    assert!(hand.run().spent() < NanoUsd(100_000), "{}", hand.run().spent());
    stalls(&mut hand, 100_000);
    let cap = hand.cap().unwrap();
    assert!(cap < 1000, "what is left after two reservations: {cap}");
    stalls(&mut hand, 200_000);
    assert_eq!(hand.ended(), Termination::ErrorMaxBudgetUsd);
    let outcome = hand.outcome();
    let upper = outcome.cost_upper.unwrap();
    assert!(upper <= NanoUsd::from_usd(0.04) && upper > NanoUsd::from_usd(0.039), "{upper}");
    assert!(outcome.cost_unknown && outcome.cost < upper);
    let evidence = &outcome.decided_by.evidence;
    assert!(evidence.contains("known, up to $0.0"), "{evidence}");
    assert!(evidence.contains("more may have been billed"), "{evidence}");
}

#[test]
fn reported_attempts_have_exact_bound() {
    let mut hand = Hand::start(spec(), Some(price()));
    hand.answer(used(said("42", SignalReason::NaturalCompletion), 100, 10));
    let outcome = hand.outcome();
    assert_eq!(outcome.cost_upper, Some(outcome.cost));
    assert_eq!(outcome.tokens_upper, Some(110));
    assert!(!outcome.cost_unknown);
}

#[test]
fn cancelled_call_counts_its_reservation() {
    let limits = Limits { max_budget_usd: Some(1.0), ..Limits::default() };
    let spec = RunSpec { limits, output_cap: Some(1000), ..spec() };
    let mut hand = Hand::start(spec, Some(price()));
    let call = hand.call();
    hand.feed(EventKind::Delta { call, delta: TurnDelta::Text("so far".to_owned()) });
    hand.feed(EventKind::Cancel);
    assert_eq!(hand.outcome().cost_upper, Some(price().worst(21, 1000)));
    assert_eq!(hand.outcome().tokens_upper, Some(1021));
}

#[test]
fn missing_usage_makes_the_cost_unknown() {
    for (price, reserve) in [(None, false), (Some(price()), false), (Some(price()), true)] {
        let mut hand = Hand::start(RunSpec { reserve, output_cap: Some(1000), ..spec() }, price);
        hand.answer(said("42", SignalReason::NaturalCompletion));
        let told = hand.effects.iter().find_map(|effect| match effect {
            Effect::Emit(RunEvent::TurnFinished { cost, .. }) => Some(*cost),
            _ => None,
        });
        let outcome = hand.outcome();
        assert!(outcome.cost_unknown, "{price:?}: {outcome:?}");
        assert_eq!(outcome.usage.output_tokens.is_none(), !reserve, "{price:?}");
        assert_eq!(outcome.usage.estimated, reserve, "{price:?}");
        match price {
            None => assert_eq!((outcome.cost_upper, told), (None, Some(None))),
            Some(_) => assert!(outcome.cost_upper.unwrap() > outcome.cost, "{outcome:?}"),
        }
    }
}

#[test]
fn cap_never_exceeds_the_context_window() {
    let limits = Limits { max_tokens: Some(500_000), ..Limits::default() };
    for output_cap in [None, Some(100_000)] {
        let spec = RunSpec {
            limits: limits.clone(),
            output_cap,
            context_window: Some(32_768),
            prompt_overhead: 4_000,
            ..spec()
        };
        let mut hand = Hand::start(spec, None);
        let first = hand.cap().unwrap();
        assert!((30_000..=31_700).contains(&first), "4,000 bytes are about 1,000 tokens: {first}");
        hand.answer(used(calls(&["read"]), 20_000, 500))
            .tools_end(ToolStatus::Ok, &"x".repeat(9_000));
        let second = hand.cap().unwrap();
        assert!(
            (8_000..=10_018).contains(&second),
            "20,500 are counted, about 2,250 new: {second}"
        );
        // The window has limited the cap, not a ceiling.
        hand.answer(cut(second));
        assert_eq!(hand.ended(), Termination::ErrorOutputTruncated);
    }
    // The text is longer than the estimate leaves room for, but an answer may still be possible.
    let spec = RunSpec { context_window: Some(1_000), output_cap: Some(800), ..spec() };
    let hand = Hand::start(RunSpec { prompt_overhead: 8_000, ..spec }, None);
    assert_eq!(hand.cap(), Some(256));
    let spec = RunSpec { output_cap: Some(100_000), max_output: Some(64_000), ..self::spec() };
    assert_eq!(Hand::start(spec, None).cap(), Some(64_000), "the model has no more");
}

#[test]
fn refused_call_evidence_adds_up() {
    let limits = Limits { max_budget_usd: Some(0.00475), ..Limits::default() };
    let spec = RunSpec { limits, prompt_overhead: 338, ..spec() };
    let hand = Hand::start(spec, Some(price()));
    let outcome = hand.outcome();
    assert_eq!(
        outcome.decided_by.evidence,
        "the next call does not fit: prompt at most 359 tokens by bytes $0.001077 + 256 tokens of output $0.00384 > $0.00475 left"
    );
    let fits = outcome.would_fit.unwrap();
    assert_eq!(fits.max_budget, Some(NanoUsd::from_usd(0.004917)));
    assert_eq!(fits.max_output_tokens, Some(244), "(0.00475 - 0.001077) / 0.000015");
    // The suggested limits are enough, and anything below them is not.
    for (usd, cap, fits) in [
        (0.004917, None, true),
        (0.004916, None, false),
        (0.00475, Some(244), true),
        (0.00475, Some(245), false),
    ] {
        let limits = Limits { max_budget_usd: Some(usd), ..Limits::default() };
        let spec = RunSpec { limits, prompt_overhead: 338, output_cap: cap, ..self::spec() };
        let hand = Hand::start(spec, Some(price()));
        assert_eq!(hand.outcome.is_none(), fits, "{usd} {cap:?}");
    }
    let limits = Limits { max_tokens: Some(500), ..Limits::default() };
    let hand = Hand::start(RunSpec { limits, prompt_overhead: 842, ..self::spec() }, None);
    let outcome = hand.outcome();
    let evidence = &outcome.decided_by.evidence;
    assert!(
        evidence.contains("at most 863 tokens by bytes + 256 tokens of output > 500"),
        "{evidence}"
    );
    assert_eq!(outcome.would_fit.unwrap().max_tokens, Some(1119));
}

#[test]
fn refused_shared_budget_names_the_rest() {
    let spec = RunSpec { shared_budget: true, output_cap: Some(1000), ..spec() };
    for (granted, granted_tokens, expected) in [
        (NanoUsd(5), Some(10_000), Termination::ErrorMaxBudgetUsd),
        (NanoUsd::from_usd(1.0), Some(99), Termination::ErrorMaxTokens),
    ] {
        let mut hand = Hand::start(spec.clone_with(None), Some(price()));
        let (id, ..) = reserve(&hand);
        hand.feed(EventKind::Reserved { id, granted, granted_tokens, refused_by: None });
        assert_eq!(hand.ended(), expected);
        assert_eq!(hand.outcome().decided_by.decision.as_str(), "shared_budget");
        assert!(hand.effects.iter().any(|effect| matches!(effect, Effect::Settle { .. })));
    }
}

#[test]
fn refusal_names_other_reservations_and_shared_ceiling() {
    let spec = RunSpec { shared_budget: true, output_cap: Some(1000), ..spec() };
    let mut hand = Hand::start(spec.clone_with(None), Some(price()));
    let (id, [_, least], _) = reserve(&hand);
    let (ceiling, left) = (NanoUsd::from_usd(1.0), NanoUsd::from_usd(0.0001));
    let reserved = NanoUsd::from_usd(0.35);
    let account = BudgetAccount { ceiling: Some(ceiling), reserved, ..BudgetAccount::default() };
    let refused = |granted, granted_tokens, refused_by| EventKind::Reserved {
        id,
        granted,
        granted_tokens,
        refused_by: Some(refused_by),
    };
    hand.feed(refused(left, None, account));
    let outcome = hand.outcome();
    let evidence = &outcome.decided_by.evidence;
    assert!(
        evidence.ends_with(
            "> $0.0001 left of $1.00 in the shared budget; $0.35 is reserved by other calls in flight"
        ),
        "{evidence}"
    );
    // The others have spent and reserved all but what was left.
    let fits = outcome.would_fit.unwrap();
    let enough = NanoUsd(ceiling.0 - left.0 + least.0);
    assert!(fits.shared_budget.is_some_and(|fits| fits >= enough && fits.0 - enough.0 < 1_000));
    assert_eq!((fits.max_budget, fits.shared_tokens), (None, None));

    let mut hand = Hand::start(spec.clone_with(None), None);
    let (_, _, [_, least]) = reserve(&hand);
    let account = BudgetAccount { ceiling_tokens: Some(5_000), ..BudgetAccount::default() };
    let account = BudgetAccount { reserved_tokens: 4_000, ..account };
    hand.feed(refused(NanoUsd::ZERO, Some(100), account));
    let outcome = hand.outcome();
    let evidence = &outcome.decided_by.evidence;
    let expected = "> 100 tokens left of 5000 in the shared budget; 4000 tokens are reserved by other calls in flight";
    assert!(evidence.ends_with(expected), "{evidence}");
    assert_eq!(outcome.would_fit.unwrap().shared_tokens, Some(4_900 + least));
    // Without other reservations nothing is said of them.
    let mut hand = Hand::start(spec.clone_with(None), None);
    reserve(&hand);
    let account = BudgetAccount { ceiling_tokens: Some(50), ..BudgetAccount::default() };
    hand.feed(refused(NanoUsd::ZERO, Some(50), account));
    let evidence = &hand.outcome().decided_by.evidence;
    assert!(evidence.ends_with("> 50 tokens left of 50 in the shared budget"), "{evidence}");
}

#[test]
fn refusal_names_the_days_ceiling() {
    let spec = RunSpec { shared_budget: true, output_cap: Some(1000), ..spec() };
    let mut hand = Hand::start(spec, Some(price()));
    let (id, ..) = reserve(&hand);
    let account = BudgetAccount {
        ceiling: Some(NanoUsd::from_usd(1.0)),
        reserved: NanoUsd::from_usd(0.25),
        name: Some("the day's ceiling of the project web".to_owned()),
        resets: Some("2026-11-24T00:00:00Z".to_owned()),
        ..BudgetAccount::default()
    };
    let (granted, refused_by) = (NanoUsd::from_usd(0.0001), Some(account));
    hand.feed(EventKind::Reserved { id, granted, granted_tokens: None, refused_by });
    assert_eq!(hand.ended(), Termination::ErrorMaxBudgetUsd);
    let by = &hand.outcome().decided_by;
    assert_eq!(by.decision.as_str(), "shared_budget");
    let expected = "> $0.0001 left of $1.00 in the day's ceiling of the project web; $0.7499 is used; \
                    $0.25 is reserved by other calls in flight; it resets at 2026-11-24T00:00:00Z";
    assert!(by.evidence.ends_with(expected), "{}", by.evidence);
}

#[test]
fn refusal_names_images_and_documents() {
    let image = Part::Image(Image::from_bytes(b"GIF89a\x80\x02\xe0\x01", "image/gif").unwrap());
    let pdf = Document::from_bytes(b"%PDF-1.4 trailer", "application/pdf").unwrap();
    let limits = Limits { max_tokens: Some(500), ..Limits::default() };
    for (more, expected) in [
        (vec![image.clone()], "at most 900 tokens for 1 image"),
        (vec![image.clone(), image.clone()], "at most 1800 tokens for 2 images"),
        (vec![image, Part::Document(pdf)], "at most 918 tokens for 1 image and 1 document"),
    ] {
        let mut spec = RunSpec { limits: limits.clone(), ..spec() };
        spec.image_tokens = ImageTokens::Flat(900);
        spec.messages[0].parts.extend(more);
        let hand = Hand::start(spec, None);
        let evidence = &hand.outcome().decided_by.evidence;
        assert!(evidence.ends_with(&format!("left; the prompt includes {expected}")), "{evidence}");
    }
}

#[test]
fn inner_spending_counts_against_both_ceilings() {
    let limits = Limits { max_tokens: Some(5_000), ..Limits::default() };
    let tools = vec![ToolPolicy { name: "read".to_owned(), ..ToolPolicy::default() }].into();
    let mut hand = Hand::start(RunSpec { limits, tools, ..spec() }, None);
    hand.answer(used(calls(&["read"]), 20, 10));
    let usage = Usage { input_tokens: Some(3_000), ..Usage::default() };
    let unreported = Some(Unreported { cost: None, tokens: Some(2_000) });
    let (tool, _) = hand.started()[0].clone();
    hand.feed(EventKind::Spent(Spending {
        usage,
        cost_unknown: true,
        unreported,
        ..Spending::default()
    }));
    hand.feed(EventKind::ToolEnded { tool, report: ToolReport::new(ToolStatus::Ok, "r") });
    assert_eq!(hand.ended(), Termination::ErrorMaxTokens);
    assert_eq!(hand.outcome().tokens_upper, Some(5_030));
}

#[test]
fn old_records_without_tokens_are_read() {
    let event: Event = serde_json::from_str(
        r#"{"at":{"secs":0,"nanos":0},"event":"reserved","id":3,"granted":7}"#,
    )
    .unwrap();
    let expected = EventKind::Reserved {
        id: EffectId(3),
        granted: NanoUsd(7),
        granted_tokens: None,
        refused_by: None,
    };
    assert_eq!(event.kind, expected);
    let usage = serde_json::to_string(&Usage::default()).unwrap();
    let spent = format!(
        r#"{{"at":{{"secs":0,"nanos":0}},"event":"spent","usage":{usage},"cost":5,"cost_unknown":false}}"#
    );
    let event: Event = serde_json::from_str(&spent).unwrap();
    assert!(matches!(event.kind, EventKind::Spent(Spending { unreported: None, .. })));
    let settle: Effect = serde_json::from_str(r#"{"effect":"settle","id":1,"spent":9}"#).unwrap();
    let expected = Effect::Settle { id: EffectId(1), spent: NanoUsd(9), tokens: 0 };
    assert_eq!(settle, expected);
}

//! Ceilings of cost: calls refused or aborted, reservations, and unknown prices.

use super::*;
use proptest::prelude::*;

fn priced(usd: f64, mode: GuestMode) -> Client {
    let limits = Limits { max_budget_usd: Some(usd), ..limits() };
    Client::of(spec(limits, mode), Some(Price::usd_per_million_tokens(1.0, 10.0)))
}

#[test]
fn stream_is_aborted_at_the_ceiling() {
    let mut client = priced(0.01, GuestMode::default());
    // The client asks for 128,000 tokens of output, which would cost $1.28.
    let call = GuestCall {
        prompt_bytes: 4_000,
        output_cap: Some(128_000),
        streaming: true,
        ..GuestCall::default()
    };
    client.ask_with(call);
    // $0.001 of prompt leave 900 tokens, or 3600 bytes.
    let piece = || TurnDelta::Text("x".repeat(900));
    for _ in 0..3 {
        assert_eq!(client.guest.delta(client.now, client.call, piece()), GuestReply::Continue);
    }
    let GuestReply::Stop(outcome) = client.guest.delta(client.now, client.call, piece()) else {
        panic!("the ceiling is reached")
    };
    assert_eq!(outcome.termination, Termination::ErrorMaxBudgetUsd);
    assert!(outcome.decided_by.evidence.contains("about 900 tokens of output"));
    assert_eq!((outcome.cost.to_usd(), outcome.overrun), (0.01, NanoUsd::ZERO));
    assert!(outcome.cost_unknown && outcome.cost_upper > Some(outcome.cost));
    assert!(outcome.last_text.as_ref().is_some_and(|text| text.len() == 3600));
}

#[test]
fn refusal_names_the_shared_ceiling_that_refused() {
    let spec = RunSpec { shared_budget: true, ..spec(limits(), GuestMode::default()) };
    let mut client = Client::of(spec, Some(Price::usd_per_million_tokens(1.0, 10.0)));
    let call = GuestCall { prompt_bytes: 4_000, ..GuestCall::default() };
    let Admission::Reserve { id, .. } = client.guest.ask(client.now, call) else {
        panic!("a shared budget is asked")
    };
    let account = BudgetAccount {
        ceiling: Some(NanoUsd::from_usd(1.0)),
        name: Some("the week's ceiling of the project web".to_owned()),
        resets: Some("2026-11-30T00:00:00Z".to_owned()),
        ..BudgetAccount::default()
    };
    let left = NanoUsd::from_usd(0.0001);
    let Admission::Stop(outcome) = client.guest.reserved(client.now, id, left, None, Some(account))
    else {
        panic!("the prompt alone costs more")
    };
    let evidence = &outcome.decided_by.evidence;
    let expected = "uses up the $0.0001 that was left of $1.00 in the week's ceiling of the project web; \
                    $0.9999 is used; it resets at 2026-11-30T00:00:00Z";
    assert!(evidence.ends_with(expected), "{evidence}");
}

proptest! {
    /// A ceiling acts at the piece of content that reaches it, neither before nor after.
    #[test]
    fn ceiling_acts_at_the_piece_that_reaches_it(
        cents in 1_u64..50,
        pieces in prop::collection::vec((0_usize..3, 1_usize..900), 1..60),
    ) {
        let mut client = priced(cents as f64 / 100.0, GuestMode::default());
        client.ask(4_000);
        // A cent is 1,000 tokens of output, of which the prompt takes 100; a token is four bytes.
        let mut room = (cents * 1_000 - 100) * 4;
        for (kind, size) in pieces {
            let piece = match kind {
                0 => TurnDelta::Text("x".repeat(size)),
                1 => TurnDelta::Reasoning(size as u64),
                _ => TurnDelta::ToolArguments(size as u64),
            };
            let ends = matches!(client.guest.delta(client.now, client.call, piece), GuestReply::Stop(_));
            prop_assert_eq!(ends, size as u64 >= room);
            if ends {
                break;
            }
            room -= size as u64;
        }
    }
}

#[test]
fn hidden_output_is_reported_as_overrun() {
    let mut client = priced(0.01, GuestMode::default());
    let mut turn = answer("Paris.");
    turn.usage = Usage { input_tokens: Some(1_000), output_tokens: Some(2_000), ..turn.usage };
    client.ask(4_000).turn(turn);
    let outcome = client.close(true);
    assert_eq!(outcome.termination, Termination::Stop, "the answer was paid for");
    assert_eq!(outcome.also, [Termination::ErrorMaxBudgetUsd]);
    assert_eq!(outcome.overrun.to_usd(), 0.011);
}

#[test]
fn prompt_that_uses_up_the_rest_is_refused() {
    let mut client = priced(0.01, GuestMode::default());
    let outcome = client.refused(GuestCall { prompt_bytes: 50_000, ..GuestCall::default() });
    assert_eq!(outcome.termination, Termination::ErrorMaxBudgetUsd);
    assert!(outcome.decided_by.evidence.contains("about 12500 tokens"), "{}", outcome.decided_by);
    assert_eq!(outcome.would_fit.unwrap().max_budget.unwrap().to_usd(), 0.01506);
    assert_eq!(outcome.model_calls, 0);
}

#[test]
fn capped_call_is_reserved_strictly() {
    let mut client = priced(0.01, GuestMode { capped: true, ..GuestMode::default() });
    let call = GuestCall { prompt_bytes: 1_000, output_cap: Some(4_000), ..GuestCall::default() };
    let Admission::Go { call, output_cap, .. } = client.guest.ask(client.now, call) else {
        panic!("it fits")
    };
    assert_eq!(output_cap, Some(900), "the rest of the budget");
    client.call = call;
    let mut turn = text("Par", SignalReason::TokenLimitReached);
    turn.usage = Usage { input_tokens: Some(900), output_tokens: Some(900), ..turn.usage };
    let GuestReply::Stop(outcome) = client.turn(turn) else { panic!("cut by our own cap") };
    assert_eq!(outcome.termination, Termination::ErrorMaxBudgetUsd);
}

#[test]
fn known_prompt_is_bounded_by_its_growth() {
    let mut client = priced(1.0, GuestMode { capped: true, ..GuestMode::default() });
    let mut turn = calls(&["a"]);
    turn.usage = Usage { input_tokens: Some(2_000), output_tokens: Some(10), ..turn.usage };
    client.ask(10_000).turn(turn);
    client.result("a", "x");
    client.ask(10_500);
    let bound = |client: &Client| client.guest.run().unwrap().call_quote().unwrap().prompt_bound;
    assert_eq!(bound(&client), 2_500, "2000 counted, and one token for each new byte");
    // Another model counts differently, and a shortened prompt shares no prefix.
    let model = Some("other".to_owned());
    client.ask_with(GuestCall { prompt_bytes: 10_600, model, ..GuestCall::default() });
    assert_eq!(bound(&client), 10_600);
}

#[test]
fn unknown_price_is_never_zero() {
    let limits = Limits { max_budget_usd: Some(0.01), ..limits() };
    let mut client = Client::of(spec(limits, GuestMode::default()), None);
    client.ask(100).turn(calls(&["a"]));
    client.result("a", "x");
    let price = Some(Price::usd_per_million_tokens(1.0, 1.0));
    client.ask_with(GuestCall { prompt_bytes: 200, price, ..GuestCall::default() });
    client.turn(answer("Paris."));
    let outcome = client.close(true);
    assert_eq!(outcome.termination, Termination::Stop);
    assert!(outcome.cost_unknown && outcome.cost_upper.is_none());
    assert_eq!(outcome.cost, NanoUsd(15_000), "the call whose price is known");
    assert!(outcome.decided_by.evidence.contains("`max_budget_usd` was not enforced"));
}

//! Runs nested in a guest's run: their turns, and their endings.

use super::*;

#[test]
fn nested_turns_count_towards_the_limit() {
    let mut client = observer(Limits { max_turns: Some(5), ..limits() });
    client.ask(100).turn(calls(&["a"]));
    let spending = Spending { cost: NanoUsd(5), turns: 4, ..Spending::default() };
    assert_eq!(client.guest.spent(client.now, spending.clone()), GuestReply::Continue);
    client.result("a", "the agent is done");
    let outcome = client.refused(GuestCall::default());
    assert_eq!(outcome.termination, Termination::ErrorMaxTurns);
    assert_eq!((outcome.turns, outcome.cost), (5, NanoUsd(5)));
    // Spending that is reported after the end is added, also in a replay.
    client.guest.spent(client.now, spending);
    let outcome = client.guest.outcome().cloned().unwrap();
    assert_eq!((outcome.turns, outcome.cost), (9, NanoUsd(10)));
    let limits = Limits { max_turns: Some(5), ..limits() };
    let mut replay = Replay::new(spec(limits, GuestMode::default()));
    for record in client.guest.take_events() {
        replay.feed(record.event);
    }
    assert_eq!(all_of(replay.outcome().unwrap()), all_of(&outcome));
}

#[test]
fn nested_run_may_decide_the_ending() {
    let start = GuestStart { record: true, ..GuestStart::default() };
    let limits = Limits { max_turns: Some(1), ..Limits::default() };
    let mut inner = Guest::new(RunSpec { limits, ..RunSpec::default() }, GuestStart::default());
    let at = Duration::from_secs(1);
    let Admission::Go { call, .. } = inner.ask(at, GuestCall::default()) else { panic!() };
    let _ = inner.turn(at, call, answer("Done in there."));
    let Admission::Stop(decided) = inner.ask(at, GuestCall::default()) else { panic!() };

    let spec = || RunSpec { guest: Some(GuestMode::default()), ..RunSpec::default() };
    let mut outer = Guest::new(spec(), start);
    // It is in the middle of a response, which the ending of the nested run outranks.
    let Admission::Go { call, .. } = outer.ask(at, GuestCall::default()) else { panic!() };
    let _ = outer.delta(at, call, TurnDelta::Text("I am".to_owned()));
    let outcome = outer.close_as(at, true, "", NestedEnding::from(&*decided));
    assert_eq!(outcome.termination, Termination::ErrorMaxTurns);
    assert_eq!(outcome.decided_by, decided.decided_by);
    assert_eq!(outcome.last_text.as_deref(), Some("Done in there."));

    let mut replay = Replay::new(spec());
    for record in outer.take_events() {
        let text = serde_json::to_string(&record.event).unwrap();
        let _ = replay.feed(serde_json::from_str(&text).unwrap());
    }
    let again = serde_json::to_string(replay.outcome().unwrap()).unwrap();
    assert_eq!(again, serde_json::to_string(&*outcome).unwrap());
}

#[test]
fn nested_success_needs_a_loop_that_succeeds() {
    let end = |ok| {
        let mut inner = Guest::new(RunSpec::default(), GuestStart::default());
        let Admission::Go { call, .. } = inner.ask(Duration::ZERO, GuestCall::default()) else {
            panic!()
        };
        let _ = inner.turn(Duration::ZERO, call, answer("Paris."));
        let inner = inner.close(Duration::ZERO, true, "");
        let mut outer = Guest::new(RunSpec::default(), GuestStart::default());
        outer.close_as(Duration::ZERO, ok, "exit status 1", NestedEnding::from(&*inner))
    };
    assert_eq!(end(true).termination, Termination::Stop);
    let failed = end(false);
    assert_eq!(failed.termination, Termination::ErrorDuringExecution);
    assert_eq!(failed.last_text.as_deref(), Some("Paris."));
    assert!(failed.decided_by.evidence.contains("exit status 1"));
}

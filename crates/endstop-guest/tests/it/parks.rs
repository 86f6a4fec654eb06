//! Parked runs: the same run again, once, and on no better terms.

use endstop_core::{
    ErrorClass, Limits, Message, ModelError, NanoUsd, RunSpec, Termination, ToolCall, ToolReport,
    ToolStatus, Usage,
};
use endstop_guest::describe::{Description, describe};
use endstop_guest::park::{CannotPark, CannotResume, Terms};
use endstop_guest::pricing::{Pricing, read_price};
use endstop_guest::run_state::{Ask, Handle, Reported, RunState};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::time::Duration;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn start(limits: Limits) -> RunState {
    let spec = RunSpec { limits, ..RunSpec::new(vec![Message::user("Delete the logs.")]) };
    let price = read_price(1.0, 1.0, None, None).unwrap();
    RunState::new(spec, Pricing::new(Some(price), None), None)
}

fn asks_for(id: &str, n: u64) -> Description {
    let call =
        ToolCall { id: id.into(), name: "delete".into(), arguments: format!("{{\"n\":{n}}}") };
    let usage = Usage { input_tokens: Some(100), output_tokens: Some(0), ..Usage::default() };
    Description {
        finish: Some("tool_calls".into()),
        calls: vec![call],
        usage,
        ..Description::default()
    }
}

/// A run that waits for a person, before the call `c` runs.
fn waiting(limits: Limits) -> RunState {
    let mut run = start(limits);
    assert!(run.ask(at(1), &Handle::default(), Ask::default()));
    run.turn(at(2), &Handle::default(), describe(asks_for("c", 1)));
    run
}

fn answer(run: &mut RunState, seconds: u64, id: &str, content: &str) -> Reported {
    run.result(at(seconds), &Handle::default(), id, ToolReport::new(ToolStatus::Ok, content))
}

fn resume(text: &str) -> Result<RunState, CannotResume> {
    RunState::resume(text, Terms::default())
}

#[test]
fn copied_run_goes_on_here() {
    let mut run = waiting(Limits { max_turns: Some(2), ..Limits::default() });
    let first = run.copy(at(3)).unwrap();
    assert!(!run.is_parked());
    assert_eq!(answer(&mut run, 4, "c", "gone"), Reported::Taken);
    assert!(run.ask(at(4), &Handle::default(), Ask::default()));
    assert_eq!(run.copy(at(5)), Err(CannotPark::Calling));
    run.turn(at(5), &Handle::default(), describe(asks_for("d", 2)));
    // Each text is the run as it was, and can be resumed once.
    let second = run.copy(at(6)).unwrap();
    let (early, late) = (resume(&first).unwrap(), resume(&second).unwrap());
    assert_eq!((early.turns(), early.cost()), (1, Some(NanoUsd(100_000))));
    assert_eq!((late.turns(), late.cost()), (2, run.cost()));
    assert_eq!(resume(&first).err(), Some(CannotResume::Taken));
    run.close(at(7), true, "", None);
    assert_eq!(run.copy(at(8)), Err(CannotPark::Ended));
}

#[test]
fn resumed_run_continues_where_it_was() {
    let mut run =
        waiting(Limits { max_turns: Some(2), timeout: Some(at(10)), ..Limits::default() });
    let text = run.park(at(3)).unwrap();
    assert_eq!(run.park(at(3)), Err(CannotPark::Parked));
    let mut again = resume(&text).unwrap();
    assert_eq!((again.elapsed(), again.turns(), again.cost()), (at(3), 1, Some(NanoUsd(100_000))));
    assert_eq!(answer(&mut again, 3, "c", "gone"), Reported::Taken, "the call is open");
    assert!(again.ask(at(4), &Handle::default(), Ask::default()));
    again.turn(at(5), &Handle::default(), describe(asks_for("d", 2)));
    // In another process once more, with one budget over all parts.
    let text = again.park(at(6)).unwrap();
    let mut last = resume(&text).unwrap();
    assert_eq!(answer(&mut last, 6, "d", "gone"), Reported::Taken);
    assert!(!last.ask(at(7), &Handle::default(), Ask::default()));
    let outcome = last.outcome().unwrap();
    assert_eq!((outcome.termination, outcome.turns), (Termination::ErrorMaxTurns, 2));
    assert_eq!((outcome.cost, outcome.model_calls), (NanoUsd(200_000), 2));
    assert_eq!(outcome.duration, at(7), "the pauses do not count");
}

#[test]
fn resumed_run_knows_its_calls() {
    let mut run = waiting(Limits::default());
    assert_eq!(answer(&mut run, 3, "c", "gone"), Reported::Taken);
    let mut again = resume(&run.park(at(3)).unwrap()).unwrap();
    assert_eq!(answer(&mut again, 4, "c", "gone"), Reported::Ignored, "it has its result");
    assert_eq!(answer(&mut again, 4, "of another run", "gone"), Reported::Unknown);
}

#[test]
fn text_of_unused_run_is_resumed_again() {
    let text = waiting(Limits::default()).park(at(3)).unwrap();
    let mut unused = resume(&text).unwrap();
    assert_eq!(resume(&text).err(), Some(CannotResume::Taken));
    unused.give_back();
    assert!(unused.is_parked(), "nothing can be fed to both");
    let again = resume(&text).unwrap();
    again.ticket().unwrap().give_back();
    assert_eq!(resume(&text).unwrap().turns(), 1);
}

#[test]
fn looser_time_is_allowed_by_each_name() {
    for name in ["timeout", "timeout_ms"] {
        let limits = Limits { timeout: Some(at(5)), ..Limits::default() };
        let text = waiting(limits).park(at(3)).unwrap();
        let changes = || Map::from_iter([("timeout_ms".to_owned(), json!(9_000))]);
        let terms = Terms { limits: changes(), ..Terms::default() };
        assert_eq!(
            RunState::resume(&text, terms).err(),
            Some(CannotResume::Looser(vec!["timeout"]))
        );
        let terms = Terms { limits: changes(), allow: &[name.to_owned()], ..Terms::default() };
        assert_eq!(RunState::resume(&text, terms).unwrap().wake_at(), Some(at(9)), "{name}");
    }
}

#[test]
fn run_is_parked_before_its_first_call() {
    let mut run = start(Limits { timeout: Some(at(5)), ..Limits::default() });
    let text = run.park(at(1)).unwrap();
    let mut again = resume(&text).unwrap();
    assert_eq!(again.wake_at(), Some(at(5)), "the clock runs on");
    assert!(again.ask(at(2), &Handle::default(), Ask::default()));
    let mut late =
        resume(&start(Limits { timeout: Some(at(5)), ..Limits::default() }).park(at(1)).unwrap())
            .unwrap();
    late.tick(at(6));
    assert_eq!(late.outcome().unwrap().termination, Termination::ErrorTimeout);
}

#[test]
fn fingerprints_are_kept() {
    let mut run = start(Limits::default());
    for round in 0..40 {
        if !run.ask(at(round), &Handle::default(), Ask::default()) {
            assert_eq!(run.outcome().unwrap().termination, Termination::ErrorNoProgress);
            return;
        }
        run.turn(at(round), &Handle::default(), describe(asks_for("c", 1)));
        run = resume(&run.park(at(round)).unwrap()).unwrap();
        assert_eq!(answer(&mut run, round, "c", "the same"), Reported::Taken);
    }
    panic!("a loop was not seen over the pauses");
}

#[test]
fn text_is_taken_once() {
    let text = waiting(Limits::default()).park(at(3)).unwrap();
    let taken = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| resume(&text).map(drop))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(taken.iter().filter(|one| one.is_ok()).count(), 1);
    assert_eq!(taken.iter().filter(|one| **one == Err(CannotResume::Taken)).count(), 7);
}

#[test]
fn looser_limits_are_refused() {
    let limits = || Limits { max_turns: Some(3), max_budget_usd: Some(1.0), ..Limits::default() };
    let given = |name: &str, value: Value| Map::from_iter([(name.to_owned(), value)]);
    for (name, value, is_looser) in [
        ("max_turns", json!(4), true),
        ("max_turns", Value::Null, true),
        ("max_turns", json!(2), false),
        ("max_budget_usd", json!(1.5), true),
        ("max_budget_usd", json!(0.5), false),
        ("timeout", json!("1h"), false),
        ("max_tokens", json!(10), false),
    ] {
        let text = waiting(limits()).park(at(3)).unwrap();
        let terms = |allow| Terms { limits: given(name, value.clone()), allow, policy: None };
        let refused = RunState::resume(&text, terms(&[])).map(drop);
        if is_looser {
            assert_eq!(refused, Err(CannotResume::Looser(vec![name])), "{value}");
            let allow = [name.to_owned()];
            assert!(RunState::resume(&text, terms(&allow)).is_ok(), "a refusal takes nothing");
        } else {
            assert_eq!(refused, Ok(()), "{name}: {value}");
        }
    }
    let text = waiting(limits()).park(at(3)).unwrap();
    for (limits, allow) in [
        (given("max_turn", json!(1)), vec![]),
        (given("timeout", json!(30)), vec![]),
        (Map::new(), vec!["max_turn".to_owned()]),
    ] {
        let refused = RunState::resume(&text, Terms { limits, allow: &allow, policy: None });
        assert!(matches!(refused.map(drop), Err(CannotResume::InvalidLimit(_))));
    }
}

#[test]
fn changed_or_other_texts_are_refused() {
    let text = waiting(Limits { max_turns: Some(3), ..Limits::default() }).park(at(3)).unwrap();
    let changed = text.replace("\"max_turns\":3", "\"max_turns\":9");
    assert_ne!(changed, text);
    assert_eq!(resume(&changed).map(drop), Err(CannotResume::Changed));
    let newer = text.replace("\"endstop_park\":1", "\"endstop_park\":2");
    assert_eq!(resume(&newer).map(drop), Err(CannotResume::Version(2)));
    for other in ["", "[]", "null", "{}", "{\"endstop_park\":null}", "{\"endstop_park\":\"1\"}"] {
        assert!(matches!(resume(other).map(drop), Err(CannotResume::Unreadable(_))), "{other}");
    }
    // A store may write members in another order.
    let Value::Object(members) = serde_json::from_str(&text).unwrap() else { panic!() };
    let turned: Map<String, Value> = members.into_iter().rev().collect();
    assert!(resume(&Value::Object(turned).to_string()).is_ok());
}

#[test]
fn run_that_waits_for_nobody_is_not_parked() {
    let mut calling = start(Limits::default());
    assert!(calling.ask(at(1), &Handle::default(), Ask::default()));
    assert_eq!(calling.park(at(2)), Err(CannotPark::Calling));
    calling.failed(at(2), &Handle::default(), ModelError::new(ErrorClass::Timeout, "late"));
    assert!(calling.park(at(3)).is_ok());
    let mut ended = start(Limits::default());
    ended.cancel(at(1));
    assert_eq!(ended.park(at(2)), Err(CannotPark::Ended));
}

/// A step of a run: which handle asks, what its model answers, and if its tools are answered.
fn steps() -> impl Strategy<Value = Vec<(usize, u8, bool, bool)>> {
    prop::collection::vec((0..3_usize, 0..5_u8, any::<bool>(), any::<bool>()), 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// A run that is parked and resumed at any points ends as one that is not.
    #[test]
    fn pauses_change_nothing(steps in steps()) {
        let play = |parks: bool| {
            let limits = Limits { max_turns: Some(12), max_budget_usd: Some(0.0009), ..Limits::default() };
            let mut run = start(limits);
            let mut handles: Vec<Handle> = (0..3).map(|n| run.handle(format!("{n}"))).collect();
            for (number, (handle, answer, works, pauses)) in steps.iter().enumerate() {
                let now = at(number as u64);
                let own = &handles[*handle];
                if run.ask(now, own, Ask::default()) {
                    let id = format!("c{number}");
                    match answer {
                        0 => run.failed(now, own, ModelError::new(ErrorClass::ServerError, "down")),
                        1 => drop(run.turn(now, own, describe(asks_for(&id, number as u64)))),
                        2 => drop(run.turn(now, own, describe(asks_for(&id, 1)))),
                        n => {
                            let finish = if *n == 3 { "stop" } else { "length" };
                            let text = Description { text: "x".into(), ..asks_for(&id, 1) };
                            let text = Description { finish: Some(finish.into()), calls: vec![], ..text };
                            drop(run.turn(now, own, describe(text)));
                        }
                    }
                    if *works {
                        let _ = run.result(now, own, &id, ToolReport::new(ToolStatus::Ok, "r"));
                    }
                }
                if parks && *pauses && run.is_running() {
                    run = resume(&run.park(now).unwrap()).unwrap();
                    handles = (0..3).map(|n| run.handle(format!("{n}"))).collect();
                }
            }
            run.close(at(99), true, "", None)
        };
        let (once, parked) = (play(false), play(true));
        prop_assert_eq!(&*once, &*parked);
    }
}

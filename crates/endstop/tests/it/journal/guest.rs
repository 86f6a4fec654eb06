//! The run of a guest in a journal: stored and replayed like any other, and resumed by no agent.

use super::{Place, agent};
use endstop::core::guest::{Admission, Guest, GuestReply, GuestStart};
use endstop::core::replay::CannotResume;
use endstop::core::{
    Confidence, Effect, GuestCall, GuestMode, ModelTurn, RunSpec, SignalReason, TerminationSignal,
    ToolReport,
};
use endstop::journal::{Journal, Record, RunHeader, brief};
use endstop::testkit::Turn;
use endstop::{Limits, Message, Part, Resume, StartError, Termination, ToolCall, ToolStatus};
use serde_json::Value;
use std::time::Duration;

fn spec() -> RunSpec {
    let limits = Limits { max_turns: Some(2), ..Limits::default() };
    RunSpec { limits, guest: Some(GuestMode::default()), ..RunSpec::default() }
}

/// Plays two turns with a tool, and a third call that the limit refuses.
fn play(guest: &mut Guest) {
    for turn in 1.. {
        let now = Duration::from_millis(10 * turn);
        let input = vec![Message::user("The password is hunter2-hunter2.")];
        let call = GuestCall { input, prompt_bytes: 100 * turn, ..GuestCall::default() };
        let Admission::Go { call, .. } = guest.ask(now, call) else { return };
        let arguments = format!(r#"{{"n":{turn}}}"#);
        let part = ToolCall { id: format!("c{turn}"), name: "any".into(), arguments };
        let signal = TerminationSignal::new(SignalReason::ToolUse, Confidence::High);
        let response = ModelTurn::new(vec![Part::ToolCall(part)], signal);
        let GuestReply::Tools(calls) = guest.turn(now, call, response) else { panic!("a call") };
        for call in calls {
            guest.result(now, &call.id, ToolReport::new(ToolStatus::Ok, "done"));
        }
    }
}

#[tokio::test]
async fn guest_run_is_journalled_and_replayed() {
    let place = Place::new();
    let journal = place.journal();
    let start = GuestStart { record: true, ..GuestStart::default() };
    let mut guest = Guest::new(spec(), start);
    play(&mut guest);
    let outcome = guest.outcome().cloned().unwrap();
    assert_eq!(outcome.termination, Termination::ErrorMaxTurns);

    let header = RunHeader { id: "one".into(), spec: spec(), ..RunHeader::default() };
    let mut log = journal.begin(&header).unwrap();
    let short = |effects: &[Effect]| effects.iter().filter_map(brief).collect::<Vec<Value>>();
    let recorded = guest.take_events();
    let records: Vec<Record> = recorded
        .iter()
        .map(|one| Record {
            at: one.event.at,
            wall_ms: 1,
            name: one.event.kind.name().to_owned(),
            event: serde_json::to_string(&one.event.kind).unwrap(),
            effects: Some(Value::from(short(&one.effects)).to_string()),
        })
        .collect();
    log.append(&records).unwrap();
    let text = serde_json::to_string(&*outcome).unwrap();
    log.ended(&outcome, &text).unwrap();
    drop(log);

    let run = journal.load("one").unwrap();
    assert_eq!(run.damage, None);
    assert_eq!(run.header.spec.guest, Some(GuestMode::default()));
    assert_eq!(run.events.iter().filter(|event| event.kind.name() == "asked").count(), 3);
    let mut replay = endstop::core::Replay::new(run.spec(None).unwrap());
    for (event, effects) in run.events.iter().zip(&run.effects) {
        let again: Vec<Value> = short(replay.feed(event.clone()));
        assert_eq!(again, *effects, "{event:?}");
    }
    assert_eq!(replay.outcome(), Some(&*outcome));

    // An agent owns its loop, and so cannot continue the loop of another program.
    let agent = agent([Turn::text("Paris.")], &journal).build().unwrap();
    let why = agent.resume(Resume::new("one").accept_changes()).unwrap_err();
    assert!(matches!(why, StartError::Ended { why: CannotResume::Guest, .. }), "{why}");
    assert!(why.to_string().contains("only that program can resume it"));
}

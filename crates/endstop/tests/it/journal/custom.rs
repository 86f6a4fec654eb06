//! The stored form of a run, as a custom journal writes and reads it.

use endstop::core::{EventKind, RunSpec};
use endstop::journal::{JournalErrorKind, Record, RecordedRun, RunHeader};
use endstop::provider::KnownKeys;
use endstop::{Message, MessageId, Role};
use std::time::Duration;

const KEY: &str = "sk-proj-4fQ9xTz71LmN0pWv";

fn header() -> RunHeader {
    let task = Message::text(MessageId(1), Role::User, format!("Use {KEY}."));
    RunHeader {
        id: "one".into(),
        system: Some(format!("The key is {KEY}.")),
        spec: RunSpec::new(vec![task]),
        keys: KnownKeys::new([KEY]),
        ..RunHeader::default()
    }
}

fn record(at: u64, kind: &EventKind) -> Record {
    Record {
        at: Duration::from_millis(at),
        wall_ms: at,
        name: kind.name().to_owned(),
        event: serde_json::to_string(kind).unwrap(),
        effects: Some(r#"[{"effect":"call_model","id":1}]"#.to_owned()),
    }
}

const START: EventKind = EventKind::Start { seed: 1, price: None, wall_ms: None };

#[test]
fn stored_header_has_no_keys_and_counts_them() {
    let text = header().to_json().unwrap();
    assert!(!text.contains(KEY), "{text}");
    let run = RecordedRun::from_records(&text, &[], None).unwrap();
    assert_eq!(run.header.system.as_deref(), Some("The key is [redacted]."));
    // The system prompt, the task and the message.
    assert_eq!((run.redacted, run.header.redacted), (3, 3));
}

#[test]
fn stored_events_keep_their_times_and_effects() {
    let text = RunHeader { id: "one".into(), ..RunHeader::default() }.to_json().unwrap();
    let records = [record(5, &START), record(9, &EventKind::Cancel)];
    let run = RecordedRun::from_records(&text, &records, Some(r#"{"turns":0}"#)).unwrap();
    let kinds: Vec<_> = run.events.iter().map(|event| (event.at, event.kind.name())).collect();
    let ms = Duration::from_millis;
    assert_eq!(kinds, [(ms(5), "start"), (ms(9), "cancel")]);
    assert_eq!((run.wall_ms.as_slice(), run.redacted), ([5, 9].as_slice(), 0));
    assert_eq!(run.effects[1][0]["effect"], "call_model");
    assert_eq!(run.outcome.as_ref().unwrap()["turns"], 0);
    assert!(run.replay(None).unwrap().outcome().is_some(), "it was cancelled");
}

#[test]
fn unreadable_record_leaves_the_run_before_it() {
    let text = header().to_json().unwrap();
    let broken = Record { event: r#"{"event":"cance"#.into(), ..record(9, &EventKind::Cancel) };
    let records = [record(5, &START), broken, record(11, &EventKind::Tick)];
    let run = RecordedRun::from_records(&text, &records, None).unwrap();
    assert_eq!(run.events.len(), 1);
    assert!(run.damage.unwrap().starts_with("event 1 cannot be read"));
    let run = RecordedRun::from_records(&text, &[], Some("{")).unwrap();
    assert!(run.damage.unwrap().starts_with("its outcome cannot be read"));
    let error = RecordedRun::from_records("{", &[], None).unwrap_err();
    assert_eq!(error.kind, JournalErrorKind::Damaged);
}

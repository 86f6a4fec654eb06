//! Synthetic loops whose results, or calls, differ each time, and work that looks like them: when the default watch
//! observes them, and when the default limits stop them.

use crate::hand::{Hand, said, spec};
use endstop_core::detector::{Rule, RuleSet, Stuck};
use endstop_core::*;
use serde_json::{Value, json};

/// A step: the text, the arguments of its call, and the result.
type Made = (String, Value, String);

/// Returns the call at which `stuck` observes the loop, and the one at which the default limits end it.
fn noticed(step: impl Fn(u32) -> Made) -> (Option<u32>, Option<u32>) {
    let mut rules = RuleSet::new([Rule::Stuck(Stuck::default())]);
    let mut hand = Hand::start(
        RunSpec { limits: Limits { max_turns: None, ..Limits::default() }, ..spec() },
        None,
    );
    for n in 1..=40 {
        let (text, arguments, result) = step(n);
        rules.text(&text);
        rules.call("write", &arguments.to_string());
        rules.result("write", &result, false);
        rules.end();
        if hand.outcome.is_some() {
            continue;
        }
        let mut turn = said(&text, SignalReason::ToolUse);
        let (id, name) = (format!("c{n}"), "write".to_owned());
        turn.parts.push(Part::ToolCall(ToolCall { id, name, arguments: arguments.to_string() }));
        hand.answer(turn).tools_end(ToolStatus::Ok, &result);
    }
    let stopped = hand.outcome.as_ref().map(|outcome| {
        assert_eq!(outcome.termination, Termination::ErrorNoProgress);
        assert!(outcome.no_progress_snapshot.is_some());
        outcome.turns
    });
    (rules.fired()[0], stopped)
}

/// A word without a digit, another one for each number.
fn word(n: u32) -> String {
    n.to_string().bytes().map(|digit| char::from(digit - b'0' + b'k')).collect()
}

/// Something that looks random, the same in each run.
fn random(n: u32) -> u32 {
    n.wrapping_mul(2_654_435_761).rotate_left(13) % 90_000 + 10_000
}

#[test]
fn loops_without_equal_results_are_caught() {
    fn same() -> Value {
        json!({"command": "ssh host"})
    }
    let plain = |result: String| (String::new(), same(), result);
    type Loop = (&'static str, Box<dyn Fn(u32) -> Made>, (u32, u32));
    // Observed, and stopped. A loop that differs in its call may be work, and gets more time.
    let loops: Vec<Loop> = vec![
        (
            "narration",
            Box::new(move |n| (format!("Attempt {}.", word(n)), same(), "no".into())),
            (3, 10),
        ),
        ("time", Box::new(move |n| plain(format!("2026-01-01T00:00:{n:02}Z refused"))), (6, 10)),
        (
            "clock",
            Box::new(move |n| plain(format!("refused at 9:{n:02} pm, in 0.{} s", random(n)))),
            (6, 10),
        ),
        (
            "process",
            Box::new(move |n| plain(format!("started server, pid {}", random(n)))),
            (6, 10),
        ),
        ("only a number", Box::new(move |n| plain(random(n).to_string())), (6, 10)),
        (
            "counter",
            Box::new(move |n| plain(format!("still running (session s{n}, pid {})", 9000 + n))),
            (6, 10),
        ),
        (
            "id",
            Box::new(move |n| plain(format!("request 4f{:06x}-ab: failed", random(n)))),
            (6, 10),
        ),
        (
            "tokens left",
            Box::new(move |n| plain(format!("ok\n{} tokens left", 15_000_000 - n))),
            (6, 10),
        ),
        (
            "order",
            Box::new(move |n| {
                let mut files = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
                files.rotate_left(n as usize % 9);
                plain(files.join("\n"))
            }),
            (6, 10),
        ),
        (
            "a word of the result",
            Box::new(move |n| plain(format!("the {} server refused", word(n)))),
            (6, 10),
        ),
        (
            "cycle of five",
            Box::new(|n| {
                (String::new(), json!({"command": format!("step {}", word(n % 5))}), "ok".into())
            }),
            (8, 13),
        ),
        (
            "number of the call",
            Box::new(|n| {
                (String::new(), json!({"path": "a", "offset": n * 100}), "(end of file)".into())
            }),
            (11, 34),
        ),
        (
            "word of the call",
            Box::new(|n| {
                (String::new(), json!({"command": format!("echo {}; pwd", word(n))}), "ok".into())
            }),
            (11, 34),
        ),
        (
            "id of call and result",
            Box::new(|n| {
                (String::new(), json!({"id": random(n)}), format!("{} is not found", random(n)))
            }),
            (11, 34),
        ),
    ];
    for (name, step, (observed, stopped)) in loops {
        let noticed = noticed(step);
        assert_eq!(noticed, (Some(observed), Some(stopped)), "{name}");
        assert!(observed <= 15, "{name}");
    }
}

#[test]
fn work_that_looks_alike_goes_on() {
    let poll = |result: String| (String::new(), json!({"job": "build"}), result);
    let rows = |n: u32| {
        (0..20).map(|row| (random(n * 50 + row)).to_string()).collect::<Vec<_>>().join(",")
    };
    type Work = (&'static str, Box<dyn Fn(u32) -> Made>);
    let work: Vec<Work> = vec![
        ("percentage", Box::new(move |n| poll(format!("{}% after {} s", n * 3, random(n))))),
        ("n of m", Box::new(move |n| poll(format!("[{n}/300] compiling")))),
        (
            "n of m in words",
            Box::new(move |n| poll(format!("{n} of 300 built, pid {}", random(n)))),
        ),
        ("remaining", Box::new(move |n| poll(format!("{} tests remaining", 900 - n)))),
        (
            "a log",
            Box::new(move |n| {
                poll(format!("compiling {} {} in {}", word(n), word(n + 7), word(n * 3)))
            }),
        ),
        (
            "pages of a table",
            Box::new(move |n| (String::new(), json!({"offset": n * 20}), rows(n))),
        ),
        (
            "files",
            Box::new(|n| {
                (
                    String::new(),
                    json!({"path": word(n)}),
                    format!("fn {} calls {}", word(n * 3), word(n * 5)),
                )
            }),
        ),
        (
            "edits",
            Box::new(|n| {
                let arguments = json!({"path": "a", "old": format!("let {} = {};", word(n), word(n + 1)),
                "new": format!("let {} = {};", word(n + 2), word(n + 3))});
                (String::new(), arguments, "saved".into())
            }),
        ),
    ];
    for (name, step) in work {
        assert_eq!(noticed(step), (None, None), "{name}");
    }
}

#[test]
fn model_is_informed_once_of_similar_turns() {
    let mut hand = Hand::start(spec(), None);
    let mut told = Vec::new();
    for n in 1.. {
        let mut turn = said("", SignalReason::ToolUse);
        let (id, name) = (format!("c{n}"), "write".to_owned());
        turn.parts.push(Part::ToolCall(ToolCall { id, name, arguments: r#"{"a":1}"#.into() }));
        hand.answer(turn).tools_end(ToolStatus::Ok, &format!("pid {n}"));
        told.extend(hand.effects.iter().filter_map(|effect| match effect {
            Effect::Emit(RunEvent::MessageInjected { text, .. }) => Some((n, text.clone())),
            _ => None,
        }));
        if hand.outcome.is_some() {
            break;
        }
    }
    let text = "You are repeating yourself: write({\"a\":1}) gave nearly the same result as before. Try a different approach, or say what is blocking you.";
    assert_eq!(told, [(7, text.to_owned())]);
    assert_eq!(
        hand.outcome().decided_by.evidence,
        "9 turns in a row that are like an earlier one but for numbers, times, order or a word: 3 of 3 unproductive turns"
    );
}

#[test]
fn a_text_or_a_wait_is_not_similar() {
    let mut rules = RuleSet::new([Rule::Stuck(Stuck::default())]);
    for n in 0..40 {
        if n % 5 == 4 {
            rules.text(&format!("So far: {}.", word(n)));
        } else {
            rules.call("look", "{}");
            rules.result("look", &format!("pid {n}"), false);
        }
        rules.end();
    }
    assert_eq!(rules.fired(), [None]);
}

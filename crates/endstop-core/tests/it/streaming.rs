//! The streaming state machine, checked with its vectors: transitions and scripts on the state
//! itself, streams through a run.

use crate::hand::{Hand, said, spec};
use crate::vectors::{cases, id};
use endstop_core::*;
use serde_json::Value;

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[test]
fn transitions_match_vectors() {
    for case in of_kind("transition") {
        let input = &case["input"];
        let from = text(&input["from"]).parse::<StreamingState>();
        let to = text(&input["to"]).parse::<StreamingState>();
        let done = match (from, to) {
            (Ok(mut state), Ok(to)) => {
                let from = state;
                let done = state.transition(to).is_ok();
                assert_eq!(done, from.allows(to), "{}", id(&case));
                assert_eq!(state, if done { to } else { from }, "{}", id(&case));
                done
            }
            _ => false,
        };
        assert_eq!(done, case["expect"]["ok"], "{}", id(&case));
    }
}

#[test]
fn scripts_match_vectors() {
    for case in of_kind("script") {
        let ops = case["input"]["ops"].as_array().unwrap();
        let expected = case["expect"].as_array().unwrap();
        assert_eq!(ops.len(), expected.len(), "{}", id(&case));
        let mut state = StreamingState::default();
        for (op, expected) in ops.iter().zip(expected) {
            let done = match text(&op["op"]) {
                "noop" => Ok(()),
                "force" => {
                    state = text(&op["state"]).parse().unwrap();
                    Ok(())
                }
                "pause_for_tools" => state.transition(StreamingState::ToolExecution),
                "resume" => state.transition(StreamingState::Resuming),
                other => panic!("{}: {other}", id(&case)),
            };
            assert_eq!(state.as_str(), expected["state"], "{}", id(&case));
            assert_eq!(done.is_err(), expected["error"] == true, "{}", id(&case));
        }
    }
}

/// Cases in which Endstop differs from the original: a stream without an end is an error, calls in
/// later chunks are not lost, and no stream begins while tools run.
const OURS: [(&str, &str); 4] = [
    ("st-empty", "error_during_execution"),
    ("st-no-finish", "error_during_execution"),
    ("st-tools-split-chunks", "2 calls"),
    ("st-restart-from-tool_execution", "refused"),
];

#[test]
fn streams_match_vectors() {
    for case in of_kind("stream") {
        let (input, expected) = (&case["input"], &case["expect"]);
        let ours = OURS.iter().find(|(name, _)| *name == id(&case)).map(|(_, what)| *what);
        if let Some(prior) = input["prior"].as_str() {
            assert_eq!(ours, Some("refused"));
            let mut state: StreamingState = prior.parse().unwrap();
            assert!(state.transition(StreamingState::Streaming).is_err(), "{}", id(&case));
            continue;
        }
        let chunks = input["chunks"].as_array().unwrap();
        let read = if ours.is_some() {
            chunks.len()
        } else {
            expected["chunks_processed"].as_u64().unwrap() as usize
        };
        let (parts, finished) = read_chunks(&chunks[..read]);
        let calls = parts.iter().filter(|p| matches!(p, Part::ToolCall(_))).count() as u64;

        let limits = Limits { max_retries: Some(0), max_empty_turns: Some(0), ..Limits::default() };
        let tools = vec![ToolPolicy { name: "t".to_owned(), ..ToolPolicy::default() }].into();
        let mut hand = Hand::start(RunSpec { limits, tools, ..spec() }, None);
        let call = hand.call();
        assert_eq!(hand.run().state().streaming, StreamingState::Streaming);
        for part in &parts {
            if let Part::Text { text } = part {
                hand.feed(EventKind::Delta { call, delta: TurnDelta::Text(text.clone()) });
            }
        }
        if calls > 0 || finished && input["fails_after"].is_null() {
            let reason =
                if calls > 0 { SignalReason::ToolUse } else { SignalReason::NaturalCompletion };
            let mut turn = said("", reason);
            turn.parts = parts;
            hand.feed(EventKind::TurnEnded { call, turn: Box::new(turn) });
        } else {
            let why = input["fails_after"].as_str().unwrap_or("closed without its end");
            let error = ModelError::new(ErrorClass::IncompleteStream, why);
            hand.feed(EventKind::TurnFailed { call, error, partial: None });
        }

        if calls > 0 {
            // The original pauses; the kernel continues with the tools at once.
            assert_eq!(expected["state"], "paused", "{}", id(&case));
            let state = hand.run().state();
            assert_eq!(state.streaming, StreamingState::ToolExecution, "{}", id(&case));
            assert_eq!(state.pending_calls.len() as u64, calls, "{}", id(&case));
            let wanted = if ours.is_some() { 2 } else { expected["tool_calls"].as_u64().unwrap() };
            assert_eq!(calls, wanted, "{}", id(&case));
            continue;
        }
        let content = text(&expected["content"]);
        let succeeds = ours.is_none() && expected["success"] == true && !content.trim().is_empty();
        assert_eq!(hand.ended() == Termination::Stop, succeeds, "{}", id(&case));
        if !succeeds {
            // A complete response without text is a blank answer.
            let blank = ours.is_none() && expected["success"] == true;
            let termination = if blank {
                Termination::ErrorNoProgress
            } else {
                Termination::ErrorDuringExecution
            };
            assert_eq!(hand.ended(), termination, "{}", id(&case));
        }
        assert_eq!(hand.outcome().last_text.as_deref().unwrap_or(""), content, "{}", id(&case));
    }
}

fn of_kind(kind: &str) -> Vec<Value> {
    let all = cases("state_machine.json", 51);
    let found: Vec<Value> = all.into_iter().filter(|c| c["input"]["kind"] == kind).collect();
    assert!(!found.is_empty(), "{kind}");
    found
}

/// Returns the texts and calls of the chunks, and `true` if the last chunk ends the stream.
fn read_chunks(chunks: &[Value]) -> (Vec<Part>, bool) {
    let mut parts = Vec::new();
    for part in chunks.iter().flat_map(|c| c["delta"]["content"].as_array()).flatten() {
        match text(&part["type"]) {
            "text" => parts.push(Part::Text { text: text(&part["text"]).to_owned() }),
            "tool_use" => parts.push(Part::ToolCall(ToolCall {
                id: text(&part["id"]).to_owned(),
                name: text(&part["name"]).to_owned(),
                arguments: "{}".to_owned(),
            })),
            _ => {}
        }
    }
    (parts, chunks.last().is_some_and(|chunk| chunk["finished"] == true))
}

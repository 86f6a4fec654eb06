//! Turns that look complete but are not an answer: without a finish value, with a lost tool call,
//! or ending inside their reasoning.

use crate::hand::{Hand, calls, said, spec, stop};
use endstop_core::*;
use std::sync::Arc;

fn without_finish(text: &str) -> ModelTurn {
    ModelTurn { finish_missing: true, ..stop(text) }
}

fn without_call(text: &str) -> ModelTurn {
    ModelTurn { call_missing: true, ..stop(text) }
}

#[test]
fn missing_finish_value_is_retried() {
    let limits = Limits { max_retries: Some(1), ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    hand.answer(without_finish("The answer is probab"));
    assert_eq!(hand.run().phase().as_str(), "backoff");
    hand.at(1000).feed(EventKind::Tick).answer(without_finish("The answer is probab"));
    assert_eq!(hand.ended(), Termination::ErrorDuringExecution);
    assert_eq!(hand.outcome().decided_by.decision.as_str(), "incomplete_stream");
    assert!(hand.outcome().decided_by.evidence.contains("no finish value"));
    assert_eq!(hand.outcome().last_text.as_deref(), Some("The answer is probab"));

    let limits = Limits { accept_unknown_finish: true, ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    hand.answer(without_finish("Paris."));
    assert_eq!(hand.ended(), Termination::Stop);
}

#[test]
fn lost_call_is_reported_once() {
    for (turn, told) in [
        (without_call("Let me check the file first."), "announced a tool call"),
        (stop("<tool_call>\n{\"name\": \"read\"}\n</tool_call>"), "as plain text"),
        (stop("<think>I should look at the fi"), "inside your reasoning"),
        (stop("  [THINK] hm, hm"), "inside your reasoning"),
    ] {
        let mut hand = Hand::start(spec(), None);
        hand.answer(turn.clone());
        let said = hand.run().messages().last().map(Message::plain_text).unwrap_or_default();
        assert!(said.contains(told), "{said}");
        hand.answer(turn);
        assert_eq!(hand.ended(), Termination::ErrorSchemaValidation);
        assert!(hand.outcome().error_diagnostic.is_some());
    }
}

#[test]
fn repaired_call_resets_the_count() {
    let mut hand = Hand::start(spec(), None);
    for _ in 0..3 {
        hand.answer(without_call("Let me look."));
        hand.answer(calls(&["read"])).tools_end(ToolStatus::Ok, "r");
    }
    hand.answer(stop("Paris."));
    assert_eq!(hand.ended(), Termination::Stop);
    assert_eq!(hand.outcome().turns, 7);
}

#[test]
fn markup_without_tools_is_text() {
    let alone = || RunSpec { tools: Arc::default(), finish_tool: false, ..spec() };
    let mut hand = Hand::start(alone(), None);
    hand.answer(stop("<tool_call>\n{\"name\": \"read\"}\n</tool_call>"));
    assert_eq!(hand.ended(), Termination::Stop);
    // A closed tag: the server left the reasoning in, and an answer follows it.
    let mut hand = Hand::start(spec(), None);
    hand.answer(stop("<think>It is the capital.</think>Paris."));
    assert_eq!(hand.ended(), Termination::Stop);
}

#[test]
fn reasoning_alone_is_not_sent_back() {
    let thinking = || Part::Opaque {
        api: "anthropic-messages".into(),
        json: r#"{"type":"thinking","thinking":"hm","signature":"x"}"#.into(),
    };
    let mut hand = Hand::start(spec(), None);
    hand.answer(ModelTurn { parts: vec![thinking()], ..stop("") });
    let told = hand.run().messages();
    assert_eq!(told.len(), 2, "the task, and the nudge after a blank answer: {told:?}");
    hand.answer(ModelTurn {
        parts: vec![thinking(), Part::Text { text: "Paris.".into() }],
        ..stop("")
    });
    assert_eq!(hand.ended(), Termination::Stop);
    assert_eq!(history::problem(&hand.outcome().messages), None);
    // A provider that paused requires its own blocks back unchanged.
    let mut hand = Hand::start(spec(), None);
    let mut paused = ModelTurn { parts: vec![thinking()], ..stop("") };
    paused.signal = TerminationSignal::new(SignalReason::Paused, Confidence::High);
    hand.answer(paused);
    assert_eq!(hand.run().messages().len(), 2);
    assert_eq!(hand.run().messages()[1].role, Role::Assistant);
}

#[test]
fn reasoning_alone_is_a_blank_answer() {
    for text in [
        "<think>I should list the files.</think>",
        "I should call ls.</think>",
        "<think>a</think>\n<think>b</think>",
        "\u{FEFF}<think>I should list the files.</think>\u{200B}",
        // Characters without width, or without ink.
        "\u{200B}",
        "\u{FEFF}\n",
        " \u{2060}\u{200D} \u{3164}\u{E0020}\0",
    ] {
        let mut hand = Hand::start(spec(), None);
        hand.answer(stop(text));
        assert_eq!(hand.run().phase().as_str(), "calling", "{text}");
        hand.answer(stop(text));
        assert_eq!(hand.ended(), Termination::ErrorNoProgress, "{text}");
        assert_eq!(hand.outcome().answer(), None);
    }
    let mut hand = Hand::start(spec(), None);
    hand.answer(stop("<think>So.</think>\n\nIt is 4."));
    assert_eq!(hand.ended(), Termination::Stop);
    assert_eq!(hand.outcome().answer().as_deref(), Some("It is 4."));
    assert_eq!(hand.outcome().last_text.as_deref(), Some("<think>So.</think>\n\nIt is 4."));
}

#[test]
fn blank_rest_completes_no_answer() {
    let limits = Limits { max_continuations: 1, ..Limits::default() };
    for rest in ["", " ", "\u{200B}", "<think>Done.</think>"] {
        let mut hand = Hand::start(RunSpec { limits: limits.clone(), ..spec() }, None);
        hand.answer(said("The total is 4", SignalReason::TokenLimitReached));
        hand.answer(stop(rest));
        let told = hand.run().messages().last().map(Message::plain_text).unwrap_or_default();
        assert!(told.contains("exactly where it stopped"), "{told}");
        hand.answer(stop(rest));
        assert_eq!(hand.ended(), Termination::ErrorOutputTruncated, "{rest}");

        let mut hand = Hand::start(RunSpec { limits: limits.clone(), ..spec() }, None);
        hand.answer(said("The total is 4", SignalReason::TokenLimitReached));
        hand.answer(stop(rest)).answer(stop("2."));
        assert_eq!(hand.outcome().answer().as_deref(), Some("The total is 42."));

        let mut hand = Hand::start(spec(), None);
        hand.answer(said("Searching the web…", SignalReason::Paused)).answer(stop(rest));
        hand.answer(stop(rest));
        assert_eq!(hand.ended(), Termination::ErrorNoProgress, "{rest}");
    }
}

#[test]
fn blank_answer_is_never_accepted() {
    // Without a limit the model is asked again, until another limit ends the run.
    let limits = Limits { max_empty_turns: None, max_turns: Some(3), ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    hand.answer(stop("")).answer(stop(" ")).answer(stop(""));
    assert_eq!(hand.ended(), Termination::ErrorMaxTurns);
    // A schema may accept an empty string.
    let mut hand = Hand::start(RunSpec { output_schema: true, ..spec() }, None);
    hand.answer(stop("<think>Hm.</think>"));
    let told = hand.run().messages().last().map(Message::plain_text).unwrap_or_default();
    assert!(told.contains("the answer is blank"), "{told}");
}

/// Documentation about calls, given as an answer by a model that has tools, is an answer.
#[test]
fn pages_of_the_book_are_answers() {
    let book = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src");
    let names = ["shell", "read_file", "write_file", "ls", "read", "search", "deploy"];
    let tools = names.map(|name| ToolPolicy { name: name.into(), ..ToolPolicy::default() });
    let mut pages = 0;
    for page in std::fs::read_dir(book).unwrap() {
        let path = page.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        pages += 1;
        let text = std::fs::read_to_string(&path).unwrap();
        let run = RunSpec { finish_tool: true, tools: tools.to_vec().into(), ..spec() };
        let mut hand = Hand::start(run, None);
        hand.answer(stop(&text));
        assert_eq!(hand.ended(), Termination::Stop, "{}", path.display());
        assert_eq!(hand.outcome().answer().as_deref(), Some(text.as_str()), "{}", path.display());
    }
    assert!(pages > 30, "{pages}");
}

//! The precedence table, row by row.

use endstop_core::Confidence::{self, High, Low, Medium};
use endstop_core::SignalReason::{
    self, ContentFiltered, ErrorTermination, InProgress, NaturalCompletion, Paused, StopSequence,
    TokenLimitReached, ToolUse, Unknown,
};
use endstop_wire::Finish;
use endstop_wire::signal::precedence::{TurnFacts, signal};

fn facts(finish: Finish) -> TurnFacts<'static> {
    TurnFacts {
        finish,
        field: "finish_reason",
        raw: "raw",
        text_blank: false,
        terminated: true,
        ..TurnFacts::default()
    }
}

#[test]
fn rows_have_expected_signal() {
    let f = facts;
    let rows: Vec<(&str, TurnFacts<'_>, SignalReason, Confidence)> = vec![
        (
            "error over all",
            TurnFacts { error: true, calls: 1, ..f(Finish::Length) },
            ErrorTermination,
            High,
        ),
        ("error value", f(Finish::Error), ErrorTermination, High),
        ("given up", TurnFacts { calls: 1, ..f(Finish::Aborted) }, ErrorTermination, Medium),
        ("pause", f(Finish::Paused), Paused, High),
        ("pause over calls", TurnFacts { calls: 2, ..f(Finish::Paused) }, Paused, High),
        ("server compaction", TurnFacts { raw: "compaction", ..f(Finish::Paused) }, Paused, Medium),
        ("in progress", f(Finish::InProgress), InProgress, High),
        ("length", f(Finish::Length), TokenLimitReached, High),
        (
            "length, nothing visible",
            TurnFacts { text_blank: true, ..f(Finish::Length) },
            TokenLimitReached,
            High,
        ),
        ("length over calls", TurnFacts { calls: 1, ..f(Finish::Length) }, TokenLimitReached, High),
        (
            "window full",
            TurnFacts { calls: 1, ..f(Finish::ContextExceeded) },
            TokenLimitReached,
            High,
        ),
        (
            "filter over calls",
            TurnFacts { calls: 1, ..f(Finish::ContentFilter) },
            ContentFiltered,
            High,
        ),
        ("calls", TurnFacts { calls: 1, ..f(Finish::ToolUse) }, ToolUse, High),
        ("calls over stop", TurnFacts { calls: 1, ..f(Finish::Natural) }, ToolUse, Medium),
        (
            "calls over a stop string",
            TurnFacts { calls: 1, ..f(Finish::StopSequence) },
            ToolUse,
            Medium,
        ),
        (
            "calls over a refusal",
            TurnFacts { calls: 1, refusal: true, ..f(Finish::Natural) },
            ToolUse,
            Medium,
        ),
        (
            "calls that do not parse",
            TurnFacts { calls: 1, args_valid: false, ..f(Finish::ToolUse) },
            ToolUse,
            High,
        ),
        ("calls, no value", TurnFacts { calls: 1, ..f(Finish::Missing) }, ToolUse, Low),
        (
            "calls, no value, no end",
            TurnFacts { calls: 1, terminated: false, ..f(Finish::Missing) },
            ErrorTermination,
            Medium,
        ),
        ("calls, unknown value", TurnFacts { calls: 1, ..f(Finish::Unknown) }, Unknown, Low),
        (
            "refusal with stop",
            TurnFacts { refusal: true, ..f(Finish::Natural) },
            ContentFiltered,
            Medium,
        ),
        (
            "refusal without text",
            TurnFacts { refusal: true, text_blank: true, ..f(Finish::Natural) },
            ContentFiltered,
            Medium,
        ),
        ("stop string", f(Finish::StopSequence), StopSequence, High),
        (
            "stop string, nothing said",
            TurnFacts { text_blank: true, ..f(Finish::StopSequence) },
            StopSequence,
            High,
        ),
        (
            "stop, and the server names the match",
            TurnFacts { matched_stop: Some("END"), stop_ambiguous: true, ..f(Finish::Natural) },
            StopSequence,
            High,
        ),
        ("stop", f(Finish::Natural), NaturalCompletion, High),
        (
            "stop, maybe a stop string",
            TurnFacts { stop_ambiguous: true, ..f(Finish::Natural) },
            NaturalCompletion,
            Medium,
        ),
        (
            "stop, nothing said",
            TurnFacts { text_blank: true, ..f(Finish::Natural) },
            NaturalCompletion,
            Medium,
        ),
        ("tools without a call", f(Finish::ToolUse), NaturalCompletion, Low),
        (
            "tools without a call or text",
            TurnFacts { text_blank: true, ..f(Finish::ToolUse) },
            Unknown,
            Low,
        ),
        ("unknown value", f(Finish::Unknown), Unknown, Low),
        ("no value", f(Finish::Missing), NaturalCompletion, Low),
        (
            "no value, nothing said",
            TurnFacts { text_blank: true, ..f(Finish::Missing) },
            Unknown,
            Low,
        ),
        (
            "no value, a refusal",
            TurnFacts { refusal: true, text_blank: true, ..f(Finish::Missing) },
            ContentFiltered,
            Medium,
        ),
        (
            "no value, no end",
            TurnFacts { terminated: false, ..f(Finish::Missing) },
            ErrorTermination,
            Medium,
        ),
        (
            "value, but not the protocol's end",
            TurnFacts { terminated: false, ..f(Finish::Natural) },
            NaturalCompletion,
            High,
        ),
    ];
    for (what, facts, reason, confidence) in rows {
        let s = signal(&facts);
        assert_eq!((s.reason, s.confidence), (reason, confidence), "{what}");
        assert_eq!(s.should_terminate, reason.is_terminal(), "{what}");
        assert_eq!(s.provider_specific.original_field, "finish_reason");
        assert_eq!(s.provider_specific.original_value, facts.raw, "{what}");
    }
}

#[test]
fn doubtful_call_is_reported() {
    let s =
        signal(&TurnFacts { calls: 1, args_valid: false, at_cap: true, ..facts(Finish::ToolUse) });
    let told = &s.provider_specific.metadata;
    assert_eq!((&told["invalid_args"], &told["at_output_cap"]), (&true.into(), &true.into()));
    assert!(s.message.is_some());
}

//! The precedence table, row by row.

use endstop_core::Confidence::{self, High, Low, Medium};
use endstop_core::SignalReason::{
    self, ContentFiltered, ErrorTermination, InProgress, NaturalCompletion, Paused, StopSequence,
    TokenLimitReached, ToolUse, Unknown,
};
use endstop_wire::Finish;
use endstop_wire::signal::precedence::{Facts, signal};

fn facts(finish: Finish) -> Facts<'static> {
    Facts {
        finish,
        field: "finish_reason",
        raw: "raw",
        text_blank: false,
        terminated: true,
        ..Facts::default()
    }
}

#[test]
fn rows_have_expected_signal() {
    let f = facts;
    let rows: Vec<(&str, Facts<'_>, SignalReason, Confidence)> = vec![
        (
            "error over all",
            Facts { error: true, calls: 1, ..f(Finish::Length) },
            ErrorTermination,
            High,
        ),
        ("error value", f(Finish::Error), ErrorTermination, High),
        ("given up", Facts { calls: 1, ..f(Finish::Aborted) }, ErrorTermination, Medium),
        ("pause", f(Finish::Paused), Paused, High),
        ("pause over calls", Facts { calls: 2, ..f(Finish::Paused) }, Paused, High),
        ("server compaction", Facts { raw: "compaction", ..f(Finish::Paused) }, Paused, Medium),
        ("in progress", f(Finish::InProgress), InProgress, High),
        ("length", f(Finish::Length), TokenLimitReached, High),
        (
            "length, nothing visible",
            Facts { text_blank: true, ..f(Finish::Length) },
            TokenLimitReached,
            High,
        ),
        ("length over calls", Facts { calls: 1, ..f(Finish::Length) }, TokenLimitReached, High),
        ("window full", Facts { calls: 1, ..f(Finish::ContextExceeded) }, TokenLimitReached, High),
        (
            "filter over calls",
            Facts { calls: 1, ..f(Finish::ContentFilter) },
            ContentFiltered,
            High,
        ),
        ("calls", Facts { calls: 1, ..f(Finish::ToolUse) }, ToolUse, High),
        ("calls over stop", Facts { calls: 1, ..f(Finish::Natural) }, ToolUse, Medium),
        (
            "calls over a stop string",
            Facts { calls: 1, ..f(Finish::StopSequence) },
            ToolUse,
            Medium,
        ),
        (
            "calls over a refusal",
            Facts { calls: 1, refusal: true, ..f(Finish::Natural) },
            ToolUse,
            Medium,
        ),
        (
            "calls that do not parse",
            Facts { calls: 1, args_valid: false, ..f(Finish::ToolUse) },
            ToolUse,
            High,
        ),
        ("calls, no value", Facts { calls: 1, ..f(Finish::Missing) }, ToolUse, Low),
        (
            "calls, no value, no end",
            Facts { calls: 1, terminated: false, ..f(Finish::Missing) },
            ErrorTermination,
            Medium,
        ),
        ("calls, unknown value", Facts { calls: 1, ..f(Finish::Unknown) }, Unknown, Low),
        (
            "refusal with stop",
            Facts { refusal: true, ..f(Finish::Natural) },
            ContentFiltered,
            Medium,
        ),
        (
            "refusal without text",
            Facts { refusal: true, text_blank: true, ..f(Finish::Natural) },
            ContentFiltered,
            Medium,
        ),
        ("stop string", f(Finish::StopSequence), StopSequence, High),
        (
            "stop string, nothing said",
            Facts { text_blank: true, ..f(Finish::StopSequence) },
            StopSequence,
            High,
        ),
        (
            "stop, and the server names the match",
            Facts { matched_stop: Some("END"), stop_ambiguous: true, ..f(Finish::Natural) },
            StopSequence,
            High,
        ),
        ("stop", f(Finish::Natural), NaturalCompletion, High),
        (
            "stop, maybe a stop string",
            Facts { stop_ambiguous: true, ..f(Finish::Natural) },
            NaturalCompletion,
            Medium,
        ),
        (
            "stop, nothing said",
            Facts { text_blank: true, ..f(Finish::Natural) },
            NaturalCompletion,
            Medium,
        ),
        ("tools without a call", f(Finish::ToolUse), NaturalCompletion, Low),
        (
            "tools without a call or text",
            Facts { text_blank: true, ..f(Finish::ToolUse) },
            Unknown,
            Low,
        ),
        ("unknown value", f(Finish::Unknown), Unknown, Low),
        ("no value", f(Finish::Missing), NaturalCompletion, Low),
        ("no value, nothing said", Facts { text_blank: true, ..f(Finish::Missing) }, Unknown, Low),
        (
            "no value, a refusal",
            Facts { refusal: true, text_blank: true, ..f(Finish::Missing) },
            ContentFiltered,
            Medium,
        ),
        (
            "no value, no end",
            Facts { terminated: false, ..f(Finish::Missing) },
            ErrorTermination,
            Medium,
        ),
        (
            "value, but not the protocol's end",
            Facts { terminated: false, ..f(Finish::Natural) },
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
    let s = signal(&Facts { calls: 1, args_valid: false, at_cap: true, ..facts(Finish::ToolUse) });
    let told = &s.provider_specific.metadata;
    assert_eq!((&told["invalid_args"], &told["at_output_cap"]), (&true.into(), &true.into()));
    assert!(s.message.is_some());
}

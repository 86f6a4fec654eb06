//! Runs of a standing proxy: their ends, their limits while they live, and where their calls go.

use super::{Lab, chat};
use crate::proxy::support::run;
use endstop_core::{Limits, Termination};
use endstop_guard::standing::Hour;

const FILE: &str = r#"
    [upstream]
    openai = "UPSTREAM"
    [profile.default]
    price = "in=1,out=1"
    limits = { max_turns = 2 }
"#;

#[test]
fn idle_run_ends_and_its_name_is_free() {
    run(async {
        let mut lab = Lab::start(FILE).await;
        assert_eq!(lab.turn("a", 1, "").await.0, 200);
        let (_, handle) = lab.standing.runs().pop().unwrap();
        handle.idle().await;
        lab.keeper.tick(Hour(0)).unwrap();
        let outcome = handle.outcome().unwrap();
        // The last answer asks for a tool, so nothing was finished.
        assert!(!outcome.is_success(), "{outcome:?}");
        assert!(outcome.decided_by.evidence.contains("idle"), "{:?}", outcome.decided_by);
        assert!(lab.standing.runs().is_empty());
        // A new run with the same name has its limits for itself.
        assert_eq!(lab.turn("a", 1, "").await.0, 200);
        assert_eq!(lab.turn("a", 2, "").await.0, 200);
        assert_eq!(lab.turn("a", 3, "").await.0, 400);
    });
}

#[test]
fn refused_run_stays_refused_until_it_is_quiet() {
    run(async {
        let mut lab = Lab::start(FILE).await;
        for (turn, status) in [(1, 200), (2, 200), (3, 400), (3, 400)] {
            assert_eq!(lab.turn("a", turn, "").await.0, status);
        }
        lab.keeper.tick(Hour(0)).unwrap();
        assert_eq!(lab.turn("a", 1, "").await.0, 200);
        assert_eq!(lab.calls(), 3);
    });
}

#[test]
fn limits_of_live_run_can_be_loosened_and_tightened() {
    run(async {
        let lab = Lab::start(FILE).await;
        assert_eq!(lab.turn("a", 1, "").await.0, 200);
        let (_, handle) = lab.standing.runs().pop().unwrap();
        let limits = Limits { max_turns: Some(4), ..handle.limits() };
        assert!(handle.set_limits(limits));
        for turn in 2..=3 {
            assert_eq!(lab.turn("a", turn, "").await.0, 200);
        }
        // Below what was spent: the next call is refused.
        assert!(handle.set_limits(Limits { max_turns: Some(1), ..handle.limits() }));
        let (status, body) = lab.turn("a", 4, "").await;
        assert_eq!(status, 400, "{body}");
        assert_eq!(handle.outcome().unwrap().termination, Termination::ErrorMaxTurns);
        assert!(!handle.set_limits(Limits::none()), "an ended run has no limits to change");
    });
}

#[test]
fn new_ceiling_of_live_run_holds() {
    run(async {
        for first in ["", "max_budget_usd = 5.0"] {
            let file = FILE.replace("max_turns = 2", first);
            let lab = Lab::start(&file).await;
            // A turn costs $0.0011.
            assert_eq!(lab.turn("a", 1, "").await.0, 200);
            let (_, handle) = lab.standing.runs().pop().unwrap();
            handle.idle().await;
            let limits = Limits { max_budget_usd: Some(0.0011), ..handle.limits() };
            assert!(handle.set_limits(limits));
            let (status, body) = lab.turn("a", 2, "").await;
            assert_eq!(status, 400, "{body}");
            assert_eq!(handle.outcome().unwrap().termination, Termination::ErrorMaxBudgetUsd);
        }
    });
}

#[test]
fn key_goes_to_its_own_provider_only() {
    run(async {
        let lab = Lab::start(FILE).await;
        let anthropic = "x-api-key: sk-ant-secret\r\nanthropic-version: 2023-06-01\r\n";
        let google = "x-goog-api-key: secret\r\n";
        for (target, headers, body) in [
            ("/v1/models", anthropic, ""),
            ("/v1/messages/count_tokens", anthropic, "{}"),
            ("/v1beta/models", google, ""),
            ("/v1/messages", anthropic, r#"{"model":"m","max_tokens":9,"messages":[]}"#),
            ("/unknown", "", ""),
        ] {
            let (status, answer) = lab.send(target, headers, body).await;
            assert_eq!(status, 400, "{target}: {answer}");
            assert!(!answer.contains("secret"), "{answer}");
        }
        assert_eq!(lab.calls(), 0);
        let (status, _) = lab.send("/v1/models", "authorization: Bearer sk-proj\r\n", "").await;
        assert_eq!((status, lab.calls()), (200, 1));
    });
}

#[test]
fn signed_bedrock_request_is_reported() {
    run(async {
        let lab = Lab::start("[upstream]\nbedrock = \"UPSTREAM\"\n").await;
        let body = r#"{"messages":[{"role":"user","content":[{"text":"Go."}]}]}"#;
        let signed = "authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261123/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=abc\r\n";
        let (status, answer) = lab.send("/model/m/converse", signed, body).await;
        assert_eq!(status, 400, "{answer}");
        assert!(answer.contains("AWS_BEARER_TOKEN_BEDROCK"), "{answer}");
        assert!(!answer.contains("AKID") && lab.calls() == 0, "{answer}");
        let bearer = "authorization: Bearer bedrock-key\r\n";
        assert_eq!(lab.send("/model/m/converse", bearer, body).await.0, 200);
    });
}

#[test]
fn unreadable_call_is_refused_under_limits() {
    run(async {
        let lab = Lab::start(FILE).await;
        for target in ["/v1/chat/completions", "/run/a/v1/chat/completions"] {
            let (status, body) = lab.send(target, "content-encoding: gzip\r\n", "no gzip").await;
            assert_eq!(status, 400, "{body}");
            assert!(body.contains("cannot be enforced"), "{body}");
        }
        assert_eq!(lab.calls(), 0);
        assert_eq!(lab.send("/v1/chat/completions", "", &chat(1)).await.0, 200);
    });
}

//! After any ending, providers accept the conversation.

use super::{STRICT, Strict, results};
use endstop::hook::{Approver, HookFuture};
use endstop::testkit::Turn;
use endstop::tool::{Tool, ToolContext, ToolOutput, tool_fn};
use endstop::{
    Limits, Permission, Termination, ToolCall, ToolStatus, event::AgentEventKind,
    hook::HookDecision,
};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

fn act() -> impl Tool + 'static {
    tool_fn("act", "Acts.", |_: Nothing, _| async { "done" })
}

fn two_calls() -> Turn {
    Turn::call("act", &json!({})).and_call("act", &json!({"twice": true}))
}

#[tokio::test]
async fn conversation_continues_after_error() {
    for api in STRICT {
        let strict = Strict::answering(api, |number| match number {
            1 => two_calls(),
            2 => Turn::error(500, r#"{"error": {"message": "down"}}"#),
            _ => Turn::text("up again"),
        });
        let limits = Limits { max_retries: Some(0), ..Limits::default() };
        let agent = strict.agent().tool(act()).limits(limits).build().unwrap().session();
        let outcome = agent.run("go").unwrap().await;
        assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
        assert_eq!(results(&outcome).len(), 2, "both calls are answered");
        assert_eq!(agent.run("and now").unwrap().await.termination, Termination::Stop);
        strict.accepted_all();
    }
}

#[tokio::test]
async fn truncated_call_leaves_no_orphan() {
    for api in STRICT {
        let strict = Strict::answering(api, move |number| match number {
            1 => Turn::text("I shall act. ")
                .and_raw_call("act", r#"{"path": "/etc/pas"#)
                .finish(if api == "openai-chat" { "length" } else { "max_tokens" }),
            _ => Turn::text("continuing"),
        });
        let ran = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&ran);
        let act = tool_fn("act", "Acts.", move |_: Nothing, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { "done" }
        });
        let agent = strict.agent().tool(act).build().unwrap().session();
        let outcome = agent.run("go").unwrap().await;
        assert_eq!(outcome.termination, Termination::ErrorOutputTruncated, "{api}: {outcome:?}");
        assert_eq!(outcome.last_text.as_deref(), Some("I shall act. "));
        assert_eq!((ran.load(Ordering::SeqCst), outcome.tool_calls), (0, 0));
        let after = agent.run("go on").unwrap().await;
        strict.accepted_all();
        assert_eq!(after.termination, Termination::Stop, "{api}: {after:?}");
    }
}

#[tokio::test]
async fn limit_keeps_calls_and_results_paired() {
    for api in STRICT {
        for (limits, termination) in [
            (Limits { max_turns: Some(1), ..Limits::default() }, Termination::ErrorMaxTurns),
            (Limits { max_tokens: Some(20_000), ..Limits::default() }, Termination::ErrorMaxTokens),
        ] {
            let strict = Strict::answering(api, |number| match number {
                1 => two_calls().usage(10, 19_990),
                _ => Turn::text("continuing"),
            });
            let session = strict.agent().tool(act()).limits(limits).build().unwrap().session();
            let outcome = session.run("go").unwrap().await;
            assert_eq!(outcome.termination, termination, "{api}: {outcome:?}");
            assert_eq!(results(&outcome).len(), 2, "{api}");
            // The same conversation continues under other limits.
            let agent = strict.agent().tool(act()).build().unwrap();
            let session = agent.session_from(session.snapshot()).unwrap();
            let outcome = session.run("you may go on").unwrap().await;
            assert_eq!(outcome.termination, Termination::Stop, "{api}: a limit can be raised");
            strict.accepted_all();
        }
    }
}

/// Approves every call except the first.
struct DeniesTheFirst(AtomicUsize);

impl Approver for DeniesTheFirst {
    fn approve(&self, _: ToolCall) -> HookFuture<'_> {
        let first = self.0.fetch_add(1, Ordering::SeqCst) == 0;
        let answer =
            if first { HookDecision::Deny("not this".to_owned()) } else { HookDecision::Proceed };
        Box::pin(async move { answer })
    }
}

#[tokio::test]
async fn denied_call_leaves_both_answered() {
    for api in STRICT {
        let strict = Strict::new(api, [two_calls(), Turn::text("done")]);
        let agent = strict
            .agent()
            .tool(act())
            .permission("act", Permission::Ask)
            .approver(DeniesTheFirst(AtomicUsize::new(0)))
            .build()
            .unwrap();
        let outcome = agent.run("go").unwrap().await;
        let told: Vec<ToolStatus> = results(&outcome).iter().map(|result| result.status).collect();
        assert_eq!(told, [ToolStatus::Denied, ToolStatus::Ok]);
        assert_eq!(outcome.termination, Termination::Stop);
        strict.accepted_all();
    }
}

#[tokio::test]
async fn conversation_continues_after_tool_cancel() {
    for api in STRICT {
        for terminate_the_tools in [false, true] {
            let strict = Strict::answering(api, |number| match number {
                1 => Turn::text("Acting.")
                    .and_call("wait", &json!({}))
                    .and_call("wait", &json!({"n": 1})),
                _ => Turn::text("continuing"),
            });
            let wait =
                tool_fn("wait", "Waits.", move |_: Nothing, context: ToolContext| async move {
                    if terminate_the_tools {
                        std::future::pending::<()>().await;
                    }
                    context.cancelled().await;
                    ToolOutput::error("stopped")
                });
            let limits = Limits { cancel_grace: Duration::from_millis(50), ..Limits::default() };
            let agent = strict.agent().tool(wait).limits(limits).build().unwrap().session();
            let mut handle = agent.run("go").unwrap();
            while !matches!(
                handle.next().await.map(|event| event.kind),
                Some(AgentEventKind::ToolStarted { .. })
            ) {}
            agent.cancel();
            let outcome = handle.await;
            assert_eq!(outcome.termination, Termination::Cancelled);
            assert_eq!(results(&outcome).len(), 2);
            assert_eq!(agent.run("go on").unwrap().await.termination, Termination::Stop);
            strict.accepted_all();
        }
    }
}

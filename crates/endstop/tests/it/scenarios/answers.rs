//! Tests that only an answer counts as an answer, and that the fields of an outcome agree.

use super::{STRICT, Strict, events, results};
use crate::support::{agent, over};
use endstop::event::AgentEventKind;
use endstop::policy::FinalPattern;
use endstop::testkit::{Reply, ScriptedModel, Server, Turn, sse};
use endstop::tool::tool_fn;
use endstop::{Agent, Category, Limits, Outcome, Termination};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// Asserts that no field of the outcome contradicts another.
fn agrees_with_itself(outcome: &Outcome) {
    let success = outcome.is_success();
    assert_eq!(success, outcome.category() == Category::Success, "{outcome:?}");
    assert_eq!(success, outcome.termination.is_success());
    assert_eq!(success, !outcome.termination.is_error());
    assert_eq!(success, outcome.exit_status() == 0);
    let json = serde_json::to_value(outcome).unwrap();
    assert_eq!(json["termination"], outcome.termination.as_str());
    assert_eq!(json["category"], outcome.category().as_str());
    assert!(Termination::is_success_str(json["termination"].as_str().unwrap()) == success);
    assert!(!outcome.decided_by.evidence.is_empty(), "the evidence is empty");
    assert_eq!(outcome.clone().into_result().is_ok(), success);
}

#[tokio::test]
async fn provider_refusal_is_never_success() {
    for api in STRICT {
        for status in [400, 401, 403, 404, 413, 422, 429, 500, 503, 529] {
            let strict = Strict::new(api, [Turn::error(status, r#"{"error": {"message": "no"}}"#)]);
            let limits = Limits { max_retries: Some(0), ..Limits::default() };
            let outcome = strict.agent().limits(limits).build().unwrap().run("hi").unwrap().await;
            assert!(!outcome.is_success(), "{api} {status}");
            agrees_with_itself(&outcome);
            assert_eq!((outcome.turns, outcome.model_calls), (0, 1), "{api} {status}");
        }
    }
}

#[test]
fn unknown_ending_is_a_failure() {
    for name in ["success", "completed", "error_from_tomorrow", "", "STOP"] {
        assert!(!Termination::is_success_str(name), "{name}");
        assert_ne!(Termination::category_str(name), Category::Success, "{name}");
    }
    for termination in Termination::all() {
        assert_eq!(termination.is_success(), Termination::is_success_str(termination.as_str()));
        assert_eq!(termination.category(), Termination::category_str(termination.as_str()));
    }
}

#[tokio::test]
async fn tool_finish_without_call_is_failure() {
    for api in STRICT {
        let finish = if api == "openai-chat" { "tool_calls" } else { "tool_use" };
        let strict = Strict::new(api, [Turn::text("").finish(finish)]);
        let outcome = strict.agent().build().unwrap().run("hi").unwrap().await;
        assert!(!outcome.is_success(), "{api}: {outcome:?}");
        agrees_with_itself(&outcome);
    }
}

#[tokio::test]
async fn truncated_call_is_never_run() {
    for api in STRICT {
        let finish = if api == "openai-chat" { "tool_calls" } else { "tool_use" };
        let ran = Arc::new(AtomicUsize::new(0));
        // One call with truncated arguments, and one that uses the cap to its last token.
        let cut = Turn::text("")
            .and_raw_call("act", r#"{"path": "/etc/pas"#)
            .finish(finish)
            .usage(10, 20);
        let full = Turn::call("act", &json!({"n": 1})).finish(finish).usage(10, 300);
        for turn in [cut, full] {
            let counted = Arc::clone(&ran);
            let strict = Strict::new(api, [turn]);
            let agent = strict
                .agent()
                .tool(tool_fn("act", "Acts.", move |_: Value, _| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    async { "done" }
                }))
                .max_output_tokens(300)
                .build()
                .unwrap();
            let outcome = agent.run("go").unwrap().await;
            assert_eq!(ran.load(Ordering::SeqCst), 0, "{api}: {outcome:?}");
            assert!(!outcome.is_success(), "{api}: {outcome:?}");
            agrees_with_itself(&outcome);
        }
    }
}

#[tokio::test]
async fn unknown_finish_keeps_raw_value() {
    for api in STRICT {
        let strict = Strict::new(api, [Turn::text("fine").finish("whatever_comes_next")]);
        let outcome = strict.agent().build().unwrap().run("hi").unwrap().await;
        assert_eq!(outcome.termination, Termination::ErrorDuringExecution, "{api}: {outcome:?}");
        assert!(outcome.decided_by.evidence.contains("whatever_comes_next"));
        assert_eq!((outcome.model_calls, outcome.last_text.as_deref()), (1, Some("fine")));
        agrees_with_itself(&outcome);
    }
}

#[tokio::test]
async fn empty_answers_are_bounded() {
    for api in STRICT {
        let strict = Strict::new(api, [Turn::text("")]);
        let outcome = strict.agent().build().unwrap().run("hi").unwrap().await;
        assert_eq!(outcome.termination, Termination::ErrorNoProgress, "{api}: {outcome:?}");
        assert_eq!(
            outcome.model_calls, 2,
            "{api}: one, and one more after the message to the model"
        );
        agrees_with_itself(&outcome);
        strict.accepted_all();
    }
}

#[tokio::test]
async fn refusal_fails_and_pause_continues() {
    let refusal = Strict::new("anthropic-messages", [Turn::text("I can't.").finish("refusal")]);
    let outcome = refusal.agent().build().unwrap().run("hi").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorContentFiltered);
    assert_eq!(outcome.model_calls, 1, "it is not asked again as it was");
    agrees_with_itself(&outcome);

    let server = Server::start(|request| {
        let turn = match request.number {
            1 => Turn::text("Searching.").finish("pause_turn"),
            _ => Turn::text("Found."),
        };
        Reply::turn(request, &turn)
    })
    .unwrap();
    let outcome = over(&server, "anthropic-messages").build().unwrap().run("hi").unwrap().await;
    assert_eq!((outcome.termination, outcome.turns), (Termination::Stop, 2), "{outcome:?}");

    let paused = Server::start(|request| {
        Reply::turn(request, &Turn::text("Searching.").finish("pause_turn"))
    })
    .unwrap();
    let outcome = over(&paused, "anthropic-messages").build().unwrap().run("hi").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution, "pauses are bounded");
    agrees_with_itself(&outcome);
}

#[tokio::test]
async fn early_close_runs_no_tool_twice() {
    for api in STRICT {
        let ran = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&ran);
        // The turn with the call is complete; the one after it is truncated twice.
        let server = Server::start(move |request| {
            let reply = |turn: &Turn| Reply::turn(request, turn);
            match request.number {
                1 => reply(&Turn::call("act", &json!({}))),
                2 | 3 => reply(&Turn::text("half an answer")).cut_after(150),
                _ => reply(&Turn::text("the whole answer")),
            }
        })
        .unwrap();
        let agent = over(&server, api)
            .tool(tool_fn("act", "Acts.", move |_: Nothing, _| {
                counted.fetch_add(1, Ordering::SeqCst);
                async { "done" }
            }))
            .seed(1)
            .build()
            .unwrap();
        let outcome = agent.run("go").unwrap().await;
        assert_eq!(outcome.termination, Termination::Stop, "{api}: {outcome:?}");
        assert_eq!(outcome.last_text.as_deref(), Some("the whole answer"));
        assert_eq!((ran.load(Ordering::SeqCst), outcome.model_calls, outcome.turns), (1, 4, 2));

        let server = Server::start(|request| {
            Reply::turn(request, &Turn::text("half an answer")).cut_after(150)
        })
        .unwrap();
        let limits = Limits { max_retries: Some(1), ..Limits::default() };
        let outcome = over(&server, api).limits(limits).build().unwrap().run("hi").unwrap().await;
        assert_eq!(outcome.termination, Termination::ErrorDuringExecution, "{api}");
        assert_eq!(outcome.model_calls, 2, "reconnects are bounded");
        agrees_with_itself(&outcome);
    }
}

#[tokio::test]
async fn repairs_are_bounded_and_keep_text() {
    let schema =
        json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
    let model = ScriptedModel::new([Turn::text("{\"n\": \"one\"}")]).repeat_last();
    let agent = Agent::builder(model).output_schema(schema).build().unwrap();
    for run in 1..=2 {
        let outcome = agent.run("count").unwrap().await;
        assert_eq!(outcome.termination, Termination::ErrorMaxStructuredOutputRetries, "run {run}");
        assert_eq!(outcome.turns, 3, "run {run}: a turn and two repairs");
        assert!(outcome.structured.is_none(), "what does not fit is not handed on as an answer");
        assert_eq!(outcome.last_text.as_deref(), Some("{\"n\": \"one\"}"));
        assert!(outcome.error_diagnostic.is_some());
        agrees_with_itself(&outcome);
    }
}

#[tokio::test]
async fn phrase_in_prompt_ends_nothing() {
    let turns = [Turn::text("Let me think."), Turn::text("FINAL(42)")];
    let agent = Agent::builder(ScriptedModel::new(turns))
        .policy(FinalPattern::default())
        .system("Say FINAL(answer) at the end.")
        .build()
        .unwrap();
    let first = agent.run("Write FINAL(0) when you are done.").unwrap().await;
    assert_eq!((first.termination, first.deliverable.clone()), (Termination::Stop, None));
    let second = agent.run("Go on, FINAL(1).").unwrap().await;
    assert_eq!(second.termination, Termination::Submitted);
    assert_eq!(second.answer().as_deref(), Some("42"));
}

#[tokio::test]
async fn ended_event_is_single_and_last() {
    type Make = fn() -> Agent;
    let endings: [(&str, Make); 4] = [
        ("an answer", || agent([Turn::text("hi")]).build().unwrap()),
        ("a limit", || {
            let limits = Limits { max_turns: Some(0), ..Limits::default() };
            agent([]).limits(limits).build().unwrap()
        }),
        ("an error", || agent([Turn::error(401, "no")]).build().unwrap()),
        ("a panic", || {
            let explode = tool_fn("explode", "", |_: Nothing, _| async {
                if true {
                    panic!("boom");
                }
                "never"
            });
            agent([Turn::call("explode", &json!({}))]).tool(explode).build().unwrap()
        }),
    ];
    for (what, make) in endings {
        let (events, outcome) = events(make().run("go").unwrap()).await;
        let ended: Vec<usize> = (0..events.len())
            .filter(|at| matches!(events[*at].kind, AgentEventKind::Finished { .. }))
            .collect();
        assert_eq!(ended, [events.len() - 1], "{what}");
        agrees_with_itself(&outcome);
        assert!(outcome.termination != Termination::Stop || what == "an answer");
    }
}

#[tokio::test]
async fn repeated_call_id_is_not_new() {
    let turn = Turn::text("");
    let event = |id: &str| {
        let call = json!({"index": 0, "id": id, "type": "function",
            "function": {"name": "act", "arguments": "{}"}});
        sse::data(&json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}))
    };
    let end =
        sse::data(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}));
    let body = [event("call_a"), event("call_a"), end, "data: [DONE]\n\n".to_owned()].concat();
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ran);
    let server = Server::start(move |request| match request.number {
        1 => Reply::new(200, "text/event-stream", body.clone()),
        _ => Reply::turn(request, &turn.clone().and_text("done")),
    })
    .unwrap();
    let agent = over(&server, "openai-chat")
        .tool(tool_fn("act", "Acts.", move |_: Value, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { "done" }
        }))
        .build()
        .unwrap();
    let outcome = agent.run("go").unwrap().await;
    assert!(ran.load(Ordering::SeqCst) <= 1, "{outcome:?}");
    assert!(results(&outcome).len() <= 1);
    agrees_with_itself(&outcome);
}

#[tokio::test]
async fn cause_outranks_its_consequence() {
    // The cap stops the run before it could answer in the requested format.
    let schema = json!({"type": "object", "required": ["n"]});
    let model = ScriptedModel::new([Turn::call("act", &json!({}))]).repeat_last();
    let agent = Agent::builder(model)
        .tool(tool_fn("act", "Acts.", |_: Nothing, _| async { "done" }))
        .output_schema(schema)
        .limits(Limits { max_turns: Some(1), ..Limits::default() })
        .build()
        .unwrap();
    let outcome = agent.run("count").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorMaxTurns, "{outcome:?}");
    assert_eq!(outcome.decided_by.decision.as_str(), "max_turns");
    agrees_with_itself(&outcome);
}

#[tokio::test]
async fn limit_preserves_answer_so_far() {
    let turns =
        [Turn::text("So far: three files read.").and_call("act", &json!({})), Turn::text("never")];
    let agent = agent(turns)
        .tool(tool_fn("act", "Acts.", |_: Nothing, _| async { "done" }))
        .limits(Limits { max_turns: Some(1), ..Limits::default() })
        .build()
        .unwrap();
    let outcome = agent.run("go").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorMaxTurns);
    assert_eq!(outcome.last_text.as_deref(), Some("So far: three files read."));
    assert_eq!(outcome.messages.len(), 3, "and the conversation with it");
}

#[tokio::test]
async fn endless_rate_limits_end_run() {
    let server =
        Server::start(|_| Reply::new(429, "application/json", r#"{"error": {"message": "slow"}}"#))
            .unwrap();
    let limits = Limits { max_retries: Some(2), ..Limits::default() };
    let agent = over(&server, "openai-chat").seed(3).limits(limits).build().unwrap();
    let outcome = agent.run("hi").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert_eq!((outcome.model_calls, outcome.turns), (3, 0), "the call and two retries");
    // A wait that is too long is reported instead of slept.
    let server = Server::start(|_| {
        Reply::new(429, "application/json", r#"{"error": {"message": "slow"}}"#)
            .header("retry-after", "3600")
    })
    .unwrap();
    let outcome = over(&server, "openai-chat").build().unwrap().run("hi").unwrap().await;
    assert_eq!(outcome.retry_after, Some(Duration::from_secs(3600)), "{outcome:?}");
    assert_eq!(outcome.model_calls, 1);
}

#[tokio::test]
async fn exhausted_allowance_ends_run_at_once() {
    let allowance = |more: Value| {
        let mut error =
            json!({"type": "usage_limit_reached", "message": "The usage limit has been reached"});
        error.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "error": error })
    };
    let quota = json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED",
        "message": "You have exhausted your capacity on this model. Your quota will reset after 5h12m3s."}});
    let spent = json!({"choices": null, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}});
    for (status, body, retry_after, class) in [
        (429, allowance(json!({"resets_in_seconds": 14_000})), Some(14_000), "rate_limit"),
        (429, quota, Some(18_723), "rate_limit"),
        (429, allowance(json!({})), None, "quota_exhausted"),
        (
            429,
            json!({"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}}),
            None,
            "quota_exhausted",
        ),
        (200, spent, None, "quota_exhausted"),
    ] {
        let reply = Reply::new(status, "application/json", body.to_string());
        let server = Server::start(move |_| reply.clone()).unwrap();
        let began = Instant::now();
        let outcome = over(&server, "openai-chat").build().unwrap().run("hi").unwrap().await;
        assert!(outcome.termination.is_error(), "{outcome:?}");
        assert_eq!(outcome.retry_after, retry_after.map(Duration::from_secs), "{outcome:?}");
        let told = format!("{:?}", outcome.error_diagnostic);
        assert!(told.contains(class), "{class} in {told}");
        assert_eq!((outcome.model_calls, server.requests().len()), (1, 1), "{body}");
        assert!(began.elapsed() < Duration::from_secs(10), "{body}");
    }
}

/// A chat completion stream with this text, and this finish value if there is one.
fn chat_stream(text: &str, finish: Option<&str>) -> Reply {
    let said = json!({"choices": [{"index": 0, "delta": {"content": text}}]});
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]});
    Reply::new(200, "text/event-stream", format!("data: {said}\n\ndata: {end}\n\ndata: [DONE]\n\n"))
}

#[tokio::test]
async fn missing_finish_value_is_not_success() {
    let limits = Limits { max_retries: Some(1), ..Limits::default() };
    for whole in [false, true] {
        let server = Server::start(move |_| match whole {
            false => chat_stream("The answer is probab", None),
            true => Reply::new(
                200,
                "application/json",
                r#"{"choices":[{"index":0,"message":{"content":"The answer is probab"},"finish_reason":null}]}"#,
            ),
        })
        .unwrap();
        let outcome = over(&server, "openai-chat")
            .limits(limits.clone())
            .streaming(!whole)
            .build()
            .unwrap()
            .run("hi")
            .unwrap()
            .await;
        assert_eq!(outcome.termination, Termination::ErrorDuringExecution, "{outcome:?}");
        assert_eq!(outcome.model_calls, 2, "it is retried");
        assert!(outcome.decided_by.evidence.contains("no finish value"), "{outcome:?}");
        let accepting = Limits { accept_unknown_finish: true, ..limits.clone() };
        let agent = over(&server, "openai-chat").limits(accepting).streaming(!whole);
        let outcome = agent.build().unwrap().run("hi").unwrap().await;
        assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    }
    // A dialect that never sends a finish value.
    let server = Server::start(|_| chat_stream("Paris.", None)).unwrap();
    let outcome = over(&server, "snowflake").build().unwrap().run("hi").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
}

#[tokio::test]
async fn announced_missing_call_is_not_success() {
    for tools in [false, true] {
        let server = Server::start(|_| chat_stream("Let me check.", Some("tool_calls"))).unwrap();
        let mut agent = over(&server, "openai-chat");
        if tools {
            agent = agent.tool(tool_fn("look", "Looks.", |_: Nothing, _| async { "seen" }));
        }
        let outcome = agent.build().unwrap().run("hi").unwrap().await;
        assert_eq!(outcome.termination, Termination::ErrorSchemaValidation, "{outcome:?}");
        assert_eq!(outcome.turns, 2, "the model gets one message");
    }
}

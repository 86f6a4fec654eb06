//! Conversations and responses that the provider stores.

use super::{asked, guarded, json_to, limited, request, usd};
use crate::gate::agents::call;
use crate::gate::support::Guard;
use crate::proxy::support::run;
use endstop_core::{Limits, Termination, Watch};
use endstop_guard::run::{GuardEvent, Settings};
use serde_json::{Value, json};

/// The response decides whether a call works on in the background, whatever the request seems to be.
#[test]
fn queued_response_is_held_whatever_the_request_said() {
    run(async {
        for body in [
            r#"{"model":"m","input":"x","max_output_tokens":5000,"background":true,"background":true}"#,
            r#"{"model":"m","input":"x","max_output_tokens":5000,"background":true}"#,
        ] {
            let (guard, _) = guarded(limited(usd(0.55))).await;
            let mut admitted = 0;
            for _ in 0..6 {
                // The server reads the last of two members, guard any.
                let request = request(
                    "POST",
                    "/run/b/v1/responses",
                    Some("application/json"),
                    body.as_bytes(),
                );
                let (_, answer) = call(guard.address, &request).await;
                admitted += usize::from(answer.unwrap_or_default().contains("queued"));
            }
            assert!(admitted <= 3, "{admitted} {body}");
        }
    });
}

/// One turn of a message thread: the first creates it, the others have only what is new.
fn thread_turn(previous: Option<&str>, result_of: Option<&str>) -> Value {
    match previous {
        None => json!({"model": "m", "max_tokens": 50, "system": "long ".repeat(400),
            "tools": [{"name": "bash", "input_schema": {}}], "thread": {"type": "create"},
            "messages": [{"role": "user", "content": "work"}]}),
        Some(id) => json!({"model": "m", "max_tokens": 50,
            "thread": {"type": "continue", "previous_message_id": id},
            "messages": [{"role": "user", "content": [{"type": "tool_result",
                "tool_use_id": result_of.unwrap_or_default(), "content": "same"}]}]}),
    }
}

/// Works in a message thread for as long as it is answered with calls. Returns the number of paid calls.
async fn work_in_a_thread(guard: &Guard, most: usize) -> usize {
    let (mut previous, mut tool) = (None::<String>, None::<String>);
    for turn in 0..most {
        let body = thread_turn(previous.as_deref(), tool.as_deref());
        let (status, answer) = call(guard.address, &json_to("/run/t/v1/messages", &body)).await;
        let answer: Value = serde_json::from_str(&answer.unwrap_or_default()).unwrap_or_default();
        let Some(id) = answer["content"][0]["id"].as_str().filter(|_| status == 200) else {
            return turn;
        };
        (previous, tool) = (answer["id"].as_str().map(str::to_owned), Some(id.to_owned()));
    }
    most
}

#[test]
fn turns_of_a_message_thread_are_turns() {
    run(async {
        let (guard, server) =
            guarded(limited(Limits { max_turns: Some(4), ..Limits::none() })).await;
        assert_eq!(work_in_a_thread(&guard, 12).await, 4);
        assert_eq!(asked(&server), 4);
        let outcome = guard.run("t").expect("a run").outcome().expect("an end");
        assert_eq!(
            (outcome.termination, outcome.turns, outcome.tool_calls),
            (Termination::ErrorMaxTurns, 4, 4)
        );
        // A loop is one, although no request has more than its last step.
        let watches = vec![Watch::parse("stop:stuck").expect("a rule")];
        let (guard, _) = guarded(Settings { watches, ..limited(Limits::none()) }).await;
        assert!(work_in_a_thread(&guard, 12).await < 6);
        let outcome = guard.run("t").expect("a run").outcome().expect("an end");
        assert_eq!(outcome.termination, Termination::ErrorNoProgress);
        // A strict ceiling counts what the provider stores.
        let (guard, server) = guarded(Settings { cap_output: true, ..limited(usd(0.06)) }).await;
        work_in_a_thread(&guard, 50).await;
        let paid = server.lock().expect("a lock").usd;
        assert!(paid > 0.01 && paid <= 0.06, "{paid}");
        let cost = guard.run("t").expect("a run").spent().cost.to_usd();
        assert!((cost - paid).abs() < 1e-9, "{cost} {paid}");
    });
}

/// A thread that is not written plainly is not a new conversation: a server may read an id in it.
#[test]
fn thread_in_another_spelling_is_not_new() {
    run(async {
        let body = |thread: &str| {
            format!(
                r#"{{"model":"m","max_tokens":50,{thread},"messages":[{{"role":"user","content":"go on"}}]}}"#
            )
        };
        for thread in [
            r#""thread":{}"#,
            r#""thread":{"previous_message_id":"msg_1"}"#,
            r#""thread":{"Previous_Message_Id":"msg_1"}"#,
            r#""thread":{"type":"continue"}"#,
            r#""thread":{"Type":"continue","previous_message_id":"msg_1"}"#,
            r#""thread":{"type":"Create"}"#,
            r#""thread":{"type":"create","Type":"continue"}"#,
            r#""thread":{"type":"create","type":"continue"}"#,
            r#""Thread":{"type":"continue","previous_message_id":"msg_1"}"#,
            r#""THREAD":{"type":"create"}"#,
            r#""thread":{"type":"create"},"Thread":{"type":"continue"}"#,
            r#""thread":"msg_1""#,
            r#""thread":["msg_1"]"#,
        ] {
            for limits in [usd(5.0), Limits { max_turns: Some(3), ..Limits::none() }] {
                let (guard, server) = guarded(limited(limits)).await;
                let kind = Some("application/json");
                let request = request("POST", "/run/t/v1/messages", kind, body(thread).as_bytes());
                let (status, answer) = call(guard.address, &request).await;
                let answer = answer.expect("a body");
                assert!(status == 400 && answer.contains("thread_unsupported_request"), "{thread}");
                assert_eq!(asked(&server), 0, "{thread}");
            }
        }
        for thread in [r#""thread":{"type":"create"}"#, r#""thread":null"#, r#""threads":{}"#] {
            let (guard, _) = guarded(limited(usd(5.0))).await;
            let kind = Some("application/json");
            let request = request("POST", "/run/t/v1/messages", kind, body(thread).as_bytes());
            assert_eq!(call(guard.address, &request).await.0, 200, "{thread}");
        }
    });
}

#[test]
fn unknown_response_is_refused_in_the_form_of_its_api() {
    run(async {
        for limits in [usd(5.0), Limits { max_turns: Some(9), ..Limits::none() }] {
            let (guard, server) = guarded(limited(limits)).await;
            let body = thread_turn(Some("msg_unseen"), Some("toolu_1"));
            let (status, answer) = call(guard.address, &json_to("/run/t/v1/messages", &body)).await;
            let answer: Value = serde_json::from_str(&answer.expect("a body")).expect("JSON");
            assert_eq!(status, 400);
            assert_eq!(answer["error"]["details"]["error_code"], "thread_unsupported_request");
            let body = json!({"model": "m", "input": "x", "previous_response_id": "resp_unseen"});
            let (status, answer) =
                call(guard.address, &json_to("/run/t/v1/responses", &body)).await;
            let answer: Value = serde_json::from_str(&answer.expect("a body")).expect("JSON");
            assert_eq!(
                (status, &answer["error"]["code"]),
                (400, &json!("previous_response_not_found"))
            );
            assert_eq!(answer["error"]["param"], "previous_response_id");
            assert_eq!(asked(&server), 0);
            // An id of another run is unknown here.
            let first = json!({"model": "m", "input": "x", "tools": [{"type": "function", "name": "bash"}]});
            let (_, answer) = call(guard.address, &json_to("/run/one/v1/responses", &first)).await;
            let answer: Value = serde_json::from_str(&answer.expect("a body")).expect("JSON");
            let next = json!({"model": "m", "input": "y", "previous_response_id": answer["id"]});
            assert_eq!(call(guard.address, &json_to("/run/two/v1/responses", &next)).await.0, 400);
            assert_eq!(call(guard.address, &json_to("/run/one/v1/responses", &next)).await.0, 200);
        }
    });
}

#[test]
fn stored_conversation_is_reserved_at_the_window() {
    run(async {
        let body = json!({"model": "m", "input": "x", "conversation": "conv_1", "max_output_tokens": 20,
            "tools": [{"type": "function", "name": "bash"}]});
        // A window of a million tokens costs ten dollars.
        let (guard, server) = guarded(limited(usd(5.0))).await;
        let (_, answer) = call(guard.address, &json_to("/run/c/v1/responses", &body)).await;
        assert!(answer.expect("a body").contains("error_max_budget_usd"));
        assert_eq!(asked(&server), 0);
        let (guard, server) = guarded(limited(usd(50.0))).await;
        for _ in 0..3 {
            assert_eq!(call(guard.address, &json_to("/run/c/v1/responses", &body)).await.0, 200);
        }
        let is_note = |event: &&GuardEvent| matches!(event, GuardEvent::Passed { .. });
        let notes = guard.events.lock().expect("a lock").iter().filter(is_note).count();
        assert_eq!((asked(&server), notes), (3, 1));
        let run = guard.run("c").expect("a run");
        assert_eq!((run.spent().turns, run.counts().threads), (3, 1), "one conversation");
        let (guard, server) = guarded(Settings { cap_output: true, ..limited(usd(50.0)) }).await;
        assert_eq!(call(guard.address, &json_to("/run/c/v1/responses", &body)).await.0, 400);
        assert_eq!(asked(&server), 0);
    });
}

fn background() -> Value {
    json!({"model": "m", "input": "x", "background": true, "max_output_tokens": 5_000,
        "tools": [{"type": "function", "name": "bash"}]})
}

async fn begin(guard: &Guard, run: &str) -> (u16, Value) {
    let (status, answer) =
        call(guard.address, &json_to(&format!("/run/{run}/v1/responses"), &background())).await;
    (status, serde_json::from_str(&answer.unwrap_or_default()).unwrap_or_default())
}

async fn poll(guard: &Guard, run: &str, id: &Value) -> Value {
    let id = id.as_str().expect("an id");
    let (_, answer) =
        call(guard.address, &request("GET", &format!("/run/{run}/v1/responses/{id}"), None, b""))
            .await;
    serde_json::from_str(&answer.expect("a body")).expect("JSON")
}

#[test]
fn background_response_is_booked_by_its_poll() {
    run(async {
        let (guard, server) = guarded(limited(usd(1.0))).await;
        let (status, queued) = begin(&guard, "b").await;
        assert_eq!((status, &queued["status"]), (200, &json!("queued")));
        let run = guard.run("b").expect("a run");
        assert_eq!(run.spent().cost.to_usd(), 0.0);
        // A poll of another run's client does not count here.
        assert_eq!(poll(&guard, "other", &queued["id"]).await["status"], "in_progress");
        server
            .lock()
            .expect("a lock")
            .working
            .insert(queued["id"].as_str().expect("an id").to_owned(), 1);
        assert_eq!(poll(&guard, "b", &queued["id"]).await["status"], "in_progress");
        assert_eq!(run.spent().cost.to_usd(), 0.0);
        assert_eq!(poll(&guard, "b", &queued["id"]).await["status"], "completed");
        let paid = server.lock().expect("a lock").usd;
        assert!((run.spent().cost.to_usd() - paid).abs() < 1e-9);
        // Once.
        server
            .lock()
            .expect("a lock")
            .working
            .insert(queued["id"].as_str().expect("an id").to_owned(), 0);
        poll(&guard, "b", &queued["id"]).await;
        assert!((run.spent().cost.to_usd() - paid).abs() < 1e-9);
        let outcome = run.close(true, "");
        assert_eq!(
            (outcome.termination, outcome.cost_unknown),
            (Termination::Stop, false),
            "{outcome:?}"
        );
        assert_eq!(outcome.last_text.as_deref(), Some("done"));
    });
}

#[test]
fn background_responses_are_held_to_the_ceiling() {
    run(async {
        // Each may cost $0.20 of output.
        for cap_output in [false, true] {
            let (guard, server) = guarded(Settings { cap_output, ..limited(usd(0.55)) }).await;
            let mut admitted = 0;
            for _ in 0..6 {
                admitted += usize::from(begin(&guard, "b").await.1["status"] == "queued");
            }
            assert!(
                admitted <= 3,
                "{admitted} with a reservation of $0.20 each (strict: {cap_output})"
            );
            let run = guard.run("b").expect("a run");
            let outcome = run.close(true, "");
            // Never polled: booked at what was reserved.
            let most = outcome.cost_upper.map(|upper| upper.to_usd()).expect("a bound");
            assert!(most >= (0.20 * admitted as f64).min(0.55), "{most}");
            assert!(outcome.cost_unknown && !outcome.termination.is_success(), "{outcome:?}");
            drop(server);
        }
    });
}

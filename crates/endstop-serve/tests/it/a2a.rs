//! Tasks of the A2A protocol: the same runs, in its words.

use crate::support::{Lab, Scripted, Setup, in_time};
use endstop::testkit::Turn;
use endstop_serve::Tokens;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};

/// Calls a method of an agent and returns the whole answer.
async fn call(lab: &Lab, agent: &str, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    let answer = lab.post_with(&format!("/a2a/{agent}"), "a2a-version: 1.0\r\n", &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(7)));
    answer
}

/// Calls a method that streams, and returns its results.
async fn streamed(lab: &Lab, agent: &str, method: &str, params: Value) -> Vec<Value> {
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    let answer = lab.post(&format!("/a2a/{agent}"), &body).await;
    assert!(answer.head.contains("text/event-stream"), "{answer:?}");
    let data = answer.body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|line| serde_json::from_str::<Value>(line).unwrap()["result"].clone()).collect()
}

/// A message with an id of its own.
fn message(part: Value) -> Value {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let id = format!("m-{}", LAST.fetch_add(1, Ordering::Relaxed));
    json!({"messageId": id, "role": "ROLE_USER", "parts": [part]})
}

fn text(words: &str) -> Value {
    json!({"message": message(json!({"text": words}))})
}

fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn task_ends_with_an_artifact() {
    let lab = Lab::of("echo", Scripted::echo()).await;
    let task = call(&lab, "echo", "SendMessage", text("It is 42.")).await["result"]["task"].clone();
    assert_eq!(state(&task), "TASK_STATE_COMPLETED");
    assert_eq!(task["artifacts"][0]["parts"], json!([{"text": "It is 42."}]));
    assert_eq!(task["metadata"]["endstop"]["termination"], "stop");
    assert_eq!(task["history"][0]["parts"][0]["text"], "It is 42.");
    assert!(task["status"]["timestamp"].as_str().unwrap().ends_with('Z'));
    // The task is a run of the server.
    let id = task["id"].as_str().unwrap();
    assert_eq!(lab.get(&format!("/v1/runs/{id}")).await.json()["termination"], "stop");
    let again = call(&lab, "echo", "GetTask", json!({"id": id})).await["result"].clone();
    assert_eq!(again, task);
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_not_completed() {
    for (turn, ending, expected) in [
        (Turn::text("Half").finish("length"), "error_output_truncated", "TASK_STATE_FAILED"),
        (Turn::text("").finish("content_filter"), "error_content_filtered", "TASK_STATE_FAILED"),
        (Turn::error(401, "no"), "error_provider_auth", "TASK_STATE_FAILED"),
    ] {
        let lab = Lab::of("bad", Scripted::new(move |_| vec![turn.clone()])).await;
        let task = call(&lab, "bad", "SendMessage", text("Go.")).await["result"]["task"].clone();
        assert_eq!(state(&task), expected, "{ending}");
        assert_eq!(task["metadata"]["endstop"]["termination"], ending);
        // The text of a run that failed is not a result.
        assert!(task.get("artifacts").is_none());
        let said = task["status"]["message"]["parts"][0]["text"].as_str().unwrap();
        assert!(said.starts_with(ending), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_message_starts_one_task() {
    let lab = Lab::of("echo", Scripted::echo()).await;
    let params = text("Once.");
    let first = call(&lab, "echo", "SendMessage", params.clone()).await;
    let second = call(&lab, "echo", "SendMessage", params.clone()).await;
    assert_eq!(first["result"]["task"]["id"], second["result"]["task"]["id"]);
    // Another message under the same id is an error, not the old answer.
    let mut other = params;
    other["message"]["parts"][0]["text"] = "Twice.".into();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": other});
    let refused = lab.post("/a2a/echo", &body).await;
    assert_eq!((refused.status, refused.code()), (422, "key_reused".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_ends_with_the_last_state() {
    let turns =
        |_: &str| vec![Turn::text("Looking.").and_call("wait", &json!({})), Turn::text("Done.")];
    let agent = Scripted::new(turns);
    agent.permits.add_permits(1);
    let lab = Lab::of("worker", agent).await;
    let results = streamed(&lab, "worker", "SendStreamingMessage", text("Go.")).await;
    assert!(results[0]["task"]["id"].is_string(), "{results:?}");
    let last = &results[results.len() - 1]["statusUpdate"];
    assert_eq!(last["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(last["metadata"]["endstop"]["termination"], "stop");
    let artifact = &results[results.len() - 2]["artifactUpdate"]["artifact"];
    assert_eq!(artifact["parts"][0]["text"], "Done.");
    let said: Vec<&str> = results
        .iter()
        .filter_map(|result| {
            result["statusUpdate"]["status"]["message"]["parts"][0]["text"].as_str()
        })
        .collect();
    assert_eq!(said, ["Looking."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_is_required_input() {
    let lab = Lab::of("asking", Scripted::asking()).await;
    for (part, tool) in [
        (json!({"text": "allow"}), true),
        (json!({"data": {"decision": "deny", "reason": "not now"}}), false),
    ] {
        let task = call(&lab, "asking", "SendMessage", text("Go.")).await["result"]["task"].clone();
        assert_eq!(state(&task), "TASK_STATE_INPUT_REQUIRED");
        let asked = &task["status"]["message"]["parts"][0]["data"];
        assert_eq!(
            (&asked["tool"], &asked["arguments"]),
            (&json!("ask"), &json!("{\"path\":\"x\"}"))
        );
        // A sentence is not a decision, and changes nothing.
        let mut vague = message(json!({"text": "I think you may"}));
        vague["taskId"] = task["id"].clone();
        let error = call(&lab, "asking", "SendMessage", json!({"message": vague})).await;
        assert_eq!(error["error"]["code"], -32602, "{error}");
        let mut decision = message(part);
        decision["taskId"] = task["id"].clone();
        let ended = call(&lab, "asking", "SendMessage", json!({"message": decision})).await;
        let ended = &ended["result"]["task"];
        assert_eq!(state(ended), "TASK_STATE_COMPLETED");
        let id = task["id"].as_str().unwrap();
        let started = lab.events(id, 0).await.iter().any(|event| event.kind == "tool_started");
        assert_eq!(started, tool);
        let mut late = message(json!({"text": "allow"}));
        late["taskId"] = task["id"].clone();
        let error = call(&lab, "asking", "SendMessage", json!({"message": late})).await;
        assert_eq!(error["error"]["code"], -32004, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_task_is_canceled() {
    let lab = Lab::of("waiting", Scripted::waiting()).await;
    let mut params = text("Go.");
    params["configuration"] = json!({"returnImmediately": true});
    let task = call(&lab, "waiting", "SendMessage", params).await["result"]["task"].clone();
    let id = task["id"].as_str().unwrap();
    assert!(["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"].contains(&state(&task)));
    lab.event(id, "tool_started").await;
    let cancelled = in_time(call(&lab, "waiting", "CancelTask", json!({"id": id}))).await;
    assert_eq!(state(&cancelled["result"]), "TASK_STATE_CANCELED");
    let again = call(&lab, "waiting", "CancelTask", json!({"id": id})).await;
    assert_eq!(again["error"]["code"], -32002);
    assert_eq!(again["error"]["data"][0]["reason"], "TASK_NOT_CANCELABLE");
}

#[tokio::test(flavor = "multi_thread")]
async fn message_to_working_task_is_said() {
    let agent = Scripted::waiting();
    let permits = agent.permits.clone();
    let lab = Lab::of("waiting", agent).await;
    let mut params = text("Go.");
    params["configuration"] = json!({"returnImmediately": true});
    let task = call(&lab, "waiting", "SendMessage", params).await["result"]["task"].clone();
    let id = task["id"].as_str().unwrap();
    lab.event(id, "tool_started").await;
    let mut more = message(json!({"text": "Leave b alone."}));
    more["taskId"] = id.into();
    let more = json!({"message": more, "configuration": {"returnImmediately": true}});
    let said = call(&lab, "waiting", "SendMessage", more).await;
    assert_eq!(state(&said["result"]["task"]), "TASK_STATE_WORKING");
    permits.add_permits(1);
    let messages = lab.ended(id).await["outcome"]["messages"].to_string();
    assert!(messages.contains("Leave b alone."), "{messages}");
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriber_gets_the_end() {
    let agent = Scripted::waiting();
    let permits = agent.permits.clone();
    let lab = Lab::of("waiting", agent).await;
    let mut params = text("Go.");
    params["configuration"] = json!({"returnImmediately": true});
    let task = call(&lab, "waiting", "SendMessage", params).await["result"]["task"].clone();
    let id = task["id"].as_str().unwrap();
    lab.event(id, "tool_started").await;
    let subscribed = streamed(&lab, "waiting", "SubscribeToTask", json!({"id": id}));
    let release = async {
        // The stream counts as a reader as soon as it is open.
        while !lab.get("/metrics").await.body.contains("readers 1") {
            tokio::task::yield_now().await;
        }
        permits.add_permits(1);
    };
    let (results, ()) = tokio::join!(subscribed, release);
    assert_eq!(state(&results[0]["task"]), "TASK_STATE_WORKING");
    let last = &results[results.len() - 1]["statusUpdate"]["status"]["state"];
    assert_eq!(last, "TASK_STATE_COMPLETED");
    let late = call(&lab, "waiting", "SubscribeToTask", json!({"id": id})).await;
    assert_eq!(late["error"]["code"], -32004);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_calls_have_their_codes() {
    let lab = Lab::of("echo", Scripted::echo()).await;
    let with = |change: Value| {
        let mut params = text("Go.");
        for (name, value) in change.as_object().unwrap() {
            params["message"][name] = value.clone();
        }
        params
    };
    for (method, params, code) in [
        ("GetTask", json!({"id": "none"}), -32001),
        ("GetTask", json!({}), -32602),
        ("CancelTask", json!({"id": "none"}), -32001),
        ("SendMessage", json!({}), -32602),
        ("SendMessage", with(json!({"messageId": ""})), -32602),
        ("SendMessage", with(json!({"role": "ROLE_AGENT"})), -32602),
        ("SendMessage", with(json!({"contextId": "mine"})), -32602),
        ("SendMessage", with(json!({"taskId": "none"})), -32001),
        ("SendMessage", with(json!({"parts": [{"url": "https://x.example/"}]})), -32005),
        ("CreateTaskPushNotificationConfig", json!({}), -32003),
        ("ListTasks", json!({}), -32004),
        ("GetExtendedAgentCard", json!({}), -32007),
        ("message/send", json!({}), -32009),
        ("Explode", json!({}), -32601),
    ] {
        let answer = call(&lab, "echo", method, params.clone()).await;
        assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
    }
    for (body, code) in [
        ("nonsense", -32700),
        ("[]", -32600),
        ("{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"GetTask\"}", -32600),
        ("{\"jsonrpc\":\"2.0\",\"method\":\"GetTask\"}", -32600),
    ] {
        let answer = lab.ask("POST /a2a/echo", "content-type: application/json\r\n", body).await;
        assert_eq!(answer.json()["error"]["code"], code, "{body}");
    }
    let old = json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}});
    let answer = lab.post_with("/a2a/echo", "a2a-version: 0.3\r\n", &old).await;
    assert_eq!(answer.json()["error"]["code"], -32009);
    assert_eq!(lab.post("/a2a/unknown", &old).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_only_lower_limits() {
    let lab = Lab::of("echo", Scripted::echo()).await;
    for (limits, status) in [(json!({"max_turns": 1}), 200), (json!({"max_turns": 5000}), 422)] {
        let mut params = text("Go.");
        params["message"]["metadata"] = json!({"endstop": {"limits": limits}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
        assert_eq!(lab.post("/a2a/echo", &body).await.status, status, "{limits}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_bind_cards_and_tasks() {
    let file = "[tokens.a]\ntoken = \"aaaaaaaaaaaaaaaaaaaa\"\nagents = [\"one\"]\n\
                [tokens.b]\ntoken = \"bbbbbbbbbbbbbbbbbbbb\"\n";
    let mut setup = Setup::of(vec![("one", Scripted::echo()), ("two", Scripted::echo())]);
    setup.tokens = Tokens::parse(file, |_| None).unwrap();
    let lab = setup.start().await;
    let card = async |agent: &str, token: &str| {
        let headers = format!("authorization: Bearer {token}\r\n");
        lab.ask(&format!("GET /a2a/{agent}/.well-known/agent-card.json"), &headers, "").await
    };
    let (a, b) = ("aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb");
    assert_eq!(lab.get("/a2a/one/.well-known/agent-card.json").await.status, 401);
    assert_eq!(card("two", a).await.status, 404);
    let shown = card("one", a).await.json();
    let interface = &shown["supportedInterfaces"][0];
    assert_eq!(interface["url"], format!("http://{}/a2a/one", lab.address));
    assert_eq!(shown["securityRequirements"], json!([{"schemes": {"bearer": {"list": []}}}]));
    // A task of one agent is not a task of another one.
    let headers = format!("authorization: Bearer {b}\r\n");
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": text("Go.")});
    let sent = lab.post_with("/a2a/two", &headers, &body).await.json();
    let id = sent["result"]["task"]["id"].clone();
    let get = json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": id}});
    let other = lab.post_with("/a2a/one", &headers, &get).await.json();
    assert_eq!(other["error"]["code"], -32001);
    let stranger = format!("authorization: Bearer {a}\r\n");
    assert_eq!(lab.post_with("/a2a/two", &stranger, &get).await.status, 404);
}

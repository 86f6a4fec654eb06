//! The scripted server: its answers, its faults and its counters.

use endstop::testkit::{Reply, Server, Turn, sse};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const SOON: Duration = crate::support::HANG;

async fn connect(server: &Server) -> TcpStream {
    let url = server.base_url();
    let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/v1")).unwrap();
    TcpStream::connect(address).await.unwrap()
}

async fn ask(stream: &mut TcpStream, path: &str, body: &Value) {
    let body = body.to_string();
    let length = body.len();
    let request = format!("POST {path} HTTP/1.1\r\nhost: x\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all((request + &body).as_bytes()).await.unwrap();
}

/// Returns everything received until the connection ends, and the error that it ends with.
async fn all(stream: &mut TcpStream) -> (String, Option<ErrorKind>) {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(SOON, stream.read_to_end(&mut bytes)).await.unwrap();
    (String::from_utf8_lossy(&bytes).into_owned(), read.err().map(|error| error.kind()))
}

/// Reads until the text `end` has arrived, and returns everything received.
async fn until(stream: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    while !String::from_utf8_lossy(&bytes).contains(end) {
        let read = tokio::time::timeout(SOON, stream.read_buf(&mut bytes)).await.unwrap().unwrap();
        assert!(read > 0, "the connection ended: {}", String::from_utf8_lossy(&bytes));
    }
    String::from_utf8(bytes).unwrap()
}

/// Returns the body of a response in chunked encoding.
fn body(response: &str) -> String {
    let (_, mut rest) = response.split_once("\r\n\r\n").unwrap();
    let mut body = String::new();
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        body.push_str(&after[..length]);
        rest = after[length..].strip_prefix("\r\n").unwrap();
    }
    body
}

/// Returns the data of the events that are JSON.
fn events(body: &str) -> Vec<Value> {
    body.lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
        .collect()
}

const OPENAI: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const ANTHROPIC: &str = "/v1/messages";
const END: &str = "0\r\n\r\n";

fn turn() -> Turn {
    Turn::pieces(&["Hel", "lo"])
        .reasoning("hm")
        .and_call("shell", &json!({"command": "ls"}))
        .usage(7, 3)
}

#[tokio::test]
async fn turn_uses_the_requested_format() {
    let server = Server::start(|request| Reply::turn(request, &turn())).unwrap();
    // All requests use one connection, which is kept alive.
    let mut stream = connect(&server).await;

    ask(&mut stream, OPENAI, &json!({"model": "m"})).await;
    let answer: Value = serde_json::from_str(&body(&until(&mut stream, END).await)).unwrap();
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["content"], "Hello");
    assert_eq!(choice["message"]["reasoning_content"], "hm");
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["arguments"], r#"{"command":"ls"}"#);
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(answer["usage"]["prompt_tokens"], 7);

    ask(&mut stream, OPENAI, &json!({"stream": true})).await;
    let text = body(&until(&mut stream, END).await);
    assert!(text.ends_with("data: [DONE]\n\n"));
    assert_eq!(events_of(&text, "/choices/0/delta/content"), ["", "Hel", "lo"]);
    let arguments = events_of(&text, "/choices/0/delta/tool_calls/0/function/arguments").concat();
    assert_eq!(arguments, r#"{"command":"ls"}"#);

    ask(&mut stream, RESPONSES, &json!({"model": "m"})).await;
    let answer: Value = serde_json::from_str(&body(&until(&mut stream, END).await)).unwrap();
    let output = answer["output"].as_array().unwrap();
    let kinds: Vec<_> = output.iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"]);
    assert_eq!(output[0]["summary"][0]["text"], "hm");
    assert_eq!(output[1]["content"][0]["text"], "Hello");
    assert_eq!(output[2]["arguments"], r#"{"command":"ls"}"#);
    assert_eq!(
        (&answer["status"], &answer["usage"]["input_tokens"]),
        (&"completed".into(), &7.into())
    );

    ask(&mut stream, RESPONSES, &json!({"stream": true})).await;
    let text = body(&until(&mut stream, END).await);
    let told = events(&text);
    let numbers: Vec<_> = told.iter().filter_map(|e| e["sequence_number"].as_u64()).collect();
    assert_eq!(numbers, (1..=told.len() as u64).collect::<Vec<_>>());
    let said = |kind: &str| -> String {
        let of_kind = told.iter().filter(|event| event["type"] == kind);
        of_kind.filter_map(|event| event["delta"].as_str()).collect()
    };
    assert_eq!(said("response.output_text.delta"), "Hello");
    assert_eq!(said("response.reasoning_summary_text.delta"), "hm");
    assert_eq!(said("response.function_call_arguments.delta"), r#"{"command":"ls"}"#);
    assert_eq!(told[0]["type"], "response.created");
    // The last event has everything that the complete response has.
    assert_eq!(told.last().unwrap()["type"], "response.completed");
    assert_eq!(told.last().unwrap()["response"], answer);

    ask(&mut stream, ANTHROPIC, &json!({"model": "m"})).await;
    let answer: Value = serde_json::from_str(&body(&until(&mut stream, END).await)).unwrap();
    let kinds: Vec<_> =
        answer["content"].as_array().unwrap().iter().map(|block| &block["type"]).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use"]);
    assert_eq!(answer["content"][2]["input"], json!({"command": "ls"}));
    assert_eq!(answer["stop_reason"], "tool_use");
    assert_eq!(answer["usage"]["output_tokens"], 3);

    ask(&mut stream, ANTHROPIC, &json!({"stream": true})).await;
    let text = body(&until(&mut stream, END).await);
    assert_eq!(events_of(&text, "/delta/text"), ["Hel", "lo"]);
    assert_eq!(events_of(&text, "/delta/partial_json").concat(), r#"{"command":"ls"}"#);
    assert_eq!(events_of(&text, "/delta/stop_reason"), ["tool_use"]);
    assert_eq!(events(&text).last(), Some(&json!({"type": "message_stop"})));

    assert_eq!((server.accepted(), server.open_connections()), (1, 1));
    drop(stream);
    assert!(server.until(|server| server.open_connections() == 0).await);
    assert!(server.hung_up().is_empty(), "nothing was being sent");
}

fn events_of(text: &str, pointer: &str) -> Vec<String> {
    events(text)
        .iter()
        .filter_map(|event| event.pointer(pointer)?.as_str().map(str::to_owned))
        .collect()
}

#[tokio::test]
async fn script_plays_in_order() {
    let server = Server::script([
        Turn::error(429, r#"{"error": {}}"#).header("retry-after", "1"),
        Turn::error(502, "<html>bad gateway</html>"),
        Turn::text("cut").finish("length"),
        Turn::default().and_raw_call("shell", r#"{"command": "l"#),
    ])
    .unwrap();
    let mut stream = connect(&server).await;
    let mut answers = Vec::new();
    for n in 1..=5 {
        let path = if n == 4 { ANTHROPIC } else { OPENAI };
        ask(&mut stream, path, &json!({"n": n, "stream": n == 4})).await;
        answers.push(until(&mut stream, END).await);
    }
    assert!(answers[0].starts_with("HTTP/1.1 429 ") && answers[0].contains("retry-after: 1\r\n"));
    assert!(answers[1].starts_with("HTTP/1.1 502 ") && answers[1].contains("text/html"));
    assert!(body(&answers[2]).contains(r#""finish_reason":"length""#));
    let arguments = events_of(&body(&answers[3]), "/delta/partial_json").concat();
    assert_eq!(arguments, r#"{"command": "l"#);
    assert!(answers[4].starts_with("HTTP/1.1 500 "));
    assert!(body(&answers[4]).contains("the script has no turn 5"));

    let requests = server.requests();
    let numbers: Vec<_> = requests.iter().map(|request| request.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    assert_eq!((requests[3].method.as_str(), requests[3].path.as_str()), ("POST", ANTHROPIC));
    assert_eq!(requests[3].body["n"], 4);
    assert_eq!(requests[0].headers["host"], "x");
    assert!(requests.windows(2).all(|two| two[0].at <= two[1].at));
}

#[tokio::test]
async fn body_can_be_split() {
    let whole = sse::openai_text(&["a", "b"]);
    let sent = whole.clone();
    let server =
        Server::start(move |_| Reply::new(200, "text/event-stream", sent.clone()).split(7))
            .unwrap();
    let mut stream = connect(&server).await;
    ask(&mut stream, OPENAI, &json!({})).await;
    let answer = until(&mut stream, END).await;
    assert_eq!(body(&answer), whole);
    assert!(answer.matches("\r\n7\r\n").count() > 10);
}

#[tokio::test]
async fn drip_pauses_after_each_byte() {
    let between = Duration::from_millis(10);
    let server = Server::start(move |_| Reply::new(200, "text/plain", "0123456789").drip(between));
    let server = server.unwrap();
    let mut stream = connect(&server).await;
    let begun = Instant::now();
    ask(&mut stream, OPENAI, &json!({})).await;
    assert_eq!(body(&until(&mut stream, END).await), "0123456789");
    assert!(begun.elapsed() >= 10 * between);
}

#[tokio::test]
async fn each_body_fault_is_visible() {
    let server = Server::start(|request| {
        let reply = Reply::new(200, "text/plain", "0123456789");
        match request.number {
            1 => reply.cut_after(5),
            2 => reply.close_after(5),
            3 => reply.reset_after(5),
            4 => reply.claim_length(5),
            5 => reply.claim_length(-5),
            _ => reply.reset_after(0),
        }
    })
    .unwrap();
    let answer = async || {
        let mut stream = connect(&server).await;
        ask(&mut stream, OPENAI, &json!({})).await;
        let asked = Instant::now();
        let (text, error) = all(&mut stream).await;
        assert!(asked.elapsed() < SOON);
        (text, error)
    };
    // The first reply ends cleanly and keeps its connection, so only its body is read.
    let mut stream = connect(&server).await;
    ask(&mut stream, OPENAI, &json!({})).await;
    assert_eq!(body(&until(&mut stream, END).await), "01234");
    drop(stream);

    let (text, error) = answer().await;
    assert!(text.ends_with("\r\n\r\n5\r\n01234\r\n") && error.is_none(), "{text} {error:?}");
    let (text, error) = answer().await;
    assert!(
        text.contains("01234") && error == Some(ErrorKind::ConnectionReset),
        "{text} {error:?}"
    );
    let (text, error) = answer().await;
    assert!(text.contains("content-length: 15\r\n") && text.ends_with("\r\n\r\n0123456789"));
    assert!(error.is_none());
    let (text, error) = answer().await;
    assert!(text.contains("content-length: 5\r\n") && text.ends_with("\r\n\r\n0123456789"));
    assert!(error.is_none());
    let (text, error) = answer().await;
    assert!(!text.contains("01234") && error == Some(ErrorKind::ConnectionReset));
    assert!(server.hung_up().is_empty(), "the server closed, not the client");
}

#[tokio::test]
async fn client_disconnect_is_recorded_at_once() {
    let server = Server::start(|request| match request.number {
        1 => Reply::new(200, "text/plain", "0123456789").stall_after(5),
        2 => Reply::new(200, "text/plain", "never").after(Duration::from_secs(600)),
        3 => Reply::new(200, "text/plain", "slow").drip(Duration::from_secs(600)),
        _ => Reply::html(200).endless_head(),
    })
    .unwrap();
    for (n, shown) in [(1, "01234"), (2, ""), (3, "s"), (4, "x-more: and more\r\nx-more")] {
        let mut stream = connect(&server).await;
        ask(&mut stream, OPENAI, &json!({})).await;
        until(&mut stream, shown).await;
        assert!(server.until(|server| server.requests().len() == n).await);
        assert_eq!(server.open_connections(), 1);
        assert_eq!(server.hung_up().len(), n - 1);
        let left = Instant::now();
        drop(stream);
        assert!(server.until(|server| server.hung_up().len() == n).await);
        let seen = server.hung_up()[n - 1];
        assert!(seen >= left && seen - left < SOON);
        assert!(server.until(|server| server.open_connections() == 0).await);
    }
    assert_eq!(server.accepted(), 4);
}

#[tokio::test]
async fn dropped_server_closes_connections() {
    let server = Server::start(|_| Reply::html(200).stall_after(0)).unwrap();
    let mut stream = connect(&server).await;
    ask(&mut stream, OPENAI, &json!({})).await;
    assert!(server.until(|server| server.requests().len() == 1).await);
    drop(server);
    let (text, _) = all(&mut stream).await;
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
}

#[test]
fn streams_can_be_built_as_text() {
    let text = sse::anthropic_text(&["a b", "c"]);
    assert_eq!(events_of(&text, "/delta/text"), ["a b", "c"]);
    assert!(text.starts_with("event: message_start\ndata: {"));
    assert_eq!(sse::data(&json!({"a": 1})), "data: {\"a\":1}\n\n");
    assert_eq!(sse::event("ping", &json!({})), "event: ping\ndata: {}\n\n");
    assert_eq!(sse::openai(&Turn::text("a b")).iter().filter(|e| e.contains("content")).count(), 3);
}

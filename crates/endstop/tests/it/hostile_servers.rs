//! Hostile servers over real sockets: meaningless bytes, endless heads, unrequested responses,
//! redirects and decompression bombs. Each run ends once, in time, and reports the cause.

use crate::support::{at, eventually, over};
use endstop::provider::http::HttpProvider;
use endstop::testkit::{Reply, Server, Turn, sse};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{Agent, Category, Limits, Outcome, Termination};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shorter than any default limit of a run, and long for a machine that is busy.
const SOON: Duration = Duration::from_secs(50);

const APIS: [&str; 2] = ["openai-chat", "anthropic-messages"];

/// A server below the HTTP level, which sends bytes unchanged.
struct Raw {
    address: String,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    accepted: AtomicUsize,
    open: AtomicUsize,
    /// The bodies of the received requests.
    requests: Mutex<Vec<String>>,
}

/// A connection of the server, numbered from 0.
struct Connection {
    number: usize,
    stream: TcpStream,
    shared: Arc<Shared>,
}

impl Raw {
    fn start(serve: impl Fn(&mut Connection) + Send + Sync + 'static) -> Raw {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let serve = Arc::new(serve);
        let accepting = std::thread::spawn(move || {
            let mut serving = Vec::new();
            for stream in listener.incoming() {
                if theirs.stopped.load(Ordering::SeqCst) {
                    break;
                }
                let stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(SOON)).unwrap();
                stream.set_write_timeout(Some(SOON)).unwrap();
                let number = theirs.accepted.fetch_add(1, Ordering::SeqCst);
                theirs.open.fetch_add(1, Ordering::SeqCst);
                let shared = Arc::clone(&theirs);
                let serve = Arc::clone(&serve);
                serving.push(std::thread::spawn(move || {
                    let mut connection = Connection { number, stream, shared };
                    serve(&mut connection);
                    connection.shared.open.fetch_sub(1, Ordering::SeqCst);
                }));
            }
            serving.into_iter().for_each(|thread| thread.join().unwrap());
        });
        Raw { address, shared, accepting: Some(accepting) }
    }

    fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Waits until all connections are closed.
    async fn left_alone(&self) {
        eventually("all connections are closed", || self.shared.open.load(Ordering::SeqCst) == 0)
            .await;
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(&self.address);
        let ended = self.accepting.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

impl Connection {
    /// Reads a request; `false` if the client closed the connection.
    fn request(&mut self) -> bool {
        let Some((head, mut body)) = self.head() else { return false };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.unwrap().trim().parse().unwrap();
        let mut buffer = [0; 16 * 1024];
        while body.len() < length {
            match self.stream.read(&mut buffer) {
                Ok(read @ 1..) => body.extend_from_slice(&buffer[..read]),
                _ => return false,
            }
        }
        self.shared.requests.lock().unwrap().push(String::from_utf8(body).unwrap());
        true
    }

    /// Reads the head of a request, and only the part of its body that arrives with it.
    fn head(&mut self) -> Option<(String, Vec<u8>)> {
        let mut got = Vec::new();
        let mut buffer = [0; 1024];
        loop {
            if let Some(end) = got.windows(4).position(|four| four == b"\r\n\r\n") {
                let body = got.split_off(end + 4);
                return Some((String::from_utf8(got).unwrap().to_lowercase(), body));
            }
            match self.stream.read(&mut buffer) {
                Ok(read @ 1..) => got.extend_from_slice(&buffer[..read]),
                _ => return None,
            }
        }
    }

    fn say(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Sends the bytes repeatedly until the client closes the connection, and returns how many were
    /// taken. It pauses now and then, because the client's speed is not what is tested.
    fn say_for_ever(&mut self, bytes: &[u8]) -> usize {
        let many = bytes.repeat(1 + 4 * 1024 / bytes.len());
        let mut taken = 0;
        while self.say(&many) {
            taken += many.len();
            std::thread::sleep(Duration::from_millis(1));
        }
        taken
    }

    /// Waits until the client closes the connection.
    fn closed(&mut self) {
        let mut buffer = [0; 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
                Err(error) => panic!("the client holds the connection: {error}"),
            }
        }
    }
}

/// Returns a turn as a stream with a `content-length`.
fn answer(api: &str, turn: &Turn) -> String {
    let body = body(api, turn);
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

fn body(api: &str, turn: &Turn) -> String {
    match api {
        "openai-chat" => sse::openai(turn).concat(),
        _ => sse::anthropic(turn).concat(),
    }
}

/// Limits without retries, and with a stall timeout of a third of a second.
fn limits() -> Limits {
    Limits {
        max_retries: Some(0),
        first_content_timeout: Some(Duration::from_millis(300)),
        stall_timeout: Some(Duration::from_millis(300)),
        ..Limits::default()
    }
}

/// Limits without retries whose time limits only a hang exceeds.
fn patient() -> Limits {
    let whole = Some(SOON);
    Limits { first_content_timeout: whole, stall_timeout: whole, turn_timeout: whole, ..limits() }
}

async fn run(url: &str, api: &str, limits: Limits) -> Outcome {
    let agent = at(url, api).limits(limits).build().unwrap();
    let began = Instant::now();
    let outcome = agent.run("hi").unwrap().await;
    assert!(began.elapsed() < SOON, "{:?}: {outcome:?}", began.elapsed());
    outcome
}

/// Asserts a failure whose evidence and diagnostic contain this text.
#[track_caller]
fn failed(outcome: &Outcome, says: &str) {
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution, "{outcome:?}");
    assert_eq!(outcome.category(), Category::Retryable);
    let told = format!("{:?} {:?}", outcome.decided_by.evidence, outcome.error_diagnostic);
    assert!(told.contains(says), "no {says:?} in {told}");
}

/// A tool that counts its calls and takes this long.
fn act(calls: &Arc<AtomicUsize>, takes: Duration) -> impl endstop::tool::Tool + use<> {
    let calls = Arc::clone(calls);
    tool_fn("act", "Acts.", move |_: Map<String, Value>, _| {
        calls.fetch_add(1, Ordering::SeqCst);
        async move {
            tokio::time::sleep(takes).await;
            ToolOutput::ok("acted")
        }
    })
}

#[tokio::test]
async fn meaningless_bytes_do_not_prevent_stall() {
    for (api, nothing) in [
        ("openai-chat", ": still here\n\n"),
        ("openai-chat", "\n"),
        ("openai-chat", "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"}}]}\n\n"),
        ("anthropic-messages", "event: ping\ndata: {\"type\":\"ping\"}\n\n"),
    ] {
        // One byte at a time, for longer than any timeout.
        let reply = Reply::new(200, "text/event-stream", nothing.repeat(2_000));
        let server = Server::start(move |_| reply.clone().drip(Duration::from_millis(5))).unwrap();
        let outcome = run(&server.base_url(), api, limits()).await;
        failed(&outcome, "first_content_timeout: the model call sent no content within 300ms");
        assert!(outcome.duration >= Duration::from_millis(300), "{outcome:?}");
        assert!(server.until(|server| server.open_connections() == 0).await);
    }
}

#[tokio::test]
async fn pings_run_until_turn_timeout() {
    // No other clock applies, so pings keep the connection alive until this limit.
    let limits = Limits {
        first_content_timeout: None,
        stall_timeout: None,
        turn_timeout: Some(Duration::from_millis(400)),
        ..limits()
    };
    let ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
    for (api, first, nothing) in [
        ("openai-chat", String::new(), ": still here\n\n"),
        ("openai-chat", piece(&json!({"content": "It"})), ": still here\n\n"),
        ("anthropic-messages", String::new(), ping),
    ] {
        let reply = Reply::new(200, "text/event-stream", first + &nothing.repeat(2_000));
        let server = Server::start(move |_| reply.clone().drip(Duration::from_millis(5))).unwrap();
        let outcome = run(&server.base_url(), api, limits.clone()).await;
        failed(&outcome, "turn_timeout: the model call did not end within 400ms");
        assert!(server.until(|server| server.open_connections() == 0).await);
    }
}

/// An event of the format `openai-chat` with this delta.
fn piece(delta: &Value) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]}))
}

#[tokio::test]
async fn endless_reasoning_ends_by_limit() {
    let thinks = json!({"type": "content_block_delta", "index": 0,
        "delta": {"type": "thinking_delta", "thinking": "hm "}});
    let begins = json!({"type": "content_block_start", "index": 0,
        "content_block": {"type": "thinking", "thinking": ""}});
    let event =
        |data: &Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    let details = json!([{"type": "reasoning.text", "text": "hm "}]);
    // Blanks are not an answer.
    let blanks = piece(&json!({"reasoning": "hm "})) + &piece(&json!({"content": "\u{200B}\n"}));
    for (api, first, more) in [
        ("openai-chat", String::new(), piece(&json!({"reasoning_content": "hm "}))),
        ("openai-chat", String::new(), piece(&json!({"reasoning_details": details}))),
        ("openai-chat", String::new(), blanks),
        ("openai-chat", piece(&json!({"content": "<think>"})), piece(&json!({"content": "hm "}))),
        ("anthropic-messages", event(&begins), event(&thinks)),
    ] {
        let reply = Reply::new(200, "text/event-stream", first + &more.repeat(20_000));
        let server = Server::start(move |_| reply.clone().drip(Duration::from_millis(1))).unwrap();
        // The reasoning itself is content, so neither silence nor a stall ends the call.
        let limits = Limits {
            thinking_timeout: Some(Duration::from_millis(400)),
            max_retries: None,
            ..patient()
        };
        let outcome = run(&server.base_url(), api, limits).await;
        assert_eq!(outcome.termination, Termination::ErrorThinkingStarved, "{outcome:?}");
        assert_eq!(outcome.decided_by.decision.as_str(), "thinking_timeout", "{outcome:?}");
        assert_eq!(outcome.model_calls, 2, "one retry: {outcome:?}");
        assert!(server.until(|server| server.open_connections() == 0).await);
    }
}

#[tokio::test]
async fn slow_content_runs_until_turn_timeout() {
    // Far below the stall timeout, because a busy machine makes the pauses longer.
    let dripping = Turn::pieces(&["word "; 40]).pace(Duration::from_millis(100));
    let server = Server::start(move |request| Reply::turn(request, &dripping)).unwrap();
    let stall = Duration::from_secs(3);
    let limits = Limits { stall_timeout: Some(stall), ..patient() };
    let outcome = run(&server.base_url(), "openai-chat", limits.clone()).await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert!(outcome.duration > stall, "{outcome:?}");
    let hurried = Limits { turn_timeout: Some(Duration::from_millis(250)), ..limits };
    let outcome = run(&server.base_url(), "openai-chat", hurried).await;
    failed(&outcome, "turn_timeout: the model call did not end within 250ms");
}

#[tokio::test]
async fn endless_head_fails_in_time() {
    for (endless, says) in [
        ("HTTP/1.1 200 OK\r\n|x-more: and more\r\n", "message head is too large"),
        ("HTTP/1.1 200 OK\r\nx-long: |x", "message head is too large"),
        ("HTTP/1.1 200 |OK", "message head is too large"),
        ("|no HTTP at all ", "invalid HTTP version"),
        // Interim responses announce again and again that the response will follow.
        ("|HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n", "first_content_timeout"),
        ("|HTTP/1.1 100 Continue\r\n\r\n", "first_content_timeout"),
    ] {
        let (first, again) = endless.split_once('|').unwrap();
        let taken = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&taken);
        let server = Raw::start(move |connection| {
            if connection.request() && connection.say(first) {
                counted.fetch_add(connection.say_for_ever(again.as_bytes()), Ordering::SeqCst);
            }
        });
        // The size of the head must end the call, and on a busy machine the limits could be first.
        let limits = match says {
            "first_content_timeout" => limits(),
            _ => patient(),
        };
        let outcome = run(&server.url(), "openai-chat", limits).await;
        failed(&outcome, says);
        server.left_alone().await;
        if !says.contains("timeout") {
            // Bytes in the sockets' buffers count too.
            let taken = taken.load(Ordering::SeqCst);
            assert!(taken < 16 << 20, "{taken} bytes of a head were taken");
        }
    }
}

#[tokio::test]
async fn interim_responses_are_skipped() {
    for api in APIS {
        let server = Raw::start(move |connection| {
            if connection.request() {
                connection.say("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(500));
                connection.say(answer(api, &Turn::text("the answer")));
                connection.closed();
            }
        });
        let outcome = run(&server.url(), api, limits()).await;
        assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
        assert_eq!(outcome.last_text.as_deref(), Some("the answer"));
        server.left_alone().await;
    }
}

/// A second, unrequested response on the connection must not answer a later request.
#[tokio::test]
async fn second_response_is_ignored() {
    for api in APIS {
        let calls = Arc::new(AtomicUsize::new(0));
        let server = Raw::start(move |connection| {
            while connection.request() {
                let asked = connection.shared.requests.lock().unwrap().len();
                if asked > 1 {
                    connection.say(answer(api, &Turn::text("honest")));
                } else {
                    let called = answer(api, &Turn::call("act", &json!({})));
                    let smuggled = answer(api, &Turn::text("smuggled"));
                    connection.say(format!("{called}{smuggled}"));
                }
            }
        });
        let agent = at(&server.url(), api)
            .limits(patient())
            .tool(act(&calls, Duration::from_millis(20)))
            .build()
            .unwrap();
        let outcome = agent.run("hi").unwrap().await;
        assert_eq!(outcome.termination, Termination::Stop, "{api}: {outcome:?}");
        assert_eq!(outcome.last_text.as_deref(), Some("honest"), "{api}");
        assert_eq!((outcome.turns, outcome.model_calls), (2, 2), "{api}");
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert_eq!(server.requests().len(), 2);
        drop(agent);
        server.left_alone().await;
    }
}

#[tokio::test]
async fn bytes_after_stream_end_are_ignored() {
    for api in APIS {
        let calls = Arc::new(AtomicUsize::new(0));
        let whole = body(api, &Turn::text("the answer"));
        let more = body(api, &Turn::text("and more").and_call("act", &json!({})));
        for cut in [whole.len() + more.len(), whole.len(), 7] {
            let reply = Reply::new(200, "text/event-stream", format!("{whole}{more}")).split(cut);
            let server = Server::start(move |_| reply.clone()).unwrap();
            let agent = over(&server, api)
                .limits(patient())
                .tool(act(&calls, Duration::ZERO))
                .build()
                .unwrap();
            let outcome = agent.run("hi").unwrap().await;
            assert_eq!(outcome.termination, Termination::Stop, "{api} {cut}: {outcome:?}");
            assert_eq!(outcome.last_text.as_deref(), Some("the answer"), "{api} {cut}");
            assert_eq!(calls.load(Ordering::SeqCst), 0);
            assert_eq!(server.requests().len(), 1);
        }
    }
}

/// Answers each request with the next of these responses, in chunks, each after a pause in milliseconds; then it sends
/// pings, and never ends the body.
fn never_ends(responses: Vec<Vec<(u64, String)>>) -> Raw {
    let taken = AtomicUsize::new(0);
    Raw::start(move |connection| {
        let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
        if !connection.request() {
            return;
        }
        let pieces = &responses[taken.fetch_add(1, Ordering::SeqCst).min(responses.len() - 1)];
        connection.say("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n");
        for (pause, piece) in pieces {
            std::thread::sleep(Duration::from_millis(*pause));
            connection.say(chunk(piece));
        }
        let ping = chunk(": still here\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n");
        while connection.say(&ping) {
            std::thread::sleep(Duration::from_millis(50));
        }
    })
}

#[tokio::test]
async fn complete_turn_on_open_connection_is_success() {
    let text = piece(&json!({"content": "It is 42."}));
    let more = piece(&json!({"content": " Or 43."}));
    let end = |value: &str| {
        format!(
            "data: {}\n\n",
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": value}]})
        )
    };
    let usage = format!(
        "data: {}\n\n",
        json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5}})
    );
    let claude = body("anthropic-messages", &Turn::text("It is 42."));
    let (claude, _) = claude.split_once("event: message_stop").unwrap();
    let stop = end("stop");
    let cases = [
        ("anthropic-messages", vec![(0, claude.to_owned())], 60_000, 2_000, Some("It is 42.")),
        (
            "openai-chat",
            vec![(0, text.clone()), (0, stop.clone()), (0, usage.clone())],
            60_000,
            2_000,
            Some("It is 42."),
        ),
        // Late usage is waited for; without it a stall would come first.
        (
            "openai-chat",
            vec![(0, text.clone()), (0, stop.clone()), (1_500, usage.clone())],
            60_000,
            2_000,
            Some("It is 42."),
        ),
        (
            "openai-chat",
            vec![(0, text.clone()), (0, stop.clone())],
            2_000,
            1_700,
            Some("It is 42."),
        ),
        // More content than the finish value announced.
        (
            "openai-chat",
            vec![(0, text.clone()), (0, stop + &usage), (1_000, more)],
            2_000,
            2_700,
            Some("It is 42. Or 43."),
        ),
        ("openai-chat", vec![(0, text.clone() + &end("banana") + &usage)], 1_000, 1_000, None),
        ("openai-chat", vec![(0, text + &usage)], 1_000, 1_000, None),
    ];
    let case = |(api, pieces, stall, least, text): (
        &'static str,
        Vec<(u64, String)>,
        _,
        _,
        Option<&'static str>,
    )| async move {
        let reports = pieces.iter().any(|(_, piece)| piece.contains("tokens"));
        let server = never_ends(vec![pieces.clone()]);
        let stall_timeout = Some(Duration::from_millis(stall));
        let outcome = run(&server.url(), api, Limits { stall_timeout, ..patient() }).await;
        let case = format!("{pieces:?} {outcome:?}");
        match text {
            Some(text) => {
                assert_eq!(outcome.termination, Termination::Stop, "{case}");
                assert_eq!(outcome.last_text.as_deref(), Some(text), "{case}");
                assert_eq!(outcome.usage.output_tokens.is_some(), reports, "{case}");
            }
            None => failed(&outcome, "stall_timeout"),
        }
        assert_eq!(server.requests().len(), 1, "{case}");
        let least = Duration::from_millis(least);
        assert!(outcome.duration >= least && outcome.duration < least + SOON / 5, "{case}");
        server.left_alone().await;
    };
    let mut runs: tokio::task::JoinSet<()> = cases.map(case).into_iter().collect();
    while let Some(run) = runs.join_next().await {
        run.unwrap();
    }
}

#[tokio::test]
async fn unfinished_connection_is_not_used_again() {
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "act", "arguments": "{}"}}]});
    let end = |value: &str| {
        let usage = json!({"prompt_tokens": 9, "completion_tokens": 5});
        format!(
            "data: {}\n\n",
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": value}], "usage": usage})
        )
    };
    let server = never_ends(vec![
        vec![(0, piece(&call) + &end("tool_calls"))],
        vec![(0, piece(&json!({"content": "Done."})) + &end("stop"))],
    ]);
    let calls = Arc::new(AtomicUsize::new(0));
    let agent =
        at(&server.url(), "openai-chat").tool(act(&calls, Duration::ZERO)).limits(patient());
    let outcome = agent.build().unwrap().run("hi").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert_eq!((calls.load(Ordering::SeqCst), outcome.model_calls), (1, 2), "{outcome:?}");
    assert_eq!(server.shared.accepted.load(Ordering::SeqCst), 2);
    server.left_alone().await;
}

/// Two lengths, or a length and chunks: the end of the body must not depend on interpretation.
#[tokio::test]
async fn conflicting_lengths_never_forge_success() {
    let whole = body("openai-chat", &Turn::text("the answer"));
    let more = body("openai-chat", &Turn::call("act", &json!({})));
    let (one, two) = (whole.len(), whole.len() + more.len());
    let unread = "broke: invalid content-length parsed";
    for (lengths, says) in [
        (format!("content-length: {one}\r\ncontent-length: {two}"), unread),
        (format!("content-length: {one}, {two}"), unread),
        (format!("content-length: -{one}"), unread),
        ("content-length: 99999999999999999999999".to_owned(), unread),
        // The body is read as chunks, and these are invalid.
        (
            format!("content-length: {one}\r\ntransfer-encoding: chunked"),
            "the connection broke before the stream's end",
        ),
        // Read up to the end marker of the stream itself.
        ("transfer-encoding: gzip, identity\r\ncontent-length: 5".to_owned(), ""),
    ] {
        let calls = Arc::new(AtomicUsize::new(0));
        let said = format!("HTTP/1.1 200 OK\r\n{lengths}\r\n\r\n{whole}{more}");
        let server = Raw::start(move |connection| {
            if connection.request() {
                connection.say(&said);
                connection.closed();
            }
        });
        let agent = at(&server.url(), "openai-chat")
            .limits(patient())
            .tool(act(&calls, Duration::ZERO))
            .build()
            .unwrap();
        let outcome = agent.run("hi").unwrap().await;
        if says.is_empty() {
            assert_eq!(outcome.termination, Termination::Stop, "{lengths}: {outcome:?}");
            assert_eq!(outcome.last_text.as_deref(), Some("the answer"));
        } else {
            failed(&outcome, says);
        }
        assert_eq!(calls.load(Ordering::SeqCst), 0, "{lengths}");
        server.left_alone().await;
    }
}

#[tokio::test]
async fn redirect_fails_and_key_stays() {
    const KEY: &str = "sk-proj-TheKeyThatMustNotGoElsewhere";
    let trap = Raw::start(|connection| drop(connection.head()));
    for status in [301, 302, 303, 307, 308] {
        let to = format!("http://user:secret@{}/v1/chat/completions", trap.address);
        let reply = Reply::new(status, "text/plain", "").header("location", &to);
        let server = Server::start(move |_| reply.clone()).unwrap();
        let options = HttpProvider::builder("openai/gpt-4o").base_url(server.base_url());
        let key = |name: &str| (name == "OPENAI_API_KEY").then(|| KEY.to_owned());
        let provider = options.env(key).build().unwrap();
        let agent = Agent::builder(provider).limits(patient()).build().unwrap();
        let outcome = agent.run("hi").unwrap().await;
        let place =
            format!("HTTP status {status}: the server redirects to http://{}/v1", trap.address);
        failed(&outcome, &place);
        let all = format!("{outcome:?}");
        assert!(!all.contains(KEY) && !all.contains("secret"), "{all}");
        let asked = server.requests();
        assert_eq!((asked.len(), outcome.model_calls), (1, 1), "it is not asked again");
        assert!(asked[0].headers["authorization"].contains(KEY), "the key was there to leak");
    }
    assert_eq!(trap.shared.accepted.load(Ordering::SeqCst), 0, "the client followed the redirect");
}

#[tokio::test]
async fn early_response_is_accepted() {
    // More than fits into the sockets' buffers, so that it is never sent completely.
    let task = "a long task ".repeat(1 << 20);
    for api in APIS {
        let server = Raw::start(move |connection| {
            if connection.head().is_some() {
                connection.say(answer(api, &Turn::text("the answer")));
                // The server never reads the rest and waits for the client to give up.
                while connection.stream.take_error().unwrap().is_none() {
                    if !connection.say("") || connection.shared.stopped.load(Ordering::SeqCst) {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        });
        let agent = at(&server.url(), api).limits(patient()).build().unwrap();
        let outcome = agent.run(task.as_str()).unwrap().await;
        assert_eq!(outcome.termination, Termination::Stop, "{api}: {:?}", outcome.decided_by);
        assert_eq!(outcome.last_text.as_deref(), Some("the answer"));
    }
}

/// A pooled connection that is lost while tools run costs either no attempt, or a counted one.
#[tokio::test]
async fn connection_lost_between_turns_is_reopened() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Dies {
        AtOnce,
        WhileTheToolRuns,
        WhenAskedAgain,
    }
    for api in APIS {
        for dies in [Dies::AtOnce, Dies::WhileTheToolRuns, Dies::WhenAskedAgain] {
            let calls = Arc::new(AtomicUsize::new(0));
            let server = Raw::start(move |connection| {
                if !connection.request() {
                    return;
                }
                if connection.number > 0 {
                    connection.say(answer(api, &Turn::text("done").usage(7, 2)));
                    return connection.closed();
                }
                connection.say(answer(api, &Turn::call("act", &json!({})).usage(5, 3)));
                match dies {
                    Dies::AtOnce => {}
                    Dies::WhileTheToolRuns => std::thread::sleep(Duration::from_millis(50)),
                    Dies::WhenAskedAgain => drop(connection.request()),
                }
            });
            let agent = at(&server.url(), api)
                .tool(act(&calls, Duration::from_millis(150)))
                .build()
                .unwrap();
            let outcome = agent.run("hi").unwrap().await;
            assert_eq!(outcome.termination, Termination::Stop, "{api} {dies:?}: {outcome:?}");
            assert_eq!(calls.load(Ordering::SeqCst), 1, "{dies:?}: the tool ran twice");
            // Only a request without a response is a separate attempt.
            let asked = server.requests().len();
            assert_eq!(asked, outcome.model_calls as usize, "{api} {dies:?}");
            assert_eq!(outcome.turns, 2);
            assert_eq!(outcome.usage.input_tokens, Some(12), "{api} {dies:?}");
            assert_eq!(outcome.usage.output_tokens, Some(5), "{api} {dies:?}");
            assert!(!outcome.usage.estimated, "{api} {dies:?}");
            drop(agent);
            server.left_alone().await;
        }
    }
}

/// Dates are compared with each other, not with the local clock: these dates of 1994 ask for a
/// second.
#[tokio::test]
async fn retry_date_uses_server_clock() {
    let server = Server::start(|request| match request.number {
        1 => Reply::new(429, "application/json", "{}")
            .header("date", "Sun, 06 Nov 1994 08:49:36 GMT")
            .header("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"),
        // The server's clock was set back between the two, so there is nothing to wait for.
        2 => Reply::new(429, "application/json", "{}")
            .header("date", "Sun, 06 Nov 2094 08:49:37 GMT")
            .header("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"),
        _ => Reply::turn(request, &Turn::text("done")),
    })
    .unwrap();
    let agent = over(&server, "openai-chat").build().unwrap();
    let outcome = agent.run("hi").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    let at: Vec<Instant> = server.requests().iter().map(|request| request.at).collect();
    assert!(at[1] - at[0] >= Duration::from_secs(1) && at[1] - at[0] < SOON);
    assert!(at[2] - at[1] < SOON);
}

/// A gigabyte that compresses to few bytes: a megabyte is compressed without references to earlier
/// data, and repeated a thousand times.
fn bomb(of: &str) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::best());
    gz.write_all(of.repeat((1 << 20) / of.len()).as_bytes()).unwrap();
    gz.flush().unwrap();
    let (head, block) = gz.get_ref().split_at(10);
    [head, &block.repeat(1024)].concat()
}

/// Returns the processor time of this thread, which drives the run. Unlike elapsed time it does not
/// grow while a busy machine makes the thread wait.
#[cfg(unix)]
fn worked() -> Duration {
    let at = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(at.tv_sec as u64, at.tv_nsec as u32)
}

#[cfg(unix)]
#[tokio::test]
async fn decompression_bomb_starves_no_timer() {
    for (status, of, says) in [
        (200, ": nothing\n", "first_content_timeout"),
        (200, "x", "a line of the stream exceeds 16777216 bytes"),
        (500, "no ", "first_content_timeout"),
    ] {
        let reply = Reply::new(status, "text/event-stream", bomb(of));
        let reply = reply.header("content-encoding", "gzip");
        let server = Server::start(move |_| reply.clone()).unwrap();
        let began = worked();
        // On a busy machine the stall timeout must not expire before the line is too long.
        let limits = if says.contains("timeout") { limits() } else { patient() };
        let outcome = run(&server.base_url(), "openai-chat", limits).await;
        failed(&outcome, says);
        let spent = worked() - began;
        assert!(spent < Duration::from_secs(3), "{spent:?}");
        assert!(server.until(|server| server.open_connections() == 0).await);

        let agent = over(&server, "openai-chat").build().unwrap();
        let handle = agent.run("hi").unwrap();
        // Spawned on the run's thread, because the test also checks that this task gets its turn.
        let began = worked();
        tokio::time::sleep(Duration::from_millis(50)).await;
        agent.cancel();
        let outcome = handle.await;
        if says.contains("timeout") {
            assert_eq!(outcome.termination, Termination::Cancelled, "{outcome:?}");
            let spent = worked() - began;
            assert!(spent < Duration::from_secs(2), "{spent:?}");
        }
    }
}

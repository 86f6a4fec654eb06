//! A gate behind a proxy, and a scripted upstream that keeps its own bill.

use crate::proxy::support::{Conn, background, header};
use endstop_core::Price;
use endstop_guard::proxy::{
    Disposition, Gatekeeper, Notice, Proxy, ProxyOptions, RequestBody, RequestHead, Routed,
    Upstream, UpstreamMap,
};
use endstop_guard::run::{Gate, GuardEvent, RunHandle, Settings};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Dollars per million tokens.
pub(crate) const INPUT: f64 = 10.0;
pub(crate) const OUTPUT: f64 = 40.0;

pub(crate) fn price() -> Price {
    Price::usd_per_million_tokens(INPUT, OUTPUT)
}

/// A gate that the test holds as well as its proxy.
pub(crate) struct Held(pub(crate) Arc<Gate>);

impl Gatekeeper for Held {
    type Line = <Gate as Gatekeeper>::Line;

    fn route(&self, head: &RequestHead) -> Routed<Self::Line> {
        self.0.route(head)
    }

    async fn decide(
        &self,
        head: Arc<RequestHead>,
        line: Self::Line,
        body: RequestBody,
    ) -> Disposition {
        self.0.decide(head, line, body).await
    }

    fn notice(&self, notice: Notice) {
        self.0.notice(notice);
    }
}

/// A guard that serves.
pub(crate) struct Guard {
    pub(crate) gate: Arc<Gate>,
    pub(crate) address: SocketAddr,
    pub(crate) events: Arc<Mutex<Vec<GuardEvent>>>,
    stop: oneshot::Sender<()>,
    is_over: oneshot::Receiver<()>,
}

impl Guard {
    pub(crate) async fn start(settings: Settings, upstream: SocketAddr) -> Guard {
        Guard::with(settings, upstream, ProxyOptions::default()).await
    }

    pub(crate) async fn with(
        settings: Settings,
        upstream: SocketAddr,
        options: ProxyOptions,
    ) -> Guard {
        let events: Arc<Mutex<Vec<GuardEvent>>> = Arc::default();
        let heard = Arc::clone(&events);
        let base = Upstream::parse(&format!("http://{upstream}")).expect("a URL");
        let hear = Arc::new(move |event| heard.lock().expect("a lock").push(event));
        let gate = Arc::new(Gate::new(settings, UpstreamMap::new(base), [7; 16], hear));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let (over, is_over) = oneshot::channel();
        let proxy = Proxy::new(Held(Arc::clone(&gate)), options);
        background(async move {
            proxy.run(listener, async { drop(stopped.await) }).await;
            let _ = over.send(());
        });
        Guard { gate, address, events, stop, is_over }
    }

    pub(crate) fn run(&self, name: &str) -> Option<RunHandle> {
        self.gate.runs().into_iter().find(|run| run.id() == name)
    }

    /// Asks for the decision about a request, without the proxy.
    pub(crate) async fn decide(&self, request: &[u8]) -> Disposition {
        let end = request.windows(4).position(|end| end == b"\r\n\r\n").expect("a body") + 4;
        let (head, body) = request.split_at(end);
        let target = head.split(|byte| *byte == b' ').nth(1).expect("a target");
        let head = RequestHead {
            method: http::Method::POST,
            target: http::Uri::try_from(target).expect("a target"),
            base: None,
            version: http::Version::HTTP_11,
            headers: http::HeaderMap::new(),
            peer: self.address,
        };
        let body = bytes::Bytes::copy_from_slice(body);
        let whole = RequestBody::Whole { raw: body.clone(), decoded: body };
        let line = self.gate.route(&head).line;
        self.gate.decide(Arc::new(head), line, whole).await
    }

    pub(crate) async fn stop(self) -> Arc<Gate> {
        let _ = self.stop.send(());
        let _ = self.is_over.await;
        self.gate
    }
}

/// A small generator of numbers, so that every round can be repeated.
#[derive(Clone)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides.max(1)
    }
}

/// The upstream's bill of a run, and the most expensive of its calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Bill {
    pub(crate) usd: f64,
    pub(crate) largest: f64,
    /// The part for calls whose usage was not sent.
    pub(crate) unreported: f64,
    pub(crate) calls: u64,
}

/// The bills of all runs.
#[derive(Default)]
pub(crate) struct Bills {
    pub(crate) runs: Mutex<HashMap<String, Bill>>,
    pub(crate) bodies: Mutex<Vec<String>>,
    /// Headers of each response, each with its end of line.
    pub(crate) headers: Mutex<String>,
}

impl Bills {
    pub(crate) fn of(&self, run: &str) -> Bill {
        self.runs.lock().expect("a lock").get(run).copied().unwrap_or_default()
    }

    fn change(&self, run: &str, change: impl FnOnce(&mut Bill)) {
        change(self.runs.lock().expect("a lock").entry(run.to_owned()).or_default());
    }
}

/// The manner in which the upstream answers a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Answer,
    /// An answer without text.
    Blank,
    /// An answer that a filter cut, in the format of Chat Completions.
    Filtered,
    Tool,
    NoUsage,
    Cut,
    Silent,
    Stall,
    /// Two pieces of reasoning in the format of Chat Completions, and then silence.
    Think,
    Busy,
    Invalid,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
}

/// Chooses the manner of a call.
pub(crate) type Choose = Arc<dyn Fn(u64) -> Manner + Send + Sync>;

/// Starts an upstream. A request names its run in its first message: `run NAME;`.
pub(crate) async fn billing(
    bills: Arc<Bills>,
    choose: Choose,
) -> (SocketAddr, oneshot::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (stop, mut stopped) = oneshot::channel::<()>();
    let count = Arc::new(std::sync::atomic::AtomicU64::new(0));
    background(async move {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                _ = &mut stopped => return,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => {
                    let (stream, _) = accepted.expect("a connection");
                    let (bills, choose, count) =
                        (Arc::clone(&bills), Arc::clone(&choose), Arc::clone(&count));
                    connections.spawn(async move {
                        let mut conn = Conn::of(stream);
                        while let Ok(head) = conn.until(b"\r\n\r\n").await {
                            let head = String::from_utf8(head).expect("text");
                            let length = header(&head, "content-length").expect("a length");
                            let length = length.parse().expect("a length");
                            let Ok(body) = conn.exact(length).await else { return };
                            let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            let manner = choose(number);
                            if !serve(&mut conn, &head, &body, (number, manner), &bills).await {
                                return;
                            }
                        }
                    });
                }
            }
        }
    });
    (address, stop)
}

/// Answers one call. Returns `false` if the connection is broken.
async fn serve(
    conn: &mut Conn,
    head: &str,
    body: &[u8],
    (number, manner): (u64, Manner),
    bills: &Bills,
) -> bool {
    use tokio::io::AsyncWriteExt;
    let text = String::from_utf8_lossy(body).into_owned();
    let run = text.split("run ").nth(1).and_then(|rest| rest.split(';').next());
    let run = run.unwrap_or("unknown").to_owned();
    bills.bodies.lock().expect("a lock").push(format!("{head}{text}"));
    let parsed: Value = serde_json::from_str(&text).unwrap_or_default();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let status = match manner {
        Manner::Busy => 500,
        Manner::Invalid => 400,
        Manner::Unauthorized => 401,
        Manner::Forbidden => 403,
        Manner::Answer
        | Manner::Tool
        | Manner::NoUsage
        | Manner::Cut
        | Manner::Silent
        | Manner::Stall
        | Manner::Think
        | Manner::Blank
        | Manner::Filtered => 200,
    };
    if status != 200 {
        let body = r#"{"error":{"type":"api_error","message":"no"}}"#;
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        return conn.stream.write_all(answer.as_bytes()).await.is_ok();
    }
    let cap = cap_of(&parsed).unwrap_or(2000);
    let choices = parsed["n"].as_u64().unwrap_or(1);
    let mut dice = Dice(number);
    // An output cap that the gate has inserted does not belong to the prompt.
    // The same text always counts the same, because the kernel trusts the last count.
    let input = 1 + (body.len() as u64).saturating_sub(64) / 3;
    let visible = (1 + dice.roll(40)).min(cap);
    // Hidden reasoning: up to the cap, which is what the client allowed.
    let output = (visible + dice.roll(cap)).min(cap) * choices;
    let usd = (input as f64 * INPUT + output as f64 * OUTPUT) / 1e6;
    bills.change(&run, |bill| {
        bill.usd += usd;
        bill.largest = bill.largest.max(usd);
        bill.calls += 1;
    });
    let chunks = response(&path, &parsed, (input, output, visible), number, manner);
    let chunks = if manner == Manner::Think {
        let delta = json!({"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]});
        vec![format!("data: {delta}\n\n"); 2]
    } else {
        chunks
    };
    let streamed = chunks.len() > 1;
    let more = bills.headers.lock().expect("a lock").clone();
    let mut whole = true;
    if manner == Manner::Silent {
        whole = false;
    } else if streamed {
        let start = format!(
            "HTTP/1.1 200 OK\r\n{more}Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        whole &= conn.stream.write_all(start.as_bytes()).await.is_ok();
        let last = match manner {
            Manner::Cut | Manner::Stall => chunks.len() / 2,
            _ => chunks.len(),
        };
        for chunk in &chunks[..last] {
            let framed = format!("{:x}\r\n{chunk}\r\n", chunk.len());
            whole &= conn.stream.write_all(framed.as_bytes()).await.is_ok();
        }
        if matches!(manner, Manner::Stall | Manner::Think) {
            // Until the other side gives up.
            let _ = conn.until(b"never").await;
        }
        if last == chunks.len() {
            whole &= conn.stream.write_all(b"0\r\n\r\n").await.is_ok();
        } else {
            whole = false;
        }
    } else {
        let body = &chunks[0];
        let head = format!(
            "HTTP/1.1 200 OK\r\n{more}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let cut = matches!(manner, Manner::Cut | Manner::Stall);
        let sent = if cut { &body[..body.len() / 2] } else { &body[..] };
        whole &= conn.stream.write_all(format!("{head}{sent}").as_bytes()).await.is_ok();
        if manner == Manner::Stall {
            let _ = conn.until(b"never").await;
        }
        whole &= !cut;
    }
    let reported = whole && matches!(manner, Manner::Answer | Manner::Tool);
    bills.change(&run, |bill| {
        bill.unreported += if reported { 0.0 } else { usd };
    });
    whole
}

fn cap_of(body: &Value) -> Option<u64> {
    let names = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
    let top = names.iter().find_map(|name| body[*name].as_u64());
    top.or_else(|| body["generationConfig"]["maxOutputTokens"].as_u64())
}

/// The body of a response; several chunks if it is streamed.
fn response(
    path: &str,
    body: &Value,
    (input, output, visible): (u64, u64, u64),
    number: u64,
    manner: Manner,
) -> Vec<String> {
    let text =
        if manner == Manner::Blank { String::new() } else { "word ".repeat(visible as usize) };
    let streamed = body["stream"] == true || path.contains("stream");
    let usage = manner != Manner::NoUsage;
    let tool = manner == Manner::Tool;
    let id = format!("call_{number}x");
    let event = |value: Value| format!("data: {value}\n\n");
    if path.contains("/messages") {
        let content = if tool {
            json!({"type": "tool_use", "id": id, "name": "bash", "input": {"n": number}})
        } else {
            json!({"type": "text", "text": text})
        };
        let reason = if tool { "tool_use" } else { "end_turn" };
        let counts = json!({"input_tokens": input, "output_tokens": output});
        let whole = json!({"id": format!("msg_{number}"), "type": "message", "role": "assistant",
            "model": "m", "content": [content], "stop_reason": reason,
            "usage": if usage { counts } else { Value::Null }});
        if !streamed {
            return vec![whole.to_string()];
        }
        let named = |value: Value| {
            format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap_or_default())
        };
        let start = if tool {
            json!({"type": "tool_use", "id": id, "name": "bash", "input": {}})
        } else {
            json!({"type": "text", "text": ""})
        };
        let delta = if tool {
            json!({"type": "input_json_delta", "partial_json": format!("{{\"n\":{number}}}")})
        } else {
            json!({"type": "text_delta", "text": text})
        };
        let early = json!({"input_tokens": input, "output_tokens": 1});
        let late = json!({"output_tokens": output});
        return vec![
            named(
                json!({"type": "message_start", "message": {"id": format!("msg_{number}"), "type": "message",
                "role": "assistant", "model": "m", "content": [], "usage": if usage { early } else { Value::Null }}}),
            ),
            named(json!({"type": "content_block_start", "index": 0, "content_block": start})),
            named(json!({"type": "content_block_delta", "index": 0, "delta": delta})),
            named(json!({"type": "content_block_stop", "index": 0})),
            named(
                json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": if usage { late } else { Value::Null }}),
            ),
            named(json!({"type": "message_stop"})),
        ];
    }
    if path.contains("enerateContent") {
        let part = if tool {
            json!({"functionCall": {"name": "bash", "args": {"n": number}}})
        } else {
            json!({"text": text})
        };
        let mut last = json!({"candidates": [{"content": {"role": "model", "parts": [part]},
            "finishReason": "STOP", "index": 0}], "modelVersion": "m"});
        if usage {
            last["usageMetadata"] = json!({"promptTokenCount": input, "candidatesTokenCount": output,
                "totalTokenCount": input + output});
        }
        if !streamed {
            return vec![last.to_string()];
        }
        let first = json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "so "}]}, "index": 0}]});
        return vec![event(first), event(last)];
    }
    if path.contains("/responses") {
        let item = if tool {
            json!({"type": "function_call", "id": format!("fc_{number}"), "call_id": id, "name": "bash",
                "arguments": format!("{{\"n\":{number}}}"), "status": "completed"})
        } else {
            json!({"type": "message", "id": format!("m_{number}"), "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}]})
        };
        let mut whole = json!({"id": format!("resp_{number}"), "object": "response", "status": "completed",
            "model": "m", "output": [item]});
        if usage {
            whole["usage"] = json!({"input_tokens": input, "output_tokens": output, "total_tokens": input + output});
        }
        if !streamed {
            return vec![whole.to_string()];
        }
        return vec![
            event(
                json!({"type": "response.created", "response": {"id": format!("resp_{number}"), "status": "in_progress"}}),
            ),
            event(json!({"type": "response.output_item.done", "output_index": 0, "item": item})),
            event(json!({"type": "response.completed", "response": whole})),
        ];
    }
    if path.contains("/v2/chat") {
        let words = if tool { "" } else { text.as_str() };
        return cohere(&id, words, number, usage.then_some((input, output)), streamed);
    }
    let call = json!({"id": id, "type": "function", "index": 0, "function":
        {"name": "bash", "arguments": format!("{{\"n\":{number}}}")}});
    let reason = match manner {
        Manner::Tool => "tool_calls",
        Manner::Filtered => "content_filter",
        _ => "stop",
    };
    let counts = json!({"prompt_tokens": input, "completion_tokens": output,
        "total_tokens": input + output});
    if !streamed {
        let message = if tool {
            json!({"role": "assistant", "content": null, "tool_calls": [call]})
        } else {
            json!({"role": "assistant", "content": text})
        };
        let mut whole = json!({"id": format!("chat_{number}"), "object": "chat.completion", "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": reason}]});
        if usage {
            whole["usage"] = counts;
        }
        return vec![whole.to_string()];
    }
    let chunk = |delta: Value, reason: Value| {
        event(
            json!({"id": format!("chat_{number}"), "object": "chat.completion.chunk", "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}),
        )
    };
    let delta = if tool { json!({"tool_calls": [call]}) } else { json!({"content": text}) };
    let mut chunks = vec![
        chunk(json!({"role": "assistant"}), Value::Null),
        chunk(delta, Value::Null),
        chunk(json!({}), json!(reason)),
    ];
    if usage {
        chunks
            .push(event(json!({"id": format!("chat_{number}"), "object": "chat.completion.chunk",
            "model": "m", "choices": [], "usage": counts})));
    }
    chunks.push("data: [DONE]\n\n".to_owned());
    chunks
}

/// The body of a response of Cohere. Without a text it is a tool call.
fn cohere(
    id: &str,
    text: &str,
    number: u64,
    counts: Option<(u64, u64)>,
    streamed: bool,
) -> Vec<String> {
    let arguments = format!("{{\"n\":{number}}}");
    let call = |arguments: &str| json!({"id": id, "type": "function", "function": {"name": "bash", "arguments": arguments}});
    let tokens =
        counts.map(|(input, output)| json!({"input_tokens": input, "output_tokens": output}));
    let usage = tokens.map(|tokens| json!({"billed_units": tokens, "tokens": tokens}));
    let reason = if text.is_empty() { "TOOL_CALL" } else { "COMPLETE" };
    if !streamed {
        let message = if text.is_empty() {
            json!({"role": "assistant", "tool_plan": "I look.", "tool_calls": [call(&arguments)]})
        } else {
            json!({"role": "assistant", "content": [{"type": "text", "text": text}]})
        };
        let whole = json!({"id": format!("co_{number}"), "message": message, "finish_reason": reason,
            "usage": usage});
        return vec![whole.to_string()];
    }
    let event = |kind: &str, mut data: Value| {
        data["type"] = json!(kind);
        format!("event: {kind}\ndata: {data}\n\n")
    };
    let delta = |message: Value| json!({"index": 0, "delta": {"message": message}});
    let mut chunks = vec![event(
        "message-start",
        json!({"id": format!("co_{number}"), "delta": {
        "message": {"role": "assistant", "content": [], "tool_calls": []}}}),
    )];
    if text.is_empty() {
        chunks.push(event("tool-call-start", delta(json!({"tool_calls": call("")}))));
        let rest = json!({"tool_calls": {"function": {"arguments": arguments}}});
        chunks.push(event("tool-call-delta", delta(rest)));
        chunks.push(event("tool-call-end", json!({"index": 0})));
    } else {
        chunks
            .push(event("content-start", delta(json!({"content": {"type": "text", "text": ""}}))));
        chunks.push(event("content-delta", delta(json!({"content": {"text": text}}))));
        chunks.push(event("content-end", json!({"index": 0})));
    }
    let end = json!({"delta": {"finish_reason": reason, "usage": usage}});
    chunks.push(event("message-end", end));
    chunks.push("data: [DONE]\n\n".to_owned());
    chunks
}

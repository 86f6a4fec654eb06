//! Measures the shares of a turn: records a run once over HTTP, then repeats it without the kernel
//! (item `h`) or without HTTP (item `k`).

use crate::items::by_turn;
use crate::measure::Watch;
use crate::mock::{self, echo};
use crate::{Measured, Words};
use bytes::Bytes;
use endstop::core::Event;
use endstop::wire::{
    Encoder, Eof, Headers, RequestFacts, RequestSpec, StreamDecoder, ToolDefinition, dialect,
};
use endstop::{
    Message, MessageId, Outcome, Role, Termination, ToolStatus,
    core::{Effect, EffectId, EventKind, Run, RunSpec, Step, ToolReport},
    provider::TurnDelta,
};
use endstop_http::{Client, Decoded, Full, SettingsError};
use serde_json::json;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::hint::black_box;
use std::io::{Read, Write};
use std::time::Instant;

/// A request of a run with its response.
struct Exchange {
    request: Vec<u8>,
    response: Vec<u8>,
}

/// A callback that gets the number of the turn, the request, and a function for the response.
type Exchanging<'a> = dyn FnMut(usize, &[u8], &mut dyn FnMut(&[u8])) + 'a;

struct Script {
    turns: usize,
    streaming: bool,
}

impl Script {
    fn of(words: &Words) -> (Script, usize) {
        let script = Script { turns: words.number(0, 50), streaming: words.has("stream") };
        (script, words.number(1, 31))
    }

    fn encoder(&self) -> Encoder {
        let spec = RequestSpec {
            model: format!("loop-{}", self.turns),
            tools: vec![ToolDefinition {
                name: "echo".to_owned(),
                description: "Echo the text.".to_owned(),
                schema: json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}),
            }],
            stream: self.streaming,
            ..RequestSpec::default()
        };
        Encoder::new(dialect::OPENAI_CHAT, &spec)
    }

    /// Drives a complete run; `exchange` returns the response to a request.
    fn run(&self, mut exchange: impl FnMut(usize, &[u8]) -> Vec<u8>) -> Box<Outcome> {
        self.drive(&mut |turn, body, feed| {
            let response = exchange(turn, body);
            feed(&response);
        })
    }

    fn drive(&self, exchange: &mut Exchanging<'_>) -> Box<Outcome> {
        let mut encoder = self.encoder();
        let tool = endstop::core::ToolPolicy {
            name: "echo".to_owned(),
            ..endstop::core::ToolPolicy::default()
        };
        let spec = RunSpec {
            limits: mock::limits(),
            tools: vec![tool].into(),
            finish_tool: false,
            // Without a price nothing is reserved in item `a` either.
            reserve: false,
            streaming: self.streaming,
            ..RunSpec::new(vec![Message::text(MessageId(1), Role::User, "go")])
        };
        let began = Instant::now();
        let mut run = Run::new(spec);
        let mut events = VecDeque::from([EventKind::Start { seed: 1, price: None, wall_ms: None }]);
        let mut effects = Vec::new();
        let mut turn = 0;
        loop {
            let nothing = || EventKind::Fault {
                name: "replay".to_owned(),
                message: "nothing is under way".to_owned(),
            };
            let event = events.pop_front().unwrap_or_else(nothing);
            run = match run.handle(Event::new(began.elapsed(), event), &mut effects) {
                Step::Continue(run) => run,
                Step::Ended(outcome) => return outcome,
            };
            for effect in effects.drain(..) {
                match effect {
                    Effect::CallModel { id, output_cap, .. } => {
                        let body = encoder.body(run.messages(), run.epoch(), output_cap);
                        exchange(turn, body, &mut |response| decode(id, response, &mut events));
                        turn += 1;
                    }
                    Effect::StartTools { calls } => {
                        events.extend(calls.into_iter().map(|start| EventKind::ToolEnded {
                            tool: start.id,
                            report: ToolReport::new(ToolStatus::Ok, echo(&start.arguments).content),
                        }));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Records a run against the server.
    // The requests are those of a loop, because the encoder is the same.
    fn record(&self) -> Result<Vec<Exchange>, Box<dyn std::error::Error>> {
        let mut exchanges: Vec<Exchange> = Vec::new();
        let mut failed = None;
        let outcome = self.run(|_, request| {
            let response = post(request).unwrap_or_else(|error| {
                failed = Some(error);
                Vec::new()
            });
            exchanges.push(Exchange { request: request.to_vec(), response: response.clone() });
            response
        });
        match failed {
            Some(error) => Err(error.into()),
            None if outcome.termination != Termination::Stop => {
                Err(format!("the run ended as {}", outcome.termination).into())
            }
            None => Ok(exchanges),
        }
    }
}

/// Decodes a response as the driver does: deltas first, then the completed turn.
fn decode(call: EffectId, response: &[u8], events: &mut VecDeque<EventKind>) {
    // The headers of the scripted server; decoding reads them in a real run as well.
    let headers = Headers::from_iter([
        ("content-type", "application/json"),
        ("content-length", "600"),
        ("date", "Thu, 01 Jan 1970 00:00:00 GMT"),
    ]);
    let mut decoder =
        StreamDecoder::new(dialect::OPENAI_CHAT, 200, headers, RequestFacts::default());
    let pushed = decoder.push(response, &mut |delta| {
        if let endstop::wire::Delta::Text(text) = delta {
            events.push_back(EventKind::Delta { call, delta: TurnDelta::Text(text.to_owned()) });
        }
    });
    let decoded = decoder.finish(Eof::Clean);
    match (pushed, decoded.turn) {
        (Ok(()), Some(turn)) => {
            events.push_back(EventKind::TurnEnded { call, turn: Box::new(turn) });
        }
        _ => events.push_back(EventKind::Fault {
            name: "replay".to_owned(),
            message: "the response cannot be decoded".to_owned(),
        }),
    }
}

/// Sends a request on a new connection and returns the body of the response, with chunks joined.
fn post(body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = std::net::TcpStream::connect(mock::address())?;
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )?;
    stream.write_all(body)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let (head, mut rest) = text.split_once("\r\n\r\n").unwrap_or_default();
    if !head.contains("transfer-encoding: chunked") {
        return Ok(rest.as_bytes().to_vec());
    }
    let mut joined = Vec::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        joined.extend_from_slice(after.get(..size).unwrap_or_default().as_bytes());
        rest = after.get(size + 2..).unwrap_or_default();
        if size == 0 {
            break;
        }
    }
    Ok(joined)
}

/// Measures item `k`.
pub(crate) fn kernel_and_wire(words: &Words) -> Measured {
    let (script, reps) = Script::of(words);
    let exchanges = script.record()?;
    let (mut wall, mut used) = (Vec::new(), Vec::new());
    for _ in 0..reps {
        let watch = Watch::start();
        let outcome = script.drive(&mut |turn, request, feed| {
            // Otherwise the compiler could skip encoding a request that is not sent.
            black_box(request);
            feed(exchanges.get(turn).map_or(&[][..], |exchange| &exchange.response));
        });
        let (w, c) = watch.read();
        if outcome.termination != Termination::Stop {
            return Err(format!("the run ended as {}", outcome.termination).into());
        }
        wall.push(w);
        used.push(c);
    }
    Ok(by_turn(script.turns, &mut wall, &mut used, json!({})))
}

/// Returns a client with the settings of `endstop`'s, because it stands for its share of an item.
pub(crate) fn client() -> Result<Client, SettingsError> {
    Client::builder().build()
}

/// Begins a request with the headers that a provider sends.
pub(crate) fn request(url: &http::Uri) -> http::request::Builder {
    http::Request::post(url.clone())
        .header("content-type", "application/json")
        .header("authorization", "Bearer x")
        .header("accept", "*/*")
        .header("accept-encoding", "gzip")
}

/// Measures item `h`.
pub(crate) async fn http(words: &Words) -> Measured {
    let (script, reps) = Script::of(words);
    let exchanges = script.record()?;
    let client = client()?;
    let url: http::Uri = format!("{}/chat/completions", mock::base()).parse()?;
    let (mut wall, mut used) = (Vec::new(), Vec::new());
    for rep in 0..=reps {
        let watch = Watch::start();
        for exchange in &exchanges {
            let body = Full::new(Bytes::from(exchange.request.clone()));
            let response = client.send(request(&url).body(body)?).await?;
            let mut body = Decoded::new(response).into_body();
            while let Some(chunk) = poll_fn(|cx| body.poll_data(cx)).await {
                black_box(chunk?);
            }
        }
        let (w, c) = watch.read();
        // The first repetition opens the connection and is not counted.
        if rep > 0 {
            wall.push(w);
            used.push(c);
        }
    }
    Ok(by_turn(script.turns, &mut wall, &mut used, json!({})))
}

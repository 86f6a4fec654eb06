//! Record and replay in the library: a replayed response decodes to the same result as the recorded
//! one, for every kind of response and any split into chunks.

use endstop::provider::http::HttpProvider;
use endstop::provider::record::Recorder;
use endstop::provider::recording::{Ended, Recording};
use endstop::provider::replay::RecordingReplay;
use endstop::provider::{CallEvent, CallSpec, Provider, SessionSpec};
use endstop::testkit::{Reply, Server, Turn};
use endstop::wire::dialect::dialect;
use endstop::{Agent, Message, MessageId, Role, Termination};
use flate2::read::GzDecoder;
use serde_json::Value;
use std::io::{self, Read as _, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A file in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }

    fn recording(&self) -> Recording {
        Recording::parse("memory", &self.bytes()).unwrap()
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A random key, and a key of words. Neither may cause a redaction in a response that does not
/// contain it.
const KEYS: [&str; 2] = ["sk-proj-4fQ9xTz71LmN0pWv8aBcD2eFgH5iJkL", "correct-horse-battery-staple"];

fn provider(server: &Server, api: &str) -> HttpProvider {
    keyed(server, api, KEYS[0])
}

fn keyed(server: &Server, api: &str, key: &str) -> HttpProvider {
    let options = HttpProvider::builder("m").api(api).base_url(server.base_url());
    let key = key.to_owned();
    let env = move |name: &str| {
        (name.ends_with("_API_KEY") || name == "AWS_BEARER_TOKEN_BEDROCK").then(|| key.clone())
    };
    options.env(env).build().unwrap()
}

/// Returns the result of a call without its deltas, whose number depends on the network.
async fn called(provider: &HttpProvider) -> (String, CallEvent) {
    let messages = [Message::text(MessageId(1), Role::User, "Go on.")];
    let mut session = provider.open(SessionSpec { streaming: true, ..SessionSpec::default() });
    let call = CallSpec {
        messages: &messages,
        epoch: 0,
        output_cap: Some(4096),
        details: false,
        trace_parent: None,
    };
    let mut call = session.call(call);
    let mut text = String::new();
    loop {
        let event = std::future::poll_fn(|cx| call.as_mut().poll_next(cx)).await;
        match event.expect("a call ends with its end") {
            CallEvent::Delta(endstop::provider::TurnDelta::Text(more)) => text.push_str(&more),
            CallEvent::Delta(_) => {}
            ended => return (text, ended),
        }
    }
}

fn rows(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/recordings").join(name);
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A set of recordings for each format.
const NAMES: [&str; 8] = [
    "openai-chat.jsonl.gz",
    "anthropic-messages.jsonl.gz",
    "openai-responses.jsonl.gz",
    "gemini.jsonl.gz",
    "cohere-v2.jsonl.gz",
    "ollama.jsonl.gz",
    "bedrock-converse.jsonl.gz",
    "bedrock-invoke.jsonl.gz",
];

/// Returns a reply with a recorded response; every third one is truncated or reset at some point.
fn reply(row: &Value, number: usize) -> Option<Reply> {
    use base64::Engine as _;
    let body = row["body"].as_str()?;
    let body = match row["body_encoding"].as_str() {
        Some("base64") => base64::engine::general_purpose::STANDARD.decode(body).ok()?,
        _ => body.as_bytes().to_vec(),
    };
    let status = row["status"].as_u64().and_then(|status| u16::try_from(status).ok())?;
    let length = body.len();
    let mut reply = Reply::new(status, "application/octet-stream", body);
    for (name, value) in row["headers"].as_object().into_iter().flatten() {
        let framing = ["content-type", "content-length", "content-encoding", "transfer-encoding"];
        if let Some(value) = value.as_str().filter(|_| !framing.contains(&name.as_str())) {
            reply = reply.header(name, value);
        }
    }
    let at = length * (number % 97) / 97;
    Some(match number % 6 {
        0 => reply.cut_after(at),
        3 => reply.close_after(at),
        n => reply.split(1 + n * 211),
    })
}

#[tokio::test]
async fn replayed_responses_equal_recorded_ones() {
    let mut compared = 0;
    for (key, name) in KEYS.iter().flat_map(|key| NAMES.map(|name| (*key, name))) {
        let replies: Vec<(Reply, String)> = rows(name)
            .iter()
            .enumerate()
            .filter_map(|(number, row)| {
                Some((reply(row, number)?, row["api"].as_str()?.to_owned()))
            })
            .collect();
        let family = dialect(&replies[0].1).unwrap().family;
        let played: Vec<Reply> = replies.iter().map(|(reply, _)| reply.clone()).collect();
        let server =
            Server::start(move |request| played[request.number as usize - 1].clone()).unwrap();
        let file = Memory::default();
        let recorder = Recorder::new(file.clone());
        let live = keyed(&server, family.as_str(), key).record(&recorder).unwrap();
        let mut heard = Vec::new();
        for _ in &replies {
            heard.push(called(&live).await);
        }
        assert_eq!(recorder.problem(), None);
        drop(server);
        let replay = RecordingReplay::new(file.recording());
        let again = HttpProvider::replay(&replay).unwrap();
        for (at, heard) in heard.iter().enumerate() {
            assert_eq!(called(&again).await, *heard, "{name} {at}");
        }
        assert_eq!((replay.warnings(), replay.left()), (vec![], 0));
        compared += heard.len();
    }
    assert!(compared > 800, "{compared}");
}

#[tokio::test]
async fn dropped_call_is_recorded_in_part() {
    let turn = Turn::text("one two three four five six seven");
    let server = Server::start(move |request| match request.number {
        1 => Reply::turn(request, &turn).stall_after(600),
        _ => Reply::turn(request, &turn).endless_head(),
    })
    .unwrap();
    let file = Memory::default();
    let recorder = Recorder::new(file.clone());
    let live = provider(&server, "openai-chat").record(&recorder).unwrap();
    for number in 1..=2 {
        let agent = Agent::builder(live.clone()).build().unwrap();
        let handle = agent.run("Talk.").unwrap();
        assert!(server.until(|server| server.requests().len() == number).await);
        agent.cancel();
        let outcome = handle.outcome().await;
        assert_eq!(outcome.termination, Termination::Cancelled);
    }
    let recording = file.recording();
    assert_eq!(recording.exchanges.len(), 2);
    assert!(recording.exchanges.iter().all(|exchange| exchange.ended == Ended::Aborted));
    assert_eq!((recording.exchanges[1].status, recording.ended), (0, None));
}

#[tokio::test]
async fn recorder_accepts_only_one_provider() {
    let server = Server::script([Turn::text("Yes.")]).unwrap();
    let file = Memory::default();
    let recorder = Recorder::new(file.clone());
    recorder.task("Is it?");
    let live = provider(&server, "openai-chat").record(&recorder).unwrap();
    let other = provider(&server, "openai-chat").record(&recorder).unwrap_err().to_string();
    assert!(other.contains("another provider"), "{other}");
    assert!(file.bytes().is_empty(), "nothing was asked yet");
    let agent = Agent::builder(live).build().unwrap();
    let outcome = agent.run("Is it?").unwrap().outcome().await;
    recorder.ended(&outcome);
    let recording = file.recording();
    assert_eq!(recording.header.task.as_deref(), Some("Is it?"));
    assert_eq!((recording.ended, recording.torn.clone()), (Some(Termination::Stop), None));
    // Truncated anywhere in its last line, it still has the lines before.
    let bytes = file.bytes();
    let last = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for end in last + 1..bytes.len() - 1 {
        let torn = Recording::parse("memory", &bytes[..end]).unwrap();
        assert_eq!((torn.exchanges.len(), torn.ended), (1, None));
        assert_eq!(torn.torn.unwrap().line, Some(3));
    }
}

/// A file that accepts this many bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        Ok(taken)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn failed_recording_does_not_end_run() {
    let server = Server::start(|request| Reply::turn(request, &Turn::text("Yes."))).unwrap();
    let recorder = Recorder::new(Full(700));
    let live = provider(&server, "openai-chat").record(&recorder).unwrap();
    let agent = Agent::builder(live).build().unwrap();
    for _ in 0..2 {
        let outcome = agent.run("Is it?").unwrap().outcome().await;
        assert_eq!(outcome.termination, Termination::Stop);
    }
    assert!(recorder.problem().is_some());
}

//! The scripted provider: a server on loopback that answers a case, in the wire format that the client speaks.
//!
//! ```
//! use endstop_conform::{case, provider::{Provider, Script}};
//! let provider = Provider::start(Script::new(case::find("cut-text")?))?;
//! assert!(provider.base().starts_with("http://127.0.0.1:") && provider.calls().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - The number of a call among those of its [`Kind`] selects the answer, so that a repeated call gets the next one.
//! - Ids of calls are made of these numbers: the same program gets the same bytes.

mod answer;
mod errors;
mod request;
mod tools;

use crate::case::Case;
use crate::evidence::{Call, Kind};
use crate::profile::{AnswerCall, Profile};
use crate::vocabulary::{Capability, Tool};
use answer::{Context, Spoken};
use endstop::testkit::{Reply, Request, Server, strict};
use endstop_wire::WireFormat;
use endstop_wire::codec::request::Fields;
use endstop_wire::codec::request_reader;
use endstop_wire::route::{Call as Route, Delivery, recognise};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

pub(crate) use errors::MARK;
pub use tools::names as tool_names;

/// The word in the prompts of sub-agents.
pub(crate) const SUBTASK: &str = "SUBTASK";

/// The most bytes of an answer that are stored.
const MOST_BYTES: usize = 64 << 10;

/// The numbers of calls at the beginning and at the end of a run whose bodies are kept.
const FIRST_BODIES: usize = 60;
const LAST_BODIES: usize = 20;

/// A case to serve, and the client.
#[derive(Clone, Debug)]
pub struct Script {
    case: Arc<Case>,
    tools: BTreeMap<Tool, String>,
    answer: Option<AnswerCall>,
    offers_tools: bool,
    folder: PathBuf,
    began: Instant,
}

impl Script {
    /// Creates a script for clients whose tools are not known.
    pub fn new(case: Case) -> Script {
        Script {
            case: Arc::new(case),
            tools: BTreeMap::new(),
            answer: None,
            offers_tools: false,
            folder: std::env::temp_dir(),
            began: Instant::now(),
        }
    }

    /// Sets the folder in which started bodies write their files.
    #[must_use]
    pub fn in_folder(mut self, folder: impl Into<PathBuf>) -> Script {
        self.folder = folder.into();
        self
    }

    /// Sets what is known of the client: the names of its tools, the call with which it ends, and whether it offers tools
    /// with each call of the run, so that a call without them is a title or a summary.
    #[must_use]
    pub fn for_client(mut self, profile: &Profile) -> Script {
        self.tools.clone_from(&profile.tools);
        self.answer.clone_from(&profile.answer);
        self.offers_tools = profile.can(Capability::Tools);
        self
    }

    /// Sets the start, from which times are measured.
    #[must_use]
    pub fn from(mut self, began: Instant) -> Script {
        self.began = began;
        self
    }
}

/// A running provider, which stops when the value is dropped.
pub struct Provider {
    server: Server,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Provider {
    /// Starts a provider on a free port.
    ///
    /// # Errors
    /// No port or no thread is available.
    pub fn start(script: Script) -> io::Result<Provider> {
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let seen = Arc::clone(&calls);
        let server = Server::start(move |request| respond(request, &script, &seen))?;
        Ok(Provider { server, calls })
    }

    /// Returns the address without a path: `http://127.0.0.1:PORT`.
    pub fn base(&self) -> String {
        let base = self.server.base_url();
        base.strip_suffix("/v1").unwrap_or(&base).to_owned()
    }

    /// Returns the calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of calls so far.
    pub fn count(&self) -> usize {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns the number of calls so far that the script answers: all but those for titles and summaries.
    pub fn scripted(&self) -> usize {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter().filter(|call| call.kind != Kind::Other).count()
    }

    /// `true` if the first call was for a stream.
    pub fn streams(&self) -> bool {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.first().is_some_and(|call| call.streams)
    }

    /// Returns the times at which clients closed a connection in the middle of an answer.
    pub fn hung_up(&self) -> Vec<Instant> {
        self.server.hung_up()
    }

    /// Returns the number of open connections.
    pub fn open_connections(&self) -> usize {
        self.server.open_connections()
    }
}

fn respond(request: &Request, script: &Script, seen: &Mutex<Vec<Call>>) -> Reply {
    let body = request::body(request);
    let call = recognise(&request.method, &request.path).call;
    let Route::Model { format, delivery } = call else { return aside(request, call) };
    let delivery = delivery.unwrap_or_else(|| delivery_of(format, &body));
    let delivery = match delivery {
        // The path decides between an array and events.
        Delivery::Array if request.path.contains("alt=sse") => Delivery::Events,
        other => other,
    };
    let tools = request::tools(format, &body);
    let kind = if request::prompts(format, &body).contains(SUBTASK) {
        Kind::Sub
    } else if tools.is_empty() && script.offers_tools {
        Kind::Other
    } else {
        Kind::Main
    };
    let mut calls = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let number = calls.iter().filter(|call| call.kind == kind).count() + 1;
    let context = Context {
        format,
        delivery,
        body: &body,
        tools: &tools,
        names: &script.tools,
        answer: script.answer.as_ref(),
        folder: &script.folder,
        kind,
        number,
        calls: calls.len(),
    };
    let Spoken { reply, bytes, label, problem } = match kind {
        Kind::Main => context.speak(Case::answer(&script.case.answers, number - 1)),
        Kind::Sub => context.speak(Case::answer(&script.case.sub, number - 1)),
        Kind::Other if script.case.also_without_tools => {
            context.speak(Case::answer(&script.case.answers, number - 1))
        }
        Kind::Other => context.aside(),
    };
    let mut bytes = String::from_utf8_lossy(&bytes).into_owned();
    if bytes.len() > MOST_BYTES {
        let at = (0..=MOST_BYTES).rev().find(|at| bytes.is_char_boundary(*at)).unwrap_or(0);
        bytes.truncate(at);
        bytes.push_str("\n… cut by the suite\n");
    }
    calls.push(Call {
        at: script.began.elapsed().as_secs_f64(),
        format: format.as_str().to_owned(),
        kind,
        number,
        streams: delivery != Delivery::Whole,
        invalid: checked(format)
            .then(|| strict::problem(format.as_str(), &request::as_read(format, &body)))
            .flatten(),
        body,
        answer: label,
        unspoken: problem,
        bytes,
    });
    // Each has all before it, so that those of 500 calls take gigabytes.
    if let Some(at) = calls.len().checked_sub(LAST_BODIES + 1).filter(|at| *at >= FIRST_BODIES) {
        calls[at].body = Value::Null;
    }
    reply
}

/// `true` if the rules for the messages of a format are known.
fn checked(format: WireFormat) -> bool {
    matches!(
        format,
        WireFormat::OpenAiChat
            | WireFormat::OpenAiResponses
            | WireFormat::Anthropic
            | WireFormat::Gemini
    )
}

fn delivery_of(format: WireFormat, body: &Value) -> Delivery {
    let text = body.to_string();
    let fields = Fields::of(&text).unwrap_or_default();
    let reader = request_reader(format, &fields);
    reader.map_or(Delivery::Whole, |reader| reader.delivery(&reader.head(&fields)))
}

/// Answers what is not a model call.
fn aside(request: &Request, call: Route) -> Reply {
    if request.method == "HEAD" {
        // A body after this head would be read as the next response.
        return Reply::new(200, "application/json", "").claim_length(0);
    }
    if request.headers.get("upgrade").is_some_and(|value| value.eq_ignore_ascii_case("websocket")) {
        return Reply::new(426, "application/json", r#"{"error":{"message":"no websocket"}}"#);
    }
    match call {
        Route::Models => {
            let names = ["gpt-4o", "gpt-5.1-codex", "claude-sonnet-4-5", "gemini-3-pro", "script"];
            let model = |name| json!({"id": name, "object": "model", "type": "model", "display_name": name});
            let data: Vec<Value> = names.map(model).into();
            Reply::json(&json!({"object": "list", "data": data, "models": [], "has_more": false}))
        }
        Route::CountTokens => Reply::json(&json!({"input_tokens": 1000, "totalTokens": 1000})),
        Route::Hello | Route::Free => Reply::json(&json!({})),
        _ => Reply::new(
            404,
            "application/json",
            r#"{"error":{"type":"not_found_error","message":"the suite does not serve this path"}}"#,
        ),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::{Case, Provider, Script};
    use crate::case;
    use endstop_wire::dialect::dialect;
    use endstop_wire::{Delta, RequestFacts, StreamDecoder};
    use serde_json::{Value, json};
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpStream;
    use std::time::{Duration, Instant};

    /// Posts a request to a provider with this case.
    fn post(case: &str, path: &str, mut body: Value, streams: bool) -> (Provider, TcpStream) {
        let case = Case::read("case.toml", case).unwrap();
        let provider = Provider::start(Script::new(case)).unwrap();
        body["model"] = json!("m");
        body["stream"] = json!(streams);
        let (body, base) = (body.to_string(), provider.base());
        let address = base.trim_start_matches("http://");
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        (provider, stream)
    }

    #[test]
    fn pause_is_before_the_call_in_each_format() {
        let case = r#"
            title = "A pause before a call"
            checks = []
            [[answers]]
            text = "One moment."
            calls = [{ tool = "shell", input = "true" }]
            pause = 0.4
        "#;
        let schema = json!({"type": "object", "properties": {"command": {"type": "string"}}});
        let messages = json!([{"role": "user", "content": "Go."}]);
        let function = json!({"name": "shell", "parameters": schema});
        let tool = json!({"type": "function", "name": "shell", "parameters": schema});
        let contents = json!([{"role": "user", "parts": [{"text": "Go."}]}]);
        for (path, body) in [
            (
                "/v1/messages",
                json!({"messages": messages, "max_tokens": 9, "tools": [{"name": "shell", "input_schema": schema}]}),
            ),
            (
                "/v1/chat/completions",
                json!({"messages": messages, "tools": [{"type": "function", "function": function}]}),
            ),
            ("/v1/responses", json!({"input": "Go.", "tools": [tool]})),
            (
                "/v1beta/models/m:streamGenerateContent?alt=sse",
                json!({"contents": contents, "tools": [{"functionDeclarations": [function]}]}),
            ),
        ] {
            let began = Instant::now();
            let (_provider, mut stream) = post(case, path, body, true);
            let (mut text, mut part) = (String::new(), vec![0; 64 << 10]);
            while !text.contains("moment") {
                let read = stream.read(&mut part).unwrap();
                assert!(read > 0, "{path}: {text}");
                text += &String::from_utf8_lossy(&part[..read]);
            }
            assert!(!text.contains("\"shell\""), "{path}: the call is not after the pause: {text}");
            stream.read_to_string(&mut text).unwrap();
            assert!(text.contains("\"shell\""), "{path}: {text}");
            assert!(began.elapsed() >= Duration::from_millis(400), "{path}: no pause");
        }
    }

    #[test]
    fn cached_tokens_are_reported() {
        let case = "title = 'Cached'\nchecks = []\n[[answers]]\ntext = 'x'\nusage = 'cached'";
        let messages = json!([{"role": "user", "content": "Go."}]);
        for (path, body, streams) in [
            ("/v1/chat/completions", json!({"messages": messages}), false),
            ("/v1/responses", json!({"input": "Go."}), false),
            ("/v1/responses", json!({"input": "Go."}), true),
            ("/v1/messages", json!({"messages": messages, "max_tokens": 9}), true),
        ] {
            let (_provider, mut stream) = post(case, path, body, streams);
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            assert!(text.contains("400000"), "{path}: {text}");
        }
    }

    /// Each piece of endless reasoning is reasoning, in every format.
    #[test]
    fn endless_reasoning_is_reasoning() {
        let provider = Provider::start(Script::new(case::find("endless-reasoning").unwrap()));
        let provider = provider.unwrap();
        for (path, body, name) in [
            ("/v1/chat/completions", json!({"stream": true, "messages": []}), "openai-chat"),
            ("/v1/responses", json!({"stream": true, "input": "x"}), "openai-responses"),
            ("/v1/messages", json!({"stream": true, "messages": []}), "anthropic-messages"),
            ("/v1beta/models/m:streamGenerateContent?alt=sse", json!({"contents": []}), "gemini"),
        ] {
            let address = provider.base();
            let address = address.strip_prefix("http://").unwrap();
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let body = body.to_string();
            let length = body.len();
            write!(
                stream,
                "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n\r\n{body}"
            )
            .unwrap();
            let headers = [("content-type", "text/event-stream")].into_iter().collect();
            let facts = RequestFacts::default();
            let mut decoder = StreamDecoder::new(dialect(name).unwrap(), 200, headers, facts);
            let mut pieces = 0;
            for line in BufReader::new(stream).lines() {
                let line = line.unwrap();
                // The head of the response, and sizes of chunks.
                if !line.starts_with("data:") {
                    continue;
                }
                let mut take = |delta: Delta<'_>| match delta {
                    Delta::Reasoning(_) => pieces += 1,
                    other => panic!("{path}: {other:?}"),
                };
                decoder.push(format!("{line}\n\n").as_bytes(), &mut take).unwrap();
                if pieces == 4 {
                    break;
                }
            }
            assert_eq!(pieces, 4, "{path}");
        }
    }
}

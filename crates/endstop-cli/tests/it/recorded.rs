//! `endstop run` over recorded responses: a real server plays the bytes that providers sent. A turn
//! with tools and a final turn in every family of formats, whole and streamed; and for each an
//! error during the stream, a cut and a stall.

use crate::cli::{Cli, answering};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use endstop::testkit::{Reply, Server};
use endstop::wire::stream::eventstream::frame;
use flate2::read::GzDecoder;
use serde_json::Value;
use std::io::Read as _;
use std::path::Path;

/// The recordings of a family, and the flags that select its format.
struct Family {
    /// The file of recordings.
    file: &'static str,
    /// The value of `--api`, if it is not the format of the model's provider.
    api: &'static str,
    /// The value of `--model`.
    model: &'static str,
    /// The bytes that the provider sends for an error during the stream.
    error: fn() -> Vec<u8>,
    /// The error class with which such an error ends the run.
    class: &'static str,
}

const FAMILIES: &[Family] = &[
    Family {
        file: "openai-chat",
        api: "openai-chat",
        model: "m",
        error: || sse(r#"{"error":{"message":"The server had an error","type":"server_error"}}"#),
        class: "server_error",
    },
    Family {
        file: "openai-responses",
        api: "openai-responses",
        model: "m",
        error: || {
            named(
                "error",
                r#"{"type":"error","code":"server_error","message":"It failed","sequence_number":9}"#,
            )
        },
        class: "server_error",
    },
    Family {
        file: "anthropic-messages",
        api: "anthropic-messages",
        model: "m",
        error: || {
            named(
                "error",
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            )
        },
        class: "overloaded",
    },
    Family {
        file: "gemini",
        api: "gemini",
        model: "m",
        // Outside of any event, as the provider sends it.
        error: || {
            b"{\"error\":{\"code\":503,\"message\":\"The model is overloaded.\",\"status\":\"UNAVAILABLE\"}}\n"
                .to_vec()
        },
        class: "overloaded",
    },
    Family {
        file: "mistral",
        api: "openai-chat",
        model: "mistral/m",
        error: || {
            sse(
                r#"{"object":"error","message":"Service unavailable","type":"internal_server_error","code":"3800","raw_status_code":503}"#,
            )
        },
        class: "overloaded",
    },
    Family {
        file: "ollama",
        api: "ollama",
        model: "m",
        error: || b"{\"error\":\"llama runner process has terminated: exit status 2\"}\n".to_vec(),
        class: "server_error",
    },
    Family {
        file: "bedrock-converse",
        api: "bedrock-converse",
        model: "m",
        error: || exception("throttlingException"),
        class: "rate_limit",
    },
    Family {
        file: "bedrock-invoke",
        api: "bedrock-invoke",
        model: "m",
        error: || exception("modelStreamErrorException"),
        class: "server_error",
    },
];

fn exception(kind: &str) -> Vec<u8> {
    let headers = [(":exception-type", kind), (":message-type", "exception")];
    frame(&headers, br#"{"message":"It failed"}"#)
}

fn sse(data: &str) -> Vec<u8> {
    format!("data: {data}\n\n").into_bytes()
}

fn named(name: &str, data: &str) -> Vec<u8> {
    format!("event: {name}\ndata: {data}\n\n").into_bytes()
}

/// A recorded response.
struct Recorded {
    row: Value,
    body: Vec<u8>,
}

impl Recorded {
    fn reply(&self) -> Reply {
        Reply::new(200, self.kind(), self.body.clone())
    }

    /// Returns the content type, if it was recorded.
    fn kind(&self) -> &str {
        self.row["headers"]["content-type"].as_str().unwrap_or("application/octet-stream")
    }

    fn id(&self) -> &str {
        self.row["id"].as_str().unwrap()
    }
}

/// Returns the recordings of a family: turns with tool calls, and complete text answers.
fn recorded(family: &Family, streaming: bool) -> (Vec<Recorded>, Vec<Recorded>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testdata/recordings")
        .join([family.file, ".jsonl.gz"].concat());
    let mut text = String::new();
    let file = std::fs::File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let (mut tools, mut finals) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let expected = &row["expected"];
        if expected["uncertain"] == true || row["streaming"] != streaming || row["status"] != 200 {
            continue;
        }
        let text = row["body"].as_str().unwrap();
        let body = match row["body_encoding"].as_str() {
            Some("base64") => STANDARD.decode(text).unwrap(),
            _ => text.as_bytes().to_vec(),
        };
        if expected["reason"] == "tool_use" && expected["tool_args_valid_json"] == true {
            tools.push(Recorded { row, body });
        } else if expected["reason"] == "natural_completion"
            && expected["confidence"] == "high"
            && expected["text_chars"] != 0
        {
            finals.push(Recorded { row, body });
        }
    }
    assert!(!tools.is_empty() && !finals.is_empty(), "{} {streaming}", family.file);
    (tools, finals)
}

fn run(cli: &Cli, server: &Server, family: &Family, streaming: bool, more: &[&str]) -> Value {
    let url = server.base_url();
    let mut args = vec!["run", "--json", "--model", family.model, "--api", family.api];
    args.extend(["--base-url", &url]);
    if !streaming {
        args.push("--no-stream");
    }
    args.extend(more);
    args.push("Go on.");
    cli.run(args).outcome()
}

#[test]
fn recorded_turns_run_in_every_family() {
    for family in FAMILIES {
        for streaming in [true, false] {
            let (tools, finals) = recorded(family, streaming);
            let cli = Cli::new();
            for (at, tool) in tools.iter().enumerate() {
                let last = &finals[at % finals.len()];
                let replies = [tool.reply(), last.reply()];
                let server = answering(move |request| {
                    replies[usize::try_from(request.number - 1).unwrap().min(1)].clone()
                });
                let outcome = run(&cli, &server, family, streaming, &[]);
                let which = format!("{}, then {}: {outcome:#}", tool.id(), last.id());
                assert_eq!(outcome["termination"], "stop", "{which}");
                assert_eq!(outcome["turns"], 2, "{which}");
                let expected = &tool.row["expected"];
                // The recorded tools do not exist here, so each call is answered with an error.
                assert_eq!(outcome["tool_calls"], expected["tool_call_count"], "{which}");
                let chars = outcome["last_text"].as_str().unwrap_or("").chars().count();
                assert_eq!(chars, last.row["expected"]["text_chars"], "{which}");
                let output = |row: &Value| row["expected"]["output_tokens"].as_u64().unwrap_or(0);
                assert_eq!(
                    outcome["usage"]["output_tokens"].as_u64().unwrap_or(0),
                    output(&tool.row) + output(&last.row),
                    "{which}"
                );
                assert_eq!(server.requests().len(), 2, "{which}");
            }
            println!("{} streamed {streaming}: {} runs", family.file, tools.len());
        }
    }
}

#[test]
fn broken_streams_never_give_an_answer() {
    for family in FAMILIES {
        let (tools, finals) = recorded(family, true);
        let mut errors = 0;
        let cli = Cli::new();
        let ends = |reply: Reply, more: &[&str]| {
            let server = answering(move |_| reply.clone());
            let args = [&["--max-retries", "0"], more].concat();
            run(&cli, &server, family, true, &args)
        };
        for recorded in [tools.iter(), finals.iter()].into_iter().flatten() {
            let half = recorded.body.len() / 2;
            let cut = recorded.reply().cut_after(half);
            let reset = recorded.reply().reset_after(half);
            let mut wrong =
                vec![("a cut", cut, "incomplete_stream"), ("a reset", reset, "incomplete_stream")];
            // The error comes between two events.
            if let Some(between) = last_event(family, &recorded.body[..half]) {
                let mut body = recorded.body[..between].to_vec();
                body.extend((family.error)());
                wrong.push(("an error", Reply::new(200, recorded.kind(), body), family.class));
                errors += 1;
            }
            for (what, reply, class) in wrong {
                let outcome = ends(reply, &[]);
                let which = format!("{what} in {}: {outcome:#}", recorded.id());
                assert_eq!(outcome["termination"], "error_during_execution", "{which}");
                assert_eq!(outcome["category"], "retryable", "{which}");
                assert!(outcome["decided_by"].to_string().contains(class), "{class}: {which}");
                assert_eq!(
                    (&outcome["turns"], &outcome["tool_calls"]),
                    (&0.into(), &0.into()),
                    "{which}"
                );
            }
        }
        assert!(errors > 0, "{}", family.file);
        // A stall takes time, so one recording of each kind is enough.
        for recorded in [&tools[0], &finals[0]] {
            let stalled = recorded.reply().stall_after(recorded.body.len() / 2);
            // Half of a body may have no content yet, which another timeout watches.
            let clocks = ["--stall-timeout", "200ms", "--first-content-timeout", "200ms"];
            let outcome = ends(stalled, &clocks);
            let which = format!("a stall in {}: {outcome:#}", recorded.id());
            assert_eq!(outcome["termination"], "error_during_execution", "{which}");
            assert!(outcome["decided_by"].to_string().contains("sent no content"), "{which}");
        }
    }
}

/// Returns the end of the last complete event in the first part of a stream.
fn last_event(family: &Family, body: &[u8]) -> Option<usize> {
    if body.first() == Some(&0) {
        return last_frame(body);
    }
    let ends =
        |mark: &[u8]| body.windows(mark.len()).rposition(|w| w == mark).map(|at| at + mark.len());
    if family.api == "ollama" {
        return ends(b"\n"); // an object a line
    }
    ends(b"\n\n").max(ends(b"\r\n\r\n"))
}

/// Returns the end of the last complete binary frame.
fn last_frame(body: &[u8]) -> Option<usize> {
    let mut end = 0;
    while let Some(length) = body[end..].first_chunk() {
        let next = end + u32::from_be_bytes(*length) as usize;
        if next > body.len() {
            break;
        }
        end = next;
    }
    Some(end).filter(|end| *end > 0)
}

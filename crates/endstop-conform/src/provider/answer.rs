//! Writes an answer of a case: the response in the format of the call, its faults, and its pauses.

use super::errors;
use super::tools;
use crate::case::{Answer, Fault, Finish, ReportedUsage, UNKNOWN};
use crate::evidence::{Kind, Unspoken};
use crate::profile::AnswerCall;
use crate::vocabulary::Tool;
use endstop::testkit::Reply;
use endstop_core::{ToolCall, Usage};
use endstop_wire::WireFormat;
use endstop_wire::codec::response::Response;
use endstop_wire::codec::write;
use endstop_wire::route::Delivery;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The answer after the script.
const DONE: &str = "All done: the task is complete.";

/// Time between two signs of life of a provider that sends no content.
const BETWEEN: Duration = Duration::from_millis(250);

/// A signature of a call, which is opaque to clients.
const SIGNATURE: &str = "Y29uZm9ybQ==";

/// Reasoning that is repeated for ever.
const PONDERING: &str = "pondering the next part ";

/// A call and what is known of its client.
pub(super) struct Context<'a> {
    pub(super) format: WireFormat,
    pub(super) delivery: Delivery,
    pub(super) body: &'a Value,
    pub(super) tools: &'a [(String, Value)],
    pub(super) names: &'a BTreeMap<Tool, String>,
    pub(super) answer: Option<&'a AnswerCall>,
    pub(super) folder: &'a Path,
    pub(super) kind: Kind,
    pub(super) number: usize,
    /// Number of all calls before this one.
    pub(super) calls: usize,
}

/// An answer in the format of a call.
pub(super) struct Spoken {
    pub(super) reply: Reply,
    pub(super) bytes: Vec<u8>,
    pub(super) label: String,
    /// Reason for which the answer is not that of the case.
    pub(super) problem: Option<Unspoken>,
}

/// A chunk of a response.
struct Chunk {
    bytes: Vec<u8>,
    /// `true` if it ends the response, or comes after its end.
    closes: bool,
}

impl Context<'_> {
    /// Answers a call without tools: with a title, or with an object if one is asked for.
    pub(super) fn aside(&self) -> Spoken {
        let config = &self.body["generationConfig"];
        let asks_for_json = [
            &self.body["response_format"],
            &self.body["output_config"]["format"],
            &self.body["text"]["format"]["schema"],
            &config["responseMimeType"],
            &config["responseJsonSchema"],
        ];
        let text = if asks_for_json.iter().any(|asked| !asked.is_null()) {
            r#"{"title": "A task", "isNewTopic": true, "next_speaker": "user", "reasoning": "x"}"#
        } else {
            "A task"
        };
        self.speak(Some(&Answer { text: text.to_owned(), ..Answer::default() }))
    }

    /// Gives an answer of the script; without one, the answer that all is done.
    pub(super) fn speak(&self, answer: Option<&Answer>) -> Spoken {
        let done = Answer { text: DONE.to_owned(), ..Answer::default() };
        let answer = answer.unwrap_or(&done);
        if let Some(error) = answer.error {
            let (status, body) = errors::body(self.format, error);
            let bytes = body.to_string().into_bytes();
            let mut reply = Reply::new(status, "application/json", bytes.clone());
            if let Some(seconds) = answer.retry_after {
                reply = reply.header("retry-after", &seconds.to_string());
            }
            return Spoken { reply, bytes, label: format!("{status} {error:?}"), problem: None };
        }
        match self.response(answer) {
            Ok(spoken) => spoken,
            Err(problem) => {
                let done =
                    Answer { text: DONE.to_owned(), usage: answer.usage, ..Answer::default() };
                let mut spoken = self.speak(Some(&done));
                spoken.problem = Some(problem);
                spoken
            }
        }
    }

    fn response(&self, answer: &Answer) -> Result<Spoken, Unspoken> {
        let fill = |text: &str| tools::filled(text, self.number, self.folder);
        let mut text = fill(&answer.text).repeat(answer.times.unwrap_or(1) as usize);
        if text.contains("{shell}") {
            let (name, key) = tools::shell_words(self.tools, self.names);
            text = text.replace("{shell}", name).replace("{key}", &key);
        }
        let mut calls = Vec::new();
        for (at, call) in answer.calls.iter().enumerate() {
            let mut worded = tools::worded(call, self.tools, self.names, &fill).map_err(no_tool)?;
            if let Some(parsed) = self.parsed_beginning(answer, &worded.arguments) {
                worded.arguments = parsed;
            }
            let is_json = serde_json::from_str::<Value>(&worded.arguments).is_ok();
            if !is_json && self.has_object_arguments() {
                return Err(no_word("arguments are an object in this format, and cannot be cut"));
            }
            let id = call.id.clone().unwrap_or_else(|| {
                let kind = match self.kind {
                    Kind::Main => "main",
                    Kind::Sub => "sub",
                    Kind::Other => "other",
                };
                format!("call_{kind}_{}_{}", self.number, at + 1)
            });
            calls.push(ToolCall { id, name: worded.name, arguments: worded.arguments });
        }
        if answer.fault == Some(Fault::Reasoning) {
            return Ok(self.endless_reasoning());
        }
        if let Some(call) = self.final_call(answer, &text)? {
            calls.push(call);
            text.clear();
        }
        let chunks = self.chunks(answer, &text, &calls)?;
        Ok(self.sent(answer, chunks, calls.first()))
    }

    /// Returns the object that stands for arguments which the output limit cut, in a whole response of Messages: it has such a call,
    /// too, whose object is what was parsed until then.
    fn parsed_beginning(&self, answer: &Answer, arguments: &str) -> Option<String> {
        let has_it = matches!(self.format, WireFormat::Anthropic | WireFormat::BedrockInvoke)
            && self.delivery == Delivery::Whole
            && answer.finish == Finish::Length;
        let closed = format!("{arguments}\"}}");
        let is_json = |text: &str| serde_json::from_str::<Value>(text).is_ok();
        (has_it && !is_json(arguments) && is_json(&closed)).then_some(closed)
    }

    /// `true` if the arguments of a call are an object, and not a text that can be cut.
    fn has_object_arguments(&self) -> bool {
        match self.format {
            WireFormat::Gemini | WireFormat::Ollama => true,
            WireFormat::Anthropic | WireFormat::BedrockInvoke | WireFormat::BedrockConverse => {
                self.delivery == Delivery::Whole
            }
            _ => false,
        }
    }

    /// Returns the call that gives a whole answer, if the client ends by one. An answer that is not whole stays a text.
    fn final_call(&self, answer: &Answer, text: &str) -> Result<Option<ToolCall>, Unspoken> {
        // A blank text, and a call that stands in the text, are the situations of their cases.
        let is_answer = !text.trim().is_empty() && !answer.text.contains("{shell}");
        let is_whole = is_answer
            && answer.finish == Finish::Fitting
            && answer.calls.is_empty()
            && matches!(answer.fault, None | Some(Fault::OpenAfterFinish));
        let Some(call) = self.answer.filter(|_| is_whole) else {
            return Ok(None);
        };
        let found = self.tools.iter().find(|(name, _)| *name == call.tool);
        // A call without tools asks for a text.
        let Some((name, schema)) = found.filter(|_| !self.tools.is_empty()) else {
            return if self.tools.is_empty() {
                Ok(None)
            } else {
                Err(no_tool(format!("the program offers no tool `{}`", call.tool)))
            };
        };
        let key = tools::command_key(schema);
        let arguments = json!({ key: call.input.replace("{text}", text) }).to_string();
        let id = format!("call_answer_{}", self.number);
        Ok(Some(ToolCall { id, name: name.clone(), arguments }))
    }

    /// Writes the chunks of a response.
    fn chunks(
        &self,
        answer: &Answer,
        text: &str,
        calls: &[ToolCall],
    ) -> Result<Vec<Chunk>, Unspoken> {
        // These mark a response with calls as any other one.
        let is_marked = matches!(self.format, WireFormat::OpenAiResponses | WireFormat::Ollama)
            && !calls.is_empty();
        self.can_say(answer)?;
        let finish = match answer.finish {
            Finish::Calls if is_marked => None,
            finish => word(self.format, finish)?,
        };
        let parts: Vec<&str> = match answer.times {
            // A long text in words would be thousands of events.
            Some(_) => text
                .as_bytes()
                .chunks(4096)
                .filter_map(|part| std::str::from_utf8(part).ok())
                .collect(),
            None => text.split_inclusive(' ').collect(),
        };
        let id = format!("conform{}", self.calls + 1);
        let written = write(
            self.format,
            self.delivery,
            &Response {
                id: &id,
                unix_seconds: 1_800_000_000,
                model: self.body["model"].as_str().unwrap_or("script"),
                reasoning: &answer.reasoning,
                text: &parts,
                calls,
                finish,
                usage: usage(answer.usage),
                // Only clients that ask for it expect a chunk without choices.
                omits_usage: self.format == WireFormat::OpenAiChat
                    && self.body["stream_options"]["include_usage"] != true,
            },
        );
        let written = written.ok_or_else(|| no_word("the format of the call cannot be written"))?;
        let last = written.len() - 1;
        let mut chunks: Vec<Chunk> = Vec::new();
        let mut is_signed = self.format != WireFormat::Gemini;
        for (at, bytes) in written.into_iter().enumerate() {
            let bytes = edited(&bytes, |value| {
                self.edit(answer, value);
                is_signed = is_signed || sign(value);
            });
            let closes = self.closes(&bytes, at == last);
            chunks.push(Chunk { bytes, closes });
        }
        Ok(chunks)
    }

    /// Refuses what the format, or its framing, has no form for.
    fn can_say(&self, answer: &Answer) -> Result<(), Unspoken> {
        let is_small = matches!(
            self.format,
            WireFormat::CohereV2 | WireFormat::Ollama | WireFormat::BedrockConverse
        );
        if is_small && answer.usage == ReportedUsage::Cached {
            return Err(no_word("the format has no counts of cached tokens here"));
        }
        let in_frames = self.delivery == Delivery::Frames;
        if in_frames && answer.usage == ReportedUsage::Absent {
            return Err(no_word("the frames of this format always have the usage"));
        }
        match answer.fault {
            Some(Fault::Pings) if in_frames || self.delivery == Delivery::Lines => {
                Err(no_word("a stream of this format has no pings"))
            }
            Some(Fault::Junk | Fault::ErrorEvent) if in_frames => {
                Err(no_word("the suite writes no such frame"))
            }
            _ => Ok(()),
        }
    }

    /// Changes an event of a stream, or a body.
    fn edit(&self, answer: &Answer, value: &mut Value) {
        if answer.usage == ReportedUsage::Absent {
            without(value, &["usage", "usageMetadata", "prompt_eval_count", "eval_count"]);
        }
        if answer.usage == ReportedUsage::Cached {
            let place = match self.format {
                WireFormat::OpenAiChat => Some(("/usage", "prompt_tokens_details")),
                WireFormat::OpenAiResponses if value["response"].is_object() => {
                    Some(("/response/usage", "input_tokens_details"))
                }
                WireFormat::OpenAiResponses => Some(("/usage", "input_tokens_details")),
                // The writers of the others have them.
                _ => None,
            };
            let usage = place.and_then(|(place, name)| Some((value.pointer_mut(place)?, name)));
            if let Some((usage, name)) = usage.filter(|(usage, _)| usage.is_object()) {
                usage[name] = json!({"cached_tokens": 400_000, "cache_write_tokens": 20_000});
            }
        }
        match answer.finish {
            Finish::Refusal => refuse(self.format, value),
            Finish::Missing => {
                if self.format == WireFormat::Gemini {
                    without(value, &["finishReason"]);
                }
                if self.delivery == Delivery::Whole {
                    let names = [
                        "finish_reason",
                        "stop_reason",
                        "stopReason",
                        "status",
                        // An old Ollama says it by `done` alone.
                        "done_reason",
                        "done",
                    ];
                    without(value, &names);
                }
            }
            Finish::Fitting
            | Finish::Calls
            | Finish::Length
            | Finish::Filter
            | Finish::Pause
            | Finish::Unknown => {}
        }
    }

    /// `true` if a chunk ends a stream, or comes after its end.
    fn closes(&self, bytes: &[u8], is_last: bool) -> bool {
        let text = String::from_utf8_lossy(bytes);
        if self.delivery == Delivery::Frames && self.format == WireFormat::BedrockConverse {
            // The usage follows the end.
            return is_last || text.contains("messageStop");
        }
        let Some(data) = data_of(&text) else { return is_last };
        let Ok(event) = serde_json::from_str::<Value>(data) else { return true };
        match self.format {
            WireFormat::OpenAiChat => {
                let choices = event["choices"].as_array().map_or(&[][..], Vec::as_slice);
                choices.is_empty() || choices.iter().any(|one| !one["finish_reason"].is_null())
            }
            WireFormat::Anthropic | WireFormat::BedrockInvoke => {
                matches!(event["type"].as_str(), Some("message_delta" | "message_stop"))
            }
            WireFormat::OpenAiResponses => matches!(
                event["type"].as_str(),
                Some("response.completed" | "response.incomplete" | "response.failed")
            ),
            WireFormat::Gemini => !event["candidates"][0]["finishReason"].is_null(),
            WireFormat::CohereV2 => event["type"] == "message-end",
            // The other formats have one event at the end.
            _ => is_last,
        }
    }

    /// Makes the reply of chunks, with the faults and pauses of the answer.
    fn sent(&self, answer: &Answer, mut chunks: Vec<Chunk>, call: Option<&ToolCall>) -> Spoken {
        let streams = self.delivery != Delivery::Whole;
        // In Gemini's format the last content and the finish value share an event.
        if answer.finish == Finish::Missing && streams && self.format != WireFormat::Gemini {
            chunks.retain(|chunk| !chunk.closes);
        }
        let content = chunks.iter().filter(|chunk| !chunk.closes).count();
        let middle = (content / 2).max(1).min(chunks.len());
        let label = match answer.fault {
            Some(fault) => format!("{fault:?}"),
            None => format!("{:?}", answer.finish),
        };
        let kind = self.delivery.content_type();
        let mut problem = None;
        let mut reply = Reply::new(200, kind, "");
        let mut bytes = Vec::new();
        let mut say = |reply: Reply, chunk: &[u8]| {
            bytes.extend_from_slice(chunk);
            reply.and_bytes(chunk)
        };
        if answer.silence > 0.0 {
            reply = reply.and_wait(Duration::from_secs_f64(answer.silence));
        }
        let call_at = call.filter(|_| answer.pause > 0.0).and_then(|call| {
            let of = |word: &str| {
                chunks.iter().position(|chunk| String::from_utf8_lossy(&chunk.bytes).contains(word))
            };
            // Gemini's calls have no id.
            of(&call.id).or_else(|| of(&format!("\"{}\"", call.name)))
        });
        let end = match answer.fault {
            Some(Fault::Lost | Fault::ErrorEvent) if streams => middle,
            Some(Fault::LostInArguments) if streams => {
                // The events after the first half of the arguments.
                let after = match self.format {
                    WireFormat::OpenAiResponses => 3,
                    WireFormat::Anthropic => 2,
                    _ => 1,
                };
                content.saturating_sub(after)
            }
            Some(
                Fault::Silent
                | Fault::Pings
                | Fault::Lost
                | Fault::LostInArguments
                | Fault::ErrorEvent,
            ) => 0,
            Some(Fault::Junk | Fault::OpenAfterFinish | Fault::Reasoning) | None => chunks.len(),
        };
        for (at, chunk) in chunks[..end].iter().enumerate() {
            if call_at == Some(at) {
                reply = reply.and_wait(Duration::from_secs_f64(answer.pause));
            }
            if answer.fault == Some(Fault::Junk) && at == middle {
                let (head, line) = match (self.format, self.delivery) {
                    (_, Delivery::Lines) => ("", "\n"),
                    (WireFormat::Gemini, _) => ("data: ", "\r\n\r\n"),
                    _ => ("data: ", "\n\n"),
                };
                reply = say(reply, format!("{head}{{\"not json{line}").as_bytes());
                continue;
            }
            reply = say(reply, &chunk.bytes);
        }
        reply = match answer.fault {
            // Half of a whole body, if the client does not stream.
            Some(Fault::Lost | Fault::LostInArguments) if !streams => {
                let whole: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.bytes.clone()).collect();
                let reply = say(reply, &whole[..whole.len() / 2]);
                reply.close_after(usize::MAX)
            }
            Some(Fault::Lost | Fault::LostInArguments) => reply.close_after(usize::MAX),
            Some(Fault::Silent | Fault::OpenAfterFinish) => reply.stall_after(usize::MAX),
            Some(Fault::Pings) => {
                let ping = ping(self.format);
                bytes.extend_from_slice(ping);
                reply.and_for_ever(ping, BETWEEN)
            }
            Some(Fault::ErrorEvent) => {
                let event = if streams {
                    errors::event(self.format)
                } else {
                    errors::in_place(self.format).to_string().into_bytes()
                };
                say(reply, &event)
            }
            Some(Fault::Junk) if !streams => {
                problem = Some(no_word("the client does not stream, so there are no chunks"));
                reply
            }
            Some(Fault::Junk | Fault::Reasoning) | None => reply,
        };
        Spoken { reply, bytes, label, problem }
    }

    /// Reasoning that does not end.
    fn endless_reasoning(&self) -> Spoken {
        let kind = self.delivery.content_type();
        let label = format!("{:?}", Fault::Reasoning);
        let response = Response {
            id: "conform",
            model: "script",
            reasoning: PONDERING,
            // The first of two parts has no finish value, in every format.
            text: &["x"],
            // A client may refuse a beginning without numbers.
            usage: usage(ReportedUsage::Small),
            ..Response::default()
        };
        let written = write(self.format, self.delivery, &response).unwrap_or_default();
        // The first piece of it: some formats repeat the whole at its end.
        let has = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).contains(&PONDERING[..8]);
        let at = written.iter().position(has);
        match at.filter(|_| self.delivery != Delivery::Whole) {
            Some(at) => {
                let bytes = written[..=at].concat();
                let reply = Reply::pieces(kind, written[..at].to_vec(), Duration::ZERO);
                let reply = reply.and_for_ever(written[at].clone(), BETWEEN);
                Spoken { reply, bytes, label, problem: None }
            }
            // Without a stream, the client only sees that nothing comes.
            None => Spoken {
                reply: Reply::new(200, kind, "").stall_after(0),
                bytes: Vec::new(),
                label,
                problem: None,
            },
        }
    }
}

fn no_tool(why: String) -> Unspoken {
    Unspoken { why, is_of_format: false }
}

fn no_word(why: &str) -> Unspoken {
    Unspoken { why: why.to_owned(), is_of_format: true }
}

/// Returns the finish value of a format.
fn word(format: WireFormat, finish: Finish) -> Result<Option<&'static str>, Unspoken> {
    use WireFormat::{
        Anthropic, BedrockConverse, BedrockInvoke, CohereV2, Gemini, Ollama, OpenAiChat,
        OpenAiResponses,
    };
    let none =
        || Err(no_word(&format!("the format `{}` has no such finish value", format.as_str())));
    Ok(Some(match (finish, format) {
        // OpenAI marks a refusal in the content.
        (Finish::Fitting | Finish::Missing, _)
        | (Finish::Refusal, OpenAiChat | OpenAiResponses) => return Ok(None),
        (Finish::Calls, OpenAiChat) => "tool_calls",
        (Finish::Calls, Anthropic | BedrockInvoke | BedrockConverse) => "tool_use",
        (Finish::Calls, CohereV2) => "TOOL_CALL",
        (Finish::Calls, Gemini) => "MALFORMED_FUNCTION_CALL",
        (Finish::Length, OpenAiChat | Ollama) => "length",
        (Finish::Length, Anthropic | BedrockInvoke | BedrockConverse) => "max_tokens",
        (Finish::Length, OpenAiResponses) => "max_output_tokens",
        (Finish::Length, Gemini | CohereV2) => "MAX_TOKENS",
        (Finish::Filter, OpenAiChat | OpenAiResponses) => "content_filter",
        (Finish::Filter | Finish::Refusal, Anthropic | BedrockInvoke) => "refusal",
        (Finish::Filter, Gemini) => "SAFETY",
        (Finish::Filter, BedrockConverse) => "content_filtered",
        (Finish::Refusal, Gemini) => "PROHIBITED_CONTENT",
        // Only Anthropic documents it; the profile says whether the client knows it.
        (Finish::Pause, Anthropic | BedrockInvoke | OpenAiChat) => "pause_turn",
        (Finish::Unknown, Gemini | CohereV2) => "QUANTUM_COLLAPSE",
        (Finish::Unknown, _) => UNKNOWN,
        _ => return none(),
    }))
}

fn usage(reported: ReportedUsage) -> Usage {
    let (input, output, cached) = match reported {
        ReportedUsage::Small => (1_000, 20, None),
        ReportedUsage::Large => (20_000, 2_000, None),
        // All input tokens, as OpenAI counts them; Anthropic's writer subtracts the cached ones.
        ReportedUsage::Cached => (421_000, 20, Some((400_000, 20_000))),
        ReportedUsage::Absent | ReportedUsage::Zero => (0, 0, None),
    };
    Usage {
        input_tokens: Some(input),
        output_tokens: Some(output),
        cached_input_tokens: cached.map(|(read, _)| read),
        cache_write_tokens: cached.map(|(_, written)| written),
        ..Usage::default()
    }
}

fn ping(format: WireFormat) -> &'static [u8] {
    match format {
        WireFormat::Anthropic | WireFormat::BedrockInvoke => {
            b"event: ping\ndata: {\"type\": \"ping\"}\n\n"
        }
        WireFormat::Gemini => b": ping\r\n\r\n",
        _ => b": ping\n\n",
    }
}

/// Marks the text as a refusal, in the formats that have a member for it.
fn refuse(format: WireFormat, value: &mut Value) {
    match format {
        WireFormat::OpenAiChat => {
            let choices = value.get_mut("choices").and_then(Value::as_array_mut);
            for choice in choices.into_iter().flatten() {
                for place in ["delta", "message"] {
                    let object = choice.get_mut(place).and_then(Value::as_object_mut);
                    let Some(object) = object else { continue };
                    let said = object.get("content").and_then(Value::as_str);
                    if let Some(said) = said.filter(|said| !said.is_empty()).map(str::to_owned) {
                        object.insert("content".to_owned(), Value::Null);
                        object.insert("refusal".to_owned(), said.into());
                    }
                }
            }
        }
        WireFormat::OpenAiResponses => {
            let text = value.to_string();
            let text = text
                .replace(r#""type":"output_text","text":"#, r#""type":"refusal","refusal":"#)
                .replace("response.output_text.delta", "response.refusal.delta");
            let done = text.contains("response.output_text.done");
            let text = text.replace("response.output_text.done", "response.refusal.done");
            let text = if done { text.replace(r#""text":"#, r#""refusal":"#) } else { text };
            *value = serde_json::from_str(&text).unwrap_or_default();
        }
        _ => {}
    }
}

/// Signs the first call of a response of Gemini, as its reasoning models do: a client cannot return a signature that it did not
/// get. Returns `true` if there is a call.
fn sign(value: &mut Value) -> bool {
    let parts = value.pointer_mut("/candidates/0/content/parts").and_then(Value::as_array_mut);
    let call = parts.into_iter().flatten().find(|part| part["functionCall"].is_object());
    let has_call = call.is_some();
    if let Some(call) = call {
        call["thoughtSignature"] = SIGNATURE.into();
    }
    has_call
}

/// Removes members with these names, at any depth.
fn without(value: &mut Value, names: &[&str]) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !names.contains(&name.as_str()));
            members.values_mut().for_each(|value| without(value, names));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| without(value, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the data of a server-sent event.
fn data_of(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("data: ")).map(str::trim)
}

/// Changes the JSON of an event or of a body, and leaves what is not JSON.
fn edited(bytes: &[u8], mut change: impl FnMut(&mut Value)) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let data = data_of(&text).unwrap_or(&text);
    let Ok(mut value) = serde_json::from_str::<Value>(data) else { return bytes.to_vec() };
    let before = value.clone();
    change(&mut value);
    if value == before {
        return bytes.to_vec();
    }
    let name = value["type"].as_str().filter(|_| text.starts_with("event: "));
    let head = name.map(|name| format!("event: {name}\n")).unwrap_or_default();
    let end = if text.ends_with("\r\n\r\n") { "\r\n\r\n" } else { "\n\n" };
    match data_of(&text) {
        Some(_) => format!("{head}data: {value}{end}").into_bytes(),
        None => value.to_string().into_bytes(),
    }
}

//! Laws of every format: a request that is encoded and read is the same, and so is a response that is written and
//! decoded, whole or as a stream in chunks of any size, but for the losses in the tables.

use endstop_core::{Message, MessageId, Part, Role, ToolCall, ToolResult, ToolStatus, Usage};
use endstop_wire::codec::request::Fields;
use endstop_wire::codec::response::Response;
use endstop_wire::codec::{request_reader, write};
use endstop_wire::route::Delivery;
use endstop_wire::{
    Delta, Encoder, Eof, Headers, RequestFacts, RequestSpec, StreamDecoder, ToolDefinition,
    WireFormat,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What a format does not carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    Model,
    Stream,
    Instructions,
    LaterInstructions,
    Reasoning,
    CallIds,
    ResultNames,
    ResultErrors,
    ResponseId,
    CachedTokens,
    CutArguments,
}

use Loss::{
    CachedTokens, CallIds, CutArguments, Instructions, LaterInstructions, Model, Reasoning,
    ResponseId, ResultErrors, ResultNames, Stream,
};
use WireFormat::{
    Anthropic, BedrockConverse, BedrockInvoke, CohereV1, CohereV2, Gemini, Ollama, OpenAiChat,
    OpenAiResponses,
};

type Row = (Loss, &'static [WireFormat], &'static str);

/// Losses between a request that is encoded and the one that is read.
const OF_REQUESTS: &[Row] = &[
    (Model, &[Gemini, BedrockConverse, BedrockInvoke], "the path names the model"),
    (Stream, &[Gemini, BedrockConverse, BedrockInvoke], "the path asks for a stream"),
    (
        Instructions,
        &[OpenAiResponses, Anthropic, Gemini, BedrockConverse, BedrockInvoke],
        "instructions have a field of their own, which is not read",
    ),
    (
        LaterInstructions,
        &[Anthropic, Gemini, BedrockConverse, BedrockInvoke],
        "the formats have no such role, so that the user says it",
    ),
    (
        Reasoning,
        &[OpenAiChat, OpenAiResponses, Anthropic, Gemini, CohereV2, BedrockConverse, BedrockInvoke],
        "reasoning in plain text is to show and count it; what is sent back is opaque",
    ),
    (
        ResultNames,
        &[OpenAiChat, OpenAiResponses, Anthropic, CohereV2, BedrockConverse, BedrockInvoke],
        "a result belongs to the call of its id",
    ),
    (
        ResultErrors,
        &[OpenAiChat, OpenAiResponses, CohereV2, Ollama],
        "the text of the result states the error",
    ),
];

/// Losses between a response that is written and the one that is decoded.
const OF_RESPONSES: &[Row] = &[
    (Model, &[BedrockConverse, CohereV2], "the response does not repeat the model"),
    (ResponseId, &[BedrockConverse, Ollama], "the response has no id in its body"),
    (CallIds, &[Gemini, Ollama], "a result belongs to the call of its name"),
    (
        CachedTokens,
        &[OpenAiChat, OpenAiResponses, Gemini, CohereV2, Ollama, BedrockConverse],
        "only the writers of Anthropic's format have them, to test the costs of a cache",
    ),
];

/// In addition, of a response without a stream, and in formats whose streams have whole calls.
const OF_WHOLE_CALLS: &[Row] = &[(
    CutArguments,
    &[Anthropic, Gemini, Ollama, BedrockConverse, BedrockInvoke],
    "arguments are an object, which cannot be truncated",
)];

fn listed(rows: &[Row], format: WireFormat) -> BTreeSet<Loss> {
    rows.iter().filter(|row| row.1.contains(&format)).map(|row| row.0).collect()
}

/// The formats in which requests are encoded and responses are written.
fn formats() -> impl Iterator<Item = WireFormat> {
    WireFormat::ALL.iter().copied().filter(|format| format.read_only().is_none())
}

#[test]
fn only_first_cohere_version_is_read_only() {
    let read_only: Vec<WireFormat> =
        WireFormat::ALL.iter().copied().filter(|format| format.read_only().is_some()).collect();
    assert_eq!(read_only, [CohereV1]);
    assert!(write(CohereV1, Delivery::Whole, &Response::default()).is_none());
}

/// A step of a conversation: what the user says, and what the model answers before its calls have results.
#[derive(Clone, Debug)]
struct Step {
    user: String,
    instruction: Option<String>,
    reasoning: String,
    text: String,
    /// Names, arguments, results, and `true` for a failed one.
    calls: Vec<(String, Value, String, bool)>,
}

/// A part of a conversation, without the borders of messages: formats join those of one role.
#[derive(Clone, Debug, PartialEq)]
enum Item {
    Text(Role, String),
    Reasoning(String),
    Call { id: String, name: String, arguments: Value },
    Result { id: String, name: String, content: String, failed: bool },
}

fn messages(steps: &[Step]) -> Vec<Message> {
    let mut messages = Vec::new();
    let mut add = |role: Role, parts: Vec<Part>| {
        if !parts.is_empty() {
            messages.push(Message::new(MessageId(messages.len() as u64 + 1), role, parts));
        }
    };
    let text = |text: &str| Part::Text { text: text.to_owned() };
    for (at, step) in steps.iter().enumerate() {
        add(Role::User, vec![text(&step.user)]);
        if let Some(instruction) = &step.instruction {
            add(Role::System, vec![text(instruction)]);
        }
        let mut answer = Vec::new();
        if !step.reasoning.is_empty() {
            answer.push(Part::Reasoning { text: step.reasoning.clone() });
        }
        answer.push(text(&step.text));
        let id = |number: usize| format!("call_{at}_{number}");
        answer.extend(step.calls.iter().enumerate().map(|(number, (name, arguments, ..))| {
            let (name, arguments) = (name.clone(), arguments.to_string());
            Part::ToolCall(ToolCall { id: id(number), name, arguments })
        }));
        add(Role::Assistant, answer);
        let results = step.calls.iter().enumerate().map(|(number, (name, _, content, failed))| {
            Part::ToolResult(ToolResult {
                call_id: id(number),
                name: name.clone(),
                status: if *failed { ToolStatus::Error } else { ToolStatus::Ok },
                content: content.clone(),
                attachments: Vec::new(),
                started: true,
                pinned: false,
            })
        });
        add(Role::Tool, results.collect());
    }
    messages
}

fn items<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Vec<Item> {
    let mut items = Vec::new();
    for message in messages {
        for part in &message.parts {
            items.push(match part {
                Part::Text { text } => Item::Text(message.role, text.clone()),
                Part::Reasoning { text } => Item::Reasoning(text.clone()),
                Part::ToolCall(call) => Item::Call {
                    id: call.id.clone(),
                    name: call.name.clone(),
                    arguments: serde_json::from_str(&call.arguments).unwrap(),
                },
                Part::ToolResult(result) => Item::Result {
                    id: result.call_id.clone(),
                    name: result.name.clone(),
                    content: result.content.clone(),
                    failed: result.status.is_error(),
                },
                other => panic!("{other:?}"),
            });
        }
    }
    items
}

/// Adds the losses between two conversations, and fails for any other difference.
fn compare(source: &[Item], found: &[Item], losses: &mut BTreeSet<Loss>) {
    let mut found = found.iter();
    let mut lose = |is_lost: bool, loss: Loss| {
        if is_lost {
            losses.insert(loss);
        }
    };
    for item in source {
        if let Item::Reasoning(text) = item {
            let mut rest = found.clone();
            if rest.next() == Some(&Item::Reasoning(text.clone())) {
                found = rest;
            } else {
                lose(true, Reasoning);
            }
            continue;
        }
        match (item, found.next().unwrap_or_else(|| panic!("{item:?} is missing"))) {
            (Item::Text(Role::System, text), Item::Text(Role::User, same)) => {
                assert_eq!(text, same);
                lose(true, LaterInstructions);
            }
            (
                Item::Call { id, name, arguments },
                Item::Call { id: id_found, name: name_found, arguments: arguments_found },
            ) => {
                assert_eq!((name, arguments), (name_found, arguments_found));
                lose(id != id_found, CallIds);
            }
            (
                Item::Result { id, name, content, failed },
                Item::Result { id: id_found, name: name_found, content: same, failed: has_failed },
            ) => {
                assert_eq!(content, same);
                lose(id != id_found, CallIds);
                lose(name != name_found, ResultNames);
                lose(failed != has_failed, ResultErrors);
            }
            (item, found) => assert_eq!(item, found),
        }
    }
    assert_eq!(found.next(), None);
}

/// Encodes a conversation, reads it, and returns the losses.
fn losses_of_request(format: WireFormat, steps: &[Step], cap: u64) -> BTreeSet<Loss> {
    let tool = |name: &str| ToolDefinition { name: name.to_owned(), ..ToolDefinition::default() };
    let spec = RequestSpec {
        model: "model-1".to_owned(),
        system: Some("Be brief.".to_owned()),
        tools: vec![tool("alpha"), tool("beta")],
        max_output_tokens: Some(cap),
        stream: true,
        ..RequestSpec::default()
    };
    let messages = messages(steps);
    let mut encoder = Encoder::new(format.dialect(), &spec);
    let body = std::str::from_utf8(encoder.body(&messages, 0, None)).unwrap();
    let fields = Fields::of(body).unwrap();
    let reader = request_reader(format, &fields).unwrap();
    assert_eq!(reader.format, format.content());
    let head = reader.head(&fields);
    assert_eq!(head.tools, ["alpha", "beta"], "{format}");
    assert_eq!(head.output_cap, Some(cap), "{format}");
    let mut losses = BTreeSet::new();
    if head.model.as_deref() != Some("model-1") {
        losses.insert(Model);
    }
    if head.stream != Some(true) {
        losses.insert(Stream);
    }
    let read: Vec<Message> = head.messages.iter().map(|text| reader.message(text)).collect();
    let mut found = items(&read);
    if found.first() == Some(&Item::Text(Role::System, "Be brief.".to_owned())) {
        found.remove(0);
    } else {
        losses.insert(Instructions);
    }
    compare(&items(&messages), &found, &mut losses);
    losses
}

/// A response as its reader finds it.
#[derive(Debug)]
struct Source {
    reasoning: String,
    text: Vec<String>,
    calls: Vec<ToolCall>,
    usage: Usage,
}

/// Writes a response, decodes it in chunks of this size, and returns the losses.
fn losses_of_response(
    format: WireFormat,
    delivery: Delivery,
    source: &Source,
    chunk: usize,
) -> BTreeSet<Loss> {
    let text: Vec<&str> = source.text.iter().map(String::as_str).collect();
    let response = Response {
        id: "a1",
        unix_seconds: 1_795_000_000,
        model: "model-1",
        reasoning: &source.reasoning,
        text: &text,
        calls: &source.calls,
        finish: None,
        usage: source.usage.clone(),
        omits_usage: false,
    };
    let body = write(format, delivery, &response).unwrap().concat();
    let facts = RequestFacts::default();
    let mut decoder = StreamDecoder::new(format.dialect(), 200, Headers::new(), facts);
    let mut shown = String::new();
    for bytes in body.chunks(chunk) {
        decoder
            .push(bytes, &mut |delta| {
                if let Delta::Text(text) = delta {
                    shown.push_str(text);
                }
            })
            .unwrap();
    }
    let decoded = decoder.finish(Eof::Clean);
    let what = format!("{format} {delivery:?} {}\n{decoded:?}", String::from_utf8_lossy(&body));
    assert!(decoded.complete && decoded.error.is_none(), "{what}");
    // A stream of one object is read as a whole body.
    assert!(delivery != Delivery::Whole || !decoded.streamed, "{what}");
    let turn = decoded.turn.unwrap();
    let said = text.concat();
    assert_eq!(turn.text(), said, "{what}");
    assert!(!decoded.streamed || shown == said, "{what}");
    let reasoning: String = turn
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Reasoning { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(reasoning, source.reasoning, "{what}");
    let calls: Vec<&ToolCall> = turn.tool_calls().collect();
    assert_eq!(calls.len(), source.calls.len(), "{what}");
    let is_call = !calls.is_empty();
    let mut losses = BTreeSet::new();
    let mut lose = |is_lost: bool, loss: Loss| {
        if is_lost {
            losses.insert(loss);
        }
    };
    for (call, found) in source.calls.iter().zip(calls) {
        assert_eq!(call.name, found.name, "{what}");
        lose(call.id != found.id, CallIds);
        let arguments = |call: &ToolCall| serde_json::from_str::<Value>(&call.arguments).ok();
        match arguments(call) {
            Some(value) => assert_eq!(arguments(found), Some(value), "{what}"),
            None => lose(call.arguments != found.arguments, CutArguments),
        }
    }
    let is_whole =
        source.calls.iter().all(|call| serde_json::from_str::<Value>(&call.arguments).is_ok());
    let reason = if is_call { "tool_use" } else { "natural_completion" };
    // Truncated arguments are an ending of their own.
    assert!(!is_whole || decoded.signal.reason.as_str() == reason, "{what}");
    lose(turn.model.as_deref() != Some("model-1"), Model);
    lose(!turn.response_id.as_deref().is_some_and(|id| id.ends_with("a1")), ResponseId);
    assert_eq!(turn.usage.prompt_tokens(), source.usage.prompt_tokens(), "{what}");
    assert_eq!(turn.usage.output_tokens, source.usage.output_tokens, "{what}");
    let cached = |usage: &Usage| (usage.cached_input_tokens, usage.cache_write_tokens);
    lose(cached(&turn.usage) != cached(&source.usage), CachedTokens);
    losses
}

/// Deliveries of a format's streams, and of a whole body.
fn deliveries(format: WireFormat) -> &'static [Delivery] {
    match format {
        Gemini => &[Delivery::Whole, Delivery::Events, Delivery::Array],
        Ollama => &[Delivery::Whole, Delivery::Lines],
        BedrockConverse | BedrockInvoke => &[Delivery::Whole, Delivery::Frames],
        _ => &[Delivery::Whole, Delivery::Events],
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = "alpha|beta";
    let value = prop_oneof![".{0,12}".prop_map(Value::from), any::<i32>().prop_map(Value::from)];
    let arguments =
        prop::collection::btree_map("[a-z]{1,4}", value, 0..3).prop_map(|members| json!(members));
    let call = (name, arguments, said(), any::<bool>());
    let step = (
        said(),
        prop::option::weighted(0.2, said()),
        prop_oneof![Just(String::new()), said()],
        said(),
        prop::collection::vec(call, 0..3),
    );
    let step = step.prop_map(|(user, instruction, reasoning, text, calls)| Step {
        user,
        instruction,
        reasoning,
        text,
        calls,
    });
    prop::collection::vec(step, 1..4)
}

/// A text that is not blank: the encoders leave out blank ones, which some servers reject.
fn said() -> impl Strategy<Value = String> {
    "[a-z0-9\"\\\\é😀<\n]{1,3}.{0,20}".prop_map(|text| format!("x{text}"))
}

fn sources() -> impl Strategy<Value = Source> {
    let arguments = prop_oneof![
        ".{0,12}".prop_map(|text| json!({"text": text}).to_string()),
        Just("{}".to_owned()),
        Just("{\"cut\": \"of".to_owned()),
    ];
    let calls = prop::collection::vec(("alpha|beta", arguments), 0..3);
    let reasoning = prop_oneof![Just(String::new()), said()];
    let text = prop::collection::vec(said(), 0..4);
    (reasoning, text, calls, 10..5000u64, 0..5u64, 0..5u64, 50..5000u64).prop_map(
        |(reasoning, text, calls, plain, read, written, output)| Source {
            reasoning,
            text,
            calls: calls
                .into_iter()
                .enumerate()
                .map(|(at, (name, arguments))| ToolCall { id: format!("id{at}"), name, arguments })
                .collect(),
            usage: Usage {
                input_tokens: Some(plain + read + written),
                output_tokens: Some(output),
                cached_input_tokens: Some(read),
                cache_write_tokens: Some(written),
                ..Usage::default()
            },
        },
    )
}

proptest! {
    #[test]
    fn encoded_request_is_read(steps in steps(), cap in 1..1_000_000u64) {
        for format in formats() {
            let losses = losses_of_request(format, &steps, cap);
            let listed = listed(OF_REQUESTS, format);
            prop_assert!(losses.is_subset(&listed), "{format}: {losses:?}");
        }
    }

    #[test]
    fn written_response_is_decoded(source in sources(), chunk in 1..200usize) {
        for format in formats() {
            for delivery in deliveries(format) {
                let losses = losses_of_response(format, *delivery, &source, chunk);
                let mut listed = listed(OF_RESPONSES, format);
                listed.extend(self::listed(OF_WHOLE_CALLS, format));
                prop_assert!(losses.is_subset(&listed), "{format} {delivery:?}: {losses:?}");
            }
        }
    }
}

/// Each loss in the tables is one: a row that is no longer true fails here.
#[test]
fn listed_losses_are_lost() {
    let step = Step {
        user: "Hello".to_owned(),
        instruction: Some("Now in French.".to_owned()),
        reasoning: "A greeting.".to_owned(),
        text: "I look.".to_owned(),
        calls: vec![("alpha".to_owned(), json!({"a": 1}), "no".to_owned(), true)],
    };
    let source = Source {
        reasoning: "A greeting.".to_owned(),
        text: vec!["I ".to_owned(), "look.".to_owned()],
        calls: vec![ToolCall {
            id: "id0".to_owned(),
            name: "alpha".to_owned(),
            arguments: "{\"cut\": \"of".to_owned(),
        }],
        usage: Usage {
            input_tokens: Some(100),
            output_tokens: Some(50),
            cached_input_tokens: Some(20),
            cache_write_tokens: Some(10),
            ..Usage::default()
        },
    };
    for format in formats() {
        let losses = losses_of_request(format, std::slice::from_ref(&step), 100);
        assert_eq!(losses, listed(OF_REQUESTS, format), "{format}");
        let mut all = listed(OF_RESPONSES, format);
        all.extend(listed(OF_WHOLE_CALLS, format));
        assert_eq!(losses_of_response(format, Delivery::Whole, &source, 64), all, "{format}");
    }
}

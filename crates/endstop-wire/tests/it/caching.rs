//! Cache marks and keys in requests, prefixes that do not change, and cached tokens in responses.

use endstop_core::{Message, MessageId, Part, Role, ToolCall, ToolResult, ToolStatus};
use endstop_wire::caching::without_marks;
use endstop_wire::dialect::{ANTHROPIC, DIALECTS, OPENAI_CHAT, dialect};
use endstop_wire::{
    Caching, Dialect, Encoder, Headers, ModelParams, ParamError, RequestFacts, RequestSpec,
    ToolDefinition, decode_body,
};
use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const CLAUDE: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";

fn spec(dialect: &Dialect, model: &str, params: &ModelParams) -> Result<RequestSpec, ParamError> {
    let tool = |name: &str| ToolDefinition {
        name: name.to_owned(),
        description: "Reads a file.".to_owned(),
        schema: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
    };
    let mut spec = RequestSpec {
        model: model.to_owned(),
        system: Some("Be brief.".to_owned()),
        tools: vec![tool("zip"), tool("act")],
        stream: true,
        ..RequestSpec::default()
    };
    params.apply(dialect, &mut spec)?;
    Ok(spec)
}

fn cache(setting: Caching) -> ModelParams {
    ModelParams { cache: Some(setting), ..ModelParams::default() }
}

fn text(text: &str) -> Part {
    Part::Text { text: text.to_owned() }
}

fn call(id: &str) -> Part {
    Part::ToolCall(ToolCall { id: id.into(), name: "act".into(), arguments: "{}".into() })
}

fn result(id: &str, content: &str) -> Part {
    Part::ToolResult(ToolResult {
        call_id: id.into(),
        name: "act".into(),
        status: ToolStatus::Ok,
        content: content.into(),
        attachments: Vec::new(),
        started: true,
        pinned: false,
    })
}

/// Numbers the messages.
fn conversation(messages: Vec<(Role, Vec<Part>)>) -> Vec<Message> {
    let number = |(at, (role, parts))| Message::new(MessageId(at as u64 + 1), role, parts);
    messages.into_iter().enumerate().map(number).collect()
}

/// One task, and a turn with this many calls and their results.
fn acted(calls: usize) -> Vec<Message> {
    let ids: Vec<String> = (0..calls).map(|n| format!("c{n}")).collect();
    conversation(vec![
        (Role::User, vec![text("Go.")]),
        (Role::Assistant, ids.iter().map(|id| call(id)).collect()),
        (Role::Tool, ids.iter().map(|id| result(id, "done")).collect()),
    ])
}

fn body(dialect: &Dialect, spec: &RequestSpec, messages: &[Message]) -> Value {
    serde_json::from_slice(Encoder::new(dialect, spec).body(messages, 0, Some(100))).unwrap()
}

/// Paths of the marks in a body, sorted.
fn marks(body: &Value) -> Vec<String> {
    fn walk(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if name == "cache_control" || name == "cachePoint" {
                        found.push(path.to_owned());
                    } else {
                        walk(value, &format!("{path}/{name}"), found);
                    }
                }
            }
            Value::Array(items) => {
                let each = items.iter().enumerate();
                each.for_each(|(at, item)| walk(item, &format!("{path}/{at}"), found));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(body, "", &mut found);
    found.sort();
    found
}

#[test]
fn anthropic_marks_tools_system_and_two_ends() {
    let spec = spec(ANTHROPIC, "claude-opus-4-5", &ModelParams::default()).unwrap();
    // A turn of 30 blocks: the server looks back over 20 only, so the previous end is marked too.
    let body = body(ANTHROPIC, &spec, &acted(30));
    let expected = ["/messages/0/content/0", "/messages/2/content/29", "/system/0", "/tools/1"];
    assert_eq!(marks(&body), expected);
    assert_eq!(body["tools"][1]["cache_control"], json!({"type": "ephemeral"}));
    assert_eq!(
        body["system"],
        json!([{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}])
    );
}

#[test]
fn hour_lifetime_is_on_every_mark() {
    let spec = spec(ANTHROPIC, "claude-opus-4-5", &cache(Caching::OneHour)).unwrap();
    let body = body(ANTHROPIC, &spec, &acted(1));
    let hour = json!({"type": "ephemeral", "ttl": "1h"});
    for mark in marks(&body) {
        assert_eq!(body.pointer(&mark).unwrap()["cache_control"], hour, "{mark}");
    }
    assert_eq!(marks(&body).len(), 4);
}

#[test]
fn thinking_and_empty_content_is_not_marked() {
    let spec = RequestSpec {
        system: Some(" ".to_owned()),
        ..spec(ANTHROPIC, "claude-opus-4-5", &ModelParams::default()).unwrap()
    };
    let thinking = r#"{"type":"thinking","thinking":"hm","signature":"s"}"#;
    let opaque = Part::Opaque { api: "anthropic-messages".into(), json: thinking.into() };
    let messages = conversation(vec![
        (Role::User, vec![text("Go."), text(" ")]),
        (Role::Assistant, vec![opaque, call("a")]),
        (Role::Tool, vec![result("a", "")]),
    ]);
    let body = body(ANTHROPIC, &spec, &messages);
    assert_eq!(marks(&body), ["/messages/0/content/0", "/tools/1"]);
}

#[test]
fn converse_points_follow_the_models_table() {
    let converse = dialect("bedrock-converse").unwrap();
    let points = |model: &str, params: &ModelParams| {
        let spec = spec(converse, model, params).unwrap();
        marks(&body(converse, &spec, &acted(2)))
    };
    let all =
        ["/messages/0/content/1", "/messages/2/content/2", "/system/1", "/toolConfig/tools/2"];
    assert_eq!(points(CLAUDE, &ModelParams::default()), all);
    // Nova refuses them among the tools and after a result.
    let nova = points("us.amazon.nova-pro-v1:0", &ModelParams::default());
    assert_eq!(nova, ["/messages/0/content/1", "/system/1"]);
    assert_eq!(points("meta.llama3-1-70b-instruct-v1:0", &ModelParams::default()), [""; 0]);
    assert_eq!(points(CLAUDE, &cache(Caching::Off)), [""; 0]);
    // A tool choice is written next to the tools.
    let forced =
        ModelParams { tool_choice: Some("required".to_owned().into()), ..cache(Caching::OneHour) };
    assert_eq!(points(CLAUDE, &forced), all);
    let spec = spec(converse, CLAUDE, &forced).unwrap();
    let body = body(converse, &spec, &acted(2));
    for mark in all {
        let point = &body.pointer(mark).unwrap()["cachePoint"];
        assert_eq!(*point, json!({"type": "default", "ttl": "1h"}), "{mark}");
    }
}

#[test]
fn invoke_marks_only_known_models() {
    let invoke = dialect("bedrock-invoke").unwrap();
    let count = |model: &str| {
        let spec = spec(invoke, model, &ModelParams::default()).unwrap();
        marks(&body(invoke, &spec, &acted(1))).len()
    };
    assert_eq!(count(CLAUDE), 4);
    assert_eq!(count("anthropic.claude-3-haiku-20240307-v1:0"), 0);
}

#[test]
fn own_marks_take_precedence() {
    let extra = json!({"cache_control": {"type": "ephemeral"}}).as_object().unwrap().clone();
    let own = ModelParams { extra: extra.clone(), ..ModelParams::default() };
    let spec_of = |params: &ModelParams| spec(ANTHROPIC, "claude-opus-4-5", params);
    let body = body(ANTHROPIC, &spec_of(&own).unwrap(), &acted(1));
    assert_eq!(marks(&body), [""]);
    let both = ModelParams { extra, ..cache(Caching::OneHour) };
    assert!(matches!(spec_of(&both), Err(ParamError::Conflict(_))));
}

#[test]
fn marks_of_imported_blocks_are_replaced() {
    let block = r#"{"type":"text","text":"old","cache_c\u006fntrol":{"type":"ephemeral","ttl":"1h"},
        "content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}],
        "input":{"cache_control":"an argument"}}"#;
    let imported = Part::Opaque { api: "anthropic-messages".into(), json: block.into() };
    let mut messages = acted(1);
    messages[0].parts.extend(vec![imported; 5]);
    let sent = |params: &ModelParams| {
        body(ANTHROPIC, &spec(ANTHROPIC, "claude-opus-4-5", params).unwrap(), &messages)
    };
    // Four places, as without the block; the arguments of a call are not marks.
    let body = sent(&ModelParams::default());
    let imported = body.pointer("/messages/0/content/1").unwrap();
    assert_eq!(imported["text"], "old");
    assert_eq!(imported["input"], json!({"cache_control": "an argument"}));
    let count = |body: &Value| body.to_string().matches("cache_control\":{").count();
    assert_eq!(count(&body), 4, "{body}");
    assert_eq!(count(&sent(&cache(Caching::Off))), 0);
    // The caller's own marks stay.
    let extra = json!({"cache_control": {"type": "ephemeral"}}).as_object().unwrap().clone();
    let own = ModelParams { extra, ..ModelParams::default() };
    assert!(count(&sent(&own)) > 10 && own.may_cache_for_hour());
}

#[test]
fn imported_cache_points_are_replaced() {
    let converse = dialect("bedrock-converse").unwrap();
    let spec = spec(converse, CLAUDE, &ModelParams::default()).unwrap();
    let point = r#"{"cachePoint":{"type":"default"}}"#;
    let imported = Part::Opaque { api: "bedrock-converse".into(), json: point.into() };
    let mut messages = acted(1);
    messages[0].parts.extend(vec![imported; 5]);
    let body = body(converse, &spec, &messages).to_string();
    assert_eq!(body.matches("cachePoint").count(), 4, "{body}");
}

#[test]
fn hour_is_refused_where_it_does_not_exist() {
    for dialect in DIALECTS {
        for setting in [Caching::Off, Caching::Auto] {
            assert!(spec(dialect, CLAUDE, &cache(setting)).is_ok(), "{}", dialect.name);
        }
        let takes = matches!(
            dialect.name,
            "anthropic-messages" | "vertex-anthropic" | "bedrock-converse" | "bedrock-invoke"
        );
        let hour = spec(dialect, CLAUDE, &cache(Caching::OneHour));
        assert_eq!(hour.is_ok(), takes, "{}: {hour:?}", dialect.name);
    }
    let converse = dialect("bedrock-converse").unwrap();
    let refused = spec(converse, "amazon.nova-pro-v1:0", &cache(Caching::OneHour)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "invalid `cache`: expected off or auto: bedrock-converse has no lifetime of an hour for the model `amazon.nova-pro-v1:0`"
    );
}

#[test]
fn only_openai_gets_a_stable_key() {
    let key = |name: &str, params: &ModelParams, messages: &[Message]| {
        let dialect = dialect(name).unwrap();
        let spec = spec(dialect, "gpt-5", params).unwrap();
        body(dialect, &spec, messages)["prompt_cache_key"].as_str().map(str::to_owned)
    };
    let auto = ModelParams::default();
    for name in ["openai-chat", "openai-responses"] {
        let first = key(name, &auto, &acted(1)[..1]).unwrap();
        assert_eq!(key(name, &auto, &acted(1)), Some(first.clone()), "{name}");
        let other = conversation(vec![(Role::User, vec![text("Stop.")])]);
        assert_ne!(key(name, &auto, &other), Some(first), "{name}");
        assert_eq!(key(name, &cache(Caching::Off), &acted(1)), None);
        let extra = json!({"prompt_cache_key": "mine"}).as_object().unwrap().clone();
        let own = ModelParams { extra, ..ModelParams::default() };
        assert_eq!(key(name, &own, &acted(1)).as_deref(), Some("mine"));
    }
    for dialect in
        DIALECTS.iter().filter(|d| !["openai-chat", "openai-responses"].contains(&d.name))
    {
        if dialect.family.read_only().is_none() {
            assert_eq!(key(dialect.name, &auto, &acted(1)), None, "{}", dialect.name);
        }
    }
}

/// Removes the marks from the text of a request.
fn text_text_without_marks(text: &str) -> String {
    text.replace(r#","cache_control":{"type":"ephemeral"}"#, "")
        .replace(r#",{"cachePoint":{"type":"default"}}"#, "")
}

/// The members of a request by name. The conversation lacks its closing brackets, because the next
/// turn may continue its last message.
fn members(body: &[u8]) -> (String, BTreeMap<String, String>) {
    let text = text_text_without_marks(std::str::from_utf8(body).unwrap());
    let raw: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&text).unwrap();
    let mut members: BTreeMap<String, String> =
        raw.into_iter().map(|(name, value)| (name, value.get().to_owned())).collect();
    let history = ["messages", "contents", "input"].iter().find_map(|name| members.remove(*name));
    (history.unwrap().trim_end_matches([']', '}']).to_owned(), members)
}

#[derive(Clone, Debug)]
enum Step {
    Says(String),
    Acts(Vec<String>),
    Asks(String),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        "[a-z\"\\\\}\\]é ]{0,12}".prop_map(Step::Says),
        prop::collection::vec("[a-z\"}\\] ]{0,30}", 1..25).prop_map(Step::Acts),
        "[a-z\"}\\] ]{0,12}".prop_map(Step::Asks),
    ]
}

/// Appends the messages of a step, as a run appends them.
fn append(step: &Step, at: usize, messages: &mut Vec<(Role, Vec<Part>)>) {
    match step {
        Step::Says(said) => {
            messages.push((Role::Assistant, vec![text(&format!("I say {said}"))]));
            messages.push((Role::User, vec![text("And then?")]));
        }
        Step::Asks(asked) => messages.push((Role::User, vec![text(&format!("More {asked}"))])),
        Step::Acts(results) => {
            let ids: Vec<String> = (0..results.len()).map(|n| format!("c{at}x{n}")).collect();
            let calls = ids.iter().map(|id| call(id));
            messages.push((Role::Assistant, [text("I act.")].into_iter().chain(calls).collect()));
            let answers = ids.iter().zip(results).map(|(id, content)| result(id, content));
            messages.push((Role::Tool, answers.collect()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn each_request_begins_with_the_previous_one(steps in prop::collection::vec(step(), 1..8)) {
        for dialect in DIALECTS.iter().filter(|dialect| dialect.family.read_only().is_none()) {
            let spec = spec(dialect, CLAUDE, &ModelParams::default()).unwrap();
            let mut encoder = Encoder::new(dialect, &spec);
            let mut so_far = vec![(Role::User, vec![text("Go.")])];
            let mut before: Option<(String, BTreeMap<String, String>)> = None;
            for (at, step) in steps.iter().enumerate() {
                append(step, at, &mut so_far);
                let messages = conversation(so_far.clone());
                let sent = encoder.body(&messages, 0, Some(100)).to_vec();
                // A resumed run encodes everything anew, and the server must find the same prefix.
                let anew = Encoder::new(dialect, &spec).body(&messages, 0, Some(100)).to_vec();
                prop_assert_eq!(&sent, &anew, "{}", dialect.name);
                let marked = marks(&serde_json::from_slice(&sent).unwrap());
                prop_assert!(marked.len() <= 4, "{}: {:?}", dialect.name, marked);
                let now = members(&sent);
                if let Some((history, rest)) = &before {
                    prop_assert!(now.0.starts_with(history.as_str()), "{}", dialect.name);
                    prop_assert_eq!(&now.1, rest, "{}", dialect.name);
                }
                before = Some(now);
            }
        }
    }
}

#[test]
fn request_without_marks_equals_uncached_one() {
    for dialect in DIALECTS.iter().filter(|dialect| dialect.family.read_only().is_none()) {
        let body = |setting: Caching| {
            let spec = spec(dialect, CLAUDE, &cache(setting)).unwrap();
            body(dialect, &spec, &acted(3))
        };
        let (on, off) = (body(Caching::Auto), body(Caching::Off));
        assert_eq!(without_marks(on), without_marks(off.clone()), "{}", dialect.name);
        let key = off.get("prompt_cache_key");
        assert!(marks(&off).is_empty() && key.is_none(), "{}", dialect.name);
    }
}

#[test]
fn lifetimes_of_writes_are_decoded() {
    let usage = |name: &str, facts: RequestFacts, body: Value| {
        let dialect = dialect(name).unwrap();
        let (headers, body) = (Headers::new(), body.to_string());
        let decoded = decode_body(dialect, 200, &headers, body.as_bytes(), &facts);
        let usage = decoded.turn.unwrap().usage;
        (usage.cached_input_tokens, usage.cache_write_tokens, usage.cache_write_1h_tokens)
    };
    let claude = |usage: Value| {
        json!({"type": "message", "role": "assistant", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "Hi."}], "usage": usage})
    };
    let counts = json!({"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 30,
        "cache_creation_input_tokens": 20});
    let mut split = counts.clone();
    split["cache_creation"] =
        json!({"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 15});
    let plain = RequestFacts::default();
    let hour = RequestFacts { cached_for_hour: true, ..plain };
    let name = "anthropic-messages";
    assert_eq!(usage(name, plain, claude(split.clone())), (Some(30), Some(20), Some(15)));
    assert_eq!(usage(name, hour, claude(split)), (Some(30), Some(20), Some(15)));
    assert_eq!(usage(name, plain, claude(counts.clone())), (Some(30), Some(20), None));
    assert_eq!(usage(name, hour, claude(counts)), (Some(30), Some(20), Some(20)));
    let converse = json!({"output": {"message": {"role": "assistant", "content": [{"text": "Hi."}]}},
        "stopReason": "end_turn", "usage": {"inputTokens": 1, "outputTokens": 2,
        "cacheReadInputTokens": 3, "cacheWriteInputTokens": 9,
        "cacheDetails": [{"ttl": "5m", "inputTokens": 2}, {"ttl": "1h", "inputTokens": 7}]}});
    assert_eq!(usage("bedrock-converse", plain, converse), (Some(3), Some(9), Some(7)));
}

#[test]
fn automatic_caches_are_decoded() {
    let read = |name: &str, body: Value| {
        let dialect = dialect(name).unwrap();
        let facts = RequestFacts::default();
        let (headers, body) = (Headers::new(), body.to_string());
        let decoded = decode_body(dialect, 200, &headers, body.as_bytes(), &facts);
        decoded.turn.unwrap().usage.cached_input_tokens
    };
    let chat = |usage: Value| {
        json!({"choices": [{"message": {"role": "assistant", "content": "Hi."},
            "finish_reason": "stop"}], "usage": usage})
    };
    let openai = json!({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}});
    assert_eq!(read(OPENAI_CHAT.name, chat(openai)), Some(8));
    let deepseek = json!({"prompt_tokens": 9, "prompt_cache_hit_tokens": 7,
        "prompt_cache_miss_tokens": 2});
    assert_eq!(read("deepseek", chat(deepseek)), Some(7));
    let gemini = json!({"candidates": [{"content": {"parts": [{"text": "Hi."}]},
        "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 9,
        "cachedContentTokenCount": 6}});
    assert_eq!(read("gemini", gemini), Some(6));
    let responses = json!({"object": "response", "status": "completed", "output": [{"type": "message",
        "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}],
        "usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 5}}});
    assert_eq!(read("openai-responses", responses), Some(5));
}

#[test]
fn taken_body_changes_no_request() {
    let history = conversation(vec![
        (Role::User, vec![text("Go.")]),
        (Role::Assistant, vec![call("a")]),
        (Role::Tool, vec![result("a", "done")]),
        (Role::Assistant, vec![text("And?")]),
        (Role::User, vec![text("Go on.")]),
    ]);
    for dialect in DIALECTS {
        let Ok(spec) = spec(dialect, CLAUDE, &ModelParams::default()) else { continue };
        let [mut kept, mut lent, mut lost] = [(); 3].map(|()| Encoder::new(dialect, &spec));
        let mut sent = Vec::new();
        for upto in [1, 3, 3, 5] {
            let body = kept.body(&history[..upto], 0, Some(100)).to_vec();
            lent.give_back(sent);
            assert_eq!(lent.body(&history[..upto], 0, Some(100)), body, "{}", dialect.name);
            sent = lent.take_body();
            assert_eq!(sent, body, "{}", dialect.name);
            assert_eq!(lost.body(&history[..upto], 0, Some(100)), body, "{}", dialect.name);
            lost.take_body();
        }
    }
}

//! Images and documents in the requests of each format.

use endstop_core::{
    Attachment, Document, Image, Message, MessageId, Part, Role, ToolCall, ToolResult, ToolStatus,
};
use endstop_wire::dialect::dialect;
use endstop_wire::media::{MediaSupport, image_tokens};
use endstop_wire::{Encoder, RequestSpec};
use serde_json::{Value, json};

const GIF: &[u8] = b"GIF89a\x80\x02\xe0\x01";
const GIF64: &str = "R0lGODlhgALgAQ==";
const NAMED: &str = "[image: image/gif, 640x480 pixels, 10 bytes]";

fn gif() -> Image {
    Image::from_bytes(GIF, "image/gif").unwrap()
}

fn png() -> Image {
    let file = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x06\0\0\0";
    Image::from_bytes(file, "image/png").unwrap()
}

fn pdf() -> Document {
    Document::from_bytes(b"%PDF-1.4\n", "application/pdf").unwrap().named("the_plan (1).pdf")
}

fn result(id: &str, content: &str, attachments: Vec<Attachment>) -> Part {
    Part::ToolResult(ToolResult {
        call_id: id.into(),
        name: "look".into(),
        status: ToolStatus::Ok,
        content: content.into(),
        attachments,
        started: true,
        pinned: false,
    })
}

/// A user asks, the model calls two tools, and the first returns an image.
fn history(image: Image) -> Vec<Message> {
    let named = format!("Here:\n[{}]", Attachment::from(image.clone()));
    let call = |id: &str| {
        Part::ToolCall(ToolCall { id: id.into(), name: "look".into(), arguments: "{}".into() })
    };
    vec![
        Message::text(MessageId(1), Role::User, "What is it?"),
        Message::new(MessageId(2), Role::Assistant, vec![call("a12345678"), call("b12345678")]),
        Message::new(
            MessageId(3),
            Role::Tool,
            vec![
                result("a12345678", &named, vec![image.into()]),
                result("b12345678", "ok", vec![]),
            ],
        ),
    ]
}

/// The messages of a request to this model.
fn sent(api: &str, model: &str, history: &[Message]) -> Vec<Value> {
    let spec = RequestSpec { model: model.into(), ..RequestSpec::default() };
    let mut encoder = Encoder::new(dialect(api).unwrap(), &spec);
    // In two steps: a message is encoded once.
    encoder.body(&history[..1], 0, None);
    let body: Value = serde_json::from_slice(encoder.body(history, 0, None)).unwrap();
    let once: Value =
        serde_json::from_slice(Encoder::new(dialect(api).unwrap(), &spec).body(history, 0, None))
            .unwrap();
    assert_eq!(body, once);
    let list = ["messages", "input", "contents"].iter().find_map(|name| body[name].as_array());
    list.unwrap().clone()
}

#[test]
fn result_carries_image_where_format_can() {
    let text = format!("Here:\n{NAMED}");
    let block = json!({"type": "image",
        "source": {"type": "base64", "media_type": "image/gif", "data": GIF64}});
    for api in ["anthropic-messages", "bedrock-invoke"] {
        let m = sent(api, "claude-sonnet-4-5", &history(gif()));
        let content = &m[2]["content"][0]["content"];
        assert_eq!(content, &json!([{"type": "text", "text": text}, block]), "{api}");
        assert_eq!(m[2]["content"][1]["content"], "ok");
    }
    let m = sent("bedrock-converse", "us.anthropic.claude-sonnet-4-5", &history(gif()));
    let image = json!({"image": {"format": "gif", "source": {"bytes": GIF64}}});
    assert_eq!(m[2]["content"][0]["toolResult"]["content"], json!([{"text": text}, image]));
    let m = sent("openai-responses", "gpt-5", &history(gif()));
    let url = format!("data:image/gif;base64,{GIF64}");
    let image = json!({"type": "input_image", "detail": "auto", "image_url": url});
    assert_eq!(m[3]["output"], json!([{"type": "input_text", "text": text}, image]));
    assert_eq!((&m[4]["output"], m.len()), (&json!("ok"), 5));
    let m = sent("gemini", "gemini-3-pro", &history(png()));
    let response = &m[2]["parts"][0]["functionResponse"];
    assert_eq!(response["parts"][0]["inlineData"]["mimeType"], "image/png");
    assert!(response["response"]["output"].as_str().unwrap().starts_with("Here:\n[image: "));
}

#[test]
fn image_follows_results_elsewhere() {
    let label = format!("{}, from the result of `look`]", &NAMED[..NAMED.len() - 1]);
    let url = json!({"type": "image_url",
        "image_url": {"url": format!("data:image/gif;base64,{GIF64}")}});
    for (api, model) in
        [("openai-chat", "gpt-5"), ("mistral", "pixtral-large"), ("cohere-v2", "command-a-vision")]
    {
        let m = sent(api, model, &history(gif()));
        let roles: Vec<&str> = m.iter().map(|m| m["role"].as_str().unwrap()).collect();
        let mut want = vec!["user", "assistant", "tool", "tool", "user"];
        if api == "mistral" {
            want.insert(4, "assistant");
        }
        assert_eq!(roles, want, "{api}");
        assert_eq!(m[2]["content"], format!("Here:\n{NAMED}"), "{api}");
        let last = &m.last().unwrap()["content"];
        assert_eq!(last, &json!([{"type": "text", "text": label}, url]), "{api}");
    }
    let m = sent("ollama", "qwen3-vl", &history(gif()));
    let last = m.last().unwrap();
    assert_eq!((&last["content"], &last["images"]), (&json!(label), &json!([GIF64])));
    let m = sent("gemini", "gemini-2.5-pro", &history(png()));
    assert!(m[2]["parts"][0]["functionResponse"].get("parts").is_none());
    assert_eq!(m[2]["parts"][3]["inlineData"]["mimeType"], "image/png");
}

#[test]
fn blind_model_reads_why() {
    for (api, model, why) in [
        ("deepseek", "deepseek-chat", "the model reads only text"),
        ("cohere-v2", "command-a-03-2025", "the model reads only text"),
        ("ollama", "qwen3:8b", "the model reads only text"),
        ("openai-responses", "o3-mini", "the model reads only text"),
        ("bedrock-converse", "us.meta.llama-3.3-70b", "the model reads only text"),
        // Sees, but not this type.
        ("gemini", "gemini-3-pro", "the API takes no image/gif"),
    ] {
        let mut history = history(gif());
        // A result that is only an image.
        let Part::ToolResult(only) = &mut history[2].parts[0] else { panic!() };
        only.content = NAMED.into();
        history[0].parts.push(Part::Image(gif()));
        let m = serde_json::to_string(&sent(api, model, &history)).unwrap();
        let note = format!("{}; not shown: {why}]", &NAMED[..NAMED.len() - 1]);
        assert_eq!(m.matches(&note).count(), 2, "{api}: {m}");
        assert!(!m.contains(GIF64) && !m.contains(NAMED), "{api}: {m}");
    }
}

#[test]
fn documents_are_sent_where_api_takes_them() {
    let message = Message::new(
        MessageId(1),
        Role::User,
        vec![Part::Text { text: "Read:".into() }, Part::Document(pdf())],
    );
    let part = |api, model| {
        let m = sent(api, model, std::slice::from_ref(&message));
        m[0].get("content").or(m[0].get("parts")).unwrap()[1].clone()
    };
    let (data, name) = ("JVBERi0xLjQK", "the_plan (1).pdf");
    let url = format!("data:application/pdf;base64,{data}");
    let source = json!({"type": "base64", "media_type": "application/pdf", "data": data});
    assert_eq!(
        part("anthropic-messages", "claude-opus-4-7"),
        json!({"type": "document", "source": source, "title": name})
    );
    // The name has only characters that the API allows.
    assert_eq!(
        part("bedrock-converse", "anthropic.claude-opus-4-7"),
        json!({"document": {"format": "pdf", "name": "the plan (1)", "source": {"bytes": data}}})
    );
    assert_eq!(
        part("openai-chat", "gpt-5"),
        json!({"type": "file", "file": {"filename": name, "file_data": url}})
    );
    assert_eq!(
        part("openai-responses", "gpt-5"),
        json!({"type": "input_file", "filename": name, "file_data": url})
    );
    assert_eq!(
        part("gemini", "gemini-2.5-pro"),
        json!({"inlineData": {"mimeType": "application/pdf", "data": data}})
    );
    for (api, model) in [("ollama", "qwen3-vl"), ("groq", "llama-4"), ("mistral", "pixtral")] {
        let m = sent(api, model, std::slice::from_ref(&message));
        let text = m[0].to_string();
        assert!(text.contains("not shown: the API takes no documents"), "{api}: {text}");
    }
    // In the result of a tool.
    let mut history = history(png());
    let Part::ToolResult(result) = &mut history[2].parts[0] else { panic!() };
    result.attachments = vec![pdf().into()];
    let m = sent("anthropic-messages", "claude-opus-4-7", &history);
    assert_eq!(m[2]["content"][0]["content"][1]["source"], source);
}

#[test]
fn sizes_are_bounded_by_format() {
    let large = |bytes: usize| {
        let mut file = GIF.to_vec();
        file.resize(bytes, 0);
        Attachment::from_bytes(&file, "image/gif").unwrap()
    };
    let check = |api: &str, image: &Attachment| {
        MediaSupport::of(dialect(api).unwrap(), "some-model").check(image)
    };
    // 5 MiB of base64.
    for api in ["anthropic-messages", "bedrock-converse", "bedrock-invoke", "vertex-anthropic"] {
        assert_eq!(check(api, &large(3_932_160)), Ok(()), "{api}");
        let problem = check(api, &large(3_932_161)).unwrap_err();
        assert_eq!(
            problem.to_string(),
            "the API takes images of at most 3932160 bytes, and this has 3932161"
        );
    }
    assert_eq!(check("openai-chat", &large(3_932_161)), Ok(()));
    let mut wide = GIF.to_vec();
    wide[6..8].copy_from_slice(&8001_u16.to_le_bytes());
    let wide = Attachment::from_bytes(&wide, "image/gif").unwrap();
    let problem = check("anthropic-messages", &wide).unwrap_err();
    assert_eq!(problem.to_string(), "the API takes images of at most 8000x8000 pixels");
    assert_eq!(check("openai-chat", &wide), Ok(()));
}

#[test]
fn rules_follow_model_family() {
    let of =
        |api: &str, model: &str, size| image_tokens(dialect(api).unwrap(), model).of_size(size);
    let square = Some((1024, 1024));
    assert_eq!(of("openai-chat", "gpt-4o-mini-2024-07-18", square), 2833 + 4 * 5667);
    assert_eq!(of("openrouter", "openai/gpt-4o-mini", None), 48_169);
    assert_eq!(of("openai-responses", "gpt-4.1-mini", Some((4000, 4000))), 2489);
    assert_eq!(of("openai-responses", "gpt-5.5", Some((8000, 8000))), 10_000);
    assert_eq!(of("anthropic-messages", "claude-opus-4-6", None), 1600);
    assert_eq!(of("anthropic-messages", "claude-opus-4-7", None), 4784);
    assert_eq!(of("bedrock-converse", "us.anthropic.claude-sonnet-4-5-v1:0", None), 1600);
    // By 750 pixels a token, as the older documentation has it.
    assert!(of("anthropic-messages", "claude-sonnet-4-5", Some((1000, 1000))) >= 1334);
    assert_eq!(of("gemini", "gemini-3-pro", square), 1120);
    assert_eq!(of("gemini", "gemini-2.5-flash", Some((300, 300))), 258);
    // A deployment may have any name.
    assert_eq!(of("azure-openai-chat", "prod", square), of("openai-chat", "gpt-4o-mini", square));
    assert!(of("ollama", "qwen3-vl", square) >= 1369);
}

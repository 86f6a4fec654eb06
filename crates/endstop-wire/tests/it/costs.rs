//! Costs of recorded responses: each equals the bill by the price list that another program computes
//! from the raw body, or is marked as not exactly known.

use super::recordings::{data, rows};
use endstop_core::{Billing, NanoUsd};
use endstop_wire::catalog::prices::{ModelInfo, lookup};
use endstop_wire::dialect::dialect;
use endstop_wire::{Decoded, Headers, RequestFacts, decode_body};
use genai_prices::{Calculator, ExtractRequest, PriceRequest};
use serde_json::{Value, json};
use std::time::{Duration, UNIX_EPOCH};

/// Recordings, the provider in the price list, and its name for the format.
const FORMATS: [(&str, &str, &str); 7] = [
    ("openai-chat", "openai", "chat"),
    ("openai-responses", "openai", "responses"),
    ("anthropic-messages", "anthropic", "default"),
    ("gemini", "google", "default"),
    ("vertex-gemini", "google", "default"),
    ("bedrock-converse", "aws", "default"),
    ("mistral", "mistral", "default"),
];

/// The day of the table, in the dearest hour.
const AS_OF_SECONDS: u64 = 1_795_219_200 + 3 * 3_600;

/// A recorded body, with its format and model.
struct Recorded {
    api: &'static str,
    provider: &'static str,
    flavor: &'static str,
    model: String,
    body: Value,
}

impl Recorded {
    fn decode(&self) -> Decoded {
        let api = dialect(self.api).unwrap();
        let body = self.body.to_string();
        decode_body(api, 200, &Headers::new(), body.as_bytes(), &RequestFacts::default())
    }

    fn info(&self) -> Option<ModelInfo> {
        lookup(self.provider, &self.model).filter(|info| info.exact)
    }

    /// Returns the dollars by the list, computed by the list's own program.
    fn bill(&self, tier: Option<&str>) -> Option<f64> {
        let request = ExtractRequest::from_value(&self.body)
            .with_provider_id(self.provider)
            .with_api_flavor(self.flavor);
        let calculator = Calculator::bundled();
        let usage = calculator.extract_provider_usage(&request).ok()?.usage;
        let mut request = PriceRequest::new(&self.model, &usage)
            .with_provider_id(self.provider)
            .with_timestamp(UNIX_EPOCH + Duration::from_secs(AS_OF_SECONDS));
        if let Some(tier) = tier {
            request = request.with_price_context("service_tier", tier);
        }
        Some(calculator.calculate(&request).ok()?.total_price)
    }

    /// Returns the cost as a driver books it.
    fn cost(&self, info: &ModelInfo) -> (NanoUsd, Billing) {
        let mut decoded = self.decode();
        decoded.price_service_tier(Some(info));
        let turn = decoded.turn.unwrap();
        let cost = turn.cost.unwrap_or_else(|| info.price.cost(&turn.usage));
        (cost, turn.usage.billing)
    }
}

/// All recorded bodies that have a usage, and whose model has a price.
fn recorded() -> Vec<Recorded> {
    let mut all = Vec::new();
    for (api, provider, flavor) in FORMATS {
        for row in rows(&data(&format!("{api}.jsonl.gz"))) {
            let text = row["body"].as_str().unwrap();
            let Ok(body @ Value::Object(_)) = serde_json::from_str::<Value>(text) else { continue };
            let path = row["url_path"].as_str().unwrap_or_default();
            let in_path = path.split("/model/").nth(1).and_then(|rest| rest.split('/').next());
            let named = [&row["request"]["model"], &body["model"], &body["modelVersion"]];
            let Some(model) = named.iter().find_map(|name| name.as_str()).or(in_path) else {
                continue;
            };
            let model = model.trim_start_matches("models/").replace("%3A", ":");
            let one = Recorded { api, provider, flavor, model, body };
            if row["status"] == 200 && one.info().is_some() && one.bill(None).is_some() {
                all.push(one);
            }
        }
    }
    all
}

/// `true` if the two amounts are equal but for rounding each call up to the next nano-dollar.
fn equal(ours: NanoUsd, theirs: f64) -> bool {
    let exact = theirs * 1e9;
    let above = ours.0 as f64 - exact;
    (-1e-3..1.0 + 1e-3).contains(&above)
}

#[test]
fn recorded_costs_equal_list() {
    let mut compared = 0;
    for one in recorded() {
        let (cost, billing) = one.cost(&one.info().unwrap());
        if billing != Billing::ByTokens {
            continue;
        }
        let bill = one.bill(None).unwrap();
        assert!(equal(cost, bill), "{} {}: {cost} != {bill}\n{}", one.api, one.model, one.body);
        compared += 1;
    }
    assert!(compared > 200, "{compared}");
}

/// The recordings lack long prompts and service tiers, so their usage is edited.
#[test]
fn derived_costs_equal_list() {
    let mut compared = 0;
    for mut one in recorded() {
        let models: &[&str] = match one.api {
            "openai-chat" | "openai-responses" => &["gpt-5.4", "gpt-5-mini"],
            "anthropic-messages" => &["claude-haiku-5-5", "claude-sonnet-4-5"],
            "gemini" => &["gemini-2.5-pro"],
            _ => continue,
        };
        scale(&mut one.body, 30_000);
        for model in models {
            one.model = (*model).to_owned();
            for tier in [None, Some("flex"), Some("priority"), Some("default")] {
                let info = one.info().unwrap();
                let known = tier.filter(|tier| info.tier(tier).is_some());
                if tier.is_some() != known.is_some() && tier != Some("default") {
                    continue;
                }
                if let Some(tier) = tier.filter(|_| one.provider == "openai") {
                    one.body["service_tier"] = json!(tier);
                }
                let (cost, billing) = one.cost(&info);
                if billing == Billing::ByTokens {
                    let bill = one.bill(known).unwrap();
                    assert!(equal(cost, bill), "{model} {tier:?}: {cost} != {bill}\n{}", one.body);
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 300, "{compared}");
}

fn scale(value: &mut Value, factor: u64) {
    for name in ["usage", "usageMetadata"] {
        scale_counts(&mut value[name], factor);
    }
}

fn scale_counts(value: &mut Value, factor: u64) {
    match value {
        Value::Object(members) => members.values_mut().for_each(|one| scale_counts(one, factor)),
        Value::Array(items) => items.iter_mut().for_each(|one| scale_counts(one, factor)),
        Value::Number(number) => {
            if let Some(count) = number.as_u64() {
                *value = json!(count * factor);
            }
        }
        _ => {}
    }
}

#[test]
fn bill_beyond_tokens_is_marked() {
    let chat = |more: Value| {
        let mut body = json!({"model": "gpt-4o", "usage": {"prompt_tokens": 9, "completion_tokens": 3},
            "choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]});
        merge(&mut body, more);
        ("openai-chat", body)
    };
    let claude = |usage: Value| {
        let mut body = json!({"model": "claude-opus-4-6", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "Yes."}],
            "usage": {"input_tokens": 9, "output_tokens": 3}});
        merge(&mut body["usage"], usage);
        ("anthropic-messages", body)
    };
    let gemini = |more: Value| {
        let mut body = json!({"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 3},
            "candidates": [{"content": {"parts": [{"text": "Yes."}]}, "finishReason": "STOP"}]});
        merge(&mut body, more);
        ("gemini", body)
    };
    let (exact, less, more) = (Billing::ByTokens, Billing::AtMost, Billing::More);
    let searched = json!([{"type": "web_search_call", "id": "w"}, {"type": "message", "role": "assistant",
        "content": [{"type": "output_text", "text": "Yes."}]}]);
    for ((api, body), billing) in [
        (chat(json!({"service_tier": "default"})), exact),
        (chat(json!({"service_tier": "priority"})), more),
        (chat(json!({"service_tier": "flex"})), less),
        (chat(json!({"usage": {"completion_tokens_details": {"audio_tokens": 1}}})), more),
        (chat(json!({"model": "gpt-4o-search-preview"})), more),
        (
            claude(
                json!({"service_tier": "standard", "inference_geo": "global", "speed": "standard"}),
            ),
            exact,
        ),
        (claude(json!({"service_tier": "priority"})), more),
        (claude(json!({"service_tier": "batch"})), less),
        (claude(json!({"inference_geo": "us"})), more),
        (claude(json!({"speed": "fast"})), more),
        (claude(json!({"server_tool_use": {"web_search_requests": 1}})), more),
        (
            claude(json!({"server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 2}})),
            exact,
        ),
        (claude(json!({"iterations": [{"type": "message"}]})), exact),
        (claude(json!({"iterations": [{"type": "compaction"}, {"type": "message"}]})), more),
        (gemini(json!({"usageMetadata": {"serviceTier": "standard"}})), exact),
        (gemini(json!({"usageMetadata": {"trafficType": "ON_DEMAND_FLEX"}})), less),
        (gemini(json!({"usageMetadata": {"trafficType": "PROVISIONED_THROUGHPUT"}})), more),
        (
            gemini(json!({"usageMetadata": {"promptTokensDetails": [
                {"modality": "TEXT", "tokenCount": 4}, {"modality": "AUDIO", "tokenCount": 5}]}})),
            more,
        ),
        (
            (
                "openai-responses",
                json!({"model": "gpt-5", "status": "completed", "output": searched,
            "usage": {"input_tokens": 9, "output_tokens": 3}}),
            ),
            more,
        ),
        (
            (
                "bedrock-converse",
                json!({"stopReason": "end_turn", "serviceTier": {"type": "priority"},
            "output": {"message": {"content": [{"text": "Yes."}]}},
            "usage": {"inputTokens": 9, "outputTokens": 3}}),
            ),
            more,
        ),
        // A cost that the provider reports includes everything.
        (
            ("openrouter", {
                let mut body = chat(json!({"service_tier": "priority"})).1;
                body["usage"]["cost"] = json!(0.5);
                body
            }),
            exact,
        ),
    ] {
        let model = String::new();
        let one = Recorded { api, provider: "", flavor: "", model, body };
        let turn = one.decode().turn.unwrap();
        assert_eq!(turn.usage.billing, billing, "{}", one.body);
        let reasons = &turn.signal.provider_specific.metadata;
        let said = reasons.contains_key("service_tier") || reasons.contains_key("billed_apart");
        assert_eq!(said, billing != Billing::ByTokens, "{}", one.body);
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

#[test]
fn reported_cost_is_in_its_unit() {
    let cost = |api: &'static str, usage: Value| {
        let body = json!({"model": "m", "usage": usage,
            "choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]});
        let one = Recorded { api, provider: "", flavor: "", model: String::new(), body };
        let turn = one.decode().turn.unwrap();
        (turn.cost, turn.usage.generated_tokens(), turn.usage.billing)
    };
    // xAI counts ten-billionths of a dollar, and reasoning in addition to the completion.
    let xai = json!({"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 303,
        "completion_tokens_details": {"reasoning_tokens": 290}, "cost_in_usd_ticks": 1_466_250});
    assert_eq!(cost("xai", xai.clone()), (Some(NanoUsd(146_625)), Some(291), Billing::ByTokens));
    assert_eq!(cost("openai-chat", xai), (None, Some(291), Billing::ByTokens));
    // Gemini does not report the tokens of thoughts in this format, but the total includes them.
    let gemini = json!({"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 109});
    assert_eq!(cost("gemini-openai", gemini).1, Some(74));
    // With a key of another provider, OpenRouter charges its fee only.
    let byok = |details: Value| {
        json!({"prompt_tokens": 480, "completion_tokens": 33, "cost": 0.000_01,
        "is_byok": true, "cost_details": details})
    };
    let known = byok(json!({"upstream_inference_cost": 0.000_226_5}));
    assert_eq!(cost("openrouter", known), (Some(NanoUsd(236_500)), Some(33), Billing::ByTokens));
    let unknown = byok(json!({"upstream_inference_cost": null}));
    assert_eq!(cost("openrouter", unknown), (None, Some(33), Billing::More));
}

#[test]
fn cache_in_addition_to_the_prompt_is_priced_once() {
    let price = endstop_core::Price::usd_per_million_tokens(3.0, 15.0).cached_input_usd(0.3);
    // Prompt, output, total, cached, written, reasoning; then the dollars.
    for (counts, usd) in [
        ([10, 20, 1_000_030, 1_000_000, 0, 0], 0.30033),
        ([10, 20, 1_000_030, 600_000, 400_000, 0], 0.00033 + 0.18 + 1.2),
        ([10, 20, 130, 0, 100, 0], 0.00033 + 0.0003),
        // Also if the cache is smaller than the prompt.
        ([1_000, 20, 1_520, 500, 0, 0], 0.003 + 0.00015 + 0.0003),
        // With reasoning in addition.
        ([10, 20, 1_130, 1_000, 0, 100], 0.00003 + 0.0003 + 120.0 * 15e-6),
        // The rest is reasoning.
        ([1_000, 20, 1_520, 500, 0, 500], 0.0015 + 0.00015 + 520.0 * 15e-6),
        ([1_000, 20, 1_420, 500, 0, 0], 0.0015 + 0.00015 + 420.0 * 15e-6),
        // The cache is a part of the prompt.
        ([1_000, 20, 1_020, 900, 0, 0], 0.0003 + 0.00027 + 0.0003),
        ([1_000, 20, 1_020, 1_000, 0, 0], 0.0003 + 0.0003),
        // It is not known, so that all of it is booked.
        ([10, 20, 30, 1_000, 0, 0], 0.0003 + 0.0003),
    ] {
        let [prompt, output, total, cached, written, reasoning] = counts;
        let body = json!({
            "choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": total,
                "cache_read_input_tokens": cached, "cache_creation_input_tokens": written,
                "completion_tokens_details": {"reasoning_tokens": reasoning}},
        });
        let one =
            Recorded { api: "openai-chat", provider: "", flavor: "", model: String::new(), body };
        let cost = price.cost(&one.decode().turn.unwrap().usage);
        assert!((cost.to_usd() - usd).abs() < 1e-9, "{counts:?}: {cost:?}, not {usd}");
        if reasoning > 0 || total == 1_420 {
            continue;
        }
        let body = json!({
            "status": "completed",
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "Yes."}]}],
            "usage": {"input_tokens": prompt, "output_tokens": output, "total_tokens": total,
                "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written}},
        });
        let one = Recorded {
            api: "openai-responses",
            provider: "",
            flavor: "",
            model: String::new(),
            body,
        };
        let cost = price.cost(&one.decode().turn.unwrap().usage);
        assert!((cost.to_usd() - usd).abs() < 1e-9, "responses, {counts:?}: {cost:?}, not {usd}");
    }
}

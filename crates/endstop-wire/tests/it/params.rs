//! Request parameters in the bytes of each format's requests, and what each format refuses.

#![allow(clippy::needless_pass_by_value, reason = "literals are passed by value")]

use endstop_core::{Message, MessageId, Role};
use endstop_wire::dialect::dialect;
use endstop_wire::endpoint::Secret;
use endstop_wire::params::check_output_schema;
use endstop_wire::{
    CachePlan, Caching, Effort, Encoder, ModelParams, NamedSchema, ParamError, RequestSpec,
    Thinking, ToolChoice, ToolDefinition, WireFormat,
};
use serde_json::{Map, Value, json};

fn spec(model: &str) -> RequestSpec {
    RequestSpec {
        model: model.to_owned(),
        tools: vec![ToolDefinition {
            name: "act".to_owned(),
            description: "Acts.".to_owned(),
            schema: json!({"type": "object"}),
        }],
        ..RequestSpec::default()
    }
}

fn fields(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// Returns the body of a request as text, without cache marks, which have tests of their own.
fn request(api: &str, params: &ModelParams, mut spec: RequestSpec) -> Result<String, ParamError> {
    let dialect = dialect(api).unwrap();
    ModelParams { cache: Some(Caching::Off), ..params.clone() }.apply(dialect, &mut spec)?;
    let hello = [Message::text(MessageId(1), Role::User, "hello")];
    let bytes = Encoder::new(dialect, &spec).body(&hello, 0, Some(2000)).to_vec();
    Ok(String::from_utf8(bytes).unwrap())
}

fn sampling() -> ModelParams {
    ModelParams { temperature: Some(0.5), top_p: Some(0.75), ..ModelParams::default() }
}

fn chooses(choice: ToolChoice) -> ModelParams {
    ModelParams { tool_choice: Some(choice), ..ModelParams::default() }
}

fn named() -> ToolChoice {
    ToolChoice::Tool("act".to_owned())
}

fn assert_body(api: &str, model: &str, params: &ModelParams, expected: Value) {
    let text = request(api, params, spec(model)).unwrap_or_else(|error| panic!("{api}: {error}"));
    let body: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(body, expected, "{api}: {text}");
    // No field twice: a server may read either.
    for name in expected.as_object().unwrap().keys() {
        let members = text.matches(&format!("\"{name}\":")).count();
        let nested = expected.to_string().matches(&format!("\"{name}\":")).count();
        assert_eq!(members, nested, "{api}: {name} in {text}");
    }
}

#[test]
fn openai_chat_request_has_the_parameters() {
    let params = ModelParams {
        stop: vec!["END".to_owned()],
        seed: Some(7),
        effort: Some(Effort::High),
        tool_choice: Some(named()),
        parallel_tool_calls: Some(false),
        service_tier: Some("flex".to_owned()),
        store: Some(false),
        extra: fields(json!({"logit_bias": {"50256": -100}})),
        ..sampling()
    };
    let tools = json!([{"type": "function", "function": {"name": "act", "description": "Acts.",
        "parameters": {"type": "object"}}}]);
    assert_body(
        "openai-chat",
        "gpt",
        &params,
        json!({
            "messages": [{"role": "user", "content": "hello"}],
            "max_completion_tokens": 2000,
            "model": "gpt",
            "tools": tools,
            "temperature": 0.5,
            "top_p": 0.75,
            "stop": ["END"],
            "seed": 7,
            "reasoning_effort": "high",
            "tool_choice": {"type": "function", "function": {"name": "act"}},
            "parallel_tool_calls": false,
            "service_tier": "flex",
            "store": false,
            "logit_bias": {"50256": -100},
        }),
    );
    // Mistral has other words for two of them.
    let params = ModelParams { seed: Some(7), ..chooses(ToolChoice::Required) };
    assert_body(
        "mistral",
        "mistral-small",
        &params,
        json!({
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": 2000,
            "model": "mistral-small",
            "tools": tools,
            "random_seed": 7,
            "tool_choice": "any",
        }),
    );
}

#[test]
fn openai_responses_request_has_the_parameters() {
    let params = ModelParams {
        effort: Some(Effort::Low),
        tool_choice: Some(named()),
        parallel_tool_calls: Some(true),
        service_tier: Some("priority".to_owned()),
        store: Some(false),
        extra: fields(json!({"reasoning": {"summary": "auto"}})),
        ..sampling()
    };
    assert_body(
        "openai-responses",
        "gpt",
        &params,
        json!({
            "input": [{"type": "message", "role": "user", "content": "hello"}],
            "max_output_tokens": 2000,
            "model": "gpt",
            "tools": [{"type": "function", "name": "act", "description": "Acts.",
                "parameters": {"type": "object"}, "strict": false}],
            "temperature": 0.5,
            "top_p": 0.75,
            "reasoning": {"effort": "low", "summary": "auto"},
            "tool_choice": {"type": "function", "name": "act"},
            "parallel_tool_calls": true,
            "service_tier": "priority",
            "store": false,
            "include": ["reasoning.encrypted_content"],
        }),
    );
}

#[test]
fn anthropic_request_has_the_parameters() {
    let tools =
        json!([{"name": "act", "description": "Acts.", "input_schema": {"type": "object"}}]);
    let params = ModelParams {
        stop: vec!["END".to_owned()],
        tool_choice: Some(named()),
        parallel_tool_calls: Some(false),
        service_tier: Some("standard_only".to_owned()),
        extra: fields(json!({"metadata": {"user_id": "u"}})),
        ..sampling()
    };
    assert_body(
        "anthropic-messages",
        "claude",
        &params,
        json!({
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
            "max_tokens": 2000,
            "model": "claude",
            "tools": tools,
            "temperature": 0.5,
            "top_p": 0.75,
            "stop_sequences": ["END"],
            "tool_choice": {"type": "tool", "name": "act", "disable_parallel_tool_use": true},
            "service_tier": "standard_only",
            "metadata": {"user_id": "u"},
        }),
    );
    let params = ModelParams {
        effort: Some(Effort::Max),
        thinking: Some(Thinking::Budget(1500)),
        parallel_tool_calls: Some(true),
        ..ModelParams::default()
    };
    let body = json!({
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
        "max_tokens": 2000,
        "tools": tools,
        "output_config": {"effort": "max"},
        "thinking": {"type": "enabled", "budget_tokens": 1500},
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": false},
    });
    let with = |name: &str, value: &str| {
        let mut body = body.clone();
        body[name] = json!(value);
        body
    };
    assert_body("anthropic-messages", "claude", &params, with("model", "claude"));
    assert_body(
        "bedrock-invoke",
        "claude",
        &params,
        with("anthropic_version", "bedrock-2023-05-31"),
    );
    assert_body(
        "vertex-anthropic",
        "claude",
        &params,
        with("anthropic_version", "vertex-2023-10-16"),
    );
}

#[test]
fn gemini_request_has_the_parameters() {
    let params = ModelParams {
        stop: vec!["END".to_owned()],
        seed: Some(7),
        thinking: Some(Thinking::Budget(512)),
        tool_choice: Some(named()),
        extra: fields(json!({"generationConfig": {"thinkingConfig": {"includeThoughts": true}}})),
        ..sampling()
    };
    let tools = json!([{"functionDeclarations": [{"name": "act", "description": "Acts.",
        "parametersJsonSchema": {"type": "object"}}]}]);
    let contents = json!([{"role": "user", "parts": [{"text": "hello"}]}]);
    assert_body(
        "gemini",
        "gemini-2.5-flash",
        &params,
        json!({
            "contents": contents,
            "generationConfig": {
                "maxOutputTokens": 2000,
                "temperature": 0.5,
                "topP": 0.75,
                "stopSequences": ["END"],
                "seed": 7,
                "thinkingConfig": {"thinkingBudget": 512, "includeThoughts": true},
            },
            "tools": tools,
            "toolConfig":
                {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["act"]}},
        }),
    );
    let params = ModelParams { effort: Some(Effort::Low), ..ModelParams::default() };
    assert_body(
        "gemini",
        "gemini-3-pro",
        &params,
        json!({
            "contents": contents,
            "generationConfig":
                {"maxOutputTokens": 2000, "thinkingConfig": {"thinkingLevel": "low"}},
            "tools": tools,
        }),
    );
}

#[test]
fn bedrock_converse_request_has_the_parameters() {
    let params = ModelParams {
        stop: vec!["END".to_owned()],
        tool_choice: Some(named()),
        service_tier: Some("flex".to_owned()),
        ..sampling()
    };
    let tools = json!([{"toolSpec": {"name": "act", "description": "Acts.",
        "inputSchema": {"json": {"type": "object"}}}}]);
    let messages = json!([{"role": "user", "content": [{"text": "hello"}]}]);
    assert_body(
        "bedrock-converse",
        "amazon.nova",
        &params,
        json!({
            "messages": messages,
            "inferenceConfig": {"maxTokens": 2000, "temperature": 0.5, "topP": 0.75,
                "stopSequences": ["END"]},
            "toolConfig": {"tools": tools, "toolChoice": {"tool": {"name": "act"}}},
            "serviceTier": {"type": "flex"},
        }),
    );
    let params = ModelParams { thinking: Some(Thinking::Budget(1024)), ..ModelParams::default() };
    assert_body(
        "bedrock-converse",
        "us.anthropic.claude-sonnet",
        &params,
        json!({
            "messages": messages,
            "inferenceConfig": {"maxTokens": 2000},
            "toolConfig": {"tools": tools},
            "additionalModelRequestFields":
                {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        }),
    );
}

#[test]
fn cohere_request_has_the_parameters() {
    let params = ModelParams {
        stop: vec!["END".to_owned()],
        seed: Some(7),
        thinking: Some(Thinking::Budget(100)),
        ..ModelParams { tool_choice: Some(ToolChoice::Required), ..sampling() }
    };
    assert_body(
        "cohere-v2",
        "command",
        &params,
        json!({
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
            "max_tokens": 2000,
            "model": "command",
            "tools": [{"type": "function", "function": {"name": "act", "description": "Acts.",
                "parameters": {"type": "object"}}}],
            "temperature": 0.5,
            "p": 0.75,
            "stop_sequences": ["END"],
            "seed": 7,
            "thinking": {"type": "enabled", "token_budget": 100},
            "tool_choice": "REQUIRED",
            "stream": false,
        }),
    );
}

#[test]
fn ollama_request_has_the_parameters() {
    let params = ModelParams {
        stop: vec!["END".to_owned()],
        seed: Some(7),
        effort: Some(Effort::Medium),
        extra: fields(json!({"keep_alive": "5m", "options": {"top_k": 20}})),
        ..sampling()
    };
    assert_body(
        "ollama",
        "llama",
        &params,
        json!({
            "messages": [{"role": "user", "content": "hello"}],
            "options": {"num_predict": 2000, "temperature": 0.5, "top_p": 0.75, "stop": ["END"],
                "seed": 7, "top_k": 20},
            "model": "llama",
            "tools": [{"type": "function", "function": {"name": "act", "description": "Acts.",
                "parameters": {"type": "object"}}}],
            "think": "medium",
            "keep_alive": "5m",
            "stream": false,
            "truncate": false,
        }),
    );
}

#[test]
fn parameters_keep_schema_and_the_tools() {
    let schema = json!({"type": "object", "required": ["a"]});
    let with_schema = || RequestSpec {
        output_schema: Some(NamedSchema { name: "answer".to_owned(), schema: schema.clone() }),
        ..spec("m")
    };
    let body = |api: &str, params: &ModelParams| -> Value {
        serde_json::from_str(&request(api, params, with_schema()).unwrap()).unwrap()
    };
    let effort = ModelParams { effort: Some(Effort::Low), ..ModelParams::default() };
    assert_eq!(
        body("anthropic-messages", &effort)["output_config"],
        json!({"effort": "low", "format": {"type": "json_schema", "schema": schema}})
    );
    let verbose = ModelParams {
        extra: fields(json!({"text": {"verbosity": "low"}})),
        ..ModelParams::default()
    };
    assert_eq!(
        body("openai-responses", &verbose)["text"],
        json!({"verbosity": "low",
            "format": {"type": "json_schema", "name": "answer", "schema": schema}})
    );
    let own = ModelParams {
        extra: fields(json!({"response_format": {"type": "json_object"}})),
        ..ModelParams::default()
    };
    let refused = request("openai-chat", &own, with_schema()).unwrap_err().to_string();
    assert!(refused.contains("contradicts the output schema"), "{refused}");
}

#[test]
fn parameter_that_api_lacks_is_error() {
    let seed = || ModelParams { seed: Some(1), ..ModelParams::default() };
    let store = || ModelParams { store: Some(true), ..ModelParams::default() };
    let tier = || ModelParams { service_tier: Some("x".into()), ..ModelParams::default() };
    let effort = || ModelParams { effort: Some(Effort::Low), ..ModelParams::default() };
    let adaptive = || ModelParams { thinking: Some(Thinking::Adaptive), ..ModelParams::default() };
    let parallel = || ModelParams { parallel_tool_calls: Some(true), ..ModelParams::default() };
    let stop = || ModelParams { stop: vec!["x".into()], ..ModelParams::default() };
    let cases: Vec<(&str, &str, ModelParams)> = vec![
        ("seed", "anthropic-messages", seed()),
        ("seed", "bedrock-invoke", seed()),
        ("seed", "openai-responses", seed()),
        ("seed", "bedrock-converse", seed()),
        ("stop", "openai-responses", stop()),
        ("thinking", "openai-chat", adaptive()),
        ("thinking", "openai-responses", adaptive()),
        ("thinking", "bedrock-converse", adaptive()),
        ("effort", "bedrock-converse", effort()),
        ("effort", "cohere-v2", effort()),
        ("tool_choice", "ollama", chooses(ToolChoice::Required)),
        ("parallel_tool_calls", "gemini", parallel()),
        ("parallel_tool_calls", "bedrock-converse", parallel()),
        ("parallel_tool_calls", "cohere-v2", parallel()),
        ("parallel_tool_calls", "ollama", parallel()),
        ("service_tier", "gemini", tier()),
        ("service_tier", "bedrock-invoke", tier()),
        ("service_tier", "mistral", tier()),
        ("service_tier", "ollama", tier()),
        ("store", "anthropic-messages", store()),
        ("store", "gemini", store()),
        ("store", "mistral", store()),
    ];
    for (param, api, params) in cases {
        let refused = request(api, &params, spec("m")).unwrap_err();
        assert!(matches!(refused, ParamError::Unsupported { .. }), "{api}: {refused}");
        let text = refused.to_string();
        assert!(text.starts_with(&format!("`{param}` is not a parameter of {api}; ")), "{text}");
    }
}

#[test]
fn contradictions_and_invalid_values_are_errors() {
    let none = ModelParams::default;
    let extra = |value: Value| ModelParams { extra: fields(value), ..ModelParams::default() };
    let thinks = |budget| ModelParams { thinking: Some(Thinking::Budget(budget)), ..none() };
    let cases: Vec<(&str, ModelParams, &str)> = vec![
        ("anthropic-messages", ModelParams { temperature: Some(1.5), ..none() }, "from 0 to 1"),
        ("openai-chat", ModelParams { temperature: Some(f64::NAN), ..none() }, "from 0 to 2"),
        ("openai-chat", ModelParams { top_p: Some(0.0), ..none() }, "above 0"),
        ("openai-chat", ModelParams { stop: vec![String::new()], ..none() }, "not empty"),
        ("gemini", ModelParams { seed: Some(1 << 40), ..none() }, "32 bits"),
        ("openai-chat", chooses(ToolChoice::Tool("fly".into())), "unknown tool `fly`"),
        ("anthropic-messages", thinks(100), "at least 1024"),
        (
            "anthropic-messages",
            ModelParams { tool_choice: Some(named()), ..thinks(2000) },
            "contradicts `thinking`",
        ),
        (
            "bedrock-invoke",
            ModelParams { tool_choice: Some(ToolChoice::Required), ..thinks(2000) },
            "contradicts `thinking`",
        ),
        (
            "anthropic-messages",
            ModelParams { temperature: Some(0.2), ..thinks(2000) },
            "contradicts `thinking`",
        ),
        ("gemini", ModelParams { effort: Some(Effort::Low), ..thinks(5) }, "set one of them"),
        ("openai-chat", ModelParams { effort: Some(Effort::Max), ..none() }, "takes none, minimal"),
        ("cohere-v2", chooses(named()), "takes required or none"),
        ("bedrock-converse", chooses(ToolChoice::None), "takes auto, required"),
        ("openai-chat", extra(json!({"messages": []})), "extra.messages"),
        ("openai-chat", extra(json!({"max_tokens": 9})), "set `max_output_tokens`"),
        ("gemini", extra(json!({"generationConfig": {"maxOutputTokens": 9}})), "max_output_tokens"),
        ("openai-chat", extra(json!({"n": 3})), "one answer"),
        (
            "openai-chat",
            ModelParams { seed: Some(1), ..extra(json!({"seed": 2})) },
            "`extra.seed` is set by a parameter as well",
        ),
        (
            "ollama",
            ModelParams { seed: Some(1), ..extra(json!({"options": {"seed": 2}})) },
            "`extra.options.seed`",
        ),
    ];
    for (api, params, expected) in cases {
        let refused = request(api, &params, spec("m")).unwrap_err().to_string();
        assert!(refused.contains(expected), "{api}: {refused}");
    }
    let no_tools = RequestSpec::default();
    let refused = request("openai-chat", &chooses(ToolChoice::Auto), no_tools).unwrap_err();
    assert!(refused.to_string().contains("has no tools"), "{refused}");
}

/// Paths at which a body has this number.
fn paths_of(body: &Value, number: u64, before: &[String], found: &mut Vec<Vec<String>>) {
    for (name, value) in body.as_object().into_iter().flatten() {
        let path = [before, std::slice::from_ref(name)].concat();
        if value.as_u64() == Some(number) {
            found.push(path);
        } else {
            paths_of(value, number, &path, found);
        }
    }
}

/// Paths of the values of a body that are in no list, down to the second level.
fn leaves(body: &Value) -> Vec<Vec<String>> {
    let fields = body.as_object().into_iter().flatten();
    fields
        .flat_map(|(name, value)| match value.as_object().filter(|inside| !inside.is_empty()) {
            None => vec![vec![name.clone()]],
            Some(inside) => inside.keys().map(|last| vec![name.clone(), last.clone()]).collect(),
        })
        .collect()
}

/// What the agent sets is not replaced by `extra`: each field that an encoder writes is refused, by every format.
#[test]
fn extra_replaces_no_field_of_the_agent() {
    let mut through = Vec::new();
    for format in WireFormat::ALL {
        let api = format.dialect().name;
        let full = || RequestSpec { system: Some("Be brief.".to_owned()), ..spec("m") };
        let body = request(api, &ModelParams::default(), full()).unwrap();
        if body.is_empty() && *format == WireFormat::CohereV1 {
            continue;
        }
        let body: Value = serde_json::from_str(&body).unwrap();
        for path in leaves(&body) {
            let extra = path.iter().rev().fold(json!("x"), |value, name| json!({name: value}));
            let params = ModelParams { extra: fields(extra), ..ModelParams::default() };
            if request(api, &params, full()).is_ok() {
                through.push(format!("{api} {}", path.join(".")));
            }
        }
    }
    // What the protocol needs and the agent has no setting for.
    assert_eq!(through, ["ollama truncate", "bedrock-invoke anthropic_version"]);
}

/// A cap in `extra` would not be lowered to what a ceiling leaves, in any format and any spelling of its name.
#[test]
fn extra_sets_no_output_cap() {
    for format in WireFormat::ALL {
        let api = format.dialect().name;
        let body = request(api, &ModelParams::default(), spec("m")).unwrap();
        // Version 1 of Cohere is only read.
        if body.is_empty() && *format == WireFormat::CohereV1 {
            continue;
        }
        let mut paths = Vec::new();
        paths_of(&serde_json::from_str(&body).unwrap(), 2000, &[], &mut paths);
        assert!(!paths.is_empty(), "{api} has no output cap: {body}");
        for path in paths {
            let snake = |name: &str| {
                name.chars().fold(String::new(), |text, c| {
                    if c.is_uppercase() {
                        format!("{text}_{}", c.to_lowercase())
                    } else {
                        format!("{text}{c}")
                    }
                })
            };
            let spellings: [fn(&str) -> String; 3] =
                [str::to_owned, str::to_uppercase, |name| name.replace('_', "")];
            let spelt = spellings.iter().map(|spell| path.iter().map(|name| spell(name)).collect());
            let snaked: Vec<String> = path.iter().map(|name| snake(name)).collect();
            for path in spelt.chain([snaked]).collect::<Vec<Vec<String>>>() {
                let extra = path.iter().rev().fold(json!(9000), |value, name| json!({name: value}));
                let params = ModelParams { extra: fields(extra), ..ModelParams::default() };
                let refused = request(api, &params, spec("m")).unwrap_err().to_string();
                assert!(refused.contains("max_output_tokens"), "{api} {path:?}: {refused}");
            }
        }
    }
    for one in ["n", "best_of", "BEST_OF", "num_generations"] {
        let params = ModelParams { extra: fields(json!({one: 3})), ..ModelParams::default() };
        let refused = request("openai-chat", &params, spec("m")).unwrap_err().to_string();
        assert!(refused.contains("one answer"), "{one}: {refused}");
    }
}

#[test]
fn no_parameters_change_no_request() {
    for api in ["openai-chat", "openai-responses", "anthropic-messages", "gemini", "ollama"] {
        let dialect = dialect(api).unwrap();
        let mut with = spec("m");
        ModelParams::default().apply(dialect, &mut with).unwrap();
        // Caching is on by default.
        let without = RequestSpec { cache: CachePlan::default(), ..with };
        assert_eq!(without, spec("m"), "{api}");
    }
}

#[test]
fn parameters_are_spelled_alike_in_json() {
    let text = json!({
        "temperature": 0.5, "top_p": 0.9, "stop": ["a"], "seed": 1, "effort": "xhigh",
        "thinking": 2000, "tool_choice": "act", "parallel_tool_calls": false,
        "service_tier": "flex", "store": true, "extra": {"k": [1]},
    });
    let params: ModelParams = serde_json::from_value(text.clone()).unwrap();
    assert_eq!(params.thinking, Some(Thinking::Budget(2000)));
    assert_eq!(params.tool_choice, Some(named()));
    assert_eq!(serde_json::to_value(&params).unwrap(), text);
    assert_eq!(params.shown(), text);
    assert!(serde_json::from_value::<ModelParams>(json!({"temprature": 1})).is_err());
    assert!(serde_json::from_value::<ModelParams>(json!({"thinking": "often"})).is_err());
}

#[test]
fn header_values_neither_shown_nor_serialized() {
    let headers = vec![("X-Team".to_owned(), Secret::new("hush-hush"))];
    let params = ModelParams { headers, ..ModelParams::default() };
    assert!(!params.is_empty());
    assert_eq!(params.shown(), json!({"headers": ["x-team"]}));
    assert!(!format!("{params:?}").contains("hush"));
    assert_eq!(serde_json::to_value(&params).unwrap(), json!({}));
}

#[test]
fn run_parameters_replace_those_of_agent() {
    let agent = ModelParams {
        temperature: Some(0.1),
        seed: Some(1),
        extra: fields(json!({"a": 1, "b": 1})),
        headers: vec![("x-a".into(), Secret::new("agent")), ("x-b".into(), Secret::new("agent"))],
        ..ModelParams::default()
    };
    let run = ModelParams {
        temperature: Some(0.9),
        extra: fields(json!({"b": 2})),
        headers: vec![("X-A".into(), Secret::new("run"))],
        ..ModelParams::default()
    };
    let both = run.over(&agent);
    assert_eq!((both.temperature, both.seed), (Some(0.9), Some(1)));
    assert_eq!(both.extra, fields(json!({"a": 1, "b": 2})));
    let headers: Vec<_> = both.headers.iter().map(|(n, v)| (n.as_str(), v.expose())).collect();
    assert_eq!(headers, [("x-b", "agent"), ("X-A", "run")]);
}

#[test]
fn schema_with_shared_definitions_is_checked_in_linear_time() {
    // Each definition uses the next one twice, so that there are 2^100 ways through the schema.
    let mut definitions = Map::new();
    for n in 0..100 {
        let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
        definitions.insert(format!("d{n}"), json!({"properties": {"a": next, "b": next}}));
    }
    definitions.insert("d100".to_owned(), json!({"type": "string"}));
    let mut schema = json!({"type": "object", "$ref": "#/$defs/d0", "$defs": definitions});
    let check = |schema: &Value| check_output_schema(endstop_wire::WireFormat::Anthropic, schema);
    assert!(check(&schema).is_ok());
    schema["$defs"]["d100"] = json!({"$ref": "#/$defs/d50"});
    assert!(check(&schema).unwrap_err().to_string().contains("refers back"));
}

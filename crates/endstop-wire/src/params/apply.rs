//! Translates parameters into the fields of an API's request.

use super::{Effort, ModelParams, ParamError, Thinking, ToolChoice};
use crate::caching::{CachePlan, Marks};
use crate::codec::RequestSpec;
use crate::dialect::{Dialect, WireFormat};
use serde_json::{Map, Value, json};

/// Advice for a parameter that the API has under no name.
const REMOVE: &str = "remove it, or set a field of the API with `extra`";

/// The least thinking budget that Anthropic accepts.
const LEAST_THINKING: u64 = 1024;

/// Fields that the encoders write, and those that would break a ceiling: an output cap in `extra`
/// would not be lowered, and several candidates would cost more than was reserved.
const RESERVED: &[(&str, &str)] = &[
    ("model", "set the agent's model"),
    ("messages", "use the conversation"),
    ("input", "use the conversation"),
    ("contents", "use the conversation"),
    ("system", "set the system prompt"),
    ("systemInstruction", "set the system prompt"),
    ("instructions", "set the system prompt"),
    ("tools", "add tools to the agent"),
    ("stream", "enable or disable streaming of the agent"),
    ("stream_options", "enable or disable streaming of the agent"),
    ("max_tokens", "set `max_output_tokens`"),
    ("max_completion_tokens", "set `max_output_tokens`"),
    ("max_output_tokens", "set `max_output_tokens`"),
    ("generationConfig.maxOutputTokens", "set `max_output_tokens`"),
    ("inferenceConfig.maxTokens", "set `max_output_tokens`"),
    ("options.num_predict", "set `max_output_tokens`"),
    ("options.num_ctx", "set `context_window`"),
    ("toolConfig.tools", "add tools to the agent"),
    ("additionalModelRequestFields.max_tokens", "set `max_output_tokens`"),
    ("n", "a run has one answer"),
    ("best_of", "a run has one answer"),
    ("num_generations", "a run has one answer"),
    ("generationConfig.candidateCount", "a run has one answer"),
];

/// The fields made so far, and the API they are for.
struct Target<'a> {
    dialect: &'a Dialect,
    fields: Map<String, Value>,
}

impl Target<'_> {
    /// Sets a field; a dot separates the name of an object from the field in it.
    fn set(&mut self, path: &str, value: impl Into<Value>) {
        match path.split_once('.') {
            None => drop(self.fields.insert(path.to_owned(), value.into())),
            Some((object, field)) => {
                let object = self.fields.entry(object).or_insert_with(|| json!({}));
                object[field] = value.into();
            }
        }
    }

    fn unsupported(&self, param: &str, instead: &str) -> ParamError {
        ParamError::Unsupported {
            param: param.to_owned(),
            api: self.dialect.name.to_owned(),
            instead: instead.to_owned(),
        }
    }

    /// Returns the path of a sampling field, which the API spells in one of two ways.
    fn path(&self, snake: &str, camel: &str) -> String {
        match self.dialect.family {
            WireFormat::Ollama => format!("options.{snake}"),
            WireFormat::Gemini => format!("generationConfig.{camel}"),
            WireFormat::BedrockConverse => format!("inferenceConfig.{camel}"),
            WireFormat::OpenAiChat
            | WireFormat::Anthropic
            | WireFormat::OpenAiResponses
            | WireFormat::CohereV2
            | WireFormat::CohereV1
            | WireFormat::BedrockInvoke => snake.to_owned(),
        }
    }

    fn is(&self, family: WireFormat) -> bool {
        self.dialect.family == family
    }

    /// `true` for Anthropic's own format, wherever it is served.
    fn is_anthropic(&self) -> bool {
        self.is(WireFormat::Anthropic) || self.is(WireFormat::BedrockInvoke)
    }
}

fn invalid(param: &str, problem: impl Into<String>) -> ParamError {
    ParamError::Invalid { param: param.to_owned(), problem: problem.into() }
}

impl ModelParams {
    /// Adds the parameters to a request in this dialect. The tools and the schema of `spec` must be
    /// complete. On an error `spec` is unchanged.
    ///
    /// # Errors
    /// The API has no such parameter, a value is invalid, or two settings contradict each other.
    /// Headers are not checked here.
    pub fn apply(&self, dialect: &Dialect, spec: &mut RequestSpec) -> Result<(), ParamError> {
        let mut target = Target { dialect, fields: Map::new() };
        self.sampling(&mut target)?;
        self.reasoning(&mut target, &spec.model)?;
        self.tools(&mut target, spec)?;
        self.service(&mut target)?;
        let mut fields = target.fields;
        reserved(&self.extra)?;
        merge(&mut fields, &self.extra, "")?;
        let cache = self.caching(dialect, &spec.model)?;
        complete(&mut fields, dialect, spec, cache)?;
        merge_over(&mut spec.extra, fields);
        spec.cache = cache;
        // Also a member, because a decoder must know that a stop string can end the response.
        spec.stop.clone_from(&self.stop);
        Ok(())
    }

    fn sampling(&self, target: &mut Target<'_>) -> Result<(), ParamError> {
        let family = target.dialect.family;
        if let Some(temperature) = self.temperature {
            let most = if target.is_anthropic() { 1.0 } else { 2.0 };
            if !(0.0..=most).contains(&temperature) {
                return Err(invalid("temperature", format!("expected a number from 0 to {most}")));
            }
            target.set(&target.path("temperature", "temperature"), temperature);
        }
        if let Some(top_p) = self.top_p {
            if !(top_p > 0.0 && top_p <= 1.0) {
                return Err(invalid("top_p", "expected a number above 0 and at most 1"));
            }
            let path = match family {
                WireFormat::CohereV2 => "p".to_owned(),
                WireFormat::OpenAiChat
                | WireFormat::Anthropic
                | WireFormat::Gemini
                | WireFormat::OpenAiResponses
                | WireFormat::CohereV1
                | WireFormat::Ollama
                | WireFormat::BedrockConverse
                | WireFormat::BedrockInvoke => target.path("top_p", "topP"),
            };
            target.set(&path, top_p);
        }
        if self.stop.iter().any(String::is_empty) {
            return Err(invalid("stop", "expected strings that are not empty"));
        }
        if !self.stop.is_empty() {
            let name = match family {
                WireFormat::OpenAiResponses => return Err(target.unsupported("stop", REMOVE)),
                WireFormat::OpenAiChat => "stop",
                WireFormat::Ollama => "options.stop",
                WireFormat::Gemini => "generationConfig.stopSequences",
                WireFormat::BedrockConverse => "inferenceConfig.stopSequences",
                WireFormat::Anthropic
                | WireFormat::CohereV2
                | WireFormat::CohereV1
                | WireFormat::BedrockInvoke => "stop_sequences",
            };
            target.set(name, json!(self.stop));
        }
        if let Some(seed) = self.seed {
            let name = match family {
                WireFormat::OpenAiChat if target.dialect.name == "mistral" => "random_seed",
                WireFormat::OpenAiChat | WireFormat::CohereV2 => "seed",
                WireFormat::Ollama => "options.seed",
                WireFormat::Gemini => "generationConfig.seed",
                WireFormat::Anthropic
                | WireFormat::OpenAiResponses
                | WireFormat::CohereV1
                | WireFormat::BedrockConverse
                | WireFormat::BedrockInvoke => {
                    return Err(target.unsupported("seed", "remove it; the API has no seed"));
                }
            };
            let signed = i32::try_from(seed).is_ok();
            if family == WireFormat::Gemini && !signed {
                return Err(invalid("seed", "expected a whole number of 32 bits"));
            }
            target.set(name, seed);
        }
        Ok(())
    }

    fn reasoning(&self, target: &mut Target<'_>, model: &str) -> Result<(), ParamError> {
        let family = target.dialect.family;
        if let Some(effort) = self.effort {
            let (name, levels): (_, &[Effort]) = match family {
                WireFormat::OpenAiChat => ("reasoning_effort", &Effort::ALL[..6]),
                WireFormat::OpenAiResponses => ("reasoning.effort", &Effort::ALL[..6]),
                WireFormat::Anthropic | WireFormat::BedrockInvoke => {
                    ("output_config.effort", &Effort::ALL[2..])
                }
                WireFormat::Gemini => ("generationConfig.thinkingConfig", &Effort::ALL[1..5]),
                WireFormat::Ollama => ("think", &Effort::ALL[2..5]),
                WireFormat::CohereV2 | WireFormat::CohereV1 | WireFormat::BedrockConverse => {
                    return Err(target.unsupported("effort", "use `thinking`"));
                }
            };
            if !levels.contains(&effort) {
                let levels: Vec<&str> = levels.iter().map(|level| level.as_str()).collect();
                return Err(invalid(
                    "effort",
                    format!("{} takes {}", target.dialect.name, levels.join(", ")),
                ));
            }
            let value = match family {
                WireFormat::Gemini => json!({"thinkingLevel": effort.as_str()}),
                WireFormat::OpenAiChat
                | WireFormat::Anthropic
                | WireFormat::OpenAiResponses
                | WireFormat::CohereV2
                | WireFormat::CohereV1
                | WireFormat::Ollama
                | WireFormat::BedrockConverse
                | WireFormat::BedrockInvoke => effort.as_str().into(),
            };
            target.set(name, value);
        }
        let Some(thinking) = self.thinking else { return Ok(()) };
        let single = matches!(family, WireFormat::Gemini | WireFormat::Ollama);
        if single && self.effort.is_some() {
            return Err(ParamError::Conflict(format!(
                "`effort` and `thinking` contradict each other on {}; set one of them",
                target.dialect.name
            )));
        }
        let claude = family == WireFormat::BedrockConverse && model.contains("anthropic.claude");
        let (name, value) = match (family, thinking) {
            (WireFormat::Gemini, _) => {
                let budget = match thinking {
                    Thinking::Off => json!(0),
                    Thinking::Adaptive => json!(-1),
                    Thinking::Budget(tokens) => json!(tokens),
                };
                ("generationConfig.thinkingConfig", json!({"thinkingBudget": budget}))
            }
            (WireFormat::CohereV2, _) => {
                let value = match thinking {
                    Thinking::Off => json!({"type": "disabled"}),
                    Thinking::Adaptive => json!({"type": "enabled"}),
                    Thinking::Budget(tokens) => json!({"type": "enabled", "token_budget": tokens}),
                };
                ("thinking", value)
            }
            (WireFormat::Ollama, Thinking::Off) => ("think", json!(false)),
            (WireFormat::Ollama, Thinking::Adaptive) => ("think", json!(true)),
            (WireFormat::Anthropic | WireFormat::BedrockInvoke, _) => {
                ("thinking", self.anthropic_thinking(thinking)?)
            }
            (WireFormat::BedrockConverse, _) if claude => {
                ("additionalModelRequestFields.thinking", self.anthropic_thinking(thinking)?)
            }
            (WireFormat::BedrockConverse, _) => {
                let instead =
                    "set the model's own field with `extra`, in additionalModelRequestFields";
                return Err(target.unsupported("thinking", instead));
            }
            (WireFormat::OpenAiChat | WireFormat::OpenAiResponses | WireFormat::CohereV1, _)
            | (WireFormat::Ollama, Thinking::Budget(_)) => {
                return Err(target.unsupported("thinking", "use `effort`"));
            }
        };
        target.set(name, value);
        Ok(())
    }

    fn anthropic_thinking(&self, thinking: Thinking) -> Result<Value, ParamError> {
        let value = match thinking {
            Thinking::Off => return Ok(json!({"type": "disabled"})),
            Thinking::Adaptive => json!({"type": "adaptive"}),
            Thinking::Budget(tokens) if tokens < LEAST_THINKING => {
                return Err(invalid(
                    "thinking",
                    format!("expected at least {LEAST_THINKING} tokens, {tokens} were given"),
                ));
            }
            Thinking::Budget(tokens) => json!({"type": "enabled", "budget_tokens": tokens}),
        };
        let clash = |what: &str| {
            Err(ParamError::Conflict(format!(
                "{what} contradicts `thinking` on Anthropic models; remove one of them"
            )))
        };
        if matches!(&self.tool_choice, Some(ToolChoice::Required | ToolChoice::Tool(_))) {
            return clash("a `tool_choice` that forces a tool");
        }
        #[expect(clippy::float_cmp, reason = "1 is the only value that the API accepts")]
        if self.temperature.is_some_and(|temperature| temperature != 1.0) {
            return clash("a `temperature` other than 1");
        }
        if self.top_p.is_some_and(|top_p| top_p < 0.95) {
            return clash("a `top_p` below 0.95");
        }
        Ok(value)
    }

    fn tools(&self, target: &mut Target<'_>, spec: &RequestSpec) -> Result<(), ParamError> {
        let family = target.dialect.family;
        let forces = self.tool_choice.is_some() || self.parallel_tool_calls.is_some();
        if forces && spec.tools.is_empty() {
            let param =
                if self.tool_choice.is_some() { "tool_choice" } else { "parallel_tool_calls" };
            return Err(invalid(param, "the agent has no tools; add one, or remove the parameter"));
        }
        let chosen = match &self.tool_choice {
            Some(ToolChoice::Tool(name)) => Some(name),
            _ => None,
        };
        let is_unknown = |name: &&String| !spec.tools.iter().any(|tool| tool.name == **name);
        if let Some(name) = chosen.filter(is_unknown) {
            let names: Vec<&str> = spec.tools.iter().map(|tool| tool.name.as_str()).collect();
            return Err(invalid(
                "tool_choice",
                format!(
                    "unknown tool `{name}`; expected auto, none, required, or one of {}",
                    names.join(", ")
                ),
            ));
        }
        if let Some(choice) = &self.tool_choice {
            choose(choice, target)?;
        }
        if let Some(parallel) = self.parallel_tool_calls {
            match family {
                WireFormat::OpenAiChat | WireFormat::OpenAiResponses => {
                    target.set("parallel_tool_calls", parallel);
                }
                WireFormat::Anthropic | WireFormat::BedrockInvoke => {
                    if self.tool_choice == Some(ToolChoice::None) {
                        return Err(ParamError::Conflict(
                            "`parallel_tool_calls` contradicts the `tool_choice` none; remove one of them".to_owned(),
                        ));
                    }
                    if self.tool_choice.is_none() {
                        target.set("tool_choice.type", "auto");
                    }
                    target.set("tool_choice.disable_parallel_tool_use", !parallel);
                }
                WireFormat::Gemini
                | WireFormat::CohereV2
                | WireFormat::CohereV1
                | WireFormat::Ollama
                | WireFormat::BedrockConverse => {
                    return Err(target.unsupported("parallel_tool_calls", REMOVE));
                }
            }
        }
        Ok(())
    }

    fn service(&self, target: &mut Target<'_>) -> Result<(), ParamError> {
        let name = target.dialect.name;
        let own = matches!(name, "openai-chat" | "azure-openai-chat" | "openai-compatible");
        let responses = target.is(WireFormat::OpenAiResponses);
        if let Some(tier) = &self.service_tier {
            let routes = matches!(name, "groq" | "openrouter" | "vercel-gateway");
            if own || responses || routes || target.is(WireFormat::Anthropic) {
                target.set("service_tier", tier.as_str());
            } else if target.is(WireFormat::BedrockConverse) {
                target.set("serviceTier.type", tier.as_str());
            } else {
                return Err(target.unsupported("service_tier", REMOVE));
            }
        }
        if let Some(store) = self.store {
            if !own && !responses {
                return Err(target.unsupported("store", REMOVE));
            }
            target.set("store", store);
            // Without storage the server must return the reasoning, or it is lost in the next turn.
            if responses && !store && !self.extra.contains_key("include") {
                target.set("include", json!(["reasoning.encrypted_content"]));
            }
        }
        Ok(())
    }
}

/// Sets the tools that the model may or must call.
fn choose(choice: &ToolChoice, target: &mut Target<'_>) -> Result<(), ParamError> {
    let family = target.dialect.family;
    let (name, value) = match (family, choice) {
        (WireFormat::OpenAiChat | WireFormat::OpenAiResponses, ToolChoice::Auto) => {
            ("tool_choice", json!("auto"))
        }
        (WireFormat::OpenAiChat | WireFormat::OpenAiResponses, ToolChoice::None) => {
            ("tool_choice", json!("none"))
        }
        (WireFormat::OpenAiChat | WireFormat::OpenAiResponses, ToolChoice::Required) => {
            // Mistral has its own word.
            let word = if target.dialect.name == "mistral" { "any" } else { "required" };
            ("tool_choice", json!(word))
        }
        (WireFormat::OpenAiChat, ToolChoice::Tool(name)) => {
            ("tool_choice", json!({"type": "function", "function": {"name": name}}))
        }
        (WireFormat::OpenAiResponses, ToolChoice::Tool(name)) => {
            ("tool_choice", json!({"type": "function", "name": name}))
        }
        (WireFormat::Gemini, _) => {
            let config = match choice {
                ToolChoice::Auto => json!({"mode": "AUTO"}),
                ToolChoice::None => json!({"mode": "NONE"}),
                ToolChoice::Required => json!({"mode": "ANY"}),
                ToolChoice::Tool(name) => {
                    json!({"mode": "ANY", "allowedFunctionNames": [name]})
                }
            };
            ("toolConfig.functionCallingConfig", config)
        }
        (WireFormat::BedrockConverse, ToolChoice::Auto) => {
            ("toolConfig.toolChoice", json!({"auto": {}}))
        }
        (WireFormat::BedrockConverse, ToolChoice::Required) => {
            ("toolConfig.toolChoice", json!({"any": {}}))
        }
        (WireFormat::BedrockConverse, ToolChoice::Tool(name)) => {
            ("toolConfig.toolChoice", json!({"tool": {"name": name}}))
        }
        (WireFormat::CohereV2, ToolChoice::Required) => ("tool_choice", json!("REQUIRED")),
        (WireFormat::CohereV2, ToolChoice::None) => ("tool_choice", json!("NONE")),
        (WireFormat::Anthropic | WireFormat::BedrockInvoke, _) => {
            let value = match choice {
                ToolChoice::Auto => json!({"type": "auto"}),
                ToolChoice::None => json!({"type": "none"}),
                ToolChoice::Required => json!({"type": "any"}),
                ToolChoice::Tool(name) => json!({"type": "tool", "name": name}),
            };
            ("tool_choice", value)
        }
        (WireFormat::BedrockConverse, _) => {
            return Err(invalid("tool_choice", "bedrock-converse takes auto, required, or a tool"));
        }
        (WireFormat::CohereV2, _) => {
            return Err(invalid("tool_choice", "cohere-v2 takes required or none"));
        }
        (WireFormat::CohereV1 | WireFormat::Ollama, _) => {
            return Err(target.unsupported("tool_choice", "remove it"));
        }
    };
    target.set(name, value);
    Ok(())
}

/// Refuses extra fields that have a setting of their own, also in another spelling: Google's servers take both
/// `maxOutputTokens` and `max_output_tokens`, and others ignore case.
fn reserved(extra: &Map<String, Value>) -> Result<(), ParamError> {
    let check = |path: &str| {
        let meant = folded(path);
        match RESERVED.iter().find(|(known, _)| folded(known) == meant) {
            Some((_, instead)) => {
                Err(invalid(&format!("extra.{path}"), format!("{instead} instead")))
            }
            None => Ok(()),
        }
    };
    for (name, value) in extra {
        check(name)?;
        for inside in value.as_object().into_iter().flat_map(Map::keys) {
            check(&format!("{name}.{inside}"))?;
        }
    }
    Ok(())
}

fn folded(path: &str) -> String {
    path.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect()
}

/// Adds the extra fields to those of the parameters. Both may set fields of one object.
fn merge(
    fields: &mut Map<String, Value>,
    extra: &Map<String, Value>,
    path: &str,
) -> Result<(), ParamError> {
    for (name, value) in extra {
        match (fields.get_mut(name), value) {
            (None, _) => drop(fields.insert(name.clone(), value.clone())),
            (Some(Value::Object(own)), Value::Object(more)) => {
                merge(own, more, &format!("{path}{name}."))?;
            }
            (Some(_), _) => {
                return Err(ParamError::Conflict(format!(
                    "`extra.{path}{name}` is set by a parameter as well; remove one of them"
                )));
            }
        }
    }
    Ok(())
}

/// Adds the fields over those that the request has already.
fn merge_over(spec: &mut Map<String, Value>, fields: Map<String, Value>) {
    for (name, value) in fields {
        match (spec.get_mut(&name), value) {
            (Some(Value::Object(own)), Value::Object(more)) => merge_over(own, more),
            (_, value) => drop(spec.insert(name, value)),
        }
    }
}

/// Adds to objects in `fields` what the encoder would have written into them, because a field of
/// `extra` replaces the encoder's.
fn complete(
    fields: &mut Map<String, Value>,
    dialect: &Dialect,
    spec: &RequestSpec,
    cache: CachePlan,
) -> Result<(), ParamError> {
    let (object, member, value) = match (dialect.family, &spec.output_schema) {
        (WireFormat::BedrockConverse, _) if !spec.tools.is_empty() => {
            let tools = spec.tools.iter().map(|tool| {
                let mut spec = json!({"name": tool.name});
                if !tool.description.is_empty() {
                    spec["description"] = json!(tool.description);
                }
                let schema = match &tool.schema {
                    Value::Null => json!({"type": "object", "properties": {}}),
                    schema => schema.clone(),
                };
                spec["inputSchema"] = json!({"json": schema});
                json!({"toolSpec": spec})
            });
            let mark = cache.marks.filter(|marks| marks.anywhere).map(Marks::point);
            ("toolConfig", "tools", tools.chain(mark).collect())
        }
        (WireFormat::Anthropic | WireFormat::BedrockInvoke, Some(schema)) => {
            ("output_config", "format", json!({"type": "json_schema", "schema": schema.schema}))
        }
        (WireFormat::OpenAiResponses, Some(schema)) => {
            let name = if schema.name.is_empty() { "answer" } else { &schema.name };
            let format = json!({"type": "json_schema", "name": name, "schema": schema.schema});
            ("text", "format", format)
        }
        (
            WireFormat::OpenAiChat
            | WireFormat::Gemini
            | WireFormat::Ollama
            | WireFormat::CohereV1
            | WireFormat::CohereV2
            | WireFormat::BedrockConverse,
            Some(_),
        ) => {
            let own = ["response_format", "format", "outputConfig"];
            return match own.iter().find(|name| fields.contains_key(**name)) {
                Some(name) => Err(ParamError::Conflict(format!(
                    "`extra.{name}` contradicts the output schema; remove one of them"
                ))),
                None => Ok(()),
            };
        }
        (_, None) => return Ok(()),
    };
    match fields.get_mut(object) {
        None => Ok(()),
        Some(Value::Object(inside)) if !inside.contains_key(member) => {
            inside.insert(member.to_owned(), value);
            Ok(())
        }
        Some(_) => Err(ParamError::Conflict(format!(
            "`extra.{object}` contradicts the agent's tools or output schema; remove one of them"
        ))),
    }
}

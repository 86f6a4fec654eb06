//! From the spans of a trace to its runs.
//!
//! ```ignore
//! let found = assemble::runs(trace_id, spans, resource, file, sink);
//! ```

use super::super::conversation::{Conversation, Tally};
use super::super::pieces::{self, Fields, add_extra, iso_8601, merge_extra, peek};
use super::super::{Problem, Sink};
use super::FORMAT;
use super::message::{self, Message};
use super::span::{Kind, Span};
use crate::model::{Call, CallResult, Ending, Origin, Role, Step, Totals, Trajectory, Usage};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Gives the runs of a trace; how many there are.
pub(super) fn runs(
    trace: &str,
    mut spans: Vec<Span>,
    resource: Option<Fields>,
    file: &str,
    sink: &mut Sink<'_>,
) -> u64 {
    // In the order of their begin; where that is the same, what is longer is around the other.
    spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
    let tree = Tree::of(&spans);
    let mut found = 0;
    for group in tree.groups(&spans) {
        let Some(mut run) = tree.run(trace, &spans, group) else { continue };
        run.origin = Origin { format: FORMAT.name, file: file.to_owned(), at: None };
        if let Some(resource) = &resource {
            for (key, value) in resource {
                run.extra.entry(format!("resource.{key}")).or_insert(value.clone());
            }
        }
        found += 1;
        sink(Ok::<_, Problem>(run));
    }
    found
}

/// Which span is below which.
struct Tree {
    /// In the order of the spans.
    parents: Vec<Option<usize>>,
    /// The top of each.
    roots: Vec<usize>,
    /// The tool's span that each is below.
    tools: Vec<Option<usize>>,
    /// The agent's span that each is below, or is.
    agents: Vec<Option<usize>>,
    /// Whether it is below a model call.
    inner: Vec<bool>,
    twice: u64,
}

/// The spans that are a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Trace,
    /// Those below this one.
    Root(usize),
    /// Those below none of the agents at the top.
    Rest,
    /// Those below this tool's span.
    Tool(usize),
}

impl Tree {
    fn of(spans: &[Span]) -> Tree {
        let mut by_id = HashMap::new();
        let mut twice = 0;
        for (i, span) in spans.iter().enumerate() {
            twice += u64::from(by_id.insert(span.id.as_str(), i).is_some());
        }
        let parents: Vec<Option<usize>> = spans
            .iter()
            .map(|span| span.parent.as_deref().and_then(|parent| by_id.get(parent)).copied())
            .collect();
        let mut tree = Tree {
            roots: (0..spans.len()).collect(),
            tools: vec![None; spans.len()],
            agents: vec![None; spans.len()],
            inner: vec![false; spans.len()],
            parents,
            twice,
        };
        for i in 0..spans.len() {
            if spans[i].kind == Kind::Agent {
                tree.agents[i] = Some(i);
            }
            let mut seen = HashSet::from([i]);
            let mut at = i;
            // Spans may hang on one another in a ring, where somebody made them up.
            while let Some(on) = tree.parents[at].filter(|on| seen.insert(*on)) {
                at = on;
                match spans[on].kind {
                    Kind::Tool => tree.tools[i] = tree.tools[i].or(Some(on)),
                    Kind::Agent => tree.agents[i] = tree.agents[i].or(Some(on)),
                    Kind::Chat => tree.inner[i] = true,
                    Kind::Other(_) => {}
                }
            }
            tree.roots[i] = at;
        }
        tree
    }

    fn groups(&self, spans: &[Span]) -> Vec<Group> {
        let is_top = |i: &usize| self.roots[*i] == *i;
        let agents: Vec<usize> =
            (0..spans.len()).filter(is_top).filter(|i| spans[*i].kind == Kind::Agent).collect();
        if agents.len() < 2 {
            return vec![Group::Trace];
        }
        agents.into_iter().map(Group::Root).chain([Group::Rest]).collect()
    }

    fn is_of(&self, spans: &[Span], i: usize, group: Group) -> bool {
        match group {
            Group::Tool(tool) => self.tools[i] == Some(tool),
            _ if self.tools[i].is_some() => false,
            Group::Trace => true,
            Group::Root(root) => self.roots[i] == root,
            Group::Rest => spans[self.roots[i]].kind != Kind::Agent,
        }
    }

    fn run(&self, trace: &str, spans: &[Span], group: Group) -> Option<Trajectory<'static>> {
        let own: Vec<usize> = (0..spans.len()).filter(|i| self.is_of(spans, *i, group)).collect();
        let top = own.iter().copied().find(|i| spans[*i].kind == Kind::Agent);
        let is = |kind: Kind| own.iter().any(|i| spans[*i].kind == kind);
        if !is(Kind::Chat) && (matches!(group, Group::Tool(_)) || !is(Kind::Tool) && top.is_none())
        {
            return None;
        }
        let mut builder = Builder::default();
        for &i in &own {
            let span = &spans[i];
            let agent = self.agents[i].and_then(|agent| name_of(&spans[agent]));
            match &span.kind {
                _ if self.inner[i] => builder.odd.add("spans within a model call's"),
                Kind::Chat => builder.chat(span, agent),
                Kind::Tool => {
                    let call = builder.tool(span);
                    if let Some(mut child) = self.run(trace, spans, Group::Tool(i)) {
                        child.tags.push("subagent".into());
                        if let Some(call) = call {
                            child.extra.insert("started_by_call".to_owned(), Value::String(call));
                        }
                        builder.children.push(child);
                    }
                }
                Kind::Agent => {}
                Kind::Other(name) => builder.odd.add(name),
            }
        }
        let mut run = builder.finish();
        run.run_id = match (group, top) {
            (Group::Trace, _) => trace.to_owned().into(),
            (_, Some(top)) => format!("{trace}/{}", spans[top].id).into(),
            (Group::Tool(tool), None) => format!("{trace}/{}", spans[tool].id).into(),
            (_, None) => format!("{trace}/rest").into(),
        };
        if let Some(top) = top {
            of_agent(&spans[top], &mut run);
        }
        if self.twice > 0 && !matches!(group, Group::Tool(_)) {
            run.notes.push(format!("ids of spans that are there twice: {}", self.twice));
        }
        if run.steps.is_empty() {
            run.tags.push("summary_only".into());
        }
        Some(run)
    }
}

fn name_of(span: &Span) -> Option<&str> {
    span.text(&[
        "gen_ai.agent.name",
        "agent.name",
        "agent_name",
        "graph.node.id",
        "traceloop.entity.name",
        "ai.telemetry.functionId",
    ])
    .or_else(|| Some(span.name.as_str()).filter(|name| !name.is_empty()))
}

/// What the span of the agent says of the whole run.
fn of_agent(span: &Span, run: &mut Trajectory<'static>) {
    run.agent = name_of(span).map(|name| name.to_owned().into());
    let model = ["gen_ai.request.model", "gen_ai.response.model", "model_name", "ai.model.id"];
    if run.model.is_none() {
        run.model = span.text(&model).map(|model| model.to_owned().into());
    }
    let of_all = |kind: &str| {
        let names = [format!("gen_ai.aggregated_usage.{kind}"), format!("gen_ai.usage.{kind}")];
        span.count(&[&names[0], &names[1]])
    };
    run.totals = Totals {
        prompt_tokens: of_all("input_tokens")
            .or_else(|| span.count(&["ai.usage.inputTokens", "ai.usage.promptTokens"])),
        completion_tokens: of_all("output_tokens")
            .or_else(|| span.count(&["ai.usage.outputTokens", "ai.usage.completionTokens"])),
        wall_s: match (span.start, span.end) {
            (Some(start), Some(end)) => Some(end.saturating_sub(start) as f64 / 1e9),
            _ => None,
        },
        ..Totals::default()
    };
    if let Some(ending) = ending_of_agent(span) {
        run.ending = Some(ending);
    }
    for (name, value) in &span.attributes {
        if !message::is_said(name) {
            run.extra.insert(name.clone(), value.clone());
        }
    }
}

fn ending_of_agent(span: &Span) -> Option<Ending<'static>> {
    if span.failed {
        let native = span.text(&["error.type"]).unwrap_or("ERROR");
        return Some(Ending {
            failure_mode: span.message.clone().map(Into::into),
            ..ending("agent_error", native)
        });
    }
    if let Some(native) = span.text(&["gen_ai.agent.finish_reason"]) {
        let reason = match native {
            "completed" => "final",
            "max_iterations" => "max_turns",
            "time_budget" => "timeout",
            "max_tokens" => "token_limit",
            "handoff" => "handoff",
            "cancelled" => "cancelled",
            "error" | "tool_failure" => "agent_error",
            _ => "unknown",
        };
        return Some(ending(reason, native));
    }
    let answer = span.text(&["final_result"])?;
    Some(Ending { answer: Some(answer.to_owned().into()), ..ending("final", "final_result") })
}

fn ending(reason: &'static str, native: &str) -> Ending<'static> {
    Ending { reason: reason.into(), native: Some(native.to_owned().into()), ..Ending::default() }
}

/// A call that has no result yet.
struct Open {
    step: usize,
    id: Option<String>,
    name: String,
    arguments: Value,
}

#[derive(Default)]
struct Builder {
    run: Conversation,
    tools: Vec<Value>,
    /// How often a text of the user or the system was a step.
    said: HashMap<(Role, String), u64>,
    open: Vec<Open>,
    /// What the model was told of calls, for those whose tool has no span.
    told: Vec<CallResult<'static>>,
    /// Turns of which it is not recorded what was said.
    silent: HashSet<usize>,
    failed: Option<Ending<'static>>,
    children: Vec<Trajectory<'static>>,
    odd: Tally,
}

impl Builder {
    fn chat(&mut self, span: &Span, agent: Option<&str>) {
        let given = message::given(span);
        self.heard(given, span);
        let answer = message::answered(span);
        if span.failed && answer.is_none() {
            self.run.odd.add("model calls that failed");
            self.failed = Some(Ending {
                failure_mode: span.message.clone().map(Into::into),
                ..ending("provider_error", span.text(&["error.type"]).unwrap_or("ERROR"))
            });
            return;
        }
        self.failed = None;
        if self.tools.is_empty() {
            self.tools = tools_of(span);
        }
        let silent = answer.is_none();
        let answer = answer.unwrap_or_default();
        let mut step = Step {
            text: answer.text.into(),
            reasoning: Some(answer.reasoning).filter(|text| !text.is_empty()).map(Into::into),
            usage: usage(span).map(Box::new),
            cost_usd: ["gen_ai.usage.cost", "operation.cost", "llm.cost.total"]
                .iter()
                .find_map(|name| span.attributes.get(*name)?.as_f64()),
            at: at(span),
            finish_reason: finish_reason(span).or(answer.finish_reason).map(Into::into),
            agent: span.text(&["gen_ai.agent.name"]).or(agent).map(|name| name.to_owned().into()),
            model: model(span),
            ..Step::new(Role::Agent)
        };
        add_extra(&mut step.extra, "span_id", Value::String(span.id.clone()));
        merge_extra(&mut step.extra, rest(span));
        if !answer.others.is_empty() {
            add_extra(&mut step.extra, "content", Value::Array(answer.others));
        }
        if span.failed {
            add_extra(&mut step.extra, "status", Value::from("ERROR"));
        }
        let index = self.run.push(step);
        if silent {
            self.silent.insert(index);
        }
        for call in answer.calls {
            self.open.push(Open {
                step: index,
                id: call.id.as_deref().map(str::to_owned),
                name: call.name.to_string(),
                arguments: value_of(&call.arguments),
            });
            self.run.call(index, call);
        }
    }

    /// What the model was given, of which most it was given before.
    fn heard(&mut self, given: Vec<Message>, span: &Span) {
        let mut now: HashMap<(Role, String), u64> = HashMap::new();
        for message in given {
            self.told.extend(message.results);
            let role = match message.role.as_str() {
                "system" | "developer" => Role::System,
                "user" => Role::User,
                _ => continue,
            };
            if message.text.is_empty() && message.others.is_empty() {
                continue;
            }
            let key = (role, message.text);
            let times = now.entry(key.clone()).or_default();
            *times += 1;
            let before = self.said.entry(key.clone()).or_default();
            if *times <= *before {
                continue;
            }
            *before = *times;
            let mut step = Step { text: key.1.into(), at: at(span), ..Step::new(role) };
            if !message.others.is_empty() {
                add_extra(&mut step.extra, "content", Value::Array(message.others));
            }
            self.run.push(step);
        }
    }

    /// The result of a tool; the id of its call.
    fn tool(&mut self, span: &Span) -> Option<String> {
        let id = span.text(&["gen_ai.tool.call.id", "tool_call.id", "tool.id", "ai.toolCall.id"]);
        let name = span.text(&[
            "gen_ai.tool.name",
            "tool.name",
            "tool_call.function.name",
            "ai.toolCall.name",
            "traceloop.entity.name",
        ]);
        let name = name.unwrap_or(&span.name).to_owned();
        let asked = [
            "gen_ai.tool.call.arguments",
            "tool_arguments",
            "tool_call.function.arguments",
            "ai.toolCall.args",
            "traceloop.entity.input",
            "input.value",
        ];
        let asked = asked.iter().find_map(|key| span.attributes.get(*key)).cloned();
        let arguments = pieces::arguments(asked);
        let told = [
            "gen_ai.tool.call.result",
            "tool_response",
            "ai.toolCall.result",
            "traceloop.entity.output",
            "output.value",
        ];
        let told = told.iter().find_map(|key| span.attributes.get(*key)).cloned();
        let content =
            told.map(message::as_text).or_else(|| span.message.clone()).unwrap_or_default();
        let mut result = CallResult {
            call_id: None,
            content: content.into(),
            is_error: span.failed,
            ..CallResult::default()
        };
        add_extra(&mut result.extra, "span_id", Value::String(span.id.clone()));
        if let Some(error) = span.text(&["error.type"]) {
            add_extra(&mut result.extra, "error.type", Value::from(error));
        }
        let index = self.asked(id, &name, &value_of(&arguments));
        if let Some(index) = index {
            let open = self.open.remove(index);
            result.call_id = open.id.clone().map(Into::into);
            match &open.id {
                Some(_) => self.run.result(result),
                None => self.run.steps[open.step].results.push(result),
            }
            return open.id;
        }
        let last = self.run.steps.iter().rposition(Step::is_turn);
        let call_id = Some(id.map_or_else(|| span.id.clone(), str::to_owned));
        match last.filter(|last| self.silent.contains(last)) {
            // What the model said is not recorded: that the tool ran says that it was called.
            Some(last) => {
                self.run.odd.add("calls that their tools' spans alone tell");
                self.run.call(
                    last,
                    Call {
                        id: call_id.clone().map(Into::into),
                        name: name.into(),
                        arguments,
                        extra: None,
                    },
                );
                result.call_id = call_id.clone().map(Into::into);
                self.run.result(result);
                call_id
            }
            None => {
                result.call_id = id.map(|id| id.to_owned().into());
                add_extra(&mut result.extra, "tool", Value::String(name));
                self.run.result(result);
                id.map(str::to_owned)
            }
        }
    }

    /// The open call that a tool's span is of: by its id; by name and arguments; by name; else the only
    /// one of the last turn (what hands over to another agent has a name of its own).
    fn asked(&self, id: Option<&str>, name: &str, arguments: &Value) -> Option<usize> {
        if let Some(id) = id
            && let Some(index) = self.open.iter().position(|open| open.id.as_deref() == Some(id))
        {
            return Some(index);
        }
        if id.is_some() {
            return None;
        }
        let named = |open: &Open| open.name == name;
        let last = self.open.last()?.step;
        let of_last = self.open.iter().filter(|open| open.step == last).count();
        let position = |is: &dyn Fn(&Open) -> bool| self.open.iter().position(is);
        position(&|open| named(open) && open.arguments == *arguments)
            .or_else(|| position(&named))
            .or_else(|| position(&|open| of_last == 1 && open.step == last))
    }

    fn finish(mut self) -> Trajectory<'static> {
        for result in std::mem::take(&mut self.told) {
            let id = result.call_id.as_deref();
            if id.is_some_and(|id| self.run.has_call(id) && !self.run.is_answered(id)) {
                self.run.result(result);
            }
        }
        let mut run =
            Trajectory { children: self.children, tools: self.tools, ..Trajectory::default() };
        (run.steps, run.notes) = self.run.finish();
        run.notes.extend(self.odd.line("spans that are no steps"));
        let model = run.turns().find_map(|step| step.model.clone());
        run.model = model;
        run.ending = self.failed.or_else(|| of_the_last_call(&run.steps));
        run
    }
}

/// How the run ended, as far as the model's last answer says it.
fn of_the_last_call(steps: &[Step<'static>]) -> Option<Ending<'static>> {
    let last = steps.last().filter(|step| step.is_turn())?;
    let native = last.finish_reason.as_deref()?;
    let reason = match native {
        "stop" | "end_turn" | "STOP" if last.calls.is_empty() => "final",
        "stop" | "end_turn" | "STOP" => return None,
        "length" | "max_tokens" | "MAX_TOKENS" => "output_length",
        "tool_call" | "tool_calls" | "tool-calls" | "tool_use" => return None,
        "error" => "provider_error",
        _ => "unknown",
    };
    let mut ending = ending(reason, native);
    if reason == "final" && !last.text.is_empty() {
        ending.answer = Some(last.text.clone());
    }
    Some(ending)
}

fn value_of(arguments: &str) -> Value {
    serde_json::from_str(arguments).unwrap_or_default()
}

fn at(span: &Span) -> Option<Cow<'static, str>> {
    span.start.map(|start| iso_8601(start).into())
}

fn model(span: &Span) -> Option<Cow<'static, str>> {
    const NAMES: &[&str] =
        &["gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "ai.model.id"];
    span.text(NAMES).map(|model| model.to_owned().into())
}

fn finish_reason(span: &Span) -> Option<String> {
    for name in ["gen_ai.response.finish_reasons", "llm.finish_reason", "ai.response.finishReason"]
    {
        match span.attributes.get(name) {
            Some(Value::Array(list)) => {
                if let Some(reason) = list.first().and_then(Value::as_str) {
                    return Some(reason.to_owned());
                }
            }
            Some(Value::String(text)) => {
                let list: Option<Vec<String>> = serde_json::from_str(text).ok();
                return list.map_or(Some(text.clone()), |list| list.into_iter().next());
            }
            _ => {}
        }
    }
    None
}

fn usage(span: &Span) -> Option<Usage> {
    let usage = Usage {
        prompt_tokens: span.count(&[
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.prompt_tokens",
            "llm.token_count.prompt",
            "ai.usage.inputTokens",
            "ai.usage.promptTokens",
        ]),
        completion_tokens: span.count(&[
            "gen_ai.usage.output_tokens",
            "gen_ai.usage.completion_tokens",
            "llm.token_count.completion",
            "ai.usage.outputTokens",
            "ai.usage.completionTokens",
        ]),
        cached_tokens: span.count(&[
            "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.details.cache_read_tokens",
            "gen_ai.usage.cache_read_input_tokens",
            "llm.token_count.prompt_details.cache_read",
            "ai.usage.cachedInputTokens",
        ]),
        cache_write_tokens: span.count(&[
            "gen_ai.usage.cache_creation.input_tokens",
            "gen_ai.usage.details.cache_write_tokens",
            "gen_ai.usage.cache_creation_input_tokens",
            "llm.token_count.prompt_details.cache_write",
        ]),
        reasoning_tokens: span.count(&[
            "gen_ai.usage.reasoning.output_tokens",
            "gen_ai.usage.details.reasoning_tokens",
            "llm.token_count.completion_details.reasoning",
            "ai.usage.reasoningTokens",
        ]),
        extra: Fields::new(),
    };
    (usage != Usage::default()).then_some(usage)
}

/// The tools that the model had.
fn tools_of(span: &Span) -> Vec<Value> {
    if let Some(Value::Array(tools)) = message::json(span, "gen_ai.tool.definitions") {
        return tools;
    }
    let of = |value: &Value| match value {
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| value.clone()),
        other => other.clone(),
    };
    if let Some(Value::Array(tools)) = span.attributes.get("ai.prompt.tools") {
        return tools.iter().map(of).collect();
    }
    let tools = span.attributes.iter();
    let tools = tools
        .filter(|(name, _)| name.starts_with("llm.tools.") && name.ends_with(".tool.json_schema"));
    tools.map(|(_, tool)| of(tool)).collect()
}

/// The attributes that no other field holds.
fn rest(span: &Span) -> Fields {
    let is_value = |name: &str| matches!(name, "input.value" | "output.value");
    let said = peek(&span.attributes, "llm.output_messages.0.message.role").is_some()
        || span.attributes.contains_key("gen_ai.output.messages");
    let attributes = span.attributes.iter();
    let rest = attributes.filter(|(name, _)| !message::is_said(name) && !(said && is_value(name)));
    rest.map(|(name, value)| (name.clone(), value.clone())).collect()
}

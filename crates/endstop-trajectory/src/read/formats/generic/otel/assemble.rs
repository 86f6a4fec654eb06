//! Assembles the spans of a run, ordered by start time, into its steps.
//!
//! ```text
//! builder.chat(&span, agent);               // a turn, and what the user said before it
//! let call = builder.tool(&span);           // the result of a call
//! let run = builder.finish();
//! ```

use super::facts::{
    ARGUMENTS, IDS_OF_CALLS, NAMES_OF_TOOLS, RESULTS, at, ending, finish_reason, model,
    of_the_last_call, rest, rest_of_tool, tools_of, usage, value_of,
};
use super::message::{self, Message};
use super::span::Span;
use crate::model::{Call, CallResult, Ending, NOT_RECORDED, Role, Step, Trajectory};
use crate::read::build::conversation::{Conversation, Tally};
use crate::read::build::fields::{self, add_extra, merge_extra};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// A call that may match a tool's span.
struct Open {
    step: usize,
    id: Option<String>,
    name: String,
    arguments: Value,
    answered: bool,
}

/// Number of recent calls that are searched for a tool's span without an id. The limit keeps the
/// search linear.
const RECENT: usize = 256;

#[derive(Default)]
pub(super) struct Builder {
    run: Conversation,
    tools: Vec<Value>,
    /// Number of times that a user or system message was added as a step.
    said: HashMap<(Role, String), u64>,
    open: Vec<Open>,
    by_id: HashMap<String, usize>,
    /// Results in the model's input, for calls whose tool has no span.
    told: Vec<CallResult<'static>>,
    /// Results of tools whose span has a different name than the call.
    guessed: Vec<CallResult<'static>>,
    /// Turns whose content is not recorded.
    silent: HashSet<usize>,
    failed: Option<Ending<'static>>,
    pub(super) children: Vec<Trajectory<'static>>,
    pub(super) odd: Tally,
}

impl Builder {
    pub(super) fn chat(&mut self, span: &Span, agent: Option<&str>) {
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
        // A later successful call means that the failure did not end the run.
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
            cost_usd: span.number(&["gen_ai.usage.cost", "operation.cost", "llm.cost.total"]),
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
            add_extra(&mut self.run.steps[index].extra, NOT_RECORDED, Value::Bool(true));
        }
        for call in answer.calls {
            if let Some(id) = call.id.as_deref() {
                self.by_id.insert(id.to_owned(), self.open.len());
            }
            self.open.push(Open {
                answered: false,
                step: index,
                id: call.id.as_deref().map(str::to_owned),
                name: call.name.to_string(),
                arguments: value_of(&call.arguments),
            });
            self.run.call(index, call);
        }
    }

    /// Adds the messages of the model's input that were not in earlier inputs.
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
            // Counted per input, because the user may send the same text twice.
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

    /// Adds the result of a tool; returns the id of its call.
    pub(super) fn tool(&mut self, span: &Span) -> Option<String> {
        let id = span.text(IDS_OF_CALLS);
        let name = span.text(NAMES_OF_TOOLS).unwrap_or(&span.name).to_owned();
        let asked = ARGUMENTS.iter().find_map(|key| span.attributes.get(*key)).cloned();
        let arguments = fields::arguments(asked);
        let told = RESULTS.iter().find_map(|key| span.attributes.get(*key)).cloned();
        let content =
            told.map(message::as_text).or_else(|| span.message.clone()).unwrap_or_default();
        let mut result = CallResult {
            call_id: None,
            content: content.into(),
            is_error: span.failed,
            ..CallResult::default()
        };
        add_extra(&mut result.extra, "span_id", Value::String(span.id.clone()));
        merge_extra(&mut result.extra, rest_of_tool(span));
        let index = self.asked(id, &name, &value_of(&arguments));
        if let Some(index) = index {
            let open = &mut self.open[index];
            open.answered = true;
            let id = open.id.clone();
            result.call_id = open.id.clone().map(Into::into);
            match &open.id {
                // The span's output may differ from what the model received, so it is only used if
                // there is nothing better.
                Some(_) if open.name != name => self.guessed.push(result),
                Some(_) => self.run.result(result),
                None => self.run.steps[open.step].results.push(result),
            }
            return id;
        }
        let last = self.run.last_turn_index();
        let call_id = Some(id.map_or_else(|| span.id.clone(), str::to_owned));
        if let Some(last) = last.filter(|last| self.silent.contains(last)) {
            // The model's output is not recorded, but the tool ran, so it was called.
            self.run.odd.add("calls known only from tool spans");
            let call = Call {
                id: call_id.clone().map(Into::into),
                name: name.into(),
                arguments,
                extra: None,
            };
            self.run.call(last, call);
            result.call_id = call_id.clone().map(Into::into);
            self.run.result(result);
            return call_id;
        }
        result.call_id = id.map(|id| id.to_owned().into());
        add_extra(&mut result.extra, "tool", Value::String(name));
        self.run.result(result);
        id.map(str::to_owned)
    }

    /// Finds the open call that a tool's span belongs to: by id; by name and arguments; by name;
    /// otherwise the only open call of the last turn (a handoff to another agent has a tool name of
    /// its own).
    fn asked(&self, id: Option<&str>, name: &str, arguments: &Value) -> Option<usize> {
        if let Some(id) = id {
            return self.by_id.get(id).copied();
        }
        let recent = self.open.len().saturating_sub(RECENT);
        let open = |index: &usize| !self.open[*index].answered;
        let mut last_first = (recent..self.open.len()).rev().filter(open);
        let last = self.open[last_first.next()?].step;
        let of_last = |index: &usize| self.open[*index].step == last;
        let only = (recent..self.open.len()).filter(open).filter(of_last).count() == 1;
        let first = |is: &dyn Fn(&Open) -> bool| {
            (recent..self.open.len()).filter(open).find(|index| is(&self.open[*index]))
        };
        first(&|open| open.name == name && open.arguments == *arguments)
            .or_else(|| first(&|open| open.name == name))
            .or_else(|| first(&|open| only && open.step == last))
    }

    pub(super) fn finish(mut self) -> Trajectory<'static> {
        // The model's input is preferred to a guess, so it comes first.
        for result in self.told.into_iter().chain(self.guessed) {
            let id = result.call_id.as_deref();
            if id.is_some_and(|id| self.run.has_call(id) && !self.run.is_answered(id)) {
                self.run.result(result);
            }
        }
        let mut run =
            Trajectory { children: self.children, tools: self.tools, ..Trajectory::default() };
        (run.steps, run.notes) = self.run.finish();
        run.notes.extend(self.odd.line("spans that are not steps"));
        let model = run.turns().find_map(|step| step.model.clone());
        run.model = model;
        run.ending = self.failed.or_else(|| of_the_last_call(&run.steps));
        run
    }
}

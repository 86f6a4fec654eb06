//! Routes events to the agent they belong to: the session's own, or a subagent.
//!
//! ```text
//! for map in lines { session.take(map)?; }
//! let run = session.finish(&origin);          // None: no record of a session
//! ```

use super::thread::{At, Thread, ending};
use crate::model::{Ending, Origin, Trajectory};
use crate::read::build::conversation::Tally;
use crate::read::build::fields::{self, Fields, text};
use serde_json::Value;
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Session {
    main: Thread,
    /// Subagents, in the order of their first events, each with its name.
    within: Vec<(String, Thread)>,
    /// Maps an agent id, or the id of the call that started it, to a subagent.
    known: HashMap<String, usize>,
    head: Trajectory<'static>,
    others: Tally,
    /// The metrics of all models in the last `session.shutdown`.
    closed: Option<Fields>,
    /// `true` if those metrics cover the whole session: it was closed once, and no event followed.
    is_whole: bool,
    /// `true` if an event belonged to a session.
    begun: bool,
}

/// Events of a conversation, of the session or of a subagent.
const CONVERSATION: &[&str] = &[
    "user.message",
    "system.message",
    "assistant.message",
    "assistant.reasoning",
    "assistant.reasoning_delta",
    "assistant.message_delta",
    "assistant.turn_start",
    "assistant.message_start",
    "assistant.turn_end",
    "assistant.usage",
    "tool.execution_start",
    "tool.user_requested",
    "tool.execution_complete",
];

impl Session {
    pub(super) fn take(&mut self, mut map: Fields) -> Result<(), String> {
        let Some(kind) = text(&mut map, "type") else {
            return Err("an event without its `type`".to_owned());
        };
        let Some(mut data) = fields::object(&mut map, "data") else {
            let found = map.get("data").map_or("nothing", fields::kind_of);
            return Err(format!("invalid `data`: expected an object, found {found}"));
        };
        self.begun = true;
        let at: At = text(&mut map, "timestamp").map(Into::into);
        let names = [text(&mut map, "agentId"), text(&mut data, "parentToolCallId")];
        match kind.as_str() {
            "session.start" => self.start(data),
            "session.resume" | "session.tools_updated" | "session.model_change" => {
                let model = ["newModel", "selectedModel", "model"];
                if let Some(model) = model.iter().find_map(|key| text(&mut data, key)) {
                    self.main.model = Some(model);
                }
                if let Some(tools) = data.shift_remove("tools") {
                    self.head.extra.insert("tools".to_owned(), tools);
                }
                // After a resume, the metrics of the last shutdown cover only a part of the
                // session.
                self.is_whole &= kind != "session.resume";
                self.others.add(&kind);
            }
            "session.shutdown" => self.shut_down(data),
            "session.task_complete" => {
                let answer = text(&mut data, "summary").filter(|summary| !summary.is_empty());
                self.main.end("final", &kind, answer);
            }
            "session.error" | "abort" | "session.idle" | "assistant.idle" => {
                // An unknown subagent is ignored here, because an empty run must not be created
                // just to end it.
                if names.iter().all(Option::is_none) {
                    self.main.stopped(kind, data);
                } else if let Some(at) = self.find(&names) {
                    self.within[at].1.stopped(kind, data);
                }
            }
            "subagent.started" | "subagent.completed" | "subagent.failed" => {
                let call = text(&mut data, "toolCallId");
                let [agent, parent] = names;
                let at = self.place([agent.or(parent), call]);
                if let Some((_, thread)) = at.and_then(|at| self.within.get_mut(at)) {
                    thread.told_of(&kind, data);
                }
            }
            kind if CONVERSATION.contains(&kind) => {
                self.is_whole = false;
                let thread = match self.place(names) {
                    Some(at) => &mut self.within[at].1,
                    None => &mut self.main,
                };
                thread.take(kind, data, at);
            }
            other => self.others.add(other),
        }
        Ok(())
    }

    fn find(&self, names: &[Option<String>]) -> Option<usize> {
        names.iter().flatten().find_map(|name| self.known.get(name).copied())
    }

    /// Returns the subagent with one of these names, and creates it if necessary; `None` if there
    /// are no names. All names then refer to it.
    fn place(&mut self, names: [Option<String>; 2]) -> Option<usize> {
        let first = names.iter().flatten().next()?.clone();
        let at = self.find(&names).unwrap_or_else(|| {
            self.within.push((first, Thread::default()));
            self.within.len() - 1
        });
        for name in names.into_iter().flatten() {
            self.known.insert(name, at);
        }
        Some(at)
    }

    fn start(&mut self, mut data: Fields) {
        if let Some(id) = text(&mut data, "sessionId") {
            self.head.run_id = id.into();
        }
        self.head.agent_version = text(&mut data, "copilotVersion").map(Into::into);
        self.main.model = text(&mut data, "selectedModel").or(self.main.model.take());
        if let Some(limits) = fields::object(&mut data, "sessionLimits") {
            self.head.limits = limits;
        }
        self.head.extra.extend(fields::without_nulls(data));
    }

    /// Handles the shutdown of the session: its metrics, and an ending if it failed.
    fn shut_down(&mut self, mut data: Fields) {
        let reason = text(&mut data, "errorReason");
        if text(&mut data, "shutdownType").as_deref() == Some("error") {
            let failed = Ending {
                failure_mode: reason.map(Into::into),
                ..ending("harness_error", "session.shutdown".to_owned())
            };
            // `get_or_insert`, because an ending recorded earlier is closer to the cause.
            self.main.ending.get_or_insert(failed);
        } else {
            self.main.ended("session.shutdown");
        }
        self.is_whole = self.closed.is_none();
        self.closed = Some(fields::without_nulls(data));
    }

    pub(super) fn finish(self, origin: &Origin) -> Option<Trajectory<'static>> {
        if !self.begun {
            return None;
        }
        let mut run = self.head;
        let alone = self.within.is_empty();
        if let Some(closed) = self.closed {
            match own_tokens(&closed, alone).filter(|_| self.is_whole) {
                Some([input, output, cached]) => {
                    run.totals.prompt_tokens = input;
                    run.totals.completion_tokens = output;
                    run.totals.cached_tokens = cached;
                }
                None => run.notes.push("session totals that include other usage".to_owned()),
            }
            run.totals.extra = closed;
        }
        let mut notes = std::mem::take(&mut run.notes);
        self.main.finish(&mut run, origin);
        run.notes.append(&mut notes);
        run.notes.extend(self.others.line("records that are not steps"));
        for (id, thread) in self.within {
            let mut child = Trajectory::new(id);
            thread.finish(&mut child, origin);
            // A subagent that was started but said nothing is not a run.
            if !child.steps.is_empty() {
                run.children.push(child);
            }
        }
        let is_empty = run.steps.is_empty() && run.ending.is_none() && run.children.is_empty();
        (!is_empty).then_some(run)
    }
}

/// Returns the input, output and cached tokens of the session's own conversation, if they are of a
/// single model: the sum over several models could not be priced.
fn own_tokens(closed: &Fields, alone: bool) -> Option<[Option<u64>; 3]> {
    let main = closed.get("agentMetrics").and_then(|agents| agents.get("main"));
    let metrics = match main {
        Some(main) => main.get("modelMetrics"),
        // These metrics include all subagents, so they are only used if there are none.
        None => closed.get("modelMetrics").filter(|_| alone),
    };
    let metrics = metrics?.as_object().filter(|metrics| metrics.len() == 1)?;
    let usage = metrics.values().next()?.get("usage")?;
    let tokens = |key: &str| usage.get(key).and_then(Value::as_u64);
    Some([tokens("inputTokens"), tokens("outputTokens"), tokens("cacheReadTokens")])
}

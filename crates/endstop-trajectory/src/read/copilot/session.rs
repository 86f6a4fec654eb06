//! Events go to the agent that they are of: that of the session, or one within it.
//!
//! ```ignore
//! for map in lines { session.take(map)?; }
//! let run = session.finish(&origin);          // None: nothing of a session was there
//! ```

use super::super::conversation::Tally;
use super::super::pieces::{self, Fields, text};
use super::thread::{At, Thread, ending};
use crate::model::{Ending, Origin, Trajectory};
use serde_json::Value;
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Session {
    main: Thread,
    /// Agents within, in the order of their first events, each with its name.
    within: Vec<(String, Thread)>,
    /// Which of them an id or the call that began it names.
    known: HashMap<String, usize>,
    head: Trajectory<'static>,
    others: Tally,
    /// What the last `session.shutdown` says of all models.
    closed: Option<Fields>,
    /// Whether that is all of the session: it was closed once, and nothing came after it.
    is_whole: bool,
    /// Whether an event was one of a session.
    begun: bool,
}

/// Events of a conversation, the session's or that of an agent within.
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
        let Some(mut data) = pieces::object(&mut map, "data") else {
            let found = map.get("data").map_or("nothing", pieces::kind_of);
            return Err(format!("`data` is an object, and this is {found}"));
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
                self.is_whole &= kind != "session.resume";
                self.others.add(&kind);
            }
            "session.shutdown" => self.shut_down(data),
            "session.task_complete" => {
                let answer = text(&mut data, "summary").filter(|summary| !summary.is_empty());
                self.main.end("final", &kind, answer);
            }
            "session.error" | "abort" | "session.idle" | "assistant.idle" => {
                // Of an agent that has said nothing nothing ends.
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

    /// Which agent within goes by these names; `None`: they are none. All of them are its own then.
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
        if let Some(limits) = pieces::object(&mut data, "sessionLimits") {
            self.head.limits = limits;
        }
        self.head.extra.extend(pieces::without_nulls(data));
    }

    /// The session is closed: what it used, and whether it came to that by an error.
    fn shut_down(&mut self, mut data: Fields) {
        let reason = text(&mut data, "errorReason");
        if text(&mut data, "shutdownType").as_deref() == Some("error") {
            let failed = Ending {
                failure_mode: reason.map(Into::into),
                ..ending("harness_error", "session.shutdown".to_owned())
            };
            self.main.ending.get_or_insert(failed);
        } else {
            self.main.ended("session.shutdown");
        }
        self.is_whole = self.closed.is_none();
        self.closed = Some(pieces::without_nulls(data));
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
                None => run.notes.push("totals of the session that are not all its own".to_owned()),
            }
            run.totals.extra = closed;
        }
        let mut notes = std::mem::take(&mut run.notes);
        self.main.finish(&mut run, origin);
        run.notes.append(&mut notes);
        run.notes.extend(self.others.line("records that are no steps"));
        for (id, thread) in self.within {
            let mut child = Trajectory::new(id);
            thread.finish(&mut child, origin);
            if !child.steps.is_empty() {
                run.children.push(child);
            }
        }
        let is_empty = run.steps.is_empty() && run.ending.is_none() && run.children.is_empty();
        (!is_empty).then_some(run)
    }
}

/// Input, output and cached tokens of the session's own conversation, where they are of one model:
/// nobody could price the sum of several.
fn own_tokens(closed: &Fields, alone: bool) -> Option<[Option<u64>; 3]> {
    let main = closed.get("agentMetrics").and_then(|agents| agents.get("main"));
    let metrics = match main {
        Some(main) => main.get("modelMetrics"),
        // Those of all agents together.
        None => closed.get("modelMetrics").filter(|_| alone),
    };
    let metrics = metrics?.as_object().filter(|metrics| metrics.len() == 1)?;
    let usage = metrics.values().next()?.get("usage")?;
    let tokens = |key: &str| usage.get(key).and_then(Value::as_u64);
    Some([tokens("inputTokens"), tokens("outputTokens"), tokens("cacheReadTokens")])
}

//! Reader for Endstop: the lines of `--events` and `--json` of its commands.
//!
//! ```text
//! {"type":"turn_finished","turn":1,"text":"…","signal":{…},"usage":{…},"cost_usd":0.000345,"tool_calls":1}
//! {"type":"tool_started","call_id":"call_1","name":"shell","arguments":"{\"command\":\"ls\"}"}
//! {"type":"tool_finished","call_id":"call_1","name":"shell","status":"ok","duration_ms":24,"content":"…"}
//! {"type":"outcome","termination":"submitted","verified":true, …, "messages":[…]}
//! ```
//!
//! Quirks:
//!
//! - Success: the `termination` of the outcome is a success, and `verified` is not `false`.
//! - The cost of a turn is that of the run so far in dollars, and `null` without a price.
//! - The task is only in the `messages` of the outcome. A run without an outcome, because its process was
//!   killed, has no task.
//! - A call that the kernel answers itself, such as `finish`, has no `tool_started`, so its arguments are not read.
//! - Lines of guard have a `thread`, and their outcome has no `messages` if the program kept them.

use crate::model::{Call, CallResult, Ending, Recorded, Role, Step, Trajectory, Usage};
use crate::read::build::arguments::of_text;
use crate::read::build::conversation::{Conversation, Tally};
use crate::read::build::fields::{self, Fields, peek, text};
use crate::read::format::{Format, Head, Place, Shape, Sink};
use crate::read::io::json_lines;
use endstop_core::{Outcome, Termination, ToolStatus, bounded_json};
use serde_json::Value;

pub(crate) const FORMATS: &[Format] = &[Format {
    name: "endstop-events",
    about: "Endstop: the lines of --events and --json",
    recognises,
    of_a_person: false,
    shape: Some(Shape::Session(read)),
}];

fn recognises(head: &Head<'_>) -> bool {
    json_lines::first_objects(head).iter().any(is_record)
}

fn is_record(map: &Fields) -> bool {
    match peek(map, "type") {
        Some("turn_started") => ["turn", "attempt"].iter().all(|key| map.contains_key(*key)),
        Some("turn_finished") => {
            ["turn", "signal", "usage"].iter().all(|key| map.contains_key(*key))
        }
        Some("outcome") => {
            ["termination", "decided_by", "model_calls"].iter().all(|key| map.contains_key(*key))
        }
        _ => false,
    }
}

fn read(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    let mut session = Session::default();
    let mut runs = Vec::new();
    json_lines::each_object(bytes, place, sink, is_record, |map| {
        if let Some(run) = session.take(map)? {
            runs.push(run);
        }
        Ok(())
    });
    if session.has_begun() {
        runs.push(session.finish(None));
    }
    if runs.is_empty() {
        return sink(Err(json_lines::nothing(place, "no step of a run")));
    }
    for run in runs {
        sink(Ok(run));
    }
}

#[derive(Default)]
struct Session {
    run: Conversation,
    /// The model that the run switched to.
    model: Option<String>,
    /// The cost of the run so far.
    spent: f64,
    others: Tally,
}

impl Session {
    fn has_begun(&self) -> bool {
        !self.run.steps.is_empty()
    }

    /// Takes a line, and returns the run that ends with it.
    fn take(&mut self, mut map: Fields) -> Result<Option<Trajectory<'static>>, String> {
        match text(&mut map, "type").unwrap_or_default().as_str() {
            "turn_finished" => self.turn(map),
            "tool_started" => {
                let id = text(&mut map, "call_id").ok_or("a call without its `call_id`")?;
                let name = text(&mut map, "name").unwrap_or_default();
                let arguments = text(&mut map, "arguments").unwrap_or_default();
                self.call(id, name, &arguments);
            }
            "tool_finished" => self.result(map)?,
            "model_switched" => {
                self.model = text(&mut map, "model").or(self.model.take());
                self.others.add("model_switched");
            }
            "outcome" => {
                let run = std::mem::take(self).finish(Some(Value::Object(map)));
                return Ok(Some(run));
            }
            "delta" | "turn_started" | "stopping" => {}
            other => self.others.add(other),
        }
        Ok(None)
    }

    fn turn(&mut self, mut map: Fields) {
        let mut usage = fields::object(&mut map, "usage").unwrap_or_default();
        let mut count = |key| fields::count(&mut usage, key);
        let usage = Usage {
            prompt_tokens: count("input_tokens"),
            completion_tokens: count("output_tokens"),
            cached_tokens: count("cached_input_tokens"),
            cache_write_tokens: count("cache_write_tokens"),
            reasoning_tokens: count("reasoning_tokens"),
            extra: Fields::default(),
        };
        let total = map.get("cost_usd").and_then(Value::as_f64);
        let cost = total.map(|total| (total - self.spent).max(0.0));
        self.spent = total.unwrap_or(self.spent);
        let mut signal = fields::object(&mut map, "signal").unwrap_or_default();
        self.run.push(Step {
            text: text(&mut map, "text").unwrap_or_default().into(),
            usage: Some(Box::new(usage)),
            cost_usd: cost,
            finish_reason: text(&mut signal, "reason").map(Into::into),
            agent: text(&mut map, "thread").map(Into::into),
            model: self.model.clone().map(Into::into),
            ..Step::new(Role::Agent)
        });
    }

    /// Adds a call to the last turn.
    fn call(&mut self, id: String, name: String, arguments: &str) {
        let turn = match self.run.last_turn_index() {
            Some(turn) => turn,
            None => self.run.push(Step::new(Role::Agent)),
        };
        let arguments = of_text(arguments).into();
        self.run
            .call(turn, Call { id: Some(id.into()), name: name.into(), arguments, extra: None });
    }

    fn result(&mut self, mut map: Fields) -> Result<(), String> {
        let id = text(&mut map, "call_id").ok_or("a result without its `call_id`")?;
        // A status of a later version is not a success.
        let is_error = peek(&map, "status") != Some(ToolStatus::Ok.as_str());
        let is_open = self
            .run
            .last_turn_index()
            .is_some_and(|turn| self.run.has_call_at(turn, &id) && !self.run.is_answered(&id));
        if !is_open {
            let name = text(&mut map, "name").unwrap_or_default();
            self.call(id.clone(), name, "{}");
        }
        self.run.result(CallResult {
            call_id: Some(id.into()),
            content: text(&mut map, "content").unwrap_or_default().into(),
            is_error,
            ..CallResult::default()
        });
        Ok(())
    }

    fn finish(self, outcome: Option<Value>) -> Trajectory<'static> {
        let (steps, mut notes) = self.run.finish();
        notes.extend(self.others.line("other events"));
        let mut run =
            Trajectory { agent: Some("endstop".into()), steps, notes, ..Trajectory::default() };
        let Some(outcome) = outcome else { return run };
        let member = |name: &str| outcome[name].as_str().map(str::to_owned);
        run.run_id = member("run_id").unwrap_or_default().into();
        run.model = member("model").map(|model| match member("provider") {
            Some(provider) => format!("{provider}/{model}").into(),
            None => model.into(),
        });
        if let Some(task) = task(&outcome["messages"]) {
            run.steps.insert(0, Step { text: task.into(), ..Step::new(Role::User) });
        }
        run.totals.cost_usd = outcome["cost_usd"].as_f64();
        run.totals.wall_s = outcome["duration_ms"].as_f64().map(|ms| ms / 1000.0);
        (run.recorded, run.ending) = ending(&outcome, None);
        run
    }
}

/// Returns the text of the first message of the user.
fn task(messages: &Value) -> Option<String> {
    let first = messages.as_array()?.iter().find(|message| message["role"] == "user")?;
    let parts = first["parts"].as_array()?.iter();
    let texts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// Reads the ending of an outcome, and what it says about success: the verdict of a verifier counts, which
/// is `verified` or in the outcome.
pub fn ending(outcome: &Value, verified: Option<bool>) -> (Recorded, Option<Ending<'static>>) {
    let Some(name) = outcome["termination"].as_str() else { return (Recorded::default(), None) };
    let verified = verified.or_else(|| outcome["verified"].as_bool());
    let termination = name.parse::<Termination>().ok();
    let success = termination.map(|one| one.is_success() && verified != Some(false));
    // A record of a later version may hold what this one cannot read; its ending is still known.
    let answer = bounded_json::from_str::<Outcome>(&outcome.to_string()).ok();
    let ending = Ending {
        reason: termination.map_or("unknown", reason).into(),
        native: Some(name.to_owned().into()),
        answer: answer.and_then(|outcome| outcome.answer()).map(Into::into),
        ..Ending::default()
    };
    (Recorded { success, reward: None }, Some(ending))
}

/// Returns the name of the ending in the vocabulary of trajectories.
fn reason(termination: Termination) -> &'static str {
    match termination {
        Termination::Stop => "final",
        Termination::Submitted => "agent_submit",
        Termination::ErrorMaxTurns => "max_turns",
        Termination::ErrorMaxToolCalls => "tool_call_limit",
        Termination::ErrorMaxBudgetUsd => "cost_limit",
        Termination::ErrorMaxTokens => "token_limit",
        Termination::ErrorMaxWindow => "window_limit",
        Termination::ErrorTimeout => "timeout",
        Termination::ErrorPromptTooLong | Termination::ErrorCompactionFailed => "context_overflow",
        Termination::ErrorThinkingStarved | Termination::ErrorOutputTruncated => "output_length",
        Termination::ErrorDuringExecution
        | Termination::ErrorContentFiltered
        | Termination::ErrorProviderRejected
        | Termination::ErrorProviderAuth => "provider_error",
        Termination::ErrorMaxStructuredOutputRetries
        | Termination::ErrorConsecutiveMistakes
        | Termination::ErrorNoProgress
        | Termination::ErrorSchemaValidation
        | Termination::ErrorNotVerified
        | Termination::GaveUp => "agent_error",
        Termination::ErrorHalted => "harness_error",
        Termination::Cancelled | Termination::Terminated => "cancelled",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ending_of_run_has_its_answer() {
        let answer = |outcome: &Value| {
            let ending = ending(outcome, None).1.unwrap();
            (ending.reason.into_owned(), ending.answer.map(std::borrow::Cow::into_owned))
        };
        let by =
            json!({"layer": "tool", "name": "finish", "evidence": "the model called `finish`"});
        let done = json!({"termination": "submitted", "decided_by": by, "deliverable": "Paris."});
        assert_eq!(answer(&done), ("agent_submit".to_owned(), Some("Paris.".to_owned())));
        let later = json!({"termination": "submitted", "decided_by": "another form"});
        assert_eq!(answer(&later), ("agent_submit".to_owned(), None));
    }

    #[test]
    fn each_ending_has_a_name() {
        for termination in Termination::all() {
            assert_ne!(reason(*termination), "unknown", "{termination}");
        }
        let success = |outcome: Value, verified| ending(&outcome, verified).0.success;
        assert_eq!(success(json!({"termination": "stop"}), None), Some(true));
        assert_eq!(success(json!({"termination": "stop", "verified": false}), None), Some(false));
        assert_eq!(success(json!({"termination": "stop"}), Some(false)), Some(false));
        assert_eq!(success(json!({"termination": "error_later"}), None), None);
    }
}

//! Decodes a row of the collections of tau-bench and tau2-bench runs: one run per line, one file
//! per model.
//!
//! ```json
//! {"model_path": "vendor/m", "benchmark_name": "taubench", "task_name": "airline", "messages": [],
//!  "eval_result": {"score": 1.0, "db_match": true},
//!  "meta": {"id": "airline_0", "is_correct": true, "finish_reason": "user_stop", "task_id": "0"}}
//! ```
//!
//! Quirks: `meta.id` may or may not begin with the domain. Results may have no id; those of a
//! user's calls follow the user's message. With some models the results are recorded as user
//! messages, and stay user messages.

use crate::model::{Ending, Recorded, Trajectory};
use crate::read::build::OUT_OF_ORDER;
use crate::read::build::message::Message;
use crate::read::build::record::{self, List, Record, lift, object, owned_name, owned_text};
use crate::read::build::talk::Talk;
use crate::read::formats::benchmarks::tau2::reason::reason;
use crate::read::outcomes::is_success;
use crate::read::problem::Problem;
use serde::de::MapAccess;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// The member that determines the success of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Success {
    /// tau-bench: `db_match`, the comparison of the final database with the expected one.
    DbMatch,
    /// tau2-bench: the score.
    Score,
}

#[derive(Default)]
struct Row<'a> {
    model: Option<Cow<'a, str>>,
    domain: Option<Cow<'a, str>>,
    messages: Option<Vec<Message<'a>>>,
    eval: Map<String, Value>,
    meta: Map<String, Value>,
    other: Map<String, Value>,
}

impl<'a> Record<'a> for Row<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "model_path" => self.model = record::name(map)?,
            "task_name" => self.domain = record::name(map)?,
            "messages" => self.messages = Some(map.next_value::<List<Message<'a>>>()?.0),
            "eval_result" => self.eval = object(map)?.unwrap_or_default(),
            "meta" => self.meta = object(map)?.unwrap_or_default(),
            _ => {
                let value = map.next_value()?;
                self.other.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }
}

/// Decodes a row.
pub(crate) fn run(line: &[u8], by: Success) -> Result<Trajectory<'_>, Problem> {
    let Row { model, domain, messages, eval, mut meta, other } = record::read(line)?;
    let messages =
        messages.ok_or_else(|| Problem::malformed("missing `messages`: expected a list"))?;
    let mut talk = Talk::default();
    let mut before: Option<i64> = None;
    for message in messages {
        if let Some(turn) = message.turn {
            // Equal numbers are also out of order, because each message has its own.
            if let Some(before) = before.filter(|before| *before >= turn) {
                talk.note(OUT_OF_ORDER, || format!("turn_idx {turn} after {before}"));
            }
            before = Some(turn);
        }
        message.join(&mut talk);
    }
    let (steps, notes) = talk.end();
    let mut run = Trajectory { steps, notes, extra: other, model, ..Trajectory::default() };

    let score = eval.get("score").and_then(Value::as_f64);
    let matches = eval.get("db_match").and_then(Value::as_bool);
    run.recorded.reward = score;
    run.recorded.success = match by {
        Success::DbMatch => matches.or_else(|| meta.get("is_correct")?.as_bool()),
        Success::Score => score.map(is_success),
    };
    // Both are stored, because the benchmark's authors define success differently from the score.
    if by == Success::DbMatch && score.is_some_and(is_success) && matches == Some(false) {
        run.notes.push("conflicting outcomes: the score is 1, but db_match is false".to_owned());
    }
    if !eval.is_empty() {
        run.extra.insert("eval_result".to_owned(), Value::Object(eval));
    }

    let domain = domain.unwrap_or_default();
    let number = |id: Cow<'static, str>| match id.strip_prefix(&format!("{domain}_")) {
        Some(number) => number.to_owned(),
        None => id.into_owned(),
    };
    let id = meta.get("id").and_then(owned_name).map(number);
    let task = meta.get("task_id").and_then(owned_name).map(number).or_else(|| id.clone());
    if let Some(id) = id {
        // The ids repeat in the files of each model, so the model is a part of the run id.
        let model = run.model.as_deref().unwrap_or("unknown");
        run.run_id = format!("{model}/{domain}/{id}").into();
    }
    run.task_id = task.map(|task| format!("{domain}/{task}").into());

    if let Some(native) = lift(&mut meta, "finish_reason", owned_text) {
        run.ending = Some(Ending {
            reason: reason(&native).into(),
            native: Some(native),
            ..Ending::default()
        });
    }
    run.totals.cost_usd = lift(&mut meta, "agent_cost", Value::as_f64);
    run.totals.wall_s = lift(&mut meta, "duration_seconds", Value::as_f64);
    if let Some(cost) = lift(&mut meta, "user_cost", |cost| cost.as_f64().map(|_| cost.clone())) {
        run.totals.extra.insert("user_cost".to_owned(), cost);
    }
    if !meta.is_empty() {
        run.extra.insert("meta".to_owned(), Value::Object(meta));
    }
    if run.steps.is_empty() {
        run.tags.push("summary_only".into());
        if run.recorded != Recorded::default() {
            run.notes.push("an outcome without a run: the row has no messages".to_owned());
        }
    }
    Ok(run)
}

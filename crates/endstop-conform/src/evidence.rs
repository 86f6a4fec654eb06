//! The observations of a program in one case. Checks judge them, and nothing else.
//!
//! ```
//! use endstop_conform::evidence::{Evidence, Exit};
//! let evidence = Evidence { exit: Some(Exit::Status(0)), ..Evidence::default() };
//! assert!(evidence.exit.unwrap().is_success());
//! ```

use crate::profile::VerdictPlace;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The end of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// The program has exited with this status. A signal n is the status 128 + n, as in a shell.
    Status(i32),
    /// The program was still running when the suite ended it.
    Stopped(Stopped),
}

impl Exit {
    /// `true` for the exit status 0.
    pub fn is_success(self) -> bool {
        self == Exit::Status(0)
    }
}

/// The reason for which the suite ended a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// The time that the checks allow is over.
    Time,
    /// The patience of the caller is over, before the time that the checks allow.
    Patience,
    /// The program made more calls than the case has a use for.
    Calls,
    /// The program printed more than the suite stores.
    Output,
}

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A call of the run.
    Main,
    /// A call of a sub-agent.
    Sub,
    /// A call without tools of a program that has tools: a title or a summary.
    Other,
}

/// A call at the provider.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// Seconds since the start of the program.
    pub at: f64,
    /// The format, for example `openai-chat`.
    pub format: String,
    /// The kind.
    pub kind: Kind,
    /// Number among the calls of its kind, from 1.
    pub number: usize,
    /// `true` if the client asked for a stream.
    #[serde(default)]
    pub streams: bool,
    /// The request, which is not read again: that of a long run has all before it. Null in the middle of a run of many calls.
    #[serde(skip_deserializing)]
    pub body: Value,
    /// The answer, in words of the case.
    pub answer: String,
    /// The bytes of the answer, up to a bound. They are not read again.
    #[serde(skip_deserializing)]
    pub bytes: String,
    /// Reason for which the answer of the case could not be given: the format has no such answer, or the client no such tool.
    pub unspoken: Option<Unspoken>,
    /// The first reason for which a provider of the format refuses the messages.
    pub invalid: Option<String>,
}

/// The reason for which an answer of a case could not be given.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Unspoken {
    /// The reason.
    pub why: String,
    /// `true` if no response in the format of the client can say it; `false` if the client lacks a tool.
    pub is_of_format: bool,
}

/// A body of a tool that has started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// The name in the case.
    pub name: String,
    /// Seconds since the start of the program.
    pub at: f64,
}

/// Observations.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Evidence {
    /// The command that was started.
    pub command: Vec<String>,
    /// The end of the program; `None` if it could not be started.
    pub exit: Option<Exit>,
    /// Time in seconds from its start to its end.
    pub seconds: f64,
    /// Standard output, up to a bound.
    pub stdout: String,
    /// Standard error, up to a bound.
    pub stderr: String,
    /// Reason for which its end says nothing: it could not be started, made no call, or ended what observes it.
    pub problem: Option<String>,
    /// The calls at the provider, in order.
    pub calls: Vec<Call>,
    /// The number of calls before the second start; all of them if there is only one.
    pub calls_of_first: usize,
    /// The bodies of tools that have started, in order.
    pub started: Vec<Started>,
    /// The number of these before the second start.
    pub started_of_first: usize,
    /// Time in seconds at which the signal was sent.
    pub acted: Option<f64>,
    /// Command lines of processes that were left after the end of the program and the time of the case; `None` if this
    /// system does not show them.
    pub left: Option<Vec<String>>,
    /// Those of them that are of a tool.
    #[serde(default)]
    pub left_of_tool: Option<Vec<String>>,
    /// Times in seconds at which the program closed a connection in the middle of an answer.
    #[serde(default)]
    pub hung_up: Vec<f64>,
    /// `true` if a connection to the provider was open after the end.
    pub connection_left: bool,
    /// The second start.
    pub again: Option<Again>,
    /// Hosts outside of this machine that it tried to call.
    pub elsewhere: Vec<String>,
    /// The verdict in its output, if its profile has a place for one.
    pub record: Record,
    /// The patience of the caller in seconds.
    pub patience: u64,
}

/// The observations of a second start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Again {
    /// The end.
    pub exit: Exit,
    /// Standard output, up to a bound.
    pub stdout: String,
    /// Standard error, up to a bound.
    pub stderr: String,
}

/// The most characters of a final record that are kept.
const MOST_RECORD: usize = 16 << 10;

/// The final records in the output of a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Number of final records.
    pub number: usize,
    /// `true` if the last line of the output is one.
    pub is_last: bool,
    /// `true` if the last record says success; `None` if there is no record.
    pub success: Option<bool>,
    /// The reason.
    pub reason: Option<String>,
    /// `true` if it has the usage.
    pub has_usage: bool,
    /// The cost, if there is a member for it.
    pub cost: Option<Value>,
    /// The answer.
    pub answer: Option<String>,
    /// The last record, up to a bound. It may be in a file, and not in the output.
    #[serde(default)]
    pub text: String,
}

impl Record {
    /// Reads the final records of an output: lines of JSON, or the whole of it.
    pub fn read(output: &str, place: &VerdictPlace) -> Record {
        let mut record = Record::default();
        if place.success.is_empty() {
            return record;
        }
        let holds = |value: &Value, members: &std::collections::BTreeMap<String, Vec<Value>>| {
            members.iter().all(|(pointer, values)| {
                let found = value.pointer(pointer).unwrap_or(&Value::Null);
                values.contains(found) || values.is_empty() && found.is_null()
            })
        };
        let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
        let mut found: Vec<(usize, Value)> = lines
            .iter()
            .enumerate()
            .filter_map(|(at, line)| Some((at, serde_json::from_str::<Value>(line).ok()?)))
            .filter(|(_, value)| value.is_object() && holds(value, &place.record))
            .collect();
        let mut last_line = lines.len();
        if found.is_empty() {
            // Some programs print one object over many lines, after messages of their own.
            let whole = output.find('{').and_then(|at| {
                let mut values =
                    serde_json::Deserializer::from_str(&output[at..]).into_iter::<Value>();
                let value = values.next()?.ok()?;
                let rest = output[at + values.byte_offset()..].trim().is_empty();
                holds(&value, &place.record).then_some((value, rest))
            });
            if let Some((value, rest)) = whole {
                last_line = usize::from(!rest) + 1;
                found.push((0, value));
            }
        }
        record.number = found.len();
        let Some((at, last)) = found.pop() else { return record };
        record.text = last.to_string().chars().take(MOST_RECORD).collect();
        let first = |pointers: &[String]| {
            pointers
                .iter()
                .filter_map(|pointer| last.pointer(pointer))
                .find(|found| !found.is_null())
                .cloned()
        };
        let text = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        record.is_last = at + 1 == last_line;
        record.success = Some(holds(&last, &place.success));
        record.reason = first(&place.reason).map(text).filter(|reason| !reason.is_empty());
        // A word is not a usage.
        record.has_usage =
            first(&place.usage).is_some_and(|usage| !usage.is_string() && !usage.is_boolean());
        // A cost of null says that it is not known, which is different from a missing member.
        record.cost = place.cost.iter().find_map(|pointer| last.pointer(pointer)).cloned();
        record.answer = first(&place.answer).map(text);
        record
    }
}

impl Evidence {
    /// `true` if any of its verdicts is a success. `None` if it has not ended by itself, so that there is no verdict.
    pub fn success(&self) -> Option<bool> {
        match self.exit? {
            Exit::Status(status) => Some(status == 0 || self.record.success == Some(true)),
            Exit::Stopped(_) => (self.record.success == Some(true)).then_some(true),
        }
    }

    /// `true` if the program has ended by itself.
    pub fn has_ended(&self) -> bool {
        matches!(self.exit, Some(Exit::Status(_)))
    }

    /// The calls of this kind before the second start.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Call> {
        self.calls[..self.calls_of_first.min(self.calls.len())]
            .iter()
            .filter(move |call| call.kind == kind)
    }

    /// Number of calls of the run.
    pub fn main_calls(&self) -> usize {
        self.of_kind(Kind::Main).count()
    }

    /// Number of started bodies with this name before the second start.
    pub fn bodies(&self, name: &str) -> usize {
        self.started[..self.started_of_first.min(self.started.len())]
            .iter()
            .filter(|body| body.name == name)
            .count()
    }

    /// Time in seconds of the first call.
    pub fn first_call(&self) -> Option<f64> {
        self.calls.first().map(|call| call.at)
    }

    /// The answer that the program shows: that of its record, or its standard output.
    pub fn answer(&self) -> &str {
        self.record.answer.as_deref().unwrap_or(&self.stdout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn place() -> VerdictPlace {
        let members = |pointer: &str, value: Value| [(pointer.to_owned(), vec![value])].into();
        VerdictPlace {
            file: None,
            record: members("/type", json!("result")),
            success: members("/status", json!("success")),
            reason: vec!["/reason".to_owned()],
            usage: vec!["/usage".to_owned()],
            cost: vec!["/cost".to_owned()],
            answer: vec!["/answer".to_owned()],
            unfinished: Vec::new(),
            not_failed: Vec::new(),
        }
    }

    #[test]
    fn last_record_of_lines_is_read() {
        let output = "starting\n{\"type\":\"step\"}\n{\"type\":\"result\",\"status\":\"error\",\"reason\":\"turns\",\"usage\":{},\"cost\":null}\n";
        let record = Record::read(output, &place());
        assert_eq!((record.number, record.is_last, record.success), (1, true, Some(false)));
        assert_eq!((record.reason.as_deref(), record.has_usage), (Some("turns"), true));
        assert_eq!(record.cost, Some(Value::Null));
        let more = format!("{output}goodbye\n");
        assert!(!Record::read(&more, &place()).is_last);
        assert_eq!(Record::read(&output.repeat(2), &place()).number, 2);
        assert_eq!(Record::read("{\"type\":\"result", &place()), Record::default());
    }

    #[test]
    fn record_over_many_lines_is_read() {
        let output = "{\n \"type\": \"result\",\n \"status\": \"success\"\n}\n";
        let record = Record::read(output, &place());
        assert_eq!((record.number, record.is_last, record.success), (1, true, Some(true)));
        assert!(!Record::read(&format!("{output}bye"), &place()).is_last);
    }

    #[test]
    fn success_is_any_of_the_verdicts() {
        let with = |status, success| {
            let record = Record { success, ..Record::default() };
            Evidence { exit: Some(Exit::Status(status)), record, ..Evidence::default() }.success()
        };
        assert_eq!(with(0, Some(false)), Some(true));
        assert_eq!(with(1, Some(true)), Some(true));
        assert_eq!(with(1, None), Some(false));
        let stopped = Some(Exit::Stopped(Stopped::Patience));
        assert_eq!(Evidence { exit: stopped, ..Evidence::default() }.success(), None);
    }
}

//! Replay: repeats a recorded run through the real encoder and decoder, without a network or a key.
//!
//! ```no_run
//! use endstop::Agent;
//! use endstop::provider::http::HttpProvider;
//! use endstop::provider::recording::Recording;
//! use endstop::provider::replay::RecordingReplay;
//! # async fn replay() -> Result<(), Box<dyn std::error::Error>> {
//! let replay = RecordingReplay::new(Recording::read("run.jsonl")?);
//! let agent = Agent::builder(HttpProvider::replay(&replay)?).build()?;
//! let outcome = agent.run("Hello.")?.outcome().await;
//! for warning in replay.warnings() {
//!     eprintln!("{warning}"); // the request of exchange 1 differs from the recorded one at …
//! }
//! # Ok(()) }
//! ```
//!
//! The exchanges are replayed in order, regardless of the requests. A request that differs from the
//! recorded one causes a [`Warning`]. A call beyond the last exchange fails, and the run ends with
//! `error_during_execution`. [`RecordingReplay::divergence`] is the first difference from the recorded run;
//! after it, the replay proves nothing about the recorded run.

use super::recording::{Ended, Exchange, Recording};
use crate::redacted::stands_for;
use endstop_core::{ErrorClass, ModelError, Outcome, Termination};
use endstop_wire::caching::without_marks;
use endstop_wire::redact::excerpt;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// A recording that is being replayed. Cheap to clone; clones share the position.
#[derive(Clone, Debug)]
pub struct RecordingReplay(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    recording: Recording,
    state: Mutex<State>,
    hung_up: Notify,
}

#[derive(Debug, Default)]
struct State {
    played: usize,
    warnings: Vec<Warning>,
    /// The first warning about a difference from the recorded run.
    diverged: Option<Warning>,
    /// The path of the last request's difference. A changed message also differs in every later
    /// request, and is reported once.
    differed: Option<String>,
    /// The recorded run's termination, if the replay has reached the point where it was stopped.
    stopped: Option<Termination>,
}

/// A difference from the recorded run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The number of the exchange, from 1.
    pub exchange: usize,
    /// The path of the difference in the request, for example `$.messages[0].content`.
    pub path: Option<String>,
    /// A description of the difference.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Serialize for Warning {
    /// Serializes as a line of events: `{"type": "warning", "exchange", "path", "message"}`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json!({"type": "warning", "exchange": self.exchange, "path": self.path,
               "message": self.message})
        .serialize(serializer)
    }
}

impl State {
    /// Records that this run differs from the recorded one.
    fn diverge(&mut self, warning: Warning) {
        self.diverged.get_or_insert_with(|| warning.clone());
        self.warnings.push(warning);
    }
}

impl RecordingReplay {
    /// Creates a replay of this recording, from its beginning. Each exchange is replayed once.
    pub fn new(recording: Recording) -> RecordingReplay {
        let mut state = State::default();
        if let Some(torn) = &recording.torn {
            state.warnings.push(Warning {
                exchange: recording.exchanges.len(),
                path: None,
                message: format!("{torn}; the lines before it are replayed"),
            });
        }
        RecordingReplay(Arc::new(Inner {
            recording,
            state: Mutex::new(state),
            hung_up: Notify::new(),
        }))
    }

    /// Returns the recording.
    pub fn recording(&self) -> &Recording {
        &self.0.recording
    }

    /// Returns the warnings since the last call.
    pub fn warnings(&self) -> Vec<Warning> {
        std::mem::take(&mut self.lock().warnings)
    }

    /// Returns the first difference from the recorded run: a request that differs, a call beyond
    /// the last exchange of a complete recording, an exchange that the run did not request, or
    /// another termination. `None` means that the runs are equal, as far as the recording goes.
    pub fn divergence(&self) -> Option<Warning> {
        self.lock().diverged.clone()
    }

    /// Compares the end of the run: warns about exchanges that the run did not request, and about
    /// another termination than the recorded one.
    pub fn ended(&self, outcome: &Outcome) {
        let count = self.0.recording.exchanges.len();
        let mut state = self.lock();
        let exchange = state.played;
        let mut warn = |message: String| state.diverge(Warning { exchange, path: None, message });
        if exchange < count {
            warn(format!("the run asked for {exchange} of the recording's {count} exchanges"));
        }
        match self.0.recording.ended {
            Some(ended) if ended != outcome.termination => {
                warn(format!(
                    "the recorded run ended as {ended}, and this one as {}",
                    outcome.termination
                ));
            }
            _ => {}
        }
    }

    /// Returns the number of exchanges that were not replayed yet.
    pub fn left(&self) -> usize {
        self.0.recording.exchanges.len() - self.lock().played
    }

    /// Waits until the replay reaches a point where the recorded run aborted a response and this
    /// run did not. Returns [`Cancelled`](Termination::Cancelled) or
    /// [`Terminated`](Termination::Terminated) if the recorded run was stopped there; the caller
    /// can stop this run in the same way. Otherwise the response never ends, and a limit must end
    /// the run.
    pub async fn hung_up(&self) -> Option<Termination> {
        self.0.hung_up.notified().await;
        self.lock().stopped.take()
    }

    fn stopped_by_caller(&self) -> Option<Termination> {
        let stops = [Termination::Cancelled, Termination::Terminated];
        self.0.recording.ended.filter(|ended| stops.contains(ended))
    }

    /// Returns the next exchange, and compares its request with this one.
    pub(super) fn call(&self, url: &str, body: &[u8]) -> Result<Played, ModelError> {
        let exchanges = &self.0.recording.exchanges;
        let mut state = self.lock();
        let at = state.played;
        let Some(exchange) = exchanges.get(at) else {
            let message = self.used_up();
            // An incomplete recording has nothing more to compare with, so this is not a
            // divergence.
            if self.0.recording.ended.is_some() {
                let warning = Warning { exchange: at, path: None, message: message.clone() };
                state.diverged.get_or_insert(warning);
            }
            return Err(ModelError::new(ErrorClass::UnknownError, message));
        };
        state.played += 1;
        let request = serde_json::from_slice(body).unwrap_or(Value::Null);
        let found = difference(&exchange.request, &request)
            // A recording made with another setting of `cache` has other marks, which change no
            // answer.
            .and_then(|_| {
                let recorded = without_marks(exchange.request.clone());
                difference(&recorded, &without_marks(request))
            })
            .or_else(|| (exchange.url != url).then(|| Difference::url(&exchange.url, url)));
        let path = found.as_ref().map(|found| found.path.clone());
        // Later requests repeat the earlier messages, and with them an earlier difference.
        if let Some(found) = found.filter(|_| path != state.differed) {
            state.diverge(Warning {
                exchange: at + 1,
                message: format!(
                    "the request of exchange {} differs from the recorded one at {}: {}",
                    at + 1,
                    found.path,
                    found.what
                ),
                path: Some(found.path),
            });
        }
        state.differed = path;
        Ok(Played { replay: self.clone(), at })
    }

    fn used_up(&self) -> String {
        let count = self.0.recording.exchanges.len();
        let count = format!("{count} exchange{}", if count == 1 { "" } else { "s" });
        let why = match self.0.recording.ended {
            None => "it stops before its run ended".to_owned(),
            Some(ended) => format!("its run ended as {ended}"),
        };
        format!("the recording has {count}, and the run asks for one more ({why})")
    }

    /// Reached the point of an exchange where the recorded run stopped reading.
    fn hang_up(&self, at: usize) {
        // Only the last exchange can have been cut off by a stop. An earlier one was aborted for
        // another reason, such as a time limit, because the run continued after it.
        let last = at + 1 == self.0.recording.exchanges.len();
        let stopped = self.stopped_by_caller().filter(|_| last);
        let mut state = self.lock();
        state.stopped = stopped;
        if stopped.is_none() {
            let message = format!(
                "the recorded run stopped reading exchange {}: the replay waits here until a limit or a stop ends it",
                at + 1
            );
            state.warnings.push(Warning { exchange: at + 1, path: None, message });
        }
        drop(state);
        self.0.hung_up.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An exchange that is being replayed.
pub(super) struct Played {
    replay: RecordingReplay,
    at: usize,
}

impl Played {
    pub(super) fn exchange(&self) -> &Exchange {
        &self.replay.0.recording.exchanges[self.at]
    }

    pub(super) fn ended(&self) -> Ended {
        self.exchange().ended
    }

    /// The recorded bytes are used up.
    pub(super) fn hung_up(&self) {
        self.replay.hang_up(self.at);
    }
}

/// The first difference between two requests.
struct Difference {
    path: String,
    what: String,
}

impl Difference {
    fn new(path: &str, recorded: Option<&Value>, now: Option<&Value>) -> Difference {
        let shown = |value: Option<&Value>| match value {
            None => "nothing".to_owned(),
            Some(value) => excerpt(&shortened(&value.to_string())),
        };
        let what = match (recorded, now) {
            (Some(Value::String(recorded)), Some(Value::String(now))) => {
                // Start a little before the first differing character, for context.
                let same = recorded.chars().zip(now.chars()).take_while(|(a, b)| a == b).count();
                let tail = |text: &str| {
                    let tail: String = text.chars().skip(same.saturating_sub(20)).collect();
                    excerpt(&shortened(&Value::from(tail).to_string()))
                };
                format!("it was {}, and is {}", tail(recorded), tail(now))
            }
            _ => format!("it was {}, and is {}", shown(recorded), shown(now)),
        };
        Difference { path: path.to_owned(), what }
    }

    fn url(recorded: &str, now: &str) -> Difference {
        Difference::new("the address", Some(&recorded.into()), Some(&now.into()))
    }
}

fn shortened(text: &str) -> String {
    const MOST: usize = 80;
    let kept: String = text.chars().take(MOST).collect();
    if kept.len() < text.len() { format!("{kept}…") } else { kept }
}

/// Returns the first difference between `now` and `recorded`. The order of keys is ignored and
/// `[redacted]` matches any text; everything else must be equal.
fn difference(recorded: &Value, now: &Value) -> Option<Difference> {
    differs("$", recorded, now)
}

fn differs(path: &str, recorded: &Value, now: &Value) -> Option<Difference> {
    match (recorded, now) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            keys.find_map(|key| {
                let path = format!("{path}.{key}");
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => differs(&path, a, b),
                    (a, b) => Some(Difference::new(&path, a, b)),
                }
            })
        }
        (Value::Array(a), Value::Array(b)) => (0..a.len().max(b.len())).find_map(|at| {
            let path = format!("{path}[{at}]");
            match (a.get(at), b.get(at)) {
                (Some(a), Some(b)) => differs(&path, a, b),
                (a, b) => Some(Difference::new(&path, a, b)),
            }
        }),
        (Value::String(a), Value::String(b)) if stands_for(a, b) => None,
        (a, b) => (a != b).then(|| Difference::new(path, Some(a), Some(b))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_difference_is_reported() {
        let recorded = json!({"model": "m", "messages": [{"role": "user", "content": "Hello"}]});
        for (now, path) in [
            (json!({"messages": [{"content": "Hello", "role": "user"}], "model": "m"}), None),
            (json!({"model": "n", "messages": []}), Some("$.model")),
            (json!({"model": "m", "messages": []}), Some("$.messages[0]")),
            (
                json!({"model": "m", "messages": [{"role": "user", "content": "Hello!"}]}),
                Some("$.messages[0].content"),
            ),
            (
                json!({"model": "m", "messages": [{"role": "user", "content": "Hello"}], "n": 1}),
                Some("$.n"),
            ),
            (json!(null), Some("$")),
        ] {
            let found = difference(&recorded, &now).map(|found| found.path);
            assert_eq!(found.as_deref(), path, "{now}");
        }
    }
}

//! Replay: a recorded run played again through the real encoder and decoder, without a network or a
//! key.
//!
//! ```no_run
//! use endstop::AgentLoop;
//! use endstop::provider::http::HttpProvider;
//! use endstop::provider::recording::Recording;
//! use endstop::provider::replay::Replay;
//! # async fn replay() -> Result<(), Box<dyn std::error::Error>> {
//! let replay = Replay::new(Recording::read("run.jsonl")?);
//! let agent = AgentLoop::builder(HttpProvider::replay(&replay)?).build()?;
//! let outcome = agent.run("Hello.")?.outcome().await;
//! for warning in replay.warnings() {
//!     eprintln!("{warning}"); // the request of exchange 1 differs from the recorded one at …
//! }
//! # Ok(()) }
//! ```
//!
//! The exchanges are played in order, whatever is asked; a request that is not the recorded one is a
//! [`Warning`]. A call beyond the last one fails, and the run ends as `error_during_execution`.
//! [`Replay::divergence`] is the first place where the run was not the recorded one, after which it
//! proves nothing about the recorded run.

use super::recording::{Ended, Exchange, Recording};
use endstop_core::{ErrorClass, ModelError, Outcome, Termination};
use endstop_wire::redact::{REDACTED, excerpt};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// A recording that is being played. Cheap to clone; clones play the same one.
#[derive(Clone, Debug)]
pub struct Replay(Arc<Inner>);

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
    /// The first warning that this run is not the recorded one.
    diverged: Option<Warning>,
    /// Where the last request differed: what was changed once differs in every request after it.
    differed: Option<String>,
    /// How the recorded run was stopped at the place that was reached.
    stopped: Option<Termination>,
}

/// What is not as it was when the run was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The exchange, from 1.
    pub exchange: usize,
    /// Where its request differs, as a path: `$.messages[0].content`.
    pub path: Option<String>,
    /// What differs, in words.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Serialize for Warning {
    /// As a line of events: `{"type": "warning", "exchange", "path", "message"}`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json!({"type": "warning", "exchange": self.exchange, "path": self.path,
               "message": self.message})
        .serialize(serializer)
    }
}

impl State {
    /// This run is not the recorded one.
    fn diverge(&mut self, warning: Warning) {
        self.diverged.get_or_insert_with(|| warning.clone());
        self.warnings.push(warning);
    }
}

impl Replay {
    /// Plays this recording, once, from its beginning.
    pub fn new(recording: Recording) -> Replay {
        let mut state = State::default();
        if let Some(torn) = &recording.torn {
            state.warnings.push(Warning {
                exchange: recording.exchanges.len(),
                path: None,
                message: format!("{torn}; what stands before it is played"),
            });
        }
        Replay(Arc::new(Inner { recording, state: Mutex::new(state), hung_up: Notify::new() }))
    }

    /// What is played.
    pub fn recording(&self) -> &Recording {
        &self.0.recording
    }

    /// The warnings since the last look.
    pub fn warnings(&self) -> Vec<Warning> {
        std::mem::take(&mut self.lock().warnings)
    }

    /// The first place where the run was not the recorded one: a request that differs, a call beyond the
    /// last exchange of a whole recording, an exchange that the run did not ask for, or another ending.
    /// `None`: the run is the recorded one, as far as the recording goes.
    pub fn divergence(&self) -> Option<Warning> {
        self.lock().diverged.clone()
    }

    /// The run has ended: warns of exchanges that were not asked for, and of another ending than the
    /// recorded one.
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

    /// How many exchanges were not played yet.
    pub fn left(&self) -> usize {
        self.0.recording.exchanges.len() - self.lock().played
    }

    /// Waits for a place where the recorded run hung up in the middle of a response and this one did
    /// not. It is [`Cancelled`](Termination::Cancelled) or [`Terminated`](Termination::Terminated) where
    /// somebody stopped the recorded run there: whoever wants its ending stops this one, too. Else the
    /// response goes on for ever, and a limit ends it.
    pub async fn hung_up(&self) -> Option<Termination> {
        self.0.hung_up.notified().await;
        self.lock().stopped.take()
    }

    fn stopped_by_caller(&self) -> Option<Termination> {
        let stops = [Termination::Cancelled, Termination::Terminated];
        self.0.recording.ended.filter(|ended| stops.contains(ended))
    }

    /// The next exchange, for this request.
    pub(super) fn call(&self, url: &str, body: &[u8]) -> Result<Played, ModelError> {
        let exchanges = &self.0.recording.exchanges;
        let mut state = self.lock();
        let at = state.played;
        let Some(exchange) = exchanges.get(at) else {
            let message = self.used_up();
            // A recording that was cut has no more to compare with.
            if self.0.recording.ended.is_some() {
                let warning = Warning { exchange: at, path: None, message: message.clone() };
                state.diverged.get_or_insert(warning);
            }
            return Err(ModelError::new(ErrorClass::UnknownError, message));
        };
        state.played += 1;
        let request = serde_json::from_slice(body).unwrap_or(Value::Null);
        let found = difference(&exchange.request, &request)
            .or_else(|| (exchange.url != url).then(|| Difference::url(&exchange.url, url)));
        let path = found.as_ref().map(|found| found.path.clone());
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

    /// Nothing more comes of this exchange: the recorded run hung up here.
    fn hang_up(&self, at: usize) {
        let last = at + 1 == self.0.recording.exchanges.len();
        let stopped = self.stopped_by_caller().filter(|_| last);
        let mut state = self.lock();
        state.stopped = stopped;
        if stopped.is_none() {
            let message = format!(
                "the recorded run hung up in exchange {}: nothing more comes of it, and a limit must end it",
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

/// An exchange that is being played.
pub(super) struct Played {
    replay: Replay,
    at: usize,
}

impl Played {
    pub(super) fn exchange(&self) -> &Exchange {
        &self.replay.0.recording.exchanges[self.at]
    }

    pub(super) fn ended(&self) -> Ended {
        self.exchange().ended
    }

    /// All that was recorded was played.
    pub(super) fn hung_up(&self) {
        self.replay.hang_up(self.at);
    }
}

/// The first place where two requests differ.
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
                // From a little before the place where they part.
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

/// Where `now` first differs from `recorded`. The order of keys means nothing, and `[redacted]` stands
/// for any text; nothing else is passed over.
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

/// Whether a recorded text is this one, with any text where it has `[redacted]`.
pub(crate) fn stands_for(recorded: &str, now: &str) -> bool {
    let Some((first, rest)) = recorded.split_once(REDACTED) else { return recorded == now };
    let Some(mut now) = now.strip_prefix(first) else { return false };
    let (between, last) = rest.rsplit_once(REDACTED).map_or(("", rest), |(b, last)| (b, last));
    let Some(middle) = now.strip_suffix(last) else { return false };
    now = middle;
    for piece in between.split(REDACTED) {
        match now.find(piece) {
            Some(at) => now = &now[at + piece.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named() {
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

    #[test]
    fn what_was_cut_out_stands_for_any_text() {
        for (recorded, now, same) in [
            ("a [redacted] b", "a key b", true),
            ("a [redacted] b", "a  b", true),
            ("a [redacted] b", "a b", false),
            ("[redacted]", "", true),
            ("x[redacted]y[redacted]z", "x1y2z", true),
            ("x[redacted]y[redacted]z", "x12z", false),
            ("x[redacted]", "y", false),
            ("[redacted]x[redacted]", "axb", true),
        ] {
            assert_eq!(stands_for(recorded, now), same, "{recorded} {now}");
        }
    }
}

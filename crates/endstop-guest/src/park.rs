//! A parked run: a person or another process decides, and the run continues later, maybe elsewhere.
//!
//! The text of a parked run holds its specification and its events. Replaying them gives the same run
//! again: what it spent, its turns, the fingerprints of its calls, and the calls that are open. Its clock
//! stands still meanwhile. The text has the conversation in it, so it needs the same care as a
//! conversation; a policy is code and is given again.
//!
//! ```
//! use endstop_core::{Message, RunSpec};
//! use endstop_guest::park::Terms;
//! use endstop_guest::pricing::Pricing;
//! use endstop_guest::run_state::RunState;
//! use std::time::Duration;
//! let spec = RunSpec::new(vec![Message::user("Delete the old logs.")]);
//! let mut run = RunState::new(spec, Pricing::new(None, Some("openai/gpt-5")), None);
//! let text = run.park(Duration::from_secs(3)).unwrap();
//! let again = RunState::resume(&text, Terms::default()).unwrap();
//! assert_eq!(again.elapsed(), Duration::from_secs(3));
//! assert!(RunState::resume(&text, Terms::default()).is_err(), "only once");
//! ```

use crate::conversation::{Conversation, tool_ids};
use crate::limits::{apply, row_of};
use crate::pricing::Pricing;
use crate::run_state::RunState;
pub use crate::ticket::Ticket;
use endstop_core::guest::Guest;
use endstop_core::limits::{TABLE, unknown_key};
use endstop_core::policy::TerminationPolicy;
use endstop_core::{Event, EventKind, LimitRow, Limits, Price, RunSpec};
use endstop_wire::dialect::dialect;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The version of the text. There is one.
const VERSION: u64 = 1;

/// A parked run as JSON.
#[derive(Serialize, Deserialize)]
struct Parked {
    endstop_park: u64,
    /// Tells this park from every other one, also of the same run.
    id: u64,
    at: Duration,
    spec: RunSpec,
    price: Option<Price>,
    provider: Option<String>,
    model: Option<String>,
    /// The limits that apply now.
    limits: Limits,
    /// The conversation that had the last response.
    last: usize,
    talks: Vec<Talk>,
}

#[derive(Serialize, Deserialize)]
struct Talk {
    of: String,
    /// The limits at its start.
    limits: Limits,
    events: Vec<Event>,
    /// `true` if the run itself calls its model, and not a handle.
    is_own: bool,
    known_bytes: u64,
    /// Messages of the kernel that no request has had yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    /// The format of the last response.
    api: String,
}

impl From<&Conversation> for Talk {
    fn from(talk: &Conversation) -> Talk {
        Talk {
            of: talk.of.clone(),
            limits: talk.limits.clone(),
            events: talk.events.clone(),
            is_own: talk.is_own,
            known_bytes: talk.known_bytes,
            notes: talk.notes.clone(),
            api: talk.api.to_owned(),
        }
    }
}

impl Talk {
    fn resume(self, spec: RunSpec, pricing: Pricing) -> Conversation {
        let Talk { of, limits, events, is_own, known_bytes, notes, api } = self;
        let guest = Guest::again(spec, events);
        let mut talk = Conversation::around(of, limits, known_bytes, guest, pricing);
        talk.after_step();
        talk.notes = notes;
        talk.shared = talk.guest.spending();
        talk.is_own = is_own;
        for event in &talk.events {
            match &event.kind {
                EventKind::Asked { .. } => talk.is_used = true,
                EventKind::TurnEnded { turn, .. }
                | EventKind::TurnFailed { partial: Some(turn), .. } => {
                    talk.asked.extend(tool_ids(turn));
                }
                // No other event has tool calls.
                _ => {}
            }
        }
        talk.api = dialect(&api).map_or("", |known| known.name);
        talk
    }
}

/// The terms on which a parked run is resumed.
#[derive(Default)]
pub struct Terms<'a> {
    /// Changes of the limits, by name.
    pub limits: Map<String, Value>,
    /// Names of limits that may be looser than before.
    pub allow: &'a [String],
    /// The policy, because a text cannot hold one.
    pub policy: Option<Box<dyn TerminationPolicy>>,
}

/// The reason why a run cannot be parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CannotPark {
    /// A model call waits for its response.
    Calling,
    /// The run has ended.
    Ended,
    /// The run is parked.
    Parked,
    /// The system gives no random number, by which a second use of the text would be recognised.
    NoRandomness,
}

impl fmt::Display for CannotPark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CannotPark::Calling => {
                "a model call waits for its response: feed it with `turn` or `failed` before the run is parked"
            }
            CannotPark::Ended => "the run has ended, so that there is nothing to park",
            CannotPark::Parked => "the run is parked",
            CannotPark::NoRandomness => "the system gives no random number, which a parked run needs",
        })
    }
}

impl std::error::Error for CannotPark {}

/// The reason why a text does not become a run again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CannotResume {
    /// The text is not that of a parked run.
    Unreadable(String),
    /// The text has a version that is not known.
    Version(u64),
    /// The text is not the one that was parked.
    Changed,
    /// This process has resumed it before.
    Taken,
    /// These limits are looser than before, and were not allowed to be.
    Looser(Vec<&'static str>),
    /// A limit is unknown or invalid.
    InvalidLimit(String),
    /// The events do not lead to a run that waits.
    Broken,
}

impl fmt::Display for CannotResume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CannotResume::Unreadable(problem) => {
                write!(f, "the text is not that of a parked run: {problem}")
            }
            CannotResume::Version(version) => write!(
                f,
                "the run was parked in version {version}, and this program reads version {VERSION}"
            ),
            CannotResume::Changed => {
                f.write_str("the text of the parked run was changed: its digest does not fit")
            }
            CannotResume::Taken => f.write_str(
                "the parked run was resumed before; park the resumed run to have a new text",
            ),
            CannotResume::Looser(names) => {
                let names = names.join(", ");
                write!(f, "looser than when the run was parked: {names}; name them in `allow`")
            }
            CannotResume::InvalidLimit(problem) => f.write_str(problem),
            CannotResume::Broken => {
                f.write_str("the events of the parked run do not lead to a run that waits")
            }
        }
    }
}

impl std::error::Error for CannotResume {}

impl RunState {
    /// Parks the run, and returns its text. From now on nothing can be fed to it here.
    ///
    /// # Errors
    /// The run has ended, or waits for the response of a model call.
    pub fn park(&mut self, at: Duration) -> Result<String, CannotPark> {
        let text = self.copy(at)?;
        self.parked = true;
        Ok(text)
    }

    /// Returns the text of the run as it is now. The run continues here: the text is for a process that
    /// continues it if this one does not, as the checkpoints of a framework are.
    ///
    /// # Errors
    /// As [`park`](RunState::park).
    pub fn copy(&mut self, at: Duration) -> Result<String, CannotPark> {
        if self.parked {
            return Err(CannotPark::Parked);
        }
        if self.run().is_none() {
            return Err(CannotPark::Ended);
        }
        if self.talks.iter().any(Conversation::is_calling) {
            return Err(CannotPark::Calling);
        }
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(|_| CannotPark::NoRandomness)?;
        self.at = self.at.max(at);
        let (price, provider, model) = self.talks[0].pricing.parts();
        let parked = Parked {
            endstop_park: VERSION,
            id: u64::from_le_bytes(id),
            at: self.at,
            spec: self.spec.clone_with(None),
            price,
            provider,
            model,
            limits: self.limits.clone(),
            last: self.last,
            talks: self.talks.iter().map(Talk::from).collect(),
        };
        // Values of the kernel have no map with keys other than text, the only thing that JSON refuses.
        let mut value = serde_json::to_value(&parked).map_err(|_| CannotPark::Ended)?;
        value.sort_all_objects();
        let digest = digest(&value);
        value["digest"] = Value::String(digest);
        Ok(value.to_string())
    }

    /// Takes a parked run, once in this process.
    ///
    /// # Errors
    /// The text was changed or taken before, or the limits are looser than before.
    pub fn resume(text: &str, terms: Terms<'_>) -> Result<RunState, CannotResume> {
        let unreadable = |problem: String| CannotResume::Unreadable(problem);
        let mut value: Value =
            serde_json::from_str(text).map_err(|problem| unreadable(problem.to_string()))?;
        let version = value.get("endstop_park").and_then(Value::as_u64);
        match version {
            Some(VERSION) => {}
            Some(version) => return Err(CannotResume::Version(version)),
            None => return Err(unreadable("it has no `endstop_park`".to_owned())),
        }
        let written = value.as_object_mut().and_then(|object| object.remove("digest"));
        value.sort_all_objects();
        if written != Some(Value::String(digest(&value))) {
            return Err(CannotResume::Changed);
        }
        let parked: Parked =
            serde_json::from_value(value).map_err(|problem| unreadable(problem.to_string()))?;
        let Terms { limits: changes, allow, policy } = terms;
        let mut limits = parked.limits.clone();
        apply(&mut limits, &changes, parked.spec.guest.unwrap_or_default())
            .map_err(|problem| CannotResume::InvalidLimit(problem.to_string()))?;
        check_limits(&parked.limits, &limits, allow)?;
        let id = parked.id;
        // The kernel may panic on events that no run has: who can write the text can also compute
        // its digest.
        let rebuilt = catch_unwind(AssertUnwindSafe(|| rebuild(parked, policy)));
        let mut state = rebuilt.ok().flatten().ok_or(CannotResume::Broken)?;
        // Last, so that a text which is refused can be resumed on other terms.
        state.ticket = Some(Ticket::take(id).ok_or(CannotResume::Taken)?);
        if !changes.is_empty() {
            let at = state.at;
            state.set_limits(at, &limits);
        }
        Ok(state)
    }

    /// Gives the text of a resumed run back, because the caller could not use the run: it can be resumed
    /// again. Nothing can be fed to this one from now on.
    pub fn give_back(&mut self) {
        self.parked = true;
        if let Some(ticket) = self.ticket.take() {
            ticket.give_back();
        }
    }

    /// Returns the right to [give the text back](Ticket::give_back), if the run was resumed.
    pub fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }

    /// Time since the run began, without the time for which it was parked, as of the last event.
    pub fn elapsed(&self) -> Duration {
        self.at
    }
}

/// Checks that no limit is looser than before, but those that may be.
fn check_limits(before: &Limits, now: &Limits, allow: &[String]) -> Result<(), CannotResume> {
    let mut allowed = Vec::new();
    for name in allow {
        let Some(row) = row_of(name) else {
            let names: Vec<&str> = TABLE.iter().map(|row| row.name).collect();
            let problem = unknown_key(name, &names);
            return Err(CannotResume::InvalidLimit(format!("allow `{name}`: {problem}")));
        };
        allowed.push(row.name);
    }
    let is_refused = |row: &&LimitRow| row.is_looser(before, now) && !allowed.contains(&row.name);
    let looser: Vec<&str> = TABLE.iter().filter(is_refused).map(|row| row.name).collect();
    if looser.is_empty() { Ok(()) } else { Err(CannotResume::Looser(looser)) }
}

/// Replays the events of a parked run; `None` if it ends by them.
fn rebuild(parked: Parked, policy: Option<Box<dyn TerminationPolicy>>) -> Option<RunState> {
    let Parked { at, spec, limits, price, provider, model, last, talks, .. } = parked;
    let pricing = || Pricing::from_parts(price, provider.as_deref(), model.as_deref());
    let mut policy = policy;
    let talks: Vec<Conversation> = (talks.into_iter().enumerate())
        .map(|(index, talk)| {
            let own = if index == 0 {
                spec.clone_with(policy.take())
            } else {
                RunState::spec_of_another(&spec, &talk.limits)
            };
            talk.resume(own, pricing())
        })
        .collect();
    let is_waiting = |talk: &Conversation| talk.guest.run().is_some();
    if last >= talks.len() || !talks.iter().all(is_waiting) {
        return None;
    }
    let mut state = RunState::of(talks, spec);
    state.last = last;
    state.limits = limits;
    state.at = at;
    // The runs around it were charged before it was parked.
    state.note_charged();
    Some(state)
}

fn digest(value: &Value) -> String {
    format!("{:x}", Sha256::digest(value.to_string()))
}

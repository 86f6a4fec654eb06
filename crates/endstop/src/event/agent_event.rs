//! An event of a run, the run and the turn that it belongs to, and the ids in it.
//!
//! ```
//! use endstop::event::{AgentEvent, AgentEventKind, Origin};
//! let origin = Origin::new("k3v9", [], Some(2));
//! assert_eq!(serde_json::to_string(&origin)?, r#"{"run_id":"k3v9","turn":2}"#);
//! let event = AgentEvent::new(origin, AgentEventKind::TurnStarted { attempt: 1 });
//! let json = r#"{"type":"turn_started","run_id":"k3v9","turn":2,"attempt":1}"#;
//! assert_eq!(serde_json::to_string(&event)?, json);
//! assert_eq!(serde_json::from_str::<AgentEvent>(json)?, event);
//! # Ok::<(), serde_json::Error>(())
//! ```

use super::kind::{AgentEventKind, Tagged};
use endstop_core::ParkRequest;
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// The provider's id of a tool call. Cheap to clone.
pub type CallId = Arc<str>;

/// An event of a run: what happened, and the run and the turn that it belongs to.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct AgentEvent {
    /// The run and the turn.
    #[serde(flatten)]
    pub origin: Origin,
    /// What happened.
    #[serde(flatten, deserialize_with = "Tagged::deserialize")]
    pub kind: AgentEventKind,
}

/// The JSON form of an event: the type, the origin, and the fields of the kind.
#[derive(Serialize)]
struct EventForm<'a> {
    r#type: &'static str,
    #[serde(flatten)]
    origin: &'a Origin,
    #[serde(flatten)]
    kind: &'a AgentEventKind,
}

impl Serialize for AgentEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let AgentEvent { origin, kind } = self;
        EventForm { r#type: kind.name(), origin, kind }.serialize(serializer)
    }
}

impl AgentEvent {
    /// Creates an event, for example for a test.
    pub fn new(origin: Origin, kind: AgentEventKind) -> AgentEvent {
        AgentEvent { origin, kind }
    }

    /// Returns the id of the run, which [`Outcome::run_id`](endstop_core::Outcome::run_id) and the journal have, too.
    pub fn run_id(&self) -> &str {
        self.origin.run_id()
    }

    /// Returns the tool calls in which the run is nested: see [`Origin::path`].
    pub fn path(&self) -> &[CallId] {
        self.origin.path()
    }

    /// Returns the turn, from 1; `None` before the first one.
    pub fn turn(&self) -> Option<u32> {
        self.origin.turn()
    }

    /// Returns the event as the handle of an outer run receives it.
    pub(crate) fn nested(self) -> AgentEvent {
        match self {
            AgentEvent { origin, kind: AgentEventKind::Finished { outcome } } => {
                AgentEvent { origin, kind: AgentEventKind::NestedFinished { outcome } }
            }
            event => event,
        }
    }
}

/// The run and the turn that an event belongs to. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Form<Box<str>, Vec<CallId>>")]
pub struct Origin {
    pub(crate) run: Arc<RunPlace>,
    /// The turn; 0 before the first one.
    pub(crate) turn: u32,
}

/// A run, and the tool calls of other runs on whose behalf it works.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RunPlace {
    pub(crate) id: Box<str>,
    pub(crate) path: Vec<CallId>,
}

/// The JSON form of an origin.
#[derive(Serialize, Deserialize)]
struct Form<I, P> {
    run_id: I,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<P>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn: Option<u32>,
}

impl Origin {
    /// Creates an origin, for example for a test. A turn 0 is the same as `None`.
    pub fn new(
        run_id: impl Into<Box<str>>,
        path: impl IntoIterator<Item = CallId>,
        turn: Option<u32>,
    ) -> Origin {
        let path = path.into_iter().collect();
        Origin {
            run: Arc::new(RunPlace { id: run_id.into(), path }),
            turn: turn.unwrap_or_default(),
        }
    }

    /// Returns the id of the run, which its outcome and its journal have, too.
    pub fn run_id(&self) -> &str {
        &self.run.id
    }

    /// Returns the ids of the tool calls in which the run is nested, the outermost first; empty for
    /// a run that no tool started.
    pub fn path(&self) -> &[CallId] {
        &self.run.path
    }

    /// Returns the turn, from 1; `None` before the first one.
    pub fn turn(&self) -> Option<u32> {
        (self.turn > 0).then_some(self.turn)
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.run_id())?;
        for call in self.path() {
            write!(f, "/{call}")?;
        }
        write!(f, "#{}", self.turn)
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let path = Some(self.path()).filter(|path| !path.is_empty());
        Form { run_id: self.run_id(), path, turn: self.turn() }.serialize(serializer)
    }
}

impl From<Form<Box<str>, Vec<CallId>>> for Origin {
    fn from(form: Form<Box<str>, Vec<CallId>>) -> Origin {
        Origin::new(form.run_id, form.path.unwrap_or_default(), form.turn)
    }
}

/// Identifies a request for approval. Another run has other ids, so that an answer that reaches the
/// wrong run is refused; a resumed run has the same again. At most 53 bits, which JSON readers with
/// floating-point numbers keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(
    /// The number of the request, unique within its run.
    pub u64,
);

impl RequestId {
    /// Returns the id of a request: a hash of the run and of the number of its effect.
    pub(crate) fn of(run_id: &str, effect: u64) -> RequestId {
        let bytes = run_id.bytes().chain([0]).chain(effect.to_le_bytes());
        // FNV-1a, because the standard library's hash may differ between versions of Rust.
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        RequestId(hash >> 11)
    }

    /// Returns the id under which the event of a request for approval had it, before the run was
    /// [parked](crate::park) with it.
    pub fn of_parked(run_id: &str, request: &ParkRequest) -> RequestId {
        RequestId::of(run_id, request.id.0)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

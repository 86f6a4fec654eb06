//! The run and the turn that an event belongs to.
//!
//! ```
//! use endstop::event::Origin;
//! let origin = Origin::new("k3v9", [], Some(2));
//! assert_eq!(serde_json::to_string(&origin).unwrap(), r#"{"run_id":"k3v9","turn":2}"#);
//! ```

use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// The provider's id of a tool call. Cheap to clone.
pub type CallId = Arc<str>;

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

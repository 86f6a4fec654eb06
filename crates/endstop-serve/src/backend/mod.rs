//! The interface between the HTTP API and the place where runs live.
//!
//! [`Server::open`](crate::Server::open) drives runs in its own process. Another implementation of
//! [`Backend`], given to [`Server::over`](crate::Server::over), serves runs that other processes
//! drive, over the same API, page and A2A routes.
//!
//! ```text
//! api, a2a ─► Service (what a client may see) ─► Backend ─► runs/ (this process, SQLite)
//!                                                       └─► another crate (an engine)
//! ```

mod error;
mod events;
mod future;
mod interface;
mod request;
mod run;

pub use error::{BackendError, ErrorKind};
pub use events::{After, EventFrames, EventSource};
pub(crate) use events::{Frame, Framer, event_of, open_requests};
pub use future::{Answering, Waiting};
pub use interface::Backend;
pub use request::{BranchRequest, Origin, RunRequest};
pub(crate) use request::{RunBody, trace_parent};
pub use run::{AgentInfo, Filter, RunInfo, RunState, Started, Stop, Totals};

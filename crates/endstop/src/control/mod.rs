//! Stops runs: the shared handle through which a run is cancelled or terminated, and which decides
//! what may still start.
//!
//! ```text
//! let control = Control::within(None);
//! control.start(Request::Cancel, || tool.call(arguments)) // `None` after a stop
//! control.cancel();
//! ```

mod mailbox;
mod run_control;
pub(crate) mod sync;
mod thread;

pub(crate) use run_control::{Closed, Control, Request};

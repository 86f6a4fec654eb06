//! The control socket: other commands of the same user list, cancel and limit the runs of a live
//! process.
//!
//! ```text
//! endstop runs --live ─► client.rs ─► PID.sock ─► server.rs ─► Controlled (run, guard, serve)
//! ```
//!
//! One line of JSON asks, one line answers. The folder belongs to the user alone, and the server
//! checks the user of each connection too.

#[cfg(unix)]
pub(crate) mod client;
#[cfg(unix)]
mod folder;
pub(crate) mod guarded;
pub(crate) mod own_run;
mod protocol;
mod served;
#[cfg(unix)]
mod server;

pub(crate) use protocol::Controlled;
#[cfg(unix)]
pub(crate) use protocol::Request;
#[cfg(unix)]
pub(crate) use server::Control;

/// Control needs Unix sockets, which this system does not have.
#[cfg(not(unix))]
pub(crate) struct Control;

#[cfg(not(unix))]
impl Control {
    pub(crate) fn open(_controlled: std::sync::Arc<dyn Controlled>) -> Option<Control> {
        None
    }
}

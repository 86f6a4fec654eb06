//! A live run: its agent, its servers, the signals that stop it, the approval prompts, the verifier,
//! and the files that it writes.

pub(crate) mod agent;
mod approve;
pub(crate) mod attach;
pub(crate) mod cassette;
#[cfg(feature = "restate")]
pub(crate) mod durable;
pub(crate) mod earlier;
pub(crate) mod events;
mod line;
pub(crate) mod retention;
pub(crate) mod served;
pub(crate) mod servers;
pub(crate) mod session;
pub(crate) mod signals;
pub(crate) mod start;
#[cfg(unix)]
pub(crate) mod steer;
#[cfg(not(unix))]
#[path = "steer_unsupported.rs"]
pub(crate) mod steer;
mod stream;
pub(crate) mod verify;

//! The agent program: started with its wiring, watched, and ended with all of its processes.
//!
//! ```no_run
//! use endstop_guard::clients::{DiskFiles, Request, wire};
//! use endstop_guard::process::{GRACE, PrivateFolder, Signals, launch, supervise};
//!
//! # async fn guarded() -> std::io::Result<()> {
//! let private = PrivateFolder::create()?;
//! let wiring = wire(&Request {
//!     command: &["claude".into()],
//!     environment: &std::env::vars().collect(),
//!     folder: &std::env::current_dir()?,
//!     proxy: "http://127.0.0.1:4000/run/r1",
//!     private: private.path(),
//!     is_strict: false,
//!     files: &DiskFiles,
//! });
//! // Before the program starts: a signal that comes earlier would end this process.
//! let mut signals = Signals::listen()?;
//! let mut agent = launch(&wiring, &private, "r1")?;
//! let never = std::future::pending();
//! let on_interrupt = |reaction| eprintln!("Ctrl-C: {reaction:?}");
//! let ended = supervise(&mut agent, &mut signals, never, GRACE, on_interrupt).await?;
//! println!("{}", ended.end.how());
//! # Ok(()) }
//! ```

mod launch;
mod outgoing;
mod peer;
mod signals;
mod supervise;

pub use endstop_process::command_lines;
pub use launch::{PrivateFolder, launch};
pub use outgoing::{Outgoing, OutgoingWarning};
pub(crate) use peer::{PeerError, check_user};
pub use signals::{GuardSignal, Reaction, SignalRule, Signals, TWICE};
pub use supervise::{GRACE, Supervised, supervise};

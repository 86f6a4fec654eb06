//! The number of files that this process may have open at a time. Connections are files, too.
//!
//! ```
//! # #[cfg(unix)] {
//! let limit = endstop_process::open_files::raise();
//! assert_eq!(endstop_process::open_files::limit(), limit);
//! # }
//! ```

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::OnceLock;

/// The limit before it was raised, which commands get.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit to the hard one, and returns it; `None` if there is none. The soft limit is often
/// 1,024, because programs that use `select` cannot have more. Commands of this process get the limit that
/// it had before, on systems that can set the limit of another process (Linux).
pub fn raise() -> Option<u64> {
    let before = getrlimit(Resource::Nofile);
    if before.current != before.maximum {
        let raised = Rlimit { current: before.maximum, maximum: before.maximum };
        // If a system has a smaller limit of its own, everything stays as it was.
        if setrlimit(Resource::Nofile, raised).is_ok() {
            let _ = BEFORE.set(before);
        }
    }
    limit()
}

/// Returns the soft limit; `None` if there is none.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Gives a process that this one has started the limit that this process had before.
#[cfg(target_os = "linux")]
pub(crate) fn restore(child: u32) {
    let pid = i32::try_from(child).ok().and_then(rustix::process::Pid::from_raw);
    if let (Some(before), Some(pid)) = (BEFORE.get(), pid) {
        // It has the higher limit if this fails, for example because it has ended.
        let _ = rustix::process::prlimit(Some(pid), Resource::Nofile, *before);
    }
}

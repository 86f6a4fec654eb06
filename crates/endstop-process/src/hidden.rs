//! Hides this process from other processes of its user.
//!
//! ```
//! endstop_process::hide_from_other_processes();
//! ```

/// Prevents other processes of this user from tracing this process and from reading its memory and
/// environment, because both contain the API key of the model. Call it first in `main`.
///
/// On Linux this holds against processes without privileges, which the commands of an agent should
/// be. The process then writes no core dump. On other systems the call does nothing.
pub fn hide_from_other_processes() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        // If the kernel refuses, the process stays as it is; nothing else depends on this.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

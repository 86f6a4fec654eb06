//! The processes of a command: its group, those that left it, and those that could not be killed.

pub(crate) mod descendants;
#[cfg(unix)]
pub(crate) mod group;
#[cfg(windows)]
#[path = "job.rs"]
pub(crate) mod group;
#[cfg(target_os = "linux")]
pub(crate) mod orphans;
#[cfg(all(unix, not(target_os = "linux")))]
#[path = "unmarked.rs"]
pub(crate) mod orphans;
#[cfg(target_os = "linux")]
pub(crate) mod processes;
pub(crate) mod survivor;

//! Job control of an agent program: if it stops itself, its host stops too, so that the shell gets
//! the terminal back.
//!
//! ```text
//! suspend::with(Some(4711)); // returns after the shell has continued this process
//! ```

use rustix::process::{Signal, getpid, kill_process};

/// Stops this process if the agent program is still stopped. A key such as Ctrl-Z stops both at
/// once, and after `fg` the report of the agent's stop is old.
pub(crate) fn with(agent: Option<u32>) {
    if agent.is_some_and(is_stopped) {
        // SIGSTOP always works; if it did not, the user would only have to press the key again.
        let _ = kill_process(getpid(), Signal::STOP);
    }
}

#[cfg(target_os = "linux")]
fn is_stopped(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.and_then(crate::tree::processes::look).is_some_and(|seen| seen.stopped)
}

/// Asks `ps`, because only the parent can wait for a stop, and the parent is the keeper.
#[cfg(not(target_os = "linux"))]
fn is_stopped(pid: u32) -> bool {
    let state = std::process::Command::new("ps")
        .args(["-o", "state=", "-p", &pid.to_string()])
        .stdin(std::process::Stdio::null())
        .output();
    state.is_ok_and(|state| state.stdout.trim_ascii().starts_with(b"T"))
}

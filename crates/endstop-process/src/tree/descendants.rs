//! The processes that this process and its programs have started, as other parts of a program see them.
//!
//! ```
//! use endstop_process::command_lines;
//! for words in command_lines() {
//!     println!("{}", words[0].display());
//! }
//! ```

use super::survivor::Survivor;
use std::ffi::OsString;

/// Returns the command lines of the descendants of this process that are alive, each with its program first, and cut
/// after 16 kB. A process that lives shortly may be missed, and its owner may give it any command line. Linux only: on
/// other systems there is none.
pub fn command_lines() -> Vec<Vec<OsString>> {
    #[cfg(target_os = "linux")]
    return super::processes::below(rustix::process::getpid())
        .iter()
        .filter_map(|process| words(process.pid.as_raw_nonzero().get()))
        .collect();
    #[cfg(not(target_os = "linux"))]
    Vec::new()
}

#[cfg(target_os = "linux")]
fn words(pid: i32) -> Option<Vec<OsString>> {
    use std::io::Read as _;
    use std::os::unix::ffi::OsStringExt as _;
    const MOST: u64 = 16 << 10;
    let mut line = Vec::new();
    std::fs::File::open(format!("/proc/{pid}/cmdline"))
        .ok()?
        .take(MOST)
        .read_to_end(&mut line)
        .ok()?;
    let line = line.strip_suffix(b"\0").unwrap_or(&line);
    // A process of the kernel and one that has just ended have none.
    (!line.is_empty()).then(|| {
        line.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect()
    })
}

/// Returns the live processes whose environment has this variable with this value, for example those of a program that
/// was started with it, wherever they descend from. Linux only: on other systems there is none, and `None` says so.
///
/// ```
/// assert!(endstop_process::carriers("NO_SUCH_MARK", "4711").is_none_or(|found| found.is_empty()));
/// ```
pub fn carriers(name: &str, value: &str) -> Option<Vec<Survivor>> {
    #[cfg(target_os = "linux")]
    return Some(
        super::orphans::carriers_of(format!("{name}={value}").as_bytes())
            .iter()
            .map(|process| Survivor::of(process.pid.as_raw_nonzero().get().unsigned_abs()))
            .collect(),
    );
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (name, value);
        None
    }
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(target_os = "linux")]
    fn grandchild_is_found_with_its_words() {
        use std::time::{Duration, Instant};
        let script = "sleep 1234567 & wait";
        let mut child = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while !super::command_lines().iter().any(|words| *words == ["sleep", "1234567"]) {
            assert!(Instant::now() < end, "it never came");
        }
        let end = Instant::now() + Duration::from_secs(60);
        let below = || crate::tree::processes::below(rustix::process::Pid::from_child(&child));
        assert_eq!(crate::tree::processes::kill_all(below, end), [0; 0]);
        let _ = child.kill();
        child.wait().unwrap();
    }
}
